"""Histories that happen to each verb of the study of operators: its application and its producers.

The application is any of ``lab/operators``: what must come out of it is told there, in plain Python over the whole log.
Event time is that of the log alone, as no input of these falls idle; in the end the input is declared to be complete.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any

import stateflow as sf
from stateflow.lab.faults.simulation.applications import Names, Op
from stateflow.lab.faults.simulation.history import History, Profile, generate
from stateflow.lab.faults.simulation.sending import Producers, Sent
from stateflow.lab.faults.simulation.waking import Waking
from stateflow.lab.operators.logs import PARTITIONS, SIDES, Row
from stateflow.lab.operators.study import all_verbs
from stateflow.lab.operators.verb import Inputs, Rule, Verb
from stateflow.log.memory import MemoryCluster
from stateflow.operators.topology.topology import Topology
from stateflow.record import TopicPartition

_APP = "verb"
_PROFILES: tuple[Profile, ...] = ("crash", "scale", "image", "disk")
_WEIGHTS = (45, 40, 14, 1)
_NEVER_IDLE_MS = 1 << 40
_ROWS_PER_OPERATION = 4


@cache
def verbs_by_name() -> dict[str, Verb]:
    """Every verb of the study."""
    return {verb.name: verb for verb in all_verbs()}


def verb_history(seed: int, name: str | None = None) -> History:
    """The history of a seed for a verb: seeds that follow each other go through all of them."""
    verbs = list(verbs_by_name().values())
    verb = verbs[seed % len(verbs)] if name is None else verbs_by_name()[name]
    rng = random.Random(f"verb-{seed}")  # noqa: S311 - nothing secret: it must be repeatable
    profile = rng.choices(_PROFILES, _WEIGHTS)[0] if verb.is_scalable else "crash"
    history = generate(seed, profile)
    return replace(
        history,
        verb=verb.name,
        application="numbers",
        guarantee="exactly-once",
        sources=PARTITIONS,
        partitions=min(history.partitions, 3),
        idle_ms=_NEVER_IDLE_MS,
        pace_ms=0,
    )


@dataclass(frozen=True, slots=True)
class PlayedVerb:
    """An application of a verb."""

    verb: Verb
    topology: Topology
    names: Names
    output: sf.Topic[Any, Any]
    rule: Rule

    @classmethod
    def of(cls, name: str) -> PlayedVerb:
        """Build it anew: some of its functions remember what they were asked."""
        verb, app = verbs_by_name()[name], sf.App(_APP, guarantee="exactly-once")
        left, right = (app.topic(side, key=str, value=int) for side in SIDES)
        output, rule = verb.build(Inputs(app, left, right))
        topology = app.topology()
        topics = {topic for stage in topology.stages for topic in stage.topics} - set(SIDES)
        stateful = [stage.name for stage in topology.stages if stage.stores]
        names = Names(_APP, SIDES, tuple(sorted(topics)), stateful[-1] if stateful else "", ())
        return cls(verb, topology, names, output, rule)


class VerbProducers(Producers):
    """Sends a log of the verb's, a few records at a time; those of a transaction that aborts come again later."""

    def __init__(
        self, cluster: MemoryCluster, inputs: list[TopicPartition], waking: Waking, verb: Verb, seed: int
    ) -> None:
        super().__init__(cluster, inputs, waking, keys=1, clears=False)
        self._verb = verb
        self._left = verb.log(random.Random(f"verb-log-{seed}"))  # noqa: S311 - it must be repeatable
        self.rows: list[Row] = []
        """What was accepted, in the order in which it was sent."""
        self.settle: Callable[[], None] = lambda: None
        """Called before records of another topic, where it matters which is read first."""

    def send(self, salt: int, count: int, how: str) -> str:
        """Send the next records; nothing stays open."""
        rows = self._left[: count * _ROWS_PER_OPERATION]
        if how == "aborted":
            return self._send_rows(rows, is_transaction=True, commit=False)
        self._left = self._left[len(rows) :]
        parts = [rows]
        if self._verb.is_by_order:
            parts = [list(part) for _, part in groupby(rows, key=lambda row: row.side)]
        for part in parts:
            if self._verb.is_by_order:
                self.settle()
            self._send_rows(part, is_transaction=how != "plain" and salt % 2 == 0, commit=True)
        return f"{how}: {len(rows)} records"

    def new_era(self) -> None:
        """The log has its own times."""

    def finish(self) -> None:
        """What is left of the log is not part of this history."""

    def _send_rows(self, rows: Sequence[Row], *, is_transaction: bool, commit: bool) -> str:
        writer = self._writer("committed" if is_transaction else "plain")
        writer.begin()
        sent = [self._send_row(writer, row) for row in rows]
        if commit:
            self.rows += rows
        return self._end(writer, sent, commit=commit)

    def _send_row(self, writer: Any, row: Row) -> Sent:
        index = SIDES.index(row.side) * PARTITIONS + row.partition
        place: dict[str, int] = {"partition": row.partition, "timestamp_ms": row.timestamp_ms}
        value = None if row.value is None else sf.Integer.encode(row.value)
        writer.send(row.side, row.key.encode(), value, **place)
        return Sent(index, row.number, row.timestamp_ms, Op(row.number, row.key, "add"))
