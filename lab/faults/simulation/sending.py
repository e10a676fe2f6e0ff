"""The producers of a simulated application: operations with unique ids, some of them in transactions that abort."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from stateflow.errors import ProducerFenced
from stateflow.lab.faults.simulation.applications import CLEAR, Op
from stateflow.lab.faults.simulation.waking import Waking
from stateflow.log.base import Writer
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition

EVENT_STEP_MS = 100
ERA_MS = 600_000
EVENT_START_MS = 1_000_000
FINISH_MS = 20_000
"""So far beyond everything else is the last operation of an input: further than any window and its grace."""


class Sent(NamedTuple):
    """One operation in its source partition."""

    partition: int
    """Which input it is in: the partitions of the first topic, then those of the next."""
    offset: int
    timestamp_ms: int
    op: Op


@dataclass(slots=True)
class _OpenSend:
    writer: Writer
    sent: list[Sent]


@dataclass(slots=True)
class Producers:
    """Everything that was ever sent, and what of it counts. Event time is one for all inputs, and only rises."""

    cluster: MemoryCluster
    inputs: list[TopicPartition]
    waking: Waking
    keys: int
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
        self._wake()
        rng = random.Random(salt)  # noqa: S311 - nothing secret: it must be repeatable
        writer = self._writer(how)
        writer.begin()
        # What is open is not read, so its input may be taken for idle: its records must stay the newest.
        step_ms = 0 if how == "open" else EVENT_STEP_MS
        sent = [self._send_one(writer, rng, step_ms) for _ in range(count)]
        if how == "open":
            self._open.append(_OpenSend(writer, sent))
            for row in sent:
                self.waking.wait_for(row.partition, row.offset, row.timestamp_ms)
        else:
            self._end(writer, sent, commit=how != "aborted")
        return f"{how}: {_shown(sent)}"

    def new_era(self) -> None:
        """Event time jumps ahead, once: what has a time to live, and was written before, will expire."""
        self._wake()
        self.event_ms = min(self.waking.cap_ms, max(self.event_ms, EVENT_START_MS + ERA_MS))

    def close_all(self) -> None:
        """Commit what is open."""
        while self._open:
            self._close_oldest(commit=True)

    def finish(self) -> None:
        """One last operation in each input, late enough in event time to close every window."""
        self.event_ms += FINISH_MS
        for index in range(len(self.inputs)):
            self._send_alone(index, f"end-{index}", self.event_ms)

    def _wake(self) -> None:
        """Let every input that may be idle speak, before any other does."""
        for index in self.waking.dormant():
            sent = self._send_alone(index, f"beat-{index}", self.event_ms)
            self.waking.wait_for(index, sent.offset, self.event_ms)

    def _send_alone(self, index: int, key: str, timestamp_ms: int) -> Sent:
        writer = self.cluster.writer()
        sent = self._append(writer, index, Op(self._next_id(), key, "add"), timestamp_ms)
        self._end(writer, [sent], commit=True)
        return sent

    def _writer(self, how: str) -> Writer:
        self._writers_total += 1
        return self.cluster.writer(None if how == "plain" else f"producer-{self._writers_total}")

    def _send_one(self, writer: Writer, rng: random.Random, step_ms: int) -> Sent:
        number = rng.randrange(self.keys)
        op = Op(self._next_id(), f"k{number}", CLEAR if rng.random() < 0.1 and self.clears else "add")
        self.event_ms = max(self.event_ms, min(self.event_ms + step_ms, self.waking.cap_ms))
        return self._append(writer, number % len(self.inputs), op, self.event_ms)

    def _append(self, writer: Writer, index: int, op: Op, timestamp_ms: int) -> Sent:
        source = self.inputs[index]
        offset = self.cluster.ranges([source], stable=False)[source].offset_next
        writer.send(source.topic, None, op.encode(), partition=source.partition, timestamp_ms=timestamp_ms)
        writer.flush()  # its offset is the end of the log only if nothing is on its way
        return Sent(index, offset, timestamp_ms, op)

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
            for row in sent:
                self.waking.heard(row.partition)
        else:
            self.aborted.update(row.op.id for row in sent)
        writer.close()
        return "committed" if commit else "aborted"


def _shown(sent: list[Sent]) -> str:
    rows = ", ".join(f"{row.op.id} {row.op.key} {row.op.kind}" for row in sent[:8])
    return rows if len(sent) <= 8 else f"{rows} and {len(sent) - 8} more"
