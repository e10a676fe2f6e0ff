"""The commit of one task, in five numbered steps. This order is the whole of the exactly-once argument.

Under exactly-once steps 2 and 3 are one Kafka transaction that step 4 commits. RocksDB follows in step 5, so it
never stands for an offset that the log has not committed, and a crash anywhere is repaired by reading a tail:

* before step 4: nothing is visible; the next owner reads the same input again. (Kafka can make half of it visible;
  the commit records tell, see ``docs/exactly-once.md``.)
* between 4 and 5: the log is ahead of RocksDB; restore applies the missing tail (whole values, so a repeated
  application is harmless).

Under at-least-once only the changes of step 2 and the commit records are a transaction, so that the broker refuses
those of an owner that was replaced (``runtime/opening/fenced.py``). Step 4 waits for the outputs before it, and the
group's offsets follow after step 5: outputs may be sent again, but no input is skipped.

Tasks that share a writer commit together: each adds what is its own, the writer does the rest once (``write_epochs``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from stateflow.changelog.event_time import Announced
from stateflow.changelog.format import WATERMARK_HEADER
from stateflow.changelog.position import BarrierPoint, InputPosition, Moment
from stateflow.clock import Clock
from stateflow.failpoints import reach
from stateflow.log.base import Appended, Writer
from stateflow.record import TopicPartition
from stateflow.runtime.task.context import TaskContext
from stateflow.runtime.task.input_group import InputGroup, Proof
from stateflow.runtime.task.takeover import (
    CommitSequence,
    changelog_positions,
    group_offsets,
    send_commit_records,
)
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import Change, ChangeColumns, TaskStores

WATERMARKS_PER_SECOND_MAX = 4_096
"""Each of the U tasks of a stage tells each of the P behind it: this bounds U × P records per second. A broker takes
some tenths of a millisecond for each, as every partition also gets a marker of every transaction."""
_PAUSE_SECONDS_MIN = 0.1
"""Commits come no more often, by default."""


def pause_between_watermarks(tasks: int, partitions: int) -> float:
    """Seconds between two announcements of each of so many tasks to so many partitions; 0 where they are few."""
    pause_seconds = tasks * partitions / WATERMARKS_PER_SECOND_MAX
    return pause_seconds if pause_seconds > _PAUSE_SECONDS_MIN else 0.0


class EventTimeNews(NamedTuple):
    """What a task has to say of its event time."""

    watermark_ms: int
    idle: bool = False
    ended: bool = False


class WatermarkEmitter:
    """The event time that this task last announced to the stages behind it."""

    def __init__(self, wiring: TaskWiring, clock: Clock) -> None:
        self._wiring = wiring
        self._clock = clock
        partitions = sum(rekey.routing.partitions for rekey in wiring.rekeys.values())
        self._pause_seconds = pause_between_watermarks(wiring.stage_tasks, partitions)
        self._next_seconds = float("-inf")
        self._last: EventTimeNews | None = None
        # A window's results are stamped inside the window, but sent only when it closes: announcing less than
        # that keeps them from being late at the next stage.
        self._hold_back_ms = wiring.stage.hold_back_ms

    def send(self, writer: Writer, news: EventTimeNews) -> None:
        """Write a watermark record to every partition behind this task."""
        mark_ms = max(-1, news.watermark_ms - self._hold_back_ms)
        announced = Announced(self._wiring.partition, mark_ms, news.idle, news.ended)
        header = (WATERMARK_HEADER, announced.encode())
        for rekey in self._wiring.rekeys.values():
            rekey.tell(writer, max(0, mark_ms), (header,))
        self._last = news
        self._next_seconds = self._clock.monotonic_seconds() + self._pause_seconds

    def is_new(self, news: EventTimeNews) -> bool:
        """True when there is someone to tell who has not heard it."""
        return bool(self._wiring.rekeys) and news != self._last

    def is_due(self, news: EventTimeNews) -> bool:
        """True when it should be told now: event time that has only moved waits for its turn."""
        has_moved_only = self._last is not None and news[1:] == self._last[1:]
        is_early = has_moved_only and self._clock.monotonic_seconds() < self._next_seconds
        return self.is_new(news) and not is_early

    @property
    def is_left_out(self) -> bool:
        """True when the stages behind may have heard, from an earlier owner too, that they need not wait for it."""
        return bool(self._wiring.rekeys) and (self._last is None or self._last.idle or self._last.ended)


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """An epoch that is drained: what is left of its commit asks nothing of operators any more."""

    position: InputPosition
    barrier_point: BarrierPoint | None
    chosen: Mapping[str, Sequence[Change]]
    """What goes to eventual changelogs with it."""


def chosen_changes(
    context: TaskContext, primary_next: int, *, complete: bool, says_all: bool
) -> dict[str, list[Change]]:
    """What goes to eventual changelogs with this commit. ``primary_next`` is the offset of the primary input."""
    stores = context.stores
    return {
        name: changelog.choose(
            stores[name].changes(),
            stores[name].get_many,
            primary_next,
            complete=complete,
            says_all=says_all,
        )
        for name, changelog in context.eventual_changelogs.items()
    }


def replay_from(context: TaskContext) -> Moment | None:
    """Where the replay of what eventual changelogs have left out begins; None while they leave nothing out."""
    return next((changelog.replay_from for changelog in context.eventual_changelogs.values()), None)


class EpochCommit:
    """What one task adds to a transaction, and does when it is committed: the steps of the module's head, in pieces."""

    def __init__(
        self,
        wiring: TaskWiring,
        context: TaskContext,
        writer: Writer,
        stores: TaskStores,
        position: InputPosition,
        commit_sequence: CommitSequence,
        chosen: Mapping[str, Sequence[Change]],
    ) -> None:
        self.wiring = wiring
        self.writer = writer
        self.offsets = group_offsets(wiring, position)
        self._context = context
        self._stores = stores
        self._position = position
        self._commit_sequence = commit_sequence
        # Stores come before their indexes: a store may list there what it has opened only when it is asked.
        self._epoch = {
            name: changes for name, store in context.stores.items() if (changes := store.changes())
        }
        logged = {**self._epoch, **chosen}
        self._logged = {name: changes for name, changes in logged.items() if name in wiring.changelogs}

    def log_changes(self) -> None:
        """Step 2: one record per changed key, beside the outputs already sent."""
        self._context.begin_once()
        reach("commit.before_changes")
        _log_changes(self.wiring, self.writer, self._logged)
        reach("commit.after_changes")

    def log_records(self) -> None:
        """Step 3: the commit records; everything that they prove is acknowledged."""
        changes_total = {name: len(changes) for name, changes in self._logged.items()}
        send_commit_records(self.wiring, self.writer, self._commit_sequence, self._position, changes_total)

    def apply(self, appended: Mapping[TopicPartition, Appended]) -> None:
        """Step 5: the epoch goes to the local stores, with the changelog positions that it stands for."""
        self._commit_sequence.sequence += 1
        positions = changelog_positions(self.wiring, appended)
        positions |= {index.family: index.mark for index in self.wiring.indexes}
        if self._epoch or positions:
            self._stores.apply(self._epoch, positions)
            reach("commit.after_apply")
        for store in self._context.stores.values():
            store.committed()
        for name, eventual in self._context.eventual_changelogs.items():
            if name in positions:
                eventual.appended(positions[name].offset_next)
        self._context.has_sent = False


