"""Taking a task over: whose commit was the last, and making its changelogs true where a commit was torn.

``docs/exactly-once.md`` has the protocol. Everything here happens after the fence and before the first record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import InputPosition, from_metadata, is_of_version_0_1, to_metadata
from stateflow.changelog.sequences import CommittedEnd, Tail, resolve
from stateflow.failpoints import reach
from stateflow.log.base import Appended, Committed, Writer
from stateflow.record import TopicPartition
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import StorePosition, TaskStores

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class CommitSequence:
    """The numbers of a task's commit records: of this owner, and of its last commit."""

    owner: int = 0
    sequence: int = -1

    @classmethod
    def after(cls, committed_end: CommittedEnd) -> CommitSequence:
        """The commit sequence of the owner that goes on from here."""
        return cls(committed_end.owner, committed_end.sequence)


def send_commit_records(
    wiring: TaskWiring,
    writer: Writer,
    commit_sequence: CommitSequence,
    position: InputPosition,
    changes_total: Mapping[str, int],
) -> None:
    """End the commit's sequence in every changelog of the task.

    Everything that belongs to the commit must be acknowledged before, outputs too: one commit record alone is
    proof of all of it. ``changes_total`` counts the changes per store, 0 where there are none.
    """
    for store, changelog in wiring.changelogs.items():
        record = CommitRecord(
            commit_sequence.owner, commit_sequence.sequence + 1, changes_total.get(store, 0), position
        )
        writer.send(changelog.topic, COMMIT_KEY, record.encode(), partition=changelog.partition)
        reach("commit.after_record")


def group_offsets(wiring: TaskWiring, position: InputPosition) -> dict[TopicPartition, Committed]:
    """What the consumer group holds: plain offsets, and the rest beside them only where no changelog can keep it."""
    metadata = "" if wiring.changelogs else to_metadata(position)
    return {source: Committed(offset_next, metadata) for source, offset_next in position.offsets.items()}


def resolved(tails: Mapping[str, Tail], committed: Mapping[TopicPartition, Committed]) -> CommittedEnd:
    """What is decided in a task's changelogs.

    Version 0.1 wrote no commit records at least once. Where one that was left from before says less than the group,
    what follows it was committed so, and Kafka's transaction marker alone decides.
    """
    found = resolve(tails)
    if found.last is None or not _is_ahead_0_1(committed, found.last.position):
        return found
    ends = {store: tail.offset_next for store, tail in tails.items()}
    return CommittedEnd(found.last, ends, by_marker=True)


def lacks_commit_records(tails: Mapping[str, Tail], committed_end: CommittedEnd) -> bool:
    """Whether a changelog of a task counts to its end by Kafka's marker, as no commit record says how far.

    The first commit by a writer of the task's own cannot be torn, being the first of a producer. A shared writer has
    committed for others before: what is visible of the first commit for this task may be half of it.
    """
    return committed_end.by_marker or any(tail.last is None for tail in tails.values())


def _is_ahead_0_1(committed: Mapping[TopicPartition, Committed], recorded: InputPosition) -> bool:
    return any(
        source in committed
        and is_of_version_0_1(committed[source].metadata)
        and committed[source].offset_next > offset_next
        for source, offset_next in recorded.offsets.items()
    )


def recovery_point(
    inputs: Sequence[TopicPartition],
    committed_end: CommittedEnd,
    committed: Mapping[TopicPartition, Committed],
) -> InputPosition:
    """Where a task goes on: what the newest commit record says, and the group's offset for what it does not know."""
    group = {source: at.offset_next for source, at in committed.items() if source in inputs}
    if committed_end.last is None or committed_end.by_marker:
        said = next((committed[source].metadata for source in inputs if source in committed), "")
        return replace(from_metadata(said), offsets=group)
    recorded = committed_end.last.position
    known = {source: recorded.offsets[source] for source in inputs if source in recorded.offsets}
    return replace(recorded, offsets={**group, **known})


