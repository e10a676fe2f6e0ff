"""A worker's part in the placing of tasks: it says what it has, and does what the leader decided.

The worker's poll thread only reads what is desired of it and says what it holds; everything that may wait
for the cluster happens in turns of a thread beside it. Promises:

* A task is opened only under a decision that names this very member, and only after the members that had it before
  have said that they let go and know of the decision, or are gone. The fence of the task's transactional id stays the
  last word: this only keeps the peace.
* A member that has reason to doubt its membership opens nothing until the group itself has confirmed it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.standby.assignment import Shape
from stateflow.runtime.standby.copies import StandbyCopies
from stateflow.runtime.standby.leader import Leader
from stateflow.runtime.standby.membership_log import MembershipLog
from stateflow.runtime.standby.unassigned_stores import DiskCleaner, KeptState, disk_looker
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.member_records import (
    CopyReport,
    MemberRecord,
    Placement,
    encode_departure,
    encode_member,
)
from stateflow.store.directory import disk_id

_LOG = logging.getLogger(__name__)

_REPORT_SECONDS = 5.0
_REPEAT_SECONDS = 60.0
_CLEAN_SECONDS = 10.0
_OPEN_COPIES = ("filling", "following")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is: a process on a host, and the disk that its state is on."""

    host: str
    pid: int
    disk: str
    native: bool | None = None
    """Whether the process uses the native core."""


@dataclass(frozen=True, slots=True)
class Desired:
    """What this worker shall run now, by which decision."""

    tasks: frozenset[str] = frozenset()
    number: int = -1


@dataclass(frozen=True, slots=True)
class Told:
    """What the poll thread last said of itself."""

    member_id: str = ""
    running: frozenset[str] = frozenset()
    starting: frozenset[str] = frozenset()
    primaries: bool = False
    followed: int = -1
    """The decision that this worker has acted on."""

    @property
    def held(self) -> frozenset[str]:
        """Tasks that this worker runs or opens."""
        return self.running | self.starting


