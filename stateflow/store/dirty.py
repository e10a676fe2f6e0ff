"""What a running task works on: a dirty map and a read cache over the committed content of one store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, takewhile

from stateflow.memory import ENTRY_BYTES
from stateflow.store.base import Change, ChangeColumns, StoreReader
from stateflow.store.generations import MISSING, Known, Missing, ReadCache
from stateflow.store.ordered import OrderedKeys

DEFAULT_READ_CACHE_BYTES = 16 << 20
_SORTED_IN_PLACE_MAX = 1_000
"""So many new keys at once are put where they belong; for more the order is made anew when it is needed."""


class DirtyStore:
    """Implements ``StateStore``: reads see this task's own writes at once, disk sees them with the commit.

    Between ``mark`` and ``rollback`` or ``release`` lies what one record wrote, undone or kept; scopes do not nest.
    Not thread-safe.
    """

    def __init__(self, reader: StoreReader, read_cache_bytes: int = DEFAULT_READ_CACHE_BYTES) -> None:
        self._dirty_bytes = 0
        self._reader = reader
        self._dirty: dict[bytes, bytes | None] = {}
        self._cache = ReadCache(read_cache_bytes)
        self._undo: list[tuple[bytes, Known]] | None = None
        self._scope = 0
        self._order: OrderedKeys | None = None
        """The dirty keys in order, from the first scan of the epoch on: a store that is never scanned pays nothing."""
        self._run: Sequence[bytes] = ()
        """Keys in order, without values, that are all that was changed: nobody has looked at one of them yet."""
        self._run_is_new = False
        """Whether they are not in what is committed."""
        self._new: set[bytes] = set()
        """Keys that are not in what is committed: deleted within the epoch, they need not be spoken of."""

    @property
    def is_dirty(self) -> bool:
        """True when anything was changed since the last commit."""
        return bool(self._dirty or self._run)

    @property
    def dirty_bytes(self) -> int:
        """Bytes of keys and values changed since the last commit."""
        return self._dirty_bytes

    @property
    def held_bytes(self) -> int:
        """What the changes take in memory: ``dirty_bytes``, and what each entry costs beside."""
        return self._dirty_bytes + ENTRY_BYTES * (len(self._dirty) + len(self._run))

    def limit_cache(self, bytes_max: int) -> None:
        """From now on the read cache holds at most so much."""
        self._cache.limit(bytes_max)

    # --- reading --------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """The value as this task left it, or None."""
        if self._run:
            self._enter_run()
        value: Known = self._dirty.get(key, MISSING)
        if isinstance(value, Missing):
            value = self._cache.get(key)
            if isinstance(value, Missing):
                value = self._reader.get(key)
                self._cache.put(key, value)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys; what is in neither map is read from disk in one call."""
        self._enter_run()
        found: list[Known] = self._cache.get_many(keys)
        if self._dirty:
            found = list(map(self._dirty.get, keys, found))
        absent = [index for index, value in enumerate(found) if value is MISSING]
        if absent:
            wanted = [keys[index] for index in absent]
            values = self._reader.get_many(wanted)
            for index, value in zip(absent, values, strict=True):
                found[index] = value
            self._cache.put_many(wanted, values)
        return found  # type: ignore[return-value]  # no mark is left in it

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first`` ≤ key < ``after``, in byte order, as they are now.

        Later writes of this task do not change a scan that has begun.
        """
        self._enter_run()
        committed = self._reader.scan(first, after)
        if not self._dirty:
            return committed
        changed = self._ordered().between(first, after)
        return merge(committed, [(key, self._dirty[key]) for key in changed]) if changed else committed

    def range(self, first: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """The first entries that ``scan`` would give, ``limit`` at most.

        A scan takes all changed keys of its range at once, to stand still while they change; this takes as many as it
        needs.
        """
        self._enter_run()
        committed = self._reader.scan(first, after)
        if not self._dirty:
            return list(islice(committed, limit))
        changed = takewhile(lambda key: after is None or key < after, self._ordered().from_key(first))
        return list(islice(merge(committed, ((key, self._dirty[key]) for key in changed)), limit))

    def _ordered(self) -> OrderedKeys:
        if self._order is None:
            self._order = OrderedKeys(self._dirty)
        return self._order

    # --- writing --------------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        self._set(key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self._set(key, None)

    def put_many(self, changes: Sequence[Change]) -> None:
        """Set or delete many keys."""
        self._enter_run()
        if self._undo is not None:
            for key, value in changes:
                self._set(key, value)
            return
        newest = dict(changes)
        replaced = self._dirty.keys() & newest.keys()
        self._dirty_bytes -= sum(_size(key, self._dirty[key]) for key in replaced)
        self._dirty_bytes += sum(map(len, newest)) + sum(map(len, filter(None, newest.values())))
        if self._order is not None:
            self._put_in_order(newest.keys() - replaced)
        self._dirty.update(newest)

    def put_columns(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Set or delete many different keys."""
        if self._undo is not None or self._order is not None or self._dirty or self._run:
            changes = list(zip(keys, values, strict=True))
            DirtyStore.put_many(self, changes)  # not a decoded store's own, which would encode first
            return
        self._dirty = dict(zip(keys, values, strict=True))
        self._dirty_bytes = sum(map(len, keys)) + sum(map(len, filter(None, values)))

    def put_keys(self, keys: Sequence[bytes]) -> None:
        """Set many different keys in their order, which have no value."""
        if self._undo is not None or self._order is not None or self._dirty or self._run:
            self.put_many([(key, b"") for key in keys])
            return
        self._run, self._run_is_new = keys, False
        self._dirty_bytes = sum(map(len, keys))

    def put_new(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set many different keys that are not there.

        Those that are deleted in the same epoch leave nothing behind: neither the log nor the disk hears of them.
        """
        assert self._undo is None, "what may be undone is written key by key"
        self._enter_run()
        dirty = self._dirty
        if dirty.keys().isdisjoint(keys):
            self._new.update(keys)
            self._enter(keys, values)
        else:
            self._new.update(set(keys) - dirty.keys())
            DirtyStore.put_many(self, list(zip(keys, values, strict=True)))

    def put_new_keys(self, keys: Sequence[bytes]) -> None:
        """The same of keys in their order, which have no value."""
        if self._undo is not None or self._order is not None or self._dirty or self._run:
            self.put_new(keys, [b""] * len(keys))
            return
        self._run, self._run_is_new = keys, True
        self._dirty_bytes = sum(map(len, keys))

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Remove many different keys."""
        if self._undo is None:
            self._enter_run()
            if self._new and not self._new.isdisjoint(keys):
                keys = self._drop_new(keys)
            if self._dirty.keys().isdisjoint(keys):
                self._enter(keys, [None] * len(keys))
                return
        DirtyStore.put_many(self, [(key, None) for key in keys])

    def _enter(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Set or delete different keys that are not dirty yet."""
        self._dirty_bytes += sum(map(len, keys)) + sum(map(len, filter(None, values)))
        if self._order is not None:
            self._put_in_order(keys)
        self._dirty.update(zip(keys, values, strict=True))

    def _drop_new(self, keys: Sequence[bytes]) -> list[bytes]:
        """Forget those of the keys that only this epoch has seen; returns the others."""
        new, dirty, kept = self._new, self._dirty, []
        dropped = []
        for key in keys:
            if key in new:
                new.remove(key)
                self._dirty_bytes -= _size(key, dirty.pop(key))
                dropped.append(key)
            else:
                kept.append(key)
        if self._order is not None:
            self._order.discard_all(dropped)
        return kept

    def _enter_run(self) -> None:
        """Have the run in the map like all else: somebody looks, or changes something."""
        if self._run:
            self._dirty = dict.fromkeys(self._run, b"")
            if self._run_is_new:
                self._new.update(self._run)
            self._run = ()

    def _set(self, key: bytes, value: bytes | None) -> None:
        if self._run:
            self._enter_run()
        dirty = self._dirty
        before: Known = dirty.get(key, MISSING)
        if self._undo is not None:
            self._undo.append((key, before))
        dirty[key] = value
        value_bytes = len(value) if value else 0
        if isinstance(before, Missing):
            self._dirty_bytes += len(key) + value_bytes
            if self._order is not None:
                self._order.add(key)
        else:
            self._dirty_bytes += value_bytes - (len(before) if before else 0)

    def _put_in_order(self, added: Collection[bytes]) -> None:
        assert self._order is not None, "there is an order to keep"
        if not self._order.extend(sorted(added)):
            if len(added) > _SORTED_IN_PLACE_MAX:
                self._order = None
                return
            for key in added:
                self._order.add(key)

    # --- one record's scope -----------------------------------------------------------------------------

    def mark(self) -> int:
        """Begin a scope whose writes can be taken back; returns the mark that ends it."""
        assert self._undo is None, "undo scopes do not nest"
        self._undo = []
        self._scope += 1
        return self._scope

    def rollback(self, mark: int) -> None:
        """End the scope and take its writes back, newest first."""
        for key, before in reversed(self._end_scope(mark)):
            self._dirty_bytes -= _size(key, self._dirty[key])
            if isinstance(before, Missing):
                del self._dirty[key]
                if self._order is not None:
                    self._order.discard(key)
            else:
                self._dirty[key] = before
                self._dirty_bytes += _size(key, before)

    def release(self, mark: int) -> None:
        """End the scope and keep its writes."""
        self._end_scope(mark)

    def _end_scope(self, mark: int) -> list[tuple[bytes, Known]]:
        undo, self._undo = self._undo, None
        assert undo is not None, "no undo scope is open"
        assert mark == self._scope, "the mark of another scope"
        return undo

    # --- commit -----------------------------------------------------------------------------------------

    def changes(self) -> Sequence[Change]:
        """The epoch so far: every changed key once, sorted, with its whole new value."""
        if self._run:
            return ChangeColumns(self._run, [b""] * len(self._run))
        inserted = list(self._dirty)
        keys = sorted(inserted)
        if keys == inserted:  # what a decoded store or an index has put in order
            return ChangeColumns(keys, list(self._dirty.values()))
        return ChangeColumns(keys, list(map(self._dirty.__getitem__, keys)))

    def committed(self) -> None:
        """The epoch is on disk: its values stay readable from the cache, the dirty map is empty.

        What was deleted is not remembered: windows that were closed and timers that have fired would fill the cache.
        """
        assert self._undo is None, "a commit inside an undo scope"
        if not self._cache.bytes_max:
            self.clear()
            return
        self._enter_run()
        written = {key: value for key, value in self._dirty.items() if value is not None}
        self._cache.put_many(list(written.keys()), list(written.values()))
        if len(written) < len(self._dirty):
            self._cache.forget_many([key for key, value in self._dirty.items() if value is None])
        self.clear()

    def clear(self) -> None:
        """Drop the epoch; what was committed is as it was."""
        self._dirty, self._run = {}, ()
        self._new = set()
        self._order = None
        self._undo = None
        self._dirty_bytes = 0


def merge(
    committed: Iterator[tuple[bytes, bytes]], changed: Iterable[Change]
) -> Iterator[tuple[bytes, bytes]]:
    """Two sorted runs as one; a changed key hides the committed one, a deletion hides it altogether."""
    newer = iter(changed)
    upcoming = next(newer, None)
    for entry in committed:
        while upcoming is not None and upcoming[0] < entry[0]:
            if upcoming[1] is not None:
                yield upcoming[0], upcoming[1]
            upcoming = next(newer, None)
        if upcoming is not None and upcoming[0] == entry[0]:
            if upcoming[1] is not None:
                yield upcoming[0], upcoming[1]
            upcoming = next(newer, None)
        else:
            yield entry
    while upcoming is not None:
        if upcoming[1] is not None:
            yield upcoming[0], upcoming[1]
        upcoming = next(newer, None)


def _size(key: bytes, value: bytes | None) -> int:
    return len(key) + (0 if value is None else len(value))
