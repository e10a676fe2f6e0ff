"""Putting a log through a verb's application: straight, with kills, and with repartitions in the middle.

A kill strikes amid processing or a commit, and again while a successor starts. The disk is then lost, as it was flushed
last, or as it was some time before: one that lags. Repartitions go to any number of partitions, or up and back down,
with kills between them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import stateflow as sf
from stateflow.lab.operators.logs import SIDES, Row, Side
from stateflow.lab.operators.verb import Inputs, Verb, pairs
from stateflow.lab.time.plays import KILL_POINTS, killed_anywhere, killed_at
from stateflow.testing.driver import TestDriver

Mode = Literal["straight", "kills", "repartition"]
MODES: tuple[Mode, ...] = ("straight", "kills", "repartition")
_PARTITIONS_MAX = 4
_SOURCE_PARTITIONS = 2
_ACTS_MAX = 3
_RESTARTS_MAX = 3
_REACHED_MAX = 60
"""A worker dies at one of so many failpoints that it comes by."""
_NEVER = 1 << 30
_TICK_SECONDS, _END_SECONDS = 1.0, 5.0


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
        self._up_and_down = [3, 2] if rng.random() < 0.5 else []
        self._kept = self._driver.copy_of_disk()
        self.disturbed = 0
        """Kills that struck, and repartitions."""

    def run(self, rows: Sequence[Row], mode: Mode) -> list[tuple[Any, Any]]:
        """Key and value of each result, in the order of each output partition."""
        batches = list(self._batches(rows))
        count = 0 if mode == "straight" else min(_ACTS_MAX, len(batches))
        acts = set(self._rng.sample(range(len(batches)), count))
        for number, batch in enumerate(batches):
            if number in acts and mode == "repartition":
                self._repartition()
            if number in acts and (mode == "kills" or self._rng.random() < 0.5):
                self._send_killed(batch)
            else:
                self._send(batch)
            if self._rng.random() < 0.3:
                self._kept = self._driver.copy_of_disk()
            if self._verb.is_clocked:
                self._driver.advance(seconds=_TICK_SECONDS)
        self._driver.end_input()
        for _ in range(len(rows) if self._verb.is_clocked else 0):  # ticks that are missed are one call
            self._driver.advance(seconds=_END_SECONDS)
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
        for side in self._sides():
            self._send_side(side, [row for row in batch if row.side == side])

    def _sides(self) -> Sequence[Side]:
        """Either may come first, where it does not matter."""
        return SIDES if self._rng.random() < 0.5 else SIDES[::-1]

    def _send_side(self, side: Side, rows: Sequence[Row]) -> None:
        if rows:
            sent = [(row.key, row.value, row.timestamp_ms) for row in rows]
            self._driver.send_many(self._topics[side], sent, partitions=[row.partition for row in rows])

    def _send_killed(self, batch: Sequence[Row]) -> None:
        """Die while the records of one side are processed; those of the other come to the successor."""
        for side in self._sides():
            self._send_side_killed(side, [row for row in batch if row.side == side])

    def _send_side_killed(self, side: Side, rows: Sequence[Row]) -> None:
        """Die at a point that is named, or wherever chance has it; where that is not reached, when all is done."""
        if self._rng.random() < 0.5:
            killed_at(
                self._rng.choice(KILL_POINTS), self._rng.randint(1, 4), lambda: self._send_side(side, rows)
            )
        else:
            killed_anywhere(self._rng.randint(1, _REACHED_MAX), lambda: self._send_side(side, rows))
        self._restart()

    def _restart(self) -> None:
        """Go on after a kill; the successor may be killed, too, before it has begun."""
        for _ in range(_RESTARTS_MAX):
            self.disturbed += 1
            disk = self._rng.choice(("lost", "kept", "behind"))
            self._driver.crash(disk_lost=disk == "lost", disk=self._kept if disk == "behind" else None)
            places = self._rng.randint(1, 3 * _REACHED_MAX) if self._rng.random() < 0.5 else _NEVER
            if not killed_anywhere(places, self._driver.restore):
                return
        self._driver.crash()
        self._driver.restore()

    def _repartition(self) -> None:
        others = [each for each in range(1, _PARTITIONS_MAX + 1) if each != self._partitions]
        self._partitions = self._up_and_down.pop(0) if self._up_and_down else self._rng.choice(others)
        self._driver.repartition(self._partitions)
        self.disturbed += 1
