"""A simulated process: what it does passes through places, and at a place it may be killed, hang, or meet an error."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stateflow.errors import BrokerUnreachable, DiskFull, StateflowError, TransactionAborted
from stateflow.lab.faults.simulation.parked import ParkedExecutor, ParkedThread
from stateflow.record import RecordBatch, TopicPartition

if TYPE_CHECKING:
    from stateflow.lab.faults.simulation.tearing import Tear


class Killed(BaseException):
    """The process is gone. Not an ``Exception``: no handler may run after it, as after SIGKILL."""


class StruckHere(StateflowError):
    """The error that was to be met at a place; nobody meets it outside a simulation."""


def struck_at(point: str) -> StruckHere:
    """The error for a failpoint of the code."""
    return StruckHere(f"the failpoint {point} has struck (simulated).", action="nothing.")


@dataclass(slots=True)
class Notes:
    """What happened, as lines to read, and counted. Holds nothing that differs between two runs of a seed."""

    lines: list[str] = field(default_factory=list)
    injected: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(fault, place) → how often."""
    reached: Counter[str] = field(default_factory=Counter)
    """Failpoint → how often it was reached."""
    errors: Counter[str] = field(default_factory=Counter)
    """Typed errors that ended a process."""
    batches: set[tuple[TopicPartition, int, int]] = field(default_factory=set)
    """Ways in which input was cut into batches: partition, first and last offset of each that was read."""
    judged: Counter[str] = field(default_factory=Counter)
    """What was compared with the oracle: ``late`` records, ``windows``."""

    def add(self, line: str) -> None:
        """One more line."""
        self.lines.append(line)

    def struck(self, fault: str, place: str, line: str) -> None:
        """A fault was injected."""
        self.injected[fault, place] += 1
        self.lines.append(line)


_READS = {f"{when} {call}" for when in ("before", "after") for call in ("group.poll", "reader.read")}
_READS_EVERY = 5


@dataclass(slots=True)
class Strike:
    """A fault that waits for its place: the ``hits``-th that is reached, of those that ``only`` names if it does.

    Without a name, most reads are passed over: a fault at one differs little from a fault at the next.
    """

    fault: str
    hits: int
    only: str = ""

    def fits(self, place: str) -> bool:
        """Whether it counts this place."""
        if self.only:
            return self.only == place
        return place not in _READS or self.hits % _READS_EVERY == 0


class Process:
    """One process of the simulation. ``at`` is called at every place that it reaches."""

    def __init__(self, name: str, notes: Notes, openings: ParkedExecutor | None = None) -> None:
        self.name = name
        self.notes = notes
        self.openings = openings
        self.strike: Strike | None = None
        self.dead = False
        self.frozen = False
        self.writers: list[Any] = []
        self.members: list[Any] = []
        self.repeats = False
        """It promises at least once: what it had not committed when it was struck may be done again."""
        self.home: int | None = None
        """The only thread whose places count, where a call has threads of its own."""
        self.tears = False
        """Its writers for the stage that keeps state live on a torn network."""
        self.tear: Tear | None = None
        self.on_torn: Callable[[], object] = lambda: None
        """Called when a late EndTxn has just ended a transaction of this process."""
        self.main: ParkedThread | None = None
        """The turn of its loop that is under way on a thread, where one may have to be frozen."""

    def at(self, place: str, error: Callable[[], StateflowError | None] | None = None) -> None:
        """A place is reached. Raises ``Killed``, or the ``error`` that could come up there."""
        if self.home is not None and threading.get_ident() != self.home:
            return
        if self.dead:
            raise Killed(place)
        if self.openings is not None:
            self.openings.reached_place()
            if self.dead:
                raise Killed(place)
        strike = self.strike
        if strike is None or not strike.fits(place):
            return
        strike.hits -= 1
        if strike.hits <= 0:
            self._strike(strike.fault, place, error)

    def _strike(self, fault: str, place: str, error: Callable[[], StateflowError | None] | None) -> None:
        if fault == "kill":
            self.dead = True
            self._struck(fault, place)
            raise Killed(place)
        if fault == "freeze":
            if self.main is not None and self.main.is_running_here:
                self._struck(fault, place)
                self._freeze(self.main, place)
            return
        met = None if error is None else error()
        if met is not None:
            self._struck(fault, place)
            raise met

    def _struck(self, fault: str, place: str) -> None:
        self.strike = None
        self.notes.struck(fault, place, f"{self.name}: {fault} at {place}")

    def _freeze(self, thread: ParkedThread, place: str) -> None:
        self.frozen = True
        for member in self.members:
            member.freeze()
        thread.park()
        self.frozen = False
        if self.dead:
            raise Killed(place)
        for member in self.members:
            member.thaw()

    def bury(self) -> None:
        """Take away what a dead process leaves: nothing it still held is sent, its group hears nothing more."""
        self.dead = True
        if self.openings is not None:
            self.openings.finish()
        for writer in self.writers:
            writer.kill()
        for member in self.members:
            member.kill()


ErrorOf = Callable[[Any], StateflowError | None]


