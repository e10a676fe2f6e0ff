"""One partition of the memory log: offset slots, transaction markers, the last stable offset, the cleaner.

Follows Kafka's rules: a marker takes an offset of its own; a read-committed reader sees nothing at or past
the first offset of the oldest open transaction; aborted records are never shown; compaction leaves gaps and
never moves the end. Not thread-safe: the cluster's lock is held around every call.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from stateflow.record import Headers, OffsetRange


class Payload(NamedTuple):
    """What a producer hands over for one record."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


@dataclass(slots=True, eq=False)
class TransactionMark:
    """The fate of one transaction, shared by its records and markers."""

    state: Literal["open", "committed", "aborted"] = "open"


@dataclass(slots=True)
class Slot:
    """One occupied offset: a record, or a marker when ``payload`` is None."""

    offset: int
    payload: Payload | None
    transaction: TransactionMark | None
    delete_horizon_ms: int | None = None


class Fetched(NamedTuple):
    """Visible records from one fetch, and the offset that reading goes on from."""

    slots: list[Slot]
    position: int
    at_end: bool


@dataclass(slots=True)
class PartitionLog:
    """The slots of one partition, in offset order, with gaps where the cleaner was."""

    slots: list[Slot] = field(default_factory=list)
    log_start: int = 0
    end: int = 0
    _open: dict[int, tuple[TransactionMark, int]] = field(default_factory=dict)

    def append(self, payload: Payload, transaction: TransactionMark | None) -> int:
        """Append one record and return its offset."""
        offset = self.end
        if transaction is not None and id(transaction) not in self._open:
            self._open[id(transaction)] = (transaction, offset)
        self.slots.append(Slot(offset, payload, transaction))
        self.end = offset + 1
        return offset

    def end_transaction(self, transaction: TransactionMark, left: TransactionMark | None = None) -> None:
        """Write the marker of a transaction that touched this partition. Its state must be decided before.

        What an earlier one of the same producer has ``left`` open here ends with it.
        """
        assert transaction.state != "open", "decide a transaction before marking it"
        self._open.pop(id(transaction), None)  # nothing of one without records
        if left is not None:
            left.state = transaction.state
            del self._open[id(left)]
        self.slots.append(Slot(self.end, None, transaction))
        self.end += 1

    def leave_open(self, transaction: TransactionMark, left: TransactionMark) -> None:
        """A transaction ends, and its marker does not get here: its records stay open, as those of ``left``."""
        _, offset_first = self._open.pop(id(transaction), (transaction, self.end))
        for slot in self.slots[self._index(offset_first) :]:
            if slot.transaction is transaction:
                slot.transaction = left
        _, before = self._open.get(id(left), (left, offset_first))
        self._open[id(left)] = left, min(before, offset_first)

    def holds_record(self, offset: int) -> bool:
        """Whether a record stands there, whatever became of it."""
        at = self._index(offset)
        return at < len(self.slots) and self.slots[at].offset == offset and self.slots[at].payload is not None

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the oldest open transaction begins, else the end."""
        if not self._open:
            return self.end
        return min([first for _, first in self._open.values()])

    @property
    def range(self) -> OffsetRange:
        """Log start and last stable offset."""
        start, end = self.log_start, self.stable_end
        return OffsetRange(start, end if end > start else start)

    def fetch(self, offset_first: int, max_records: int) -> Fetched:
        """Up to ``max_records`` committed records from ``offset_first``, which must be in the log.

        The position is past the last record while more follow, and the stable end once there are none: past
        markers, aborted records and gaps.
        """
        stable_end = max(self.log_start, self.stable_end)
        visible: list[Slot] = []
        if offset_first >= stable_end:
            return Fetched(visible, offset_first, at_end=True)
        for index in range(self._index(offset_first), len(self.slots)):
            slot = self.slots[index]
            if slot.offset >= stable_end:
                break
            if slot.payload is None or (slot.transaction and slot.transaction.state == "aborted"):
                continue
            if len(visible) == max_records:
                return Fetched(visible, visible[-1].offset + 1 if visible else offset_first, at_end=False)
            visible.append(slot)
        return Fetched(visible, max(offset_first, stable_end), at_end=True)

    def trim(self, offset_first: int) -> None:
        """Drop every slot before ``offset_first``."""
        del self.slots[: self._index(offset_first)]
        self.log_start = max(self.log_start, offset_first)

    def compact(self, *, now_ms: int, delete_retention_ms: int, active_slots: int) -> int:
        """One pass of the cleaner; returns the number of slots removed.

        The cleaned part ends at the last stable offset, or ``active_slots`` before the end if that is first.
        In it the newest record per key stays. A tombstone or marker that this pass meets for the first time
        gets a horizon of now + ``delete_retention_ms`` and goes in the first pass at or after it (a marker
        only once no record of its transaction is left).
        """
        active_first = self.slots[-active_slots].offset if 0 < active_slots <= len(self.slots) else self.end
        if active_slots > len(self.slots):
            return 0
        cut = self._index(min(self.stable_end, active_first))
        cleaned, tail = self.slots[:cut], self.slots[cut:]
        kept = list(_newest(cleaned))
        with_records = {id(slot.transaction) for slot in [*kept, *tail] if slot.payload is not None}
        survivors = [
            slot
            for slot in kept
            if not _expired(
                slot, now_ms, delete_retention_ms, has_records=id(slot.transaction) in with_records
            )
        ]
        self.slots = survivors + tail
        return len(cleaned) - len(survivors)

    def _index(self, offset: int) -> int:
        return bisect.bisect_left(self.slots, offset, key=lambda slot: slot.offset)


def _newest(slots: list[Slot]) -> Iterable[Slot]:
    """Markers, and the newest not aborted record of each key, in offset order."""
    newest: dict[bytes, int] = {}
    for slot in slots:
        if slot.payload is not None and not (slot.transaction and slot.transaction.state == "aborted"):
            assert slot.payload.key is not None, "a compacted topic holds keyed records only"
            newest[slot.payload.key] = slot.offset
    chosen = set(newest.values())
    return (slot for slot in slots if slot.payload is None or slot.offset in chosen)


def _expired(slot: Slot, now_ms: int, delete_retention_ms: int, *, has_records: bool) -> bool:
    """Whether a tombstone or an empty marker has outlived its horizon; sets the horizon when first met."""
    is_tombstone = slot.payload is not None and slot.payload.value is None
    is_empty_marker = slot.payload is None and not has_records
    if not (is_tombstone or is_empty_marker):
        return False
    if slot.delete_horizon_ms is None:
        slot.delete_horizon_ms = now_ms + delete_retention_ms
        return False
    return now_ms >= slot.delete_horizon_ms
