"""The producers of a simulated application: operations with unique ids, some of them in transactions that abort."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from stateflow.errors import ProducerFenced
from stateflow.log.base import Writer
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.testing.faults.applications import CLEAR, Op
from stateflow.testing.faults.history import KEYS

EVENT_STEP_MS = 100
ERA_MS = 600_000
EVENT_START_MS = 1_000_000


class Sent(NamedTuple):
    """One operation in its source partition."""

    partition: int
    offset: int
    timestamp_ms: int
    op: Op


@dataclass(slots=True)
class _OpenSend:
    writer: Writer
    sent: list[Sent]


@dataclass(slots=True)
class Producers:
    """Everything that was ever sent, and what of it counts."""

    cluster: MemoryCluster
    topic: str
    sources: int
    clears: bool
    """Whether some operations clear their key. At least once they may be repeated after newer ones, and clear those."""
    accepted: list[Sent] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    event_ms: int = EVENT_START_MS
    _open: list[_OpenSend] = field(default_factory=list)
    _ids_total: int = 0
    _writers_total: int = 0

    def send(self, salt: int, count: int, how: str) -> str:
        """Send a few operations; returns what was done."""
        if how == "close-open":
            return self._close_oldest(commit=salt % 2 == 0)
        rng = random.Random(salt)  # noqa: S311 - nothing secret: it must be repeatable
        writer = self._writer(how)
        writer.begin()
        sent = [self._send_one(writer, rng) for _ in range(count)]
        if how == "open":
            self._open.append(_OpenSend(writer, sent))
        else:
            self._end(writer, sent, commit=how != "aborted")
        return f"{how}: " + ", ".join(f"{row.op.id} {row.op.key} {row.op.kind}" for row in sent)

    def new_era(self) -> None:
        """Event time jumps ahead, once: what has a time to live, and was written before, will expire."""
        if self.event_ms < EVENT_START_MS + ERA_MS:
            self.event_ms = EVENT_START_MS + ERA_MS

    def close_all(self) -> None:
        """Commit what is open."""
        while self._open:
            self._close_oldest(commit=True)

    def finish(self) -> None:
        """One last operation in each source partition, late enough in event time to close every window."""
        self.event_ms += 20_000
        writer = self.cluster.writer()
        self.accepted += [
            self._append(writer, partition, Op(self._next_id(), f"end-{partition}", "add"), self.event_ms)
            for partition in range(self.sources)
        ]
        writer.close()

    def _writer(self, how: str) -> Writer:
        self._writers_total += 1
        return self.cluster.writer(None if how == "plain" else f"producer-{self._writers_total}")

    def _send_one(self, writer: Writer, rng: random.Random) -> Sent:
        number = rng.randrange(KEYS)
        op = Op(self._next_id(), f"k{number}", CLEAR if rng.random() < 0.1 and self.clears else "add")
        self.event_ms += EVENT_STEP_MS
        return self._append(writer, number % self.sources, op, self.event_ms)

    def _append(self, writer: Writer, partition: int, op: Op, timestamp_ms: int) -> Sent:
        source = TopicPartition(self.topic, partition)
        offset = self.cluster.ranges([source], stable=False)[source].offset_next
        writer.send(self.topic, None, op.encode(), partition=partition, timestamp_ms=timestamp_ms)
        writer.flush()  # its offset is the end of the log only if nothing is on its way
        return Sent(partition, offset, timestamp_ms, op)

    def _next_id(self) -> int:
        self._ids_total += 1
        return self._ids_total

    def _close_oldest(self, *, commit: bool) -> str:
        if not self._open:
            return "nothing is open"
        oldest = self._open.pop(0)
        return self._end(oldest.writer, oldest.sent, commit=commit)

    def _end(self, writer: Writer, sent: list[Sent], *, commit: bool) -> str:
        try:
            if commit:
                writer.commit()
            else:
                writer.abort()
        except ProducerFenced:  # the transaction has run past its timeout, and was aborted
            commit = False
        if commit:
            self.accepted += sent
        else:
            self.aborted.update(row.op.id for row in sent)
        writer.close()
        return "committed" if commit else "aborted"
