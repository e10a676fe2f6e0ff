"""Event-time progress of a task: the minimum over everything that feeds it.

A task has a *port* per source topic or re-key step that it reads. A source topic is one upstream; behind a re-key step
each task of the stage before it is one, and announces its own progress in *watermark records*, so a partition that is
read faster than its neighbours never makes the neighbours' records late. An upstream that has reached the end of
its input and stays silent is *idle* and left out until it speaks again (the scheme of Akidau et al., "The Dataflow
Model", VLDB 2015, with Flink's idle inputs).

The marks are part of the input position of each commit, so they are exactly as durable as the offsets they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateflow.changelog.event_time import UNKNOWN_MS, EventTime, PortTime
from stateflow.operators.steps.marks import NO_OTHERS_MS


@dataclass(frozen=True, slots=True)
class Port:
    """One input of a stage as its tasks' event time knows it."""

    name: str
    """The source topic or the re-key step."""
    upstreams: int
    is_source: bool


class Watermarks:
    """Marks of all upstreams of all ports, each only ever rising, and their minimum, which only ever rises too.

    Upstreams are numbered through, those of the first port first.
    """

    def __init__(self, ports: Sequence[Port]) -> None:
        assert ports, "a task has at least one input"
        self.ports = tuple(ports)
        self._first = [sum(port.upstreams for port in self.ports[:index]) for index in range(len(self.ports))]
        self._marks_ms = [UNKNOWN_MS] * sum(port.upstreams for port in self.ports)
        self._idle: set[int] = set()
        self._ended: set[int] = set()
        self._reached_ms = UNKNOWN_MS
        self._least_ms = UNKNOWN_MS
        self._at_least_total = 0
        """How many upstreams that are awake have the least mark of such, ``_least_ms``; 0 where nobody has looked."""

    def upstream(self, port: int, number: int = 0) -> int:
        """The upstream ``number`` of a port, as numbered through.

        Raises ``IndexError`` for one that does not exist: the log and the catalog disagree.
        """
        if not 0 <= number < self.ports[port].upstreams:
            raise IndexError(f"{self.ports[port].name} has no upstream {number}")
        return self._first[port] + number

    @property
    def value_ms(self) -> int:
        """Event time up to which all inputs are complete; ``UNKNOWN_MS`` until each has spoken or is idle."""
        return self._reached_ms

    def mark_ms(self, upstream: int) -> int:
        """How far one upstream has come."""
        return self._marks_ms[upstream]

    def port_mark_ms(self, port: int) -> int:
        """How far all upstreams of a port have come."""
        first = self._first[port]
        return min(self._marks_ms[first : first + self.ports[port].upstreams])

    def least_of_others_ms(self, upstream: int) -> int:
        """The least mark of all other upstreams that are not idle; ``NO_OTHERS_MS`` when there are none."""
        others = (
            mark for index, mark in enumerate(self._marks_ms) if index != upstream and self._is_awake(index)
        )
        return min(others, default=NO_OTHERS_MS)

    def is_idle(self, upstream: int) -> bool:
        """True for an upstream that is left out."""
        return upstream in self._idle

    @property
    def all_idle(self) -> bool:
        """True when no upstream is awake."""
        return len(self._idle) == len(self._marks_ms)

    @property
    def all_ended(self) -> bool:
        """True when the input of every upstream was declared to be at its end for good."""
        return len(self._ended) == len(self._marks_ms)

    def has_ended(self, upstream: int) -> bool:
        """True for an upstream whose input was declared to be at its end, and that has said nothing since."""
        return upstream in self._ended

    def observe(self, upstream: int, mark_ms: int, *, idle: bool = False, ended: bool = False) -> bool:
        """Note an upstream's progress; True when ``value_ms`` rose."""
        before_ms = self._marks_ms[upstream] if self._is_awake(upstream) else None
        mark_ms = self._marks_ms[upstream] = max(self._marks_ms[upstream], mark_ms)
        for members, is_member in ((self._idle, idle), (self._ended, ended)):
            if is_member:
                members.add(upstream)
            else:
                members.discard(upstream)
        self._count(before_ms, None if idle else mark_ms)
        return self._rise()

    def raise_to(self, value_ms: int) -> None:
        """Event time is at least this, whatever the upstreams say: at the end of the input."""
        self._reached_ms = max(self._reached_ms, value_ms)

    def wake(self, port: int) -> None:
        """Records come at a port that was at its end: it is not."""
        numbers = range(self._first[port], self._first[port] + self.ports[port].upstreams)
        if self._ended.issuperset(numbers):
            self._ended.difference_update(numbers)

    def _is_awake(self, upstream: int) -> bool:
        # One that has ended still counts until all have: should another run bring more, none is ahead of the others.
        return upstream not in self._idle

    def _count(self, before_ms: int | None, now_ms: int | None) -> None:
        """The mark of one upstream has risen, or counts only now, or no more: None is one that does not count.

        Each task behind a re-key step hears of every task before it in turn: to look at all of them each time would
        take the square of their number.
        """
        if before_ms == now_ms or not self._at_least_total:
            return
        if before_ms == self._least_ms:
            self._at_least_total -= 1
        if now_ms is not None and now_ms < self._least_ms and self._at_least_total:
            self._least_ms, self._at_least_total = now_ms, 1
        elif now_ms == self._least_ms and self._at_least_total:
            self._at_least_total += 1

    def _rise(self) -> bool:
        # With every input idle or ended nothing is in flight any more, so the furthest one is the truth.
        value = max(self._marks_ms) if self.all_idle or self.all_ended else self._least()
        if value <= self._reached_ms:
            return False
        self._reached_ms = value
        return True

    def _least(self) -> int:
        """The least mark of those that are awake, of which there are some."""
        if not self._at_least_total:
            awake = [mark for index, mark in enumerate(self._marks_ms) if self._is_awake(index)]
            self._least_ms = min(awake)
            self._at_least_total = awake.count(self._least_ms)
        return self._least_ms

    # --- as data ------------------------------------------------------------------------------------

    def event_time(self) -> EventTime:
        """What a commit keeps."""
        return EventTime(self._reached_ms, tuple(map(self._port_time, range(len(self.ports)))))

    def _port_time(self, port: int) -> PortTime:
        first, count = self._first[port], self.ports[port].upstreams
        numbers = range(first, first + count)
        return PortTime(
            self.ports[port].name,
            tuple(self._marks_ms[first : first + count]),
            frozenset(index - first for index in self._idle if index in numbers),
            frozenset(index - first for index in self._ended if index in numbers),
        )

    def assume(self, recorded: EventTime) -> None:
        """Become what was recorded: the one call after which marks may be lower than before.

        Ports are found by name. Where one has another number of upstreams now, all of them start from its least mark;
        what version 0.1 wrote knows no names and goes by the number of all upstreams.
        """
        for index, marks in enumerate(self._recorded(recorded)):
            first, count = self._first[index], self.ports[index].upstreams
            numbers = range(first, first + count)
            self._idle.difference_update(numbers)
            self._ended.difference_update(numbers)
            if len(marks.marks_ms) == count:
                self._marks_ms[first : first + count] = marks.marks_ms
                self._idle |= {first + member for member in marks.idle}
                self._ended |= {first + member for member in marks.ended}
            else:
                self._marks_ms[first : first + count] = [min(marks.marks_ms, default=UNKNOWN_MS)] * count
        self._reached_ms = recorded.reached_ms
        self._at_least_total = 0

    def wake_sources(self) -> None:
        """Source topics count again until their host finds them silent at their ends: it may have slept."""
        for index, port in enumerate(self.ports):
            if port.is_source:
                self._idle.discard(self._first[index])
                self._ended.discard(self._first[index])
        self._at_least_total = 0

    def _recorded(self, recorded: EventTime) -> list[PortTime]:
        by_name = {port.name: port for port in recorded.ports}
        unnamed = by_name.get("")
        if unnamed is None:
            return [by_name.get(port.name, PortTime(port.name, ())) for port in self.ports]
        if len(unnamed.marks_ms) != len(self._marks_ms):
            return [PortTime(port.name, (min(unnamed.marks_ms),)) for port in self.ports]
        return [
            PortTime(
                port.name,
                unnamed.marks_ms[first : first + port.upstreams],
                frozenset(
                    member - first for member in unnamed.idle if first <= member < first + port.upstreams
                ),
            )
            for port, first in zip(self.ports, self._first, strict=True)
        ]