class Placing:
    """One worker's side of it. ``desired``, ``tell`` and ``suspend`` belong to the poll thread, the rest to another."""

    def __init__(
        self,
        cluster: Cluster,
        wiring: Wiring,
        settings: WorkerSettings,
        place: Place,
        copies: StandbyCopies[Any],
        kept: KeptState,
        clock: Clock,
        cleaner: DiskCleaner | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._place = place
        self._copies = copies
        self._kept = kept
        self._cleaner = cleaner
        self._clock = clock
        self._app = wiring.topology.app
        self._generation = wiring.generation
        self._tasks: Mapping[str, TaskWiring] = {task.id: task for task in wiring.tasks()}
        self._membership_log = MembershipLog(cluster, self._app, follows=True)
        self._leader = Leader(
            cluster,
            self._app,
            self._generation,
            shape_of(wiring),
            self._membership_log,
            settings.placement_delay_seconds,
            clock,
        )
        self._told = Told()
        self._used_before: frozenset[str] = frozenset()
        self._desired = Desired()
        self._is_suspended = False
        self._failure: BaseException | None = None
        self._said: tuple[object, ...] = ()
        self._record: MemberRecord | None = None
        self._said_seconds = self._cleaned_seconds = -_REPEAT_SECONDS

    # --- for the poll thread ------------------------------------------------------------------------

    def desired(self) -> Desired:
        """What this worker shall run now. Raises what ended the turns, if something did."""
        if self._failure is not None:
            raise self._failure
        return Desired(number=self._desired.number) if self._is_suspended else self._desired

    def tell(self, told: Told) -> None:
        """What this worker is and holds at this moment."""
        self._told = told
        self._copies.hold(told.held)
        self._copies.is_restoring = bool(told.starting)

    def suspend(self) -> None:
        """This member may have been replaced: want nothing until the group has said otherwise."""
        self._is_suspended = True

    def failed(self, failure: BaseException) -> None:
        """The turns have ended by an error: the worker cannot go on."""
        self._failure = failure

    # --- turns --------------------------------------------------------------------------------------

    def turn(self, timeout_seconds: float) -> None:
        """Read, do what was decided, say what is new, and decide if it is this worker's to decide."""
        try:
            news = self._membership_log.read(timeout_seconds)
            told = self._told
            if not told.member_id:
                self._desired = Desired()
                return
            self._end_suspension(told)
            self._follow(told)
            self._say(told)
            if told.primaries:
                self._leader.turn(self._name(told), news=news)
            else:
                self._leader.resign()
        except StateflowError as error:
            if not error.is_retriable:
                raise
            # What was decided stands until the others can be heard again.
            _LOG.warning("Cannot exchange news with the other workers: %s", error)

    def close(self) -> None:
        """Say that this worker holds nothing more, and stop. A member with a name of its own is expected back."""
        try:
            self._leader.resign()
            if self._record is not None:
                self._say_goodbye(self._record)
        finally:
            self._membership_log.close()

    # --- inside -------------------------------------------------------------------------------------

    def _name(self, told: Told) -> str:
        return self._settings.member or told.member_id

    def _end_suspension(self, told: Told) -> None:
        if self._is_suspended and told.member_id in self._cluster.group_members(self._app):
            placement = self._membership_log.membership.placement
            if placement is not None and placement.members.get(self._name(told)) == told.member_id:
                self._is_suspended = False

    def _follow(self, told: Told) -> None:
        placement = self._membership_log.membership.placement
        name = self._name(told)
        if placement is None or placement.generation != self._generation:
            self._desired = Desired()
            return
        if placement.members.get(name) != told.member_id:
            self._desired = Desired(number=placement.number)  # a decision from before this member came
            return
        others = [
            record
            for other, record in self._membership_log.membership.members.items()
            if other != name and placement.members.get(other) == record.member_id
        ]
        active = placement.active_of(name)
        free = {
            task
            for task in active & self._tasks.keys()
            if task in told.held
            or (
                not any(placement.is_awaited(task, other) for other in others)
                and not self._is_on_disk(task, others)
            )
        }
        copied = {
            task: self._tasks[task]
            for task in placement.copies_of(name) - active - told.held
            if task in self._tasks and not self._is_on_disk(task, others)
        }
        self._copies.want(copied, promoted=active)
        self._desired = Desired(frozenset(free), placement.number)
        self._clean(placement, told)

    def _is_on_disk(self, task: str, others: list[MemberRecord]) -> bool:
        """Another worker has the task's directory on this disk open."""
        return any(
            copy is not None and (copy.state in _OPEN_COPIES or task in other.held)
            for other in others
            if other.disk == self._place.disk and (copy := other.copy(task))
        )

    def _say(self, told: Told) -> None:
        """Write this worker's record when it says something new, or that it is still there."""
        copies = self._reports(told)
        acceptable = self._settings.standby_lag_acceptable
        news = (
            told.member_id,
            told.followed,
            *(
                (copy.task, copy.state, copy.lag_slots is not None and copy.lag_slots <= acceptable)
                for copy in copies
            ),
        )
        now_seconds = self._clock.monotonic_seconds()
        age_seconds = now_seconds - self._said_seconds
        is_stale = self._record is None or copies != self._record.copies
        if (
            news == self._said
            and not (is_stale and age_seconds >= _REPORT_SECONDS)
            and age_seconds < _REPEAT_SECONDS
        ):
            return
        self._record = MemberRecord(
            name=self._name(told),
            member_id=told.member_id,
            host=self._place.host,
            pid=self._place.pid,
            disk=self._place.disk,
            native=self._place.native,
            generation=self._generation,
            copies=copies,
            followed=told.followed,
            standby_replicas=self._settings.standby_replicas,
            lag_acceptable=acceptable,
            written_ms=self._clock.now_ms(),
        )
        reach("placing.before_report")
        self._membership_log.write(*encode_member(self._record))
        reach("placing.after_report")
        self._said, self._said_seconds = news, now_seconds

    def _reports(self, told: Told) -> tuple[CopyReport, ...]:
        held = [
            *(CopyReport(task=task, state="running", lag_slots=0) for task in sorted(told.running)),
            *(self._starting(task) for task in sorted(told.starting)),
        ]
        copied = [copy for copy in self._copies.reports() if copy.task not in told.held]
        in_use = told.held | {copy.task for copy in copied}
        self._kept.let_go(self._used_before - in_use)
        self._used_before = in_use
        return (*held, *copied, *self._kept.reports(in_use))

    def _starting(self, task: str) -> CopyReport:
        """A task that is being opened is as far behind as what it was opened from."""
        before = None if self._record is None else self._record.copy(task)
        return CopyReport(task=task, state="starting", lag_slots=None if before is None else before.lag_slots)

    def _clean(self, placement: Placement, told: Told) -> None:
        now_seconds = self._clock.monotonic_seconds()
        if self._cleaner is None or now_seconds - self._cleaned_seconds < _CLEAN_SECONDS:
            return
        self._cleaned_seconds = now_seconds
        here = [
            name
            for name, record in self._membership_log.membership.members.items()
            if record.disk == self._place.disk and placement.members.get(name) == record.member_id
        ]
        wanted = set(told.held).union(
            *(placement.active_of(name) | placement.copies_of(name) for name in here)
        )
        self._kept.forget(self._cleaner.clean(wanted))

    def _say_goodbye(self, record: MemberRecord) -> None:
        try:
            if self._settings.member is None:
                self._membership_log.write(*encode_departure(record.name))
                return
            copies = tuple(
                CopyReport(task=copy.task, state="kept", lag_slots=copy.lag_slots) for copy in record.copies
            )
            self._membership_log.write(*encode_member(msgspec.structs.replace(record, copies=copies)))
        except BrokerUnreachable as error:
            _LOG.warning("Cannot tell the other workers that this one leaves: %s", error)


def placing_on_disk(
    cluster: Cluster, wiring: Wiring, settings: WorkerSettings, copies: StandbyCopies[Any], clock: Clock
) -> Placing:
    """The placing of a worker whose state is below its state directory; drops what is there of old generations."""
    tasks = {task.id: task for task in wiring.tasks()}
    stateful = {name: task for name, task in tasks.items() if task.changelogs}
    cleaner = DiskCleaner(settings.state_dir, wiring.catalog, settings.state_cleanup_seconds, clock)
    cleaner.clean_generations()
    from stateflow.native.loading import native_state  # takes as long as much else of us

    disk = disk_id(settings.state_dir, wiring.topology.app)
    place = Place(socket.gethostname(), os.getpid(), disk, native_state().in_use)
    kept = KeptState(cluster, stateful, disk_looker(cluster, settings.state_dir, clock))
    return Placing(cluster, wiring, settings, place, copies, kept, clock, cleaner)


def shape_of(wiring: Wiring) -> Shape:
    """What there is to place in an application's active generation."""
    tasks = wiring.tasks()
    stages: dict[str, list[str]] = {}
    for task in tasks:
        stages.setdefault(task.stage.name, []).append(task.id)
    return Shape(stages, frozenset(task.id for task in tasks if task.changelogs))
