"""A worker whose tasks are placed by warmth instead of by the group.

It is a member of the same group, which tells who is there and who leads, and reads what it was told to run, whatever
the group assigns. All else is as in any worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stateflow.catalog.names import members_topic
from stateflow.clock import Clock
from stateflow.errors import MembershipLost, StateflowError
from stateflow.log.base import Cluster, GroupConsumer
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import StoreOpener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.savepoint_participant import SavepointParticipant
from stateflow.runtime.standby.placing import Placing, Told
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.figures import WorkerNews
from stateflow.runtime.worker.member_records import membership_partition
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.worker import Worker

_LOG = logging.getLogger(__name__)


class PlacedWorker(Worker):
    """Runs the tasks that ``placing`` wants here."""

    def __init__(
        self,
        cluster: Cluster,
        wiring: Wiring,
        open_stores: StoreOpener,
        settings: WorkerSettings,
        clock: Clock,
        placing: Placing,
        observer: WorkerObserver | None = None,
        savepoints: SavepointParticipant | None = None,
        news: WorkerNews | None = None,
    ) -> None:
        self._placing = placing
        self._membership = membership_partition(wiring.topology.app)
        self._leads_members = False
        self._member_id = ""
        self._followed = -1
        super().__init__(
            cluster, wiring, open_stores, settings, clock, observer, savepoints=savepoints, news=news
        )
        self._primaries = {
            task.id: TopicPartition(wiring.primary_topic(task.stage), task.partition)
            for task in wiring.tasks()
        }
        self._last.is_kept = lambda primary: (
            primary in {self._primaries[task] for task in placing.desired().tasks}
        )

    def _join(self, cluster: Cluster) -> GroupConsumer:
        app = self._wiring.topology.app
        topics = [*sorted(self._primary_topics), members_topic(app)]
        return cluster.group_consumer(app, topics, self, member=self._settings.member, independent=True)

    def step(self) -> None:
        """One turn: do what was decided, then as any worker."""
        self._follow()
        super().step()

    # --- what the group says ------------------------------------------------------------------------

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Whoever is assigned the members' topic leads; other partitions say nothing, if they were there before."""
        for primary in partitions:
            if primary != self._membership:
                self._wiring.check(self._primary_topics[primary.topic], primary.partition)
        if self._membership in partitions:
            self._leads_members = True

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Another may lead now; tasks stay."""
        if self._membership in partitions:
            self._leads_members = False

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002 - all is lost, not only these
        """The group went on without this member: its tasks are others' by now, or will be."""
        self._leads_members = False
        self._placing.suspend()
        self._commits.lost()
        self._drop_all()

    # --- inside -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        self._notice_another_life()
        self._tell()
        desired = self._placing.desired()
        wanted = {self._primaries[task] for task in desired.tasks}
        opening = set(self._starting.primaries())
        for primary in sorted(opening - wanted):
            self._starting.cancel(primary)
        self._release(sorted(self._tasks.keys() - wanted))
        for primary in sorted(wanted - self._tasks.keys() - opening):
            self._open(primary)
        self._followed = desired.number
        self._tell()

    def _notice_another_life(self) -> None:
        """A member that was taken out and came back is another one: what it held is not its any more."""
        member_id = self._group.member_id
        if member_id == self._member_id:
            return
        if self._member_id:
            _LOG.warning("The group lost this member; it comes back without tasks.")
            self._leads_members = self._leads_members and bool(member_id)
            self._placing.suspend()
            self._drop_all()
        self._member_id = member_id

    def _tell(self) -> None:
        running = frozenset(running.task.wiring.id for running in self._tasks.values())
        starting = frozenset(self._starting.ids())
        told = Told(self._member_id, running, starting, self._leads_members, self._followed)
        self._placing.tell(told)

    def _drop_all(self) -> None:
        self._starting.cancel_all()
        self._abandon(list(self._tasks))

    def _open_again(self, primary: TopicPartition, error: StateflowError) -> None:  # noqa: ARG002 - not now
        """Whether it is still this worker's task is looked up with the next step."""
        if isinstance(error, MembershipLost):
            self._placing.suspend()
