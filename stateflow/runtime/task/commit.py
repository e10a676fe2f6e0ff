"""The commit of one task, in five numbered steps. This order is the whole of the exactly-once argument.

Under exactly-once steps 2 and 3 are one Kafka transaction that step 4 commits. RocksDB follows in step 5, so it
never stands for an offset that the log has not committed, and a crash anywhere is repaired by reading a tail:

* before step 4: nothing is visible; the next owner reads the same input again. (Kafka can make half of it visible;
  the commit records tell, see ``docs/exactly-once.md``.)
* between 4 and 5: the log is ahead of RocksDB; restore applies the missing tail (whole values, so a repeated
  application is harmless).

Under at-least-once only the changes of step 2 and the commit records are a transaction, so that the broker refuses
those of an owner that was replaced (``runtime/fenced.py``). Step 4 waits for the outputs before it, and the group's
offsets follow after step 5: outputs may be sent again, but no input is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from stateflow.changelog.event_time import Announced
from stateflow.changelog.format import WATERMARK_HEADER
from stateflow.changelog.position import InputPosition
from stateflow.failpoints import reach
from stateflow.log.base import Committed, GroupMetadata, Writer
from stateflow.record import TopicPartition
from stateflow.runtime.opening.takeover import (
    CommitSequence,
    changelog_positions,
    group_offsets,
    send_commit_records,
)
from stateflow.runtime.task.context import TaskContext
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import Change, TaskStores


class InputGroup(Protocol):
    """Where input offsets are committed: a live group member, or a group without members (Spark tasks)."""

    def metadata(self) -> GroupMetadata | None:
        """Proof of membership, or None for a group without members."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit outside a transaction."""
        ...


class WatermarkEmitter:
    """The event time that this task last announced to the stages behind it."""

    def __init__(self, wiring: TaskWiring) -> None:
        self._wiring = wiring
        self._last: tuple[int, bool, bool] | None = None
        # A window's results are stamped inside the window, but sent only when it closes: announcing less than
        # that keeps them from being late at the next stage.
        self._hold_back_ms = wiring.stage.hold_back_ms

    def send(self, writer: Writer, watermark_ms: int, *, idle: bool, ended: bool = False) -> None:
        """Write a watermark record to every partition behind this task."""
        mark_ms = max(-1, watermark_ms - self._hold_back_ms)
        announced = Announced(self._wiring.partition, mark_ms, idle, ended)
        header = (WATERMARK_HEADER, announced.encode())
        for rekey in self._wiring.rekeys.values():
            rekey.tell(writer, max(0, mark_ms), (header,))
        self._last = (watermark_ms, idle, ended)

    def is_due(self, watermark_ms: int, *, idle: bool, ended: bool = False) -> bool:
        """True when there is someone to tell, and something new."""
        return bool(self._wiring.rekeys) and (watermark_ms, idle, ended) != self._last

    @property
    def is_left_out(self) -> bool:
        """True when the stages behind may have heard, from an earlier owner too, that they need not wait for it."""
        return bool(self._wiring.rekeys) and (self._last is None or self._last[1] or self._last[2])


def commit_epoch(
    wiring: TaskWiring,
    context: TaskContext,
    writer: Writer,
    stores: TaskStores,
    group: InputGroup,
    position: InputPosition,
    commit_sequence: CommitSequence,
    chosen: Mapping[str, Sequence[Change]] = MappingProxyType({}),
) -> None:
    """Make everything since the last commit durable: outputs, state, input offsets.

    Step 1, draining the operators, is the caller's (``Task.commit``). ``chosen`` is what goes to the changelogs
    of stores that do not log all of the epoch. Raises ``ProducerFenced`` when another
    instance owns the task, ``TransactionAborted`` when the epoch must be read again; the dirty maps then still
    hold the failed epoch and must be dropped with the task.
    """
    exactly_once = wiring.guarantee == "exactly-once"
    epoch = {name: changes for name, store in context.stores.items() if (changes := store.changes())}

    logged = {name: changes for name, changes in {**epoch, **chosen}.items() if name in wiring.changelogs}
    context.begin_once()
    reach("commit.before_changes")
    _log_changes(wiring, writer, logged)  # 2: one record per changed key, beside the outputs already sent
    reach("commit.after_changes")
    if wiring.changelogs:  # outputs before commit records, commit records before offsets: see the protocol
        writer.flush()
        reach("commit.before_records")
        changes_total = {name: len(changes) for name, changes in logged.items()}
        send_commit_records(wiring, writer, commit_sequence, position, changes_total)
        reach("commit.after_records")
        writer.flush()
        reach("commit.before_offsets")
    if exactly_once:
        writer.send_offsets(group_offsets(wiring, position), wiring.group, group.metadata())  # 3
    reach("commit.before_end")
    appended = writer.commit()  # 4
    reach("commit.after_end")
    commit_sequence.sequence += 1

    positions = changelog_positions(wiring, appended)
    positions |= {index.family: index.mark for index in wiring.indexes}
    if epoch or positions:
        stores.apply(epoch, positions)  # 5
        reach("commit.after_apply")
    for store in context.stores.values():
        store.committed()
    for name, eventual in context.eventual_changelogs.items():
        if name in positions:
            eventual.appended(positions[name].offset_next)
    context.has_sent = False
    if not exactly_once:
        reach("commit.before_group")
        group.commit(group_offsets(wiring, position))
        reach("commit.after_group")


def _log_changes(wiring: TaskWiring, writer: Writer, logged: Mapping[str, Sequence[Change]]) -> None:
    for name, changes in logged.items():
        changelog = wiring.changelogs[name]
        writer.send_many(
            changelog.topic,
            [key for key, _ in changes],
            [value for _, value in changes],
            partitions=changelog.partition,
        )
