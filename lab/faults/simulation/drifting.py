"""Producers whose inputs drift apart in event time, with records that come late, and one topic that is often silent."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stateflow.lab.faults.simulation.applications import Op
from stateflow.lab.faults.simulation.sending import ERA_MS, EVENT_START_MS, FINISH_MS, Producers, Sent
from stateflow.lab.faults.simulation.waking import Waking
from stateflow.log.base import Writer
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition

_STEPS_MS = (0, 100, 300, 1_000, 4_000)
_RATES = (1, 1, 3, 8)
_BEHIND_MS = (500, 4_000, 9_000, 16_000, 20_000, 40_000)
_BEHIND = 0.35
_BULK_KEYS = 5_000
_BULK_STEP_MS = 10


class DriftingProducers(Producers):
    """Each input has an event time of its own. ``silent`` are the inputs that have not spoken yet."""

    def __init__(
        self,
        cluster: MemoryCluster,
        inputs: list[TopicPartition],
        waking: Waking,
        keys: int,
        silent: Sequence[int],
        seed: int,
    ) -> None:
        super().__init__(cluster, inputs, waking, keys, clears=False)
        rng = random.Random(f"drift-{seed}")  # noqa: S311 - nothing secret: it must be repeatable
        self._marks_ms = [EVENT_START_MS] * len(inputs)
        self._rates = [rng.choice(_RATES) for _ in inputs]
        self._silent = set(silent)
        self._leaves_one_out = rng.random() < 0.5

    def send(self, salt: int, count: int, how: str) -> str:
        """Send a few operations; nothing stays open, as an input behind it could be taken for idle."""
        return super().send(salt, count, "committed" if how in ("open", "close-open") else how)

    def send_bulk(self, salt: int, count: int) -> str:
        """Send an operation for each of many keys."""
        self._wake()
        rng = random.Random(salt)  # noqa: S311 - nothing secret: it must be repeatable
        writer = self._writer("plain")
        sent = []
        for number in rng.sample(range(_BULK_KEYS), count):
            index = self._spoken[number % len(self._spoken)]
            self._move(index, _BULK_STEP_MS)
            op = Op(self._next_id(), f"{index}.b{number}", "add")
            sent.append(self._append(writer, index, op, self._marks_ms[index]))
        self._end(writer, sent, commit=True)
        return f"{count} keys"

    def speak(self) -> None:
        """Let the silent topic speak from now on."""
        self._silent.clear()

    def new_era(self) -> None:
        """Event time jumps ahead, everywhere and once."""
        self._wake()
        if self.event_ms < EVENT_START_MS + ERA_MS:
            wanted_ms = min(self.event_ms + ERA_MS, self.waking.cap_ms)
            self._marks_ms = [max(wanted_ms, mark_ms) for mark_ms in self._marks_ms]
            self.event_ms = max(self._marks_ms)

    def finish(self) -> None:
        """One last operation in each input, or in all but one, which is idle then."""
        end_ms = max(self._marks_ms) + FINISH_MS
        last = self._spoken[1:] if self._leaves_one_out and len(self._spoken) > 1 else self._spoken
        for index in last:
            self._send_alone(index, f"{index}.end", end_ms)
        self.event_ms = end_ms

    @property
    def _spoken(self) -> list[int]:
        return [index for index in range(len(self.inputs)) if index not in self._silent]

    def _wake(self) -> None:
        self.event_ms = max(self._marks_ms)
        for index in self.waking.dormant():
            if index not in self._silent:
                sent = self._send_alone(index, f"{index}.beat", self.event_ms)
                self.waking.wait_for(index, sent.offset, self.event_ms)

    def _send_one(self, writer: Writer, rng: random.Random, step_ms: int) -> Sent:  # noqa: ARG002 - each its own
        index = rng.choice(self._spoken)
        op = Op(self._next_id(), f"{index}.{rng.randrange(self.keys)}", "add")
        before_ms = self._marks_ms[index]
        if rng.random() < _BEHIND and self.waking.may_lag(index, before_ms):
            return self._append(writer, index, op, max(1, before_ms - rng.choice(_BEHIND_MS)))
        self._move(index, rng.choice(_STEPS_MS) * self._rates[index])
        return self._append(writer, index, op, self._marks_ms[index])

    def _move(self, index: int, step_ms: int) -> None:
        before_ms = self._marks_ms[index]
        self._marks_ms[index] = max(before_ms, min(before_ms + step_ms, self.waking.cap_ms))

    def _send_alone(self, index: int, key: str, timestamp_ms: int) -> Sent:
        self._marks_ms[index] = max(self._marks_ms[index], timestamp_ms)
        return super()._send_alone(index, key, timestamp_ms)
