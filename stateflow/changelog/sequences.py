"""Which records of a changelog are committed: everything up to the newest commit record, and nothing behind it.

A *sequence* is what one commit wrote to a changelog partition: its changes, then a commit record. Only the
fenced owner of a task appends to its changelogs, one sequence after the other, so a record belongs to the
sequence whose commit record comes next, and records behind the newest commit record are a *uncommitted suffix*:
the visible part of a commit that never was. ``docs/exactly-once.md`` has the protocol and the argument.

A partition without any commit record was written by something else (another program, version 0.1 with at-least-once):
Kafka's transaction marker alone decides there, and every record counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.format import is_reserved
from stateflow.record import OffsetRange
from stateflow.store.base import Change

_FIRST_LOOK_SLOTS = 256
_LOOK_GROWTH = 16

Rows = Iterable[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value of committed records, in the order of the log."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of one changelog partition: its newest commit record, and what stands behind it."""

    last: CommitRecord | None
    committed_next: int
    """First offset behind the newest commit record; the end of the range when there is none."""
    offset_next: int
    """The end of the range that was looked at."""
    keys: frozenset[bytes] = frozenset()
    """State keys with records behind the newest commit record."""


def first_look(log: OffsetRange) -> OffsetRange:
    """What ``find_tail`` reads first, and in a healthy log alone."""
    return OffsetRange(max(log.offset_first, log.offset_next - _FIRST_LOOK_SLOTS), log.offset_next)


def find_tail(log: OffsetRange, read: Callable[[OffsetRange], Rows]) -> Tail:
    """Look for the newest commit record from the end of ``log`` backwards, in growing steps.

    ``read`` returns the committed records of a range. A healthy log takes one short read of its end.
    One without any commit record is read once; one that ends in a long uncommitted suffix, from its newest commit
    record on once more.
    """
    slots, after = _FIRST_LOOK_SLOTS, log.offset_next
    while True:
        first = max(log.offset_first, log.offset_next - slots)
        tail = tail_of(read(OffsetRange(first, after)), after)
        if tail.last is not None and after < log.offset_next:
            return tail_of(read(OffsetRange(tail.committed_next - 1, log.offset_next)), log.offset_next)
        if tail.last is not None or first <= log.offset_first:
            return replace(tail, offset_next=log.offset_next, committed_next=_committed_next(tail, log))
        slots, after = slots * _LOOK_GROWTH, first


def _committed_next(tail: Tail, log: OffsetRange) -> int:
    return log.offset_next if tail.last is None else tail.committed_next


def tail_of(rows: Rows, offset_next: int) -> Tail:
    """The tail of records that end at ``offset_next``."""
    last: bytes | None = None
    committed_next = offset_next
    keys: set[bytes] = set()
    for offset, key, value in rows:
        if key == COMMIT_KEY:
            last, committed_next = value or b"", offset + 1
            keys.clear()
        elif last is not None and key is not None and not is_reserved(key):
            keys.add(key)
    record = None if last is None else CommitRecord.decode(last)
    return Tail(record, committed_next, offset_next, frozenset(keys))


@dataclass(frozen=True, slots=True)
class CommittedEnd:
    """What a new owner of a task finds committed in its changelogs, and what it has to repair.

    ``restore_next``: per changelog, the offset up to which records count. ``orphaned_keys``: per changelog, keys
    whose newest visible records do not count; their true values must be written again before anything else.
    """

    last: CommitRecord | None
    restore_next: Mapping[str, int]
    orphaned_keys: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    is_torn: bool = False
    by_marker: bool = False
    """True where ``last`` is older than what counts, so that it says nothing of the input."""

    @property
    def owner(self) -> int:
        """The number of the owner that resolves."""
        return self.last.owner + 1 if self.last else 0

    @property
    def sequence(self) -> int:
        """The sequence of the last commit; −1 when there was none."""
        return self.last.sequence if self.last else -1


def resolve(tails: Mapping[str, Tail]) -> CommittedEnd:
    """Decide about all changelogs of one task together.

    The newest commit record of any of them is the task's last commit: it was sent only after every change and
    output of its commit had been acknowledged. So where it is missing, the changes are all there and count;
    where it stands, what follows it was never committed.
    """
    last = max(
        (tail.last for tail in tails.values() if tail.last is not None),
        key=lambda record: (record.sequence, record.owner),
        default=None,
    )
    restore_next: dict[str, int] = {}
    orphaned_keys: dict[str, frozenset[bytes]] = {}
    is_torn = False
    for name, tail in tails.items():
        is_behind = tail.last is not None and last is not None and tail.last.sequence < last.sequence
        # Where no key is orphaned the end is the end, so that stores which have read on past the marker fit.
        has_orphans = bool(tail.keys) and not is_behind
        restore_next[name] = tail.committed_next if has_orphans else tail.offset_next
        if has_orphans:
            orphaned_keys[name] = tail.keys
        is_torn = is_torn or is_behind or bool(tail.keys)
    return CommittedEnd(last, restore_next, orphaned_keys, is_torn)


class SequenceFilter:
    """Turns a changelog, read as it grows, into committed changes; for whoever follows one without owning it.

    Changes are held back until their commit record arrives. They are bounded by one commit, except in a log
    that starts without commit records: give ``committed_next`` (of ``find_tail``) to let what stands before it
    pass.
    """

    def __init__(self, committed_next: int) -> None:
        self._committed_next = committed_next
        self._held: list[Change] = []

    @property
    def held(self) -> Sequence[Change]:
        """Changes read and not committed yet."""
        return self._held

    @property
    def offset_next(self) -> int:
        """Everything before this offset is committed and has been handed out: the position of a store fed
        so."""
        return self._committed_next

    def feed(self, rows: Rows) -> list[Change]:
        """The changes that are committed now, in the order of the log; newest last for a key that comes
        twice."""
        committed: list[Change] = []
        for offset, key, value in rows:
            if key == COMMIT_KEY:
                committed += self._held
                self._held = []
                self._committed_next = max(self._committed_next, offset + 1)
            elif key is None or is_reserved(key):
                continue
            elif offset < self._committed_next:
                committed.append((key, value))
            else:
                self._held.append((key, value))
        return committed
