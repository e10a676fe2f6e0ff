"""Two states of one key become one: what each type of state does where they meet.

Within one application a key has one owner, so states meet only where two applications become one
(``stateflow scale merge``). *Ours* is the state of the one that goes on.

=========== ==========================================================================================
counter     the sum; ``StateBoundExceeded`` beyond 64 bits
set         the union; it may outgrow ``max_length``, and then refuses further elements
reducing    the declared ``reduce``
list        ours, then theirs; beyond ``max_length`` the oldest are dropped
map, nested entry by entry; an entry of both by ``merge=``, or the one written last where there is a ttl
value       ``merge=``, or the one written last where there is a ttl
versioned   all versions by time; one instant of both by ``merge=``; then ``max_versions``
window      the aggregate's own merge, window by window; sliding ones instant by instant
count       never: the order of both sides' records is not known
session     sessions within a gap of each other become one, by the aggregate's own merge
timers      by name; one of both that was set last
=========== ==========================================================================================

Anything else raises ``MergeUndefined``: no state is dropped because another one has the same key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.scalar import Integer
from stateflow.codec.timed import TIME_BYTES, TIMES_BYTES, stamp, stamp_both, time_of, times_of
from stateflow.codec.timer import EncodedTimer
from stateflow.errors import MergeUndefined
from stateflow.state.counter import checked_count
from stateflow.state.layout import index_bytes, index_of, prefixed_key, split_prefixed, split_window
from stateflow.state.listof import ENDS

Entries = dict[bytes, bytes]
"""All entries that one store holds for one routing key."""
ValueMerge = Callable[[bytes, bytes], bytes]
"""Ours and theirs, encoded, without time stamps; the value that stands for both."""
MergeFor = Callable[[StoreEntry], ValueMerge]
"""The function for values of a store that the catalog describes so."""

_PRESENT = b"\x01"
_TIMES_BYTES = {"timestamped": TIME_BYTES, "expiring": TIMES_BYTES}
"""What stands before a value that has a time to live."""


def value_merge(codec: Codec[Any], function: Callable[[Any, Any], Any]) -> ValueMerge:
    """An application's function over values as a function over their bytes."""
    return lambda ours, theirs: codec.encode(function(codec.decode(ours), codec.decode(theirs)))


