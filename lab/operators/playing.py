"""Putting a log through a verb's application: straight, with kills, and with repartitions in the middle."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import stateflow as sf
from stateflow.lab.operators.logs import SIDES, Row, Side
from stateflow.lab.operators.verb import Inputs, Verb, pairs
from stateflow.lab.time.plays import KILL_POINTS, killed_at
from stateflow.testing.driver import TestDriver

Mode = Literal["straight", "kills", "repartition"]
MODES: tuple[Mode, ...] = ("straight", "kills", "repartition")
_PARTITIONS_MAX = 4
_SOURCE_PARTITIONS = 2


class Playing:
    """One application on a log in memory."""

    def __init__(self, verb: Verb, rng: random.Random) -> None:
        app = sf.App("verb", guarantee="exactly-once")
        topics: dict[Side, sf.Topic[str, int]] = {side: app.topic(side, key=str, value=int) for side in SIDES}
        self._output, self.rule = verb.build(Inputs(app, topics["left"], topics["right"]))
        self._topics = topics
        self._verb = verb
        self._rng = rng
        self._partitions = _SOURCE_PARTITIONS
        polls = rng.choice((None, None, 1, 3))
        self._driver = TestDriver(app, partitions=_SOURCE_PARTITIONS, poll_records=polls)
        self.disturbed = 0
        """Kills that struck, and repartitions."""

    def run(self, rows: Sequence[Row], mode: Mode) -> list[tuple[Any, Any]]:
        """Key and value of each result, in the order of each output partition."""
        batches = list(self._batches(rows))
        acts = {} if mode == "straight" else set(self._rng.sample(range(len(batches)), min(3, len(batches))))
        for number, batch in enumerate(batches):
            if number not in acts:
                self._send(batch)
            elif mode == "kills":
                self._send_killed(batch)
            else:
                self._repartition()
                self._send(batch)
        self._driver.end_input()
        return pairs(self._driver.rows(self._output))

    def _batches(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """Parts of the log that are sent together; of one side each where the order between sides counts."""
        left = rows
        while left:
            batch, left = left[: (size := self._rng.choice((1, 3, 10, 40)))], left[size:]
            if self._verb.is_by_order:
                yield from (list(group) for _, group in groupby(batch, key=lambda row: row.side))
            else:
                yield batch

    def _send(self, batch: Sequence[Row]) -> None:
        for side in self._topics:
            self._send_side(side, [row for row in batch if row.side == side])

    def _send_side(self, side: Side, rows: Sequence[Row]) -> None:
        if rows:
            sent = [(row.key, row.value, row.timestamp_ms) for row in rows]
            self._driver.send_many(self._topics[side], sent, partitions=[row.partition for row in rows])

    def _send_killed(self, batch: Sequence[Row]) -> None:
        """Die while the records of one side are processed; those of the other come to the successor."""
        for side in self._topics:
            self._send_side_killed(side, [row for row in batch if row.side == side])

    def _send_side_killed(self, side: Side, rows: Sequence[Row]) -> None:
        point, hit = self._rng.choice(KILL_POINTS), self._rng.randint(1, 4)
        if killed_at(point, hit, lambda: self._send_side(side, rows)):
            self.disturbed += 1
            self._driver.crash(disk_lost=self._rng.random() < 0.5)
            self._driver.restore()

    def _repartition(self) -> None:
        others = [each for each in range(1, _PARTITIONS_MAX + 1) if each != self._partitions]
        self._partitions = self._rng.choice(others)
        self._driver.repartition(self._partitions)
        self.disturbed += 1
