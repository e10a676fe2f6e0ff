"""The leader of an application's members: decides who runs and who copies what, and writes it down.

The group elects it: whoever is assigned the members' topic. It writes under a transactional id of its own, so a leader
that hangs and wakes up is refused; it decides on what it has read after it fenced its predecessor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from stateflow.clock import Clock
from stateflow.errors import ProducerFenced, StateflowError, TransactionAborted
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Writer
from stateflow.log.stable_ranges import stable_ranges
from stateflow.runtime.standby.assignment import Assignment, Shape, assign
from stateflow.runtime.standby.membership_log import MembershipLog
from stateflow.runtime.worker.member_records import (
    MemberRecord,
    Placement,
    encode_placement,
    membership_partition,
    names_by_id,
)

_LOG = logging.getLogger(__name__)

_MEMBERS_SECONDS = 1.0
_INTRODUCTION_SECONDS = 3.0
"""A member that has joined and said nothing yet is waited for so long: it may be one that was just restarted."""
_REPEAT_MS = 300_000
"""A decision is written again when it is so old: the topic forgets."""


def placing_id(app: str) -> str:
    """The transactional id under which decisions are written."""
    return f"{app}-placement"


class Leader:
    """Decides while it leads. Used by one thread."""

    def __init__(
        self,
        cluster: Cluster,
        app: str,
        generation: int,
        shape: Shape,
        membership_log: MembershipLog,
        delay_seconds: float,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._app = app
        self._generation = generation
        self._shape = shape
        self._membership_log = membership_log
        self._delay_seconds = delay_seconds
        self._clock = clock
        self._writer: Writer | None = None
        self._known_next = 0
        self._asked_seconds: float | None = None
        self._ids: frozenset[str] = frozenset()
        self._changed_seconds = clock.monotonic_seconds()
        self._strangers: dict[str, float] = {}

    def turn(self, name: str, *, news: bool) -> None:
        """Decide again if anything may have changed: ``news`` on the membership topic, or some time has passed."""
        now_seconds = self._clock.monotonic_seconds()
        is_due = self._asked_seconds is None or now_seconds - self._asked_seconds >= _MEMBERS_SECONDS
        if not (news or is_due):
            return
        self._take_the_lead()
        if self._membership_log.offset_next < self._known_next:
            return
        self._asked_seconds = now_seconds
        self._ask_who_is_there(now_seconds)
        live = self._live()
        if not live or self._must_wait(live, now_seconds):
            return
        before = self._membership_log.membership.placement
        if before is not None and before.generation != self._generation:
            before = None
        made = assign(self._shape, live, before)
        ids = {name: record.member_id for name, record in live.items()}
        if before is None or self._differs(before, made, ids, name):
            replicas = max(record.standby_replicas for record in live.values())
            if (placement := self._published(name, made, ids, before)) is not None:
                self._report(placement, before, replicas)

    def resign(self) -> None:
        """Another member leads, or this one closes."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._asked_seconds = None

    # --- inside -------------------------------------------------------------------------------------

    def _take_the_lead(self) -> None:
        if self._writer is not None:
            return
        place = membership_partition(self._app)
        writer = self._cluster.writer(placing_id(self._app))
        try:
            self._known_next = stable_ranges(self._cluster, [place])[place].offset_next
        except BaseException:
            writer.close()
            raise
        # From here on decisions are made: never before it is known what must be read first.
        self._writer = writer
        _LOG.info("This worker places the tasks of %s.", self._app)

    def _ask_who_is_there(self, now_seconds: float) -> None:
        ids = frozenset(self._cluster.group_members(self._app))
        if ids != self._ids:
            self._ids, self._changed_seconds = ids, now_seconds
        known = names_by_id(self._membership_log.membership.members)
        self._strangers = {
            member: self._strangers.get(member, now_seconds) for member in ids if member not in known
        }

    def _live(self) -> dict[str, MemberRecord]:
        return {
            name: record
            for name, record in self._membership_log.membership.members.items()
            if record.member_id in self._ids and record.generation == self._generation
        }

    def _must_wait(self, live: Mapping[str, MemberRecord], now_seconds: float) -> bool:
        """Wait for members that have not introduced themselves, and at the very beginning for others to join."""
        if any(now_seconds - seen < _INTRODUCTION_SECONDS for seen in self._strangers.values()):
            return True
        before = self._membership_log.membership.placement
        is_beginning = before is None or not any(live[name].held for name in before.members if name in live)
        return is_beginning and now_seconds - self._changed_seconds < self._delay_seconds

    def _differs(self, before: Placement, made: Assignment, ids: Mapping[str, str], name: str) -> bool:
        return (
            (before.active, before.standby, before.warmup) != (made.active, made.standby, made.warmup)
            or (before.members, before.leader) != (ids, name)
            or self._clock.now_ms() - before.decided_ms > _REPEAT_MS
        )

    def _published(
        self, name: str, made: Assignment, ids: dict[str, str], before: Placement | None
    ) -> Placement | None:
        """The decision as it was written; None when another leads."""
        number = 0 if before is None else before.number + 1
        since, former = self._handovers(number, made, ids, before)
        placement = Placement(
            number=number,
            since=since,
            former=former,
            generation=self._generation,
            leader=name,
            members=ids,
            active=made.active,
            standby=made.standby,
            warmup=made.warmup,
            decided_ms=self._clock.now_ms(),
        )
        place = membership_partition(self._app)
        assert self._writer is not None, "the lead was taken"
        reach("placing.before_decision")
        try:
            self._writer.begin()
            self._writer.send(place.topic, *encode_placement(placement), partition=place.partition)
            self._known_next = self._writer.commit()[place].offset + 1
        except StateflowError as error:
            _LOG.warning("Placement %d of %s may not be written: %s", number, self._app, error)
            self.resign()  # whoever leads next, this worker or another, reads what became of it
            if not isinstance(error, ProducerFenced | TransactionAborted):
                raise
            return None
        reach("placing.after_decision")
        return placement

    def _handovers(
        self, number: int, made: Assignment, ids: Mapping[str, str], before: Placement | None
    ) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
        """Since which decision each task is where it is, and who may still believe otherwise."""
        since = dict.fromkeys(made.active, number)
        former: dict[str, tuple[str, ...]] = {}
        for task, name in made.active.items():
            told = set() if before is None else {before.active.get(task, name), *before.former.get(task, ())}
            if before is not None and before.active.get(task) == name:
                since[task] = before.since.get(task, before.number)
            members = self._membership_log.membership.members
            unheard = {other for other in told & ids.keys() - {name} if members[other].followed < since[task]}
            if unheard:
                former[task] = tuple(sorted(unheard))
        return since, former

    def _report(self, placement: Placement, before: Placement | None, replicas: int) -> None:
        moved = {
            task: name
            for task, name in placement.active.items()
            if before is None or before.active.get(task) != name
        }
        _LOG.info(
            "Placement %d of %s: %d members, %d tasks move (%s), %d warm up, %d standby copies.",
            placement.number,
            self._app,
            len(placement.members),
            len(moved),
            ", ".join(f"{task} to {name}" for task, name in sorted(moved.items())) or "none",
            len(placement.warmup),
            sum(map(len, placement.standby.values())),
        )
        short = sum(len(placement.standby.get(task, ())) < replicas for task in self._shape.stateful)
        if short:
            _LOG.warning(
                "%d tasks have fewer than %d standby copies: copies need workers with state directories of their own.",
                short,
                replicas,
            )