class StateMerge:
    """Merges states of one store. ``merge_for`` gives the application's function, where its type needs one."""

    def __init__(self, entry: StoreEntry, merge_for: MergeFor | None = None) -> None:
        self._entry = entry
        self._times_bytes = _TIMES_BYTES.get(entry.value_codec["codec"], 0)
        own = {"counter": _added, "set": _either, "timers": _set_last}
        self._function = own.get(entry.kind) if merge_for is None else merge_for(entry)

    @property
    def is_defined(self) -> bool:
        """True when any two states can become one; else only those that have no entry in common."""
        return self._function is not None or self._times_bytes > 0 or self._entry.kind == "list"

    def merge(self, routing_key: bytes, ours: Entries, theirs: Entries) -> Entries:
        """The entries of both as one; raises ``MergeUndefined``. What it was given stays as it is."""
        if self._entry.kind == "list":
            return self._concatenated(prefixed_key(routing_key), ours, theirs)
        if self._entry.kind == "count" and ours and theirs:
            raise self._undefined(next(iter(ours)))  # nobody knows in which order their records came
        if self._entry.kind == "session":
            return self._connected(ours, theirs)
        merged = {**theirs, **ours}
        for key in ours.keys() & theirs.keys():
            merged[key] = self._combined(key, ours[key], theirs[key])
        if self._entry.kind == "counter":
            return {key: value for key, value in merged.items() if Integer.decode(self._payload(value))}
        if self._entry.kind == "versioned" and self._entry.max_length is not None:
            return {key: merged[key] for key in sorted(merged)[: self._entry.max_length]}
        return merged

    def meets(self, ours: Entries, theirs: Entries) -> bool:
        """True when one key's states have something in common that must be merged."""
        return (
            bool(ours and theirs)
            if self._entry.kind in ("list", "session", "count")
            else not ours.keys().isdisjoint(theirs)
        )

    def _payload(self, stored: bytes) -> bytes:
        return stored[self._times_bytes :]

    def _combined(self, key: bytes, ours: bytes, theirs: bytes) -> bytes:
        if self._function is None:
            if not self._times_bytes:
                raise self._undefined(key)
            return theirs if time_of(theirs) > time_of(ours) else ours
        if self._entry.kind == "versioned":
            return self._combined_versions(ours, theirs)
        return self._stamped(ours, theirs, self._function(self._payload(ours), self._payload(theirs)))

    def _stamped(self, ours: bytes, theirs: bytes, value: bytes) -> bytes:
        """A value as written when the later of both was, and as long-lived as the one that lives longer."""
        if self._times_bytes == TIME_BYTES:
            return stamp(value, max(time_of(ours), time_of(theirs)))
        if self._times_bytes == TIMES_BYTES:
            both = zip(times_of(ours), times_of(theirs), strict=True)
            return stamp_both(value, *(max(pair) for pair in both))
        return value

    def _concatenated(self, prefix: bytes, ours: Entries, theirs: Entries) -> Entries:
        """Our elements keep their indexes, theirs follow. Indexes without an element have expired."""
        if prefix not in ours or prefix not in theirs:
            return {**theirs, **ours}
        first, after = ENDS.unpack(self._payload(ours[prefix]))
        their_first, their_after = ENDS.unpack(self._payload(theirs[prefix]))
        merged = dict(ours)
        for key, value in theirs.items():
            index = 0 if key == prefix else index_of(split_prefixed(key)[1])
            if key != prefix and index >= their_first:  # what is before has expired
                merged[prefix + index_bytes(index - their_first + after)] = value
        after += their_after - their_first
        max_length = self._entry.max_length
        keep_from = first if max_length is None else max(first, after - max_length)
        for index in range(first, keep_from):
            merged.pop(prefix + index_bytes(index), None)
        merged[prefix] = self._stamped(ours[prefix], theirs[prefix], ENDS.pack(keep_from, after))
        return merged

    def _connected(self, ours: Entries, theirs: Entries) -> Entries:
        """Sessions by start, each with its end before the value; those that touch become one, in the order of time."""
        both = [(split_window(key)[1], key, value) for side in (ours, theirs) for key, value in side.items()]
        merged: Entries = {}
        last = b""
        for start_ms, key, value in sorted(both, key=lambda each: each[0]):
            if last and start_ms <= time_of(merged[last]) + (self._entry.window_ms or 0):
                merged[last] = self._combined(last, merged[last], value)
            else:
                merged[key], last = value, key
        return merged

    def _combined_versions(self, ours: bytes, theirs: bytes) -> bytes:
        """One instant of two histories: a value stands before a clearing, two values are merged."""
        assert self._function is not None, "the caller has looked"
        if ours[:1] != _PRESENT or theirs[:1] != _PRESENT:
            return max(ours, theirs)
        return _PRESENT + self._function(ours[1:], theirs[1:])

    def _undefined(self, key: bytes) -> MergeUndefined:
        return MergeUndefined(
            f"the store {self._entry.name!r}, {self._entry.kind} state, has two states of one key and no function"
            " that makes one of them.",
            action="declare sf.state(merge=…), a function of two values, and pass the application's code"
            " (module:attribute).",
            store=self._entry.name,
            key=key[:64].hex(),
        )


def _added(ours: bytes, theirs: bytes) -> bytes:
    return Integer.encode(checked_count(Integer.decode(ours) + Integer.decode(theirs)))


def _either(ours: bytes, theirs: bytes) -> bytes:  # noqa: ARG001 - elements have no value
    return ours


def _set_last(ours: bytes, theirs: bytes) -> bytes:
    return theirs if EncodedTimer.decode(theirs).set_ms > EncodedTimer.decode(ours).set_ms else ours
