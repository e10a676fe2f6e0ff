"""What workers tell each other on ``<app>-members``: who is there, what each holds, and who shall run what.

Keys are ``member/<name>``, ``placement`` and, of workers of either kind, ``untimely/<kind>/<task>/<step>`` and
``waiting/<task>``, of those that Spark hosts ``progress/<run>/<lane>/<life>``; values are JSON.
The topic is kept short: old records say nothing. It is apart from the catalog so that whoever reads that need not read
through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from stateflow.catalog.names import members_topic
from stateflow.changelog.format import is_reserved
from stateflow.log.base import Cluster, TopicSpec
from stateflow.record import TopicPartition
from stateflow.runtime.event_time.out_of_bounds import OutOfBounds
from stateflow.runtime.opening.retries import WaitingTask

MEMBERS_CONFIG = {
    "cleanup.policy": "compact,delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "3600000",
    "segment.ms": "600000",
}
_MEMBER = b"member/"
_PLACEMENT = b"placement"
_OUT_OF_BOUNDS = b"untimely/"
"""The topic keeps the word that the first version had for it."""
_WAITING = b"waiting/"
_PROGRESS = b"progress/"

CopyState = Literal["running", "starting", "filling", "following", "failed", "kept"]


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of a task's state: what it is, and how far it is behind the changelog, in offset slots."""

    task: str
    state: CopyState
    lag_slots: int | None = None
    """None while nobody knows, or when the copy is of no use."""
    records_per_second: float = 0.0
    slots_per_second: float = 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Until it has caught up at the present rate; None while there is none."""
        if not self.lag_slots:
            return None if self.lag_slots is None else 0.0
        return self.lag_slots / self.slots_per_second if self.slots_per_second > 0 else None


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as it describes itself."""

    name: str
    """The member's own name, or its id when it has none."""
    member_id: str
    """What the group calls it: another life of the same worker has another."""
    host: str
    pid: int
    disk: str
    """Which disk its state is on: workers that share one share the copies on it."""
    native: bool | None = None
    """Whether the native core does its work, and not plain Python; None of a version that does not say."""
    generation: int
    copies: tuple[CopyReport, ...] = ()
    """Tasks that it runs or opens, standby copies, and what is left on its disk."""
    followed: int = -1
    """The newest decision that it acts on: it opens nothing under an older one any more."""
    standby_replicas: int = 0
    lag_acceptable: int = 10_000
    written_ms: int = 0

    @property
    def held(self) -> frozenset[str]:
        """Tasks that it runs or is about to run: nobody else may open them before it lets go."""
        return frozenset(copy.task for copy in self.copies if copy.state in ("running", "starting"))

    def copy(self, task: str) -> CopyReport | None:
        """What it has of one task."""
        return next((copy for copy in self.copies if copy.task == task), None)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Who shall run and who shall copy what, as the leader of the members decided."""

    number: int
    """Counts the decisions."""
    generation: int
    leader: str
    members: dict[str, str]
    """Name → member id of everybody who was there. Only they may act on it."""
    active: dict[str, str]
    """Task → the name of the member that runs it."""
    standby: dict[str, tuple[str, ...]]
    """Task → members that keep a copy."""
    warmup: dict[str, str]
    """Task → the member that runs it once its copy has caught up."""
    since: dict[str, int] = {}
    """Task → the decision by which its present member got it."""
    former: dict[str, tuple[str, ...]] = {}
    """Task → members that were told to run it before, and may not have heard of ``since`` when this was written."""
    decided_ms: int = 0

    def copies_of(self, name: str) -> frozenset[str]:
        """Tasks of which this member keeps a copy."""
        standby = {task for task, members in self.standby.items() if name in members}
        return frozenset(standby | {task for task, member in self.warmup.items() if member == name})

    def is_awaited(self, task: str, other: MemberRecord) -> bool:
        """True while another member may hold a task, or open it under an older decision."""
        if task in other.held:
            return True
        return other.name in self.former.get(task, ()) and other.followed < self.since.get(task, 0)

    def active_of(self, name: str) -> frozenset[str]:
        """Tasks that this member runs."""
        return frozenset(task for task, member in self.active.items() if member == name)


class OutOfBoundsReport(OutOfBounds, frozen=True, kw_only=True):
    """What a task has met of late records and the like, as its worker told it."""

    worker: str
    written_ms: int


class WaitingReport(WaitingTask, frozen=True, kw_only=True):
    """A task that cannot run, as the worker told it that would run it."""

    worker: str
    written_ms: int


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker has committed of a task, over all times that it had it."""

    records_total: int = 0
    sent_total: int = 0
    """Outputs and re-keyed records; not the changelogs'."""
    commits_total: int = 0


class ProgressReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one life of a worker that Spark hosts has committed so far."""

    run: str
    """The driver's, which starts all of its lanes."""
    lane: int
    life: str
    """Of the worker: one that was lost is followed by another of the same lane."""
    tasks: dict[str, TaskProgress]
    running: tuple[str, ...]
    """Tasks that it has at present."""
    written_ms: int


_Form = TypeVar("_Form", MemberRecord, Placement, OutOfBoundsReport, WaitingReport, ProgressReport)
_Report = TypeVar("_Report", OutOfBoundsReport, WaitingReport, ProgressReport)


class MembershipTopic:
    """The newest record of each key that was read so far; a record of another format is passed over."""

    def __init__(self) -> None:
        self.members: dict[str, MemberRecord] = {}
        self.placement: Placement | None = None
        self.out_of_bounds: dict[bytes, OutOfBoundsReport] = {}
        self.waiting: dict[bytes, WaitingReport] = {}
        self.progress: dict[bytes, ProgressReport] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record."""
        if key is None or is_reserved(key):
            return
        if key == _PLACEMENT:
            self.placement = None if value is None else _decoded(value, Placement)
        elif key.startswith(_OUT_OF_BOUNDS):
            _keep(self.out_of_bounds, key, None if value is None else _decoded(value, OutOfBoundsReport))
        elif key.startswith(_WAITING):
            _keep(self.waiting, key, None if value is None else _decoded(value, WaitingReport))
        elif key.startswith(_PROGRESS):
            _keep(self.progress, key, None if value is None else _decoded(value, ProgressReport))
        elif key.startswith(_MEMBER):
            name = key.removeprefix(_MEMBER).decode(errors="replace")
            record = None if value is None else _decoded(value, MemberRecord)
            if record is None:
                self.members.pop(name, None)
            else:
                self.members[name] = record


def encode_member(record: MemberRecord) -> tuple[bytes, bytes]:
    """Key and value."""
    return _MEMBER + record.name.encode(), msgspec.json.encode(record)


def encode_departure(name: str) -> tuple[bytes, None]:
    """Key and value of a member that has left."""
    return _MEMBER + name.encode(), None


def encode_placement(placement: Placement) -> tuple[bytes, bytes]:
    """Key and value."""
    return _PLACEMENT, msgspec.json.encode(placement, order="sorted")


def encode_out_of_bounds(report: OutOfBoundsReport) -> tuple[bytes, bytes]:
    """Key and value."""
    key = _OUT_OF_BOUNDS + f"{report.kind}/{report.task}/{report.step}".encode()
    return key, msgspec.json.encode(report)


def waiting_key(task: str) -> bytes:
    """The key under which a task is told to wait, or, without a value, to wait no more."""
    return _WAITING + task.encode()


def encode_waiting(report: WaitingReport) -> bytes:
    """The value under ``waiting_key``."""
    return msgspec.json.encode(report)


def encode_progress(report: ProgressReport) -> tuple[bytes, bytes]:
    """Key and value."""
    return _PROGRESS + f"{report.run}/{report.lane}/{report.life}".encode(), msgspec.json.encode(report)


def membership_partition(app: str) -> TopicPartition:
    """Where an application's members write."""
    return TopicPartition(members_topic(app), 0)


def create_membership_topic(cluster: Cluster, app: str, replication: int) -> None:
    """Create the topic if it is not there."""
    cluster.create([TopicSpec(members_topic(app), 1, replication, MEMBERS_CONFIG)])


def names_by_id(members: Mapping[str, MemberRecord]) -> dict[str, str]:
    """Member id → name."""
    return {record.member_id: name for name, record in members.items()}


def _keep(reports: dict[bytes, _Report], key: bytes, report: _Report | None) -> None:
    if report is None:
        reports.pop(key, None)
    else:
        reports[key] = report


def _decoded(value: bytes, form: type[_Form]) -> _Form | None:
    """None for what another version of this program wrote: it will write again, or leave. And for any other bytes."""
    try:
        return msgspec.json.decode(value, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