class Watched:
    """A real object, some of whose methods are places: before the call, and after it."""

    def __init__(
        self, real: Any, process: Process, label: str, errors: Mapping[str, tuple[ErrorOf, ErrorOf]]
    ) -> None:
        self._real = real
        self._process = process
        self._label = label
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        errors = self._errors.get(name)
        if errors is None:
            return found
        before, after = errors
        process, real, place = self._process, self._real, f"{self._label}.{name}"

        def watched(*args: Any, **kwargs: Any) -> Any:
            process.at(f"before {place}", lambda: before(real))
            result = found(*args, **kwargs)
            process.at(f"after {place}", lambda: after(real))
            return result

        setattr(self, name, watched)
        return watched


# --- what can be met where ------------------------------------------------------------------------------------


def _nothing(_: Any) -> StateflowError | None:
    return None


def _unreachable(_: Any) -> StateflowError:
    return BrokerUnreachable("the broker does not answer (simulated).", action="start again.")


def _aborted(writer: Any) -> StateflowError | None:
    if not writer.in_transaction:
        return None
    writer.abort()
    return TransactionAborted("the transaction was aborted (simulated).", action="read the input again.")


def _disk_full(_: Any) -> StateflowError:
    return DiskFull("no space left (simulated).", action="make room.")


WRITER_ERRORS: Mapping[str, tuple[ErrorOf, ErrorOf]] = {
    "begin": (_nothing, _nothing),
    "send": (_unreachable, _nothing),
    "send_many": (_unreachable, _nothing),
    "append": (_unreachable, _nothing),
    "flush": (_aborted, _unreachable),
    "send_offsets": (_aborted, _unreachable),
    "commit": (_aborted, _unreachable),
    "abort": (_nothing, _nothing),
    "close": (_nothing, _nothing),
}
STORE_ERRORS: Mapping[str, tuple[ErrorOf, ErrorOf]] = {
    "apply": (_disk_full, _nothing),
    "load": (_disk_full, _nothing),
    "flush": (_disk_full, _nothing),
    "clear": (_nothing, _nothing),
    "close": (_nothing, _nothing),
}
GROUP_ERRORS: Mapping[str, tuple[ErrorOf, ErrorOf]] = {
    "poll": (_unreachable, _nothing),
    "commit": (_unreachable, _unreachable),
    "close": (_nothing, _nothing),
}
READER_ERRORS: Mapping[str, tuple[ErrorOf, ErrorOf]] = {"read": (_unreachable, _nothing)}
CLUSTER_ERRORS: Mapping[str, tuple[ErrorOf, ErrorOf]] = {
    "create": (_unreachable, _unreachable),
    "trim": (_unreachable, _unreachable),
    "commit": (_unreachable, _unreachable),
    "committed": (_unreachable, _nothing),
}
OBJECT_ERRORS: Mapping[str, tuple[ErrorOf, ErrorOf]] = {
    "put": (_disk_full, _nothing),
    "delete": (_nothing, _nothing),
    "open": (_nothing, _nothing),
}


class _Noted:
    """A group member whose batches are noted, and that polls for ``least`` records at least."""

    def __init__(self, real: Any, notes: Notes, least: Callable[[], int]) -> None:
        self._real = real
        self._notes = notes
        self._least = least

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def poll(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Poll."""
        batches: list[RecordBatch] = self._real.poll(max(max_records, self._least()), timeout_seconds)
        self._notes.batches.update((batch.source, batch.offsets[0], batch.offsets[-1]) for batch in batches)
        return batches


class WatchedCluster(Watched):
    """A cluster as one process sees it: every writer, reader and group member of it passes through places."""

    def __init__(
        self,
        real: Any,
        process: Process,
        wrap_writer: Callable[[Any, str | None], Any],
        polled_least: Callable[[], int] = lambda: 1,
    ) -> None:
        super().__init__(real, process, "cluster", CLUSTER_ERRORS)
        self._wrap_writer = wrap_writer
        self._polled_least = polled_least

    def writer(self, transactional_id: str | None = None) -> Any:
        """A writer of this process."""
        self._process.at("before cluster.writer", lambda: _unreachable(None))
        made = self._real.writer(transactional_id)
        self._process.writers.append(made)
        watched = Watched(self._wrap_writer(made, transactional_id), self._process, "writer", WRITER_ERRORS)
        self._process.at("after cluster.writer")
        return watched

    def fence(self, transactional_id: str) -> None:
        """Fence the writers of an id."""
        self._process.at("before cluster.fence", lambda: _unreachable(None))
        self._real.fence(transactional_id)
        self._process.at("after cluster.fence")

    def reader(self, *, follows: bool = False) -> Any:
        """A reader of this process."""
        return Watched(self._real.reader(follows=follows), self._process, "reader", READER_ERRORS)

    def group_consumer(self, *args: Any, **kwargs: Any) -> Any:
        """A group member of this process."""
        made = self._real.group_consumer(*args, **kwargs)
        self._process.members.append(made)
        return Watched(
            _Noted(made, self._process.notes, self._polled_least), self._process, "group", GROUP_ERRORS
        )
