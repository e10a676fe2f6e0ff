"""Taking a task over: whose commit was the last, and making its changelogs true where a commit was torn.

``docs/exactly-once.md`` has the protocol. Everything here happens after the fence and before the first record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.sequences import Resolution
from stateflow.failpoints import reach
from stateflow.log.base import Appended, Committed, Writer
from stateflow.record import TopicPartition
from stateflow.runtime.wiring import TaskWiring
from stateflow.store.base import StorePosition, TaskStores

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Ledger:
    """The numbers of a task's commit records: of this owner, and of its last commit."""

    owner: int = 0
    sequence: int = -1

    @classmethod
    def after(cls, resolution: Resolution) -> Ledger:
        """The ledger of the owner that goes on from here."""
        return cls(resolution.owner, resolution.sequence)


def send_commit_records(
    wiring: TaskWiring,
    writer: Writer,
    ledger: Ledger,
    offsets: Mapping[TopicPartition, Committed],
    changes_total: Mapping[str, int],
) -> None:
    """End the commit's sequence in every changelog of the task.

    Everything that belongs to the commit must be acknowledged before, outputs too: one commit record alone is
    proof of all of it. ``changes_total`` counts the changes per store, 0 where there are none.
    """
    for store, changelog in wiring.changelogs.items():
        record = CommitRecord(ledger.owner, ledger.sequence + 1, changes_total.get(store, 0), offsets)
        writer.send(changelog.topic, COMMIT_KEY, record.encode(), partition=changelog.partition)
        reach("commit.after_record")


def recorded_inputs(
    wiring: TaskWiring, resolution: Resolution, committed: Mapping[TopicPartition, Committed]
) -> dict[TopicPartition, Committed]:
    """Where input goes on: what the commit record says, and the group's offset for what it does not know."""
    recorded = {} if resolution.last is None else resolution.last.inputs
    inputs = {**committed, **{source: recorded[source] for source in wiring.inputs if source in recorded}}
    for source, position in inputs.items():
        group = committed.get(source)
        if group is None or group.offset_next != position.offset_next:
            _LOG.warning(
                "Task %s goes on at offset %d of %s, which its state stands for; the group's offset is %s.",
                wiring.id,
                position.offset_next,
                source,
                "not set" if group is None else group.offset_next,
            )
    return inputs


def set_right(
    wiring: TaskWiring,
    writer: Writer,
    stores: TaskStores,
    ledger: Ledger,
    resolution: Resolution,
    inputs: Mapping[TopicPartition, Committed],
    committed: Mapping[TopicPartition, Committed],
) -> None:
    """Make the changelogs, and the group's offsets, say what is true, in a transaction of their own.

    It writes the restored value of every void key and ends like any commit. As the first transaction of a new
    producer it is whole or not there at all. Does nothing, and costs nothing, when all is in order. Raises
    ``ProducerFenced`` or ``TransactionAborted``.
    """
    moved = any(
        source not in committed or committed[source].offset_next != position.offset_next
        for source, position in inputs.items()
    )
    if not (resolution.is_torn or moved):
        return
    void = {store: sorted(keys) for store, keys in resolution.void_keys.items()}
    if resolution.is_torn:
        _LOG.warning(
            "The last commit of task %s was torn; %d keys are written again with their true values.",
            wiring.id,
            sum(map(len, void.values())),
        )
    reach("takeover.before_begin")
    writer.begin()
    for store, keys in void.items():
        changelog = wiring.changelogs[store]
        values = stores.reader(store).get_many(keys)
        writer.send_many(changelog.topic, keys, values, partitions=changelog.partition)
    reach("takeover.after_values")
    writer.flush()
    reach("takeover.before_records")
    send_commit_records(wiring, writer, ledger, inputs, {store: len(keys) for store, keys in void.items()})
    writer.flush()
    reach("takeover.before_offsets")
    writer.send_offsets(inputs, wiring.group, None)
    reach("takeover.before_end")
    appended = writer.commit()
    reach("takeover.after_end")
    ledger.sequence += 1
    stores.apply({}, changelog_positions(wiring, appended))
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