def commit_epoch(
    wiring: TaskWiring,
    context: TaskContext,
    writer: Writer,
    stores: TaskStores,
    proof: Proof,
    position: InputPosition,
    commit_sequence: CommitSequence,
    chosen: Mapping[str, Sequence[Change]] = MappingProxyType({}),
) -> None:
    """Make everything since the last commit durable: outputs, state, under exactly-once the input offsets.

    Step 1, draining the operators, is the caller's (``Task.commit``), and so are the offsets under at-least-once
    (``commit_offsets``). ``proof`` is asked just before the offsets are sent; a group without members has none.
    ``chosen`` is what goes to the changelogs of stores that do not log all of the epoch.

    Raises ``ProducerFenced`` when another instance owns the task, ``TransactionAborted`` when the epoch must be read
    again; the dirty maps then still hold the failed epoch and must be dropped with the task.
    """
    epoch = EpochCommit(wiring, context, writer, stores, position, commit_sequence, chosen)
    epoch.apply(write_epochs([epoch], proof, writer.commit))


def write_epochs(
    epochs: Sequence[EpochCommit],
    proof: Proof,
    commit: Callable[[], Mapping[TopicPartition, Appended]],
) -> Mapping[TopicPartition, Appended]:
    """Steps 2 to 4 for the epochs of tasks that write with the same writer: one transaction, which ``commit`` ends.

    Outputs are acknowledged before any commit record is sent, and commit records before any offset: see the protocol.
    Raises what ``commit_epoch`` raises; no epoch is committed then, for all that is known.
    """
    wiring, writer = epochs[0].wiring, epochs[0].writer
    for epoch in epochs:
        epoch.log_changes()  # 2
    if any(epoch.wiring.changelogs for epoch in epochs):
        writer.flush()
        reach("commit.before_records")
        for epoch in epochs:
            epoch.log_records()
        reach("commit.after_records")
        writer.flush()
        reach("commit.before_offsets")
    if wiring.guarantee == "exactly-once":
        offsets = {source: at for epoch in epochs for source, at in epoch.offsets.items()}
        member = proof()
        reach("commit.after_proof")
        writer.send_offsets(offsets, wiring.group, member)  # 3
    reach("commit.before_end")
    appended = commit()  # 4
    reach("commit.after_end")
    return appended


def commit_offsets(wiring: TaskWiring, group: InputGroup, position: InputPosition) -> None:
    """Under at-least-once: let the group's offsets follow what is durable. On the thread that polls the group."""
    if wiring.guarantee != "exactly-once":
        reach("commit.before_group")
        group.commit(group_offsets(wiring, position))
        reach("commit.after_group")


def _log_changes(wiring: TaskWiring, writer: Writer, logged: Mapping[str, Sequence[Change]]) -> None:
    for name, changes in logged.items():
        changelog = wiring.changelogs[name]
        columns = ChangeColumns.of(changes)
        writer.send_many(changelog.topic, columns.keys, columns.values, partitions=changelog.partition)
