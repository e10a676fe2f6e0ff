"""Ending what a task's earlier transactions have left open in partitions that had no leader when they ended.

Kafka 4.1 to 4.3 write no marker there and call the transaction complete (KAFKA-20734). The next marker of the same
producer would decide about those records, whatever it is about itself; so the new owner of a task, which is the only
one to write by its ids, looks for them after its fence and writes the marker that is missing, before anything else.

Whether it was a commit is known from the log, where it can be: a changelog whose newest commit record is older than
the task's last one lacks a commit. Otherwise the coordinator's word counts that was asked for before the fence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from stateflow.catalog.model import Catalog, Guarantee
from stateflow.catalog.names import control_topic, repartition_topic, task_id, transactional_id
from stateflow.catalog.stages import stage_changelogs, stage_inputs
from stateflow.checkpoint.tails import read_tails
from stateflow.errors import OffsetsPending
from stateflow.log.base import Cluster, Committed
from stateflow.log.stable_ranges import stable_ranges
from stateflow.log.transactions import LastTransaction, LeftOpen
from stateflow.record import TopicPartition
from stateflow.runtime.task.wiring import TaskWiring, is_transactional

_LOG = logging.getLogger(__name__)

AWAIT_SHARED_SECONDS = 10.0
"""How long the end of a changelog is waited for to be decided, where a shared writer may have let go of the task just
before: its last transaction is over, and markers of it may be on their way."""
AWAIT_OFFSETS_SECONDS = 3.0
"""How long offsets are waited for that a transaction holds, when the task's own writers are fenced: that of whoever
writes first positions just now is short, and one that lacks its marker never ends by itself."""


@dataclass(frozen=True, slots=True)
class TaskWrites:
    """What a task reads and writes, as far as its transactions concern it."""

    app: str
    """The application, and the group of its input offsets."""
    task: str
    guarantee: Guarantee
    transactional_id: str
    inputs: tuple[TopicPartition, ...]
    changelogs: Mapping[str, TopicPartition]
    """By store."""
    topics: frozenset[str]
    """The other topics that it writes to: of its re-key steps, and outputs."""

    @property
    def is_transactional(self) -> bool:
        """True for a task that has a transactional id."""
        return is_transactional(self.guarantee, self.changelogs)

    @classmethod
    def of(cls, wiring: TaskWiring) -> TaskWrites:
        """Those of a task whose code is here."""
        topics = {*wiring.outputs, *(rekey.topic for rekey in wiring.rekeys.values())}
        return cls(
            wiring.app,
            wiring.id,
            wiring.guarantee,
            wiring.transactional_id,
            wiring.inputs,
            wiring.changelogs,
            frozenset(topics),
        )

    @classmethod
    def of_catalog(cls, catalog: Catalog, stage: str, partition: int) -> TaskWrites:
        """Those of a task of the active generation, without the code."""
        app, generation = catalog.app.app, catalog.active.generation
        task = task_id(stage, partition)
        return cls(
            app,
            task,
            catalog.app.guarantee,
            transactional_id(app, generation, task),
            tuple(at for at in stage_inputs(catalog, stage) if at.partition == partition),
            stage_changelogs(catalog, stage, partition, catalog.changelog_generation(stage)),
            frozenset(catalog.stages[stage].outputs).union(
                repartition_topic(app, port.name, generation)
                for reader in catalog.stages.values()
                for port in reader.rekeys
                if port.upstream == stage
            ),
        )


class HangingTransactions:
    """What a task's predecessors have left open. Made before the fence, used after it."""

    def __init__(self, cluster: Cluster, writes: TaskWrites) -> None:
        self._cluster = cluster
        self._writes = writes
        self._changelogs = frozenset(writes.changelogs.values())
        self._last: dict[str, LastTransaction | None] = {}
        self.await_stable_seconds = 0.0
        """How long markers that may be on their way are waited for: somebody who was not fenced may have sent them."""
        self._offsets_are_held = False
        if writes.is_transactional:
            self._last[writes.transactional_id] = cluster.transactions.last(writes.transactional_id)

    @property
    def await_offsets_seconds(self) -> float:
        """How long the group's offsets are waited for."""
        return max(AWAIT_OFFSETS_SECONDS, self.await_stable_seconds)

    def know(self, transactional_id: str, last: LastTransaction | None) -> None:
        """What is known of another predecessor from before its fence."""
        self._last[transactional_id] = last

    def end(self, transactional_ids: Iterable[str]) -> bool:
        """Write the markers that are missing; True if there were any: each has fenced the writers of its id.

        To be called when all ids of the task are fenced. Raises what ``check_changelogs`` raises.
        """
        for name in transactional_ids:
            self._last.setdefault(name, None)
        undecided = self._undecided(self._written())
        if not undecided:
            return False
        found = self._cluster.transactions.left_open(self._last, undecided)
        each = [self._end(name, found) for name in self._last] if found is not None else []
        ended = any(each)
        if self._offsets_are_held:  # nobody need wait for them once more to know that
            self.end_offsets()
        if not ended and undecided & self._changelogs:
            self.check_changelogs()
        return ended

    def end_offsets(self) -> None:
        """Write the markers that are missing for the group's offsets, which are held though all ids are fenced.

        Where a transaction was open that had none yet, they are of the one before, which was committed.
        """
        for name, last in self._last.items():
            is_of_one_before = last is not None and last.outcome == "open" and last.has_offsets is False
            commit = is_of_one_before or (last is not None and last.outcome == "committed")
            self._say(name, f"offsets of group {self._writes.app!r}", commit=commit)
            self._cluster.transactions.end(name, (), self._writes.app, commit=commit)

    def end_first_positions(self, catalog: Catalog) -> None:
        """Write the marker that may be missing for first positions, which are committed with the catalog.

        Without their note they do no harm, so they are committed, whatever became of the transaction. Only a restore
        commits other positions with the catalog: where one was given up, they are aborted.
        """
        control = control_topic(self._writes.app)
        given_up = any(entry.state == "aborted" and entry.savepoint for entry in catalog.generations.values())
        self._say(control, f"offsets of group {self._writes.app!r}", commit=not given_up)
        self._cluster.transactions.end(control, (), self._writes.app, commit=not given_up)

    def check_changelogs(self) -> None:
        """Raise ``OffsetsPending`` while somebody else's transaction is open in a changelog of the task.

        What stands behind it could not be read, and would be passed over.
        """
        held = sorted(self._undecided(self._changelogs))
        if held and self.await_stable_seconds and self._becomes_stable():
            return
        if held:
            raise OffsetsPending(
                f"An open transaction of another producer hides the end of {held[0]} from task {self._writes.task}.",
                action="if it stays, no producer is left that would end it: look for it with `kafka-transactions.sh"
                " find-hanging`, and end it with `kafka-transactions.sh abort`.",
                partitions=[str(partition) for partition in held],
            )

    def _becomes_stable(self) -> bool:
        try:
            stable_ranges(self._cluster, self._changelogs, self.await_stable_seconds)
        except OffsetsPending:
            return False
        return True

    def _written(self) -> frozenset[TopicPartition]:
        """The partitions that the task's transactions may have written to."""
        if self._writes.guarantee != "exactly-once":
            return self._changelogs
        found = self._cluster.describe(self._writes.topics)
        return self._changelogs.union(
            TopicPartition(name, number)
            for name, topic in found.items()
            for number in range(topic.partitions)
        )

    def _undecided(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Those in which a transaction was open at this moment.

        A leader tells of its log's end only when it knows that what it was elected with is settled, so what a
        predecessor wrote before the partition had no leader is below that end: no open transaction is passed over.
        """
        wanted = list(partitions)
        if not wanted:
            return frozenset()
        whole = self._cluster.ends(wanted, stable=False)
        stable = self._cluster.ends(wanted)
        return frozenset(partition for partition in wanted if stable[partition] < whole[partition])

    def _end(self, transactional_id: str, found: LeftOpen) -> bool:
        """A partition that one may not read gets a marker in any case: where nothing is open it says nothing."""
        partitions = sorted(found.by_id.get(transactional_id, frozenset()) | found.untold)
        committed = self._lacking_a_commit() if partitions else frozenset()

        def is_commit(partition: TopicPartition) -> bool:
            return partition in committed or self._was_committed(transactional_id, partition, bool(committed))

        for commit, group in groupby(sorted(partitions, key=is_commit), is_commit):
            where = list(group)
            self._say(transactional_id, ", ".join(map(str, where)), commit=commit)
            self._cluster.transactions.end(transactional_id, where, None, commit=commit)
        return bool(partitions)

    def _was_committed(self, transactional_id: str, partition: TopicPartition, otherwise: bool) -> bool:
        """What the coordinator said before the fence.

        Where a transaction was still open, its owner had not written to the partition, and what is open there is
        of the one before, which was committed: nobody goes on after one that was not.
        """
        last = self._last[transactional_id] or LastTransaction("none")
        if last.outcome == "open":
            return partition not in last.partitions
        return otherwise if last.outcome == "none" else last.outcome == "committed"

    def _lacking_a_commit(self) -> frozenset[TopicPartition]:
        """The task's changelogs in which its last commit cannot be seen, though it was one."""
        tails = read_tails(self._cluster, self._writes.changelogs)
        seen = {store: tail.last for store, tail in tails.items() if tail.last is not None}
        if not seen:
            return frozenset()
        newest = max(seen.values(), key=lambda record: (record.sequence, record.owner))
        if is_ahead(self._group_offsets(), newest.position.offsets):
            return frozenset(self._writes.changelogs[store] for store in seen)
        return frozenset(
            self._writes.changelogs[store]
            for store, record in seen.items()
            if record.sequence < newest.sequence
        )

    def _group_offsets(self) -> Mapping[TopicPartition, Committed]:
        if self._writes.guarantee != "exactly-once":
            return {}
        try:
            return self._cluster.committed(
                self._writes.app, self._writes.inputs, pending_seconds=self.await_offsets_seconds
            )
        except OffsetsPending:
            self._offsets_are_held = True
            return {}  # they lack their marker, too, and say nothing

    def _say(self, transactional_id: str, where: str, *, commit: bool) -> None:
        _LOG.warning(
            "A transaction of task %s had ended, but not in %s, for want of a leader there (KAFKA-20734);"
            " it is %s now, by a marker of %s.",
            self._writes.task,
            where,
            "committed" if commit else "aborted",
            transactional_id,
        )


def is_ahead(group: Mapping[TopicPartition, Committed], recorded: Mapping[TopicPartition, int]) -> bool:
    """Whether the group's offsets are those of a later commit than the recorded ones."""
    return any(
        source in group and group[source].offset_next > offset_next
        for source, offset_next in recorded.items()
    )
