"""Inputs that may have been declared idle, and how far event time may go until they are known to be awake again.

Idleness looks at the clock, and is the one exception to lateness by the log alone: what comes on an input that was
declared idle may find its windows closed. The oracle has no clock, so the producers let no idle input be overtaken:
whoever was silent for as long as makes it idle speaks first, at the event time of the furthest, and until its task has
committed that, nobody goes further than a window's grace beyond. Records behind their own mark it sends only once that
mark has passed everything that the others may have sent meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateflow.clock import Clock
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

NO_CAP_MS = 1 << 62


class Waking:
    """What the producers of an application keep of its inputs."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        inputs: Sequence[TopicPartition],
        clock: Clock,
        idle_ms: int,
        grace_ms: int,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._inputs = inputs
        self._clock = clock
        self._idle_ms = idle_ms
        self._grace_ms = grace_ms
        self._heard_ms = [clock.now_ms()] * len(inputs)
        self._awaited: dict[int, tuple[int, int]] = {}
        """Input → an offset that its task has not committed yet, and the event time that must not be overtaken."""
        self._overtaken_ms = [0] * len(inputs)
        """How far the others may have gone before an input was known to be awake."""
        self.idled = False
        """Whether any input was ever silent for so long."""

    def heard(self, index: int) -> None:
        """Something became visible on an input."""
        self._heard_ms[index] = self._clock.now_ms()

    def dormant(self) -> list[int]:
        """Inputs that may be idle, and are not awaited yet."""
        self._drop_committed()
        now_ms = self._clock.now_ms()
        found = [index for index, at_ms in enumerate(self._heard_ms) if now_ms - at_ms >= self._idle_ms]
        self.idled = self.idled or bool(found)
        return [index for index in found if index not in self._awaited]

    def wait_for(self, index: int, offset: int, event_ms: int) -> None:
        """Let nobody overtake ``event_ms`` until an offset of an input is committed."""
        self._awaited.setdefault(index, (offset, event_ms))

    def may_lag(self, index: int, mark_ms: int) -> bool:
        """Whether a record behind its input's mark is judged by that mark alone: nobody has overtaken the input."""
        return index not in self._awaited and mark_ms >= self._overtaken_ms[index]

    @property
    def cap_ms(self) -> int:
        """The last event time that may be sent now."""
        first_ms = min((event_ms for _, event_ms in self._awaited.values()), default=NO_CAP_MS)
        return first_ms + max(0, self._grace_ms - 1)

    def _drop_committed(self) -> None:
        if not self._awaited:
            return
        wanted = [self._inputs[index] for index in self._awaited]
        committed = self._cluster.committed(self._group, wanted, stable=False)
        cap_ms = self.cap_ms
        for index, (offset, _) in list(self._awaited.items()):
            position = committed.get(self._inputs[index])
            if position is not None and position.offset_next > offset:
                del self._awaited[index]
                self._overtaken_ms[index] = cap_ms