@dataclass(frozen=True, slots=True)
class Repair:
    """What the new owner of a task has to commit before its first record: see ``repair_of``."""

    wiring: TaskWiring
    writer: Writer
    stores: TaskStores
    commit_sequence: CommitSequence
    position: InputPosition
    orphaned_keys: Mapping[str, Sequence[bytes]]

    def send_values(self) -> None:
        """Write the restored value of every orphaned key."""
        for store, keys in self.orphaned_keys.items():
            changelog = self.wiring.changelogs[store]
            values = self.stores.reader(store).get_many(keys)
            self.writer.send_many(changelog.topic, keys, values, partitions=changelog.partition)

    def send_commit_records(self) -> None:
        """End like any commit."""
        changes_total = {store: len(keys) for store, keys in self.orphaned_keys.items()}
        send_commit_records(self.wiring, self.writer, self.commit_sequence, self.position, changes_total)

    def apply(self, appended: Mapping[TopicPartition, Appended]) -> None:
        """It is committed: the local stores, which hold it already, stand for it."""
        self.commit_sequence.sequence += 1
        self.stores.apply({}, changelog_positions(self.wiring, appended))


def repair_of(
    wiring: TaskWiring,
    writer: Writer,
    stores: TaskStores,
    commit_sequence: CommitSequence,
    committed_end: CommittedEnd,
    position: InputPosition,
    committed: Mapping[TopicPartition, Committed],
    *,
    must_prove: bool = False,
) -> Repair | None:
    """What makes the changelogs, and the group's offsets, say what is true; None when all is in order.

    Commit records that say how far the changelogs count may be all of it: where they ``must_prove`` that.
    """
    moved = {
        source: offset_next
        for source, offset_next in position.offsets.items()
        if source not in committed or committed[source].offset_next != offset_next
    }
    if not (committed_end.is_torn or moved or must_prove):
        return None
    for source, offset_next in moved.items():
        _LOG.warning(
            "Task %s resumes from offset %d of %s, the offset of its state; the group's offset is %s.",
            wiring.id,
            offset_next,
            source,
            committed[source].offset_next if source in committed else "not set",
        )
    orphaned = {store: sorted(keys) for store, keys in committed_end.orphaned_keys.items()}
    if committed_end.is_torn:
        _LOG.warning(
            "The last commit of task %s was torn; %d keys are written again with their true values.",
            wiring.id,
            sum(map(len, orphaned.values())),
        )
    return Repair(wiring, writer, stores, commit_sequence, position, orphaned)


def write_repairs(repairs: Sequence[Repair], commit: Callable[[], Mapping[TopicPartition, Appended]]) -> None:
    """Commit what tasks of one writer have to repair, in a transaction that holds nothing else.

    By a writer of the task's own it is the first of a new producer, which is whole or not there at all. By a shared
    one half of it may become visible, as of any commit: values that are true, and commit records behind all of them, so
    that the next owner finds the same state and repairs the rest. Raises what ``commit`` raises, ``ProducerFenced`` or
    ``TransactionAborted`` above all.
    """
    wiring, writer = repairs[0].wiring, repairs[0].writer
    reach("takeover.before_begin")
    for repair in repairs:
        repair.writer.begin()
    for repair in repairs:
        repair.send_values()
    reach("takeover.after_values")
    writer.flush()
    reach("takeover.before_records")
    for repair in repairs:
        repair.send_commit_records()
    writer.flush()
    reach("takeover.before_offsets")
    offsets: dict[TopicPartition, Committed] = {}
    for repair in repairs:
        offsets.update(group_offsets(repair.wiring, repair.position))
    writer.send_offsets(offsets, wiring.group, None)
    reach("takeover.before_end")
    appended = commit()
    reach("takeover.after_end")
    for repair in repairs:
        repair.apply(appended)
    reach("takeover.after_apply")


def changelog_positions(
    wiring: TaskWiring, appended: Mapping[TopicPartition, Appended]
) -> dict[str, StorePosition]:
    """How far each store reaches once everything that was appended is applied."""
    return {
        store: StorePosition(wiring.topic_ids[changelog.topic], appended[changelog].offset + 1)
        for store, changelog in wiring.changelogs.items()
        if changelog in appended
    }
