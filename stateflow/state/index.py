"""Secondary indexes: entries of a state found by something in their values.

An index is derived: it has a family of its own beside the store, written in the same batch, and is never logged. What
may be behind is made anew from the store when a task opens, whatever way its state came there (``store/derived.py``).

Entry ``step(index name) ‖ step(value) ‖ store key`` holds nothing. A store key begins with its routing key, so the
entries of the current key's map stand together, and so do all keys of the task, which is what queries ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import CodeType
from typing import Any, Protocol

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.ordered import Tagged
from stateflow.errors import Interrupted, ProcessingError
from stateflow.state.layout import prefix_end
from stateflow.state.path import step
from stateflow.store.base import Change, StateStore, StorePosition, StoreReader, TaskStores
from stateflow.store.derived import index_family

Pick = Callable[[Any], Any]
"""Out of a value what it is found by: bool, int, float, str or bytes; a list, tuple or set of them; or None for not."""

_ENTRIES_PER_STEP = 100_000
_PICKED_MANY = (list, tuple, set, frozenset)


class DerivedIndex(Protocol):
    """What is kept in order beside a store, in a derived family of its own."""

    @property
    def store(self) -> str:
        """The store that it follows from."""
        ...

    @property
    def family(self) -> str:
        """Where its entries are."""
        ...

    @property
    def mark(self) -> StorePosition:
        """What stands among the positions while it is up to date. Another one has the index made anew."""
        ...

    def entries(self, store_key: bytes, stored: bytes | None) -> set[bytes]:
        """What it holds for one entry of the store."""
        ...


class StateIndex:
    """Implements ``DerivedIndex``: the secondary indexes of one store.

    ``written`` is the fingerprint of what they were, or would be, made with.
    """

    def __init__(
        self, store: str, picks: Mapping[str, Pick], codec: Codec[Any], times_bytes: int, written: str
    ) -> None:
        self.store = store
        self.family = index_family(store)
        self._picks = dict(picks)
        self._codec = codec
        self._times_bytes = times_bytes
        """Bytes before a value that has a time to live."""
        self.mark = StorePosition(f"index:{written}:{','.join(sorted(self._picks))}", 0)

    def entries(self, store_key: bytes, stored: bytes | None) -> set[bytes]:
        """What the indexes hold for one entry of the store. Raises ``ProcessingError`` for what cannot be indexed."""
        if stored is None:
            return set()
        value = self._codec.decode(stored[self._times_bytes :])
        return {
            step(name.encode()) + step(picked) + store_key
            for name, pick in self._picks.items()
            for picked in self._picked(name, pick, value)
        }

    def prefix(self, name: str, value: Any) -> bytes:
        """What the entries of one index value begin with. KeyError for an index that there is not."""
        if name not in self._picks:
            raise KeyError(name)
        return lookup_prefix(name, value)

    @property
    def names(self) -> list[str]:
        """Names of the indexes."""
        return sorted(self._picks)

    def _picked(self, name: str, pick: Pick, value: Any) -> list[bytes]:
        try:
            found = pick(value)
            many = found if isinstance(found, _PICKED_MANY) else (found,)
            return [Tagged.encode(one) for one in many if one is not None]
        except Exception as error:
            raise ProcessingError(
                f"the index {name!r} of {self.store} cannot be had of {value!r:.100}: {error}.",
                action="Let the function give bool, int, float, str or bytes, a list of them, or None for not.",
                store=self.store,
                index=name,
            ) from error


IndexFor = Callable[[StoreEntry], DerivedIndex]
"""The index over a store that the catalog describes so."""


def lookup_prefix(name: str, value: Any) -> bytes:
    """What the entries of one value in one index begin with."""
    return step(name.encode()) + step(Tagged.encode(value))


class IndexedStore:
    """Implements ``StateStore``: every write keeps the indexes up; they are as uncommitted as the writes are."""

    def __init__(self, base: StateStore, derived: StateStore, index: StateIndex) -> None:
        self._base = base
        self._derived = derived
        self.index = index
        self.get = base.get
        self.get_many = base.get_many
        self.scan = base.scan
        self.range = base.range

    @property
    def dirty_bytes(self) -> int:
        """Bytes of keys and values changed since the last commit, those of the indexes too."""
        return self._base.dirty_bytes + self._derived.dirty_bytes

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        self._change(key, value)
        self._base.put(key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self._change(key, None)
        self._base.delete(key)

    def put_many(self, changes: Sequence[Change]) -> None:
        """Set or delete many keys, each of them once."""
        for key, value in changes:
            self._change(key, value)
        self._base.put_many(changes)

    def put_keys(self, keys: Sequence[bytes]) -> None:
        """Set many different keys in their order, which have no value."""
        self.put_many([(key, b"") for key in keys])

    def put_new_keys(self, keys: Sequence[bytes]) -> None:
        """The same of keys that are not there."""
        self.put_keys(keys)

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Remove many different keys."""
        self.put_many([(key, None) for key in keys])

    def find(self, name: str, value: Any, store_prefix: bytes) -> list[bytes]:
        """Store keys that begin so and have the value, in order. KeyError for an index that there is not."""
        prefix = self.index.prefix(name, value)
        low = prefix + store_prefix
        return [key[len(prefix) :] for key, _ in self._derived.scan(low, prefix_end(low))]

    def _change(self, key: bytes, value: bytes | None) -> None:
        before = self.index.entries(key, self._base.get(key))
        after = self.index.entries(key, value)
        for gone in before - after:
            self._derived.delete(gone)
        for new in after - before:
            self._derived.put(new, b"")


def bring_up(stores: TaskStores, index: DerivedIndex, cancelled: Callable[[], bool]) -> int:
    """Make the indexes of one store what its content says; returns the entries read, 0 where they were.

    Raises ``Interrupted`` soon after ``cancelled`` turns true; a part that was made is made again.
    """
    stores.derive(index.family)
    if stores.position(index.family) == index.mark:
        return 0
    stores.clear(index.family)
    total = 0
    entries = stores.reader(index.store).scan()
    while chunk := list(islice(entries, _ENTRIES_PER_STEP)):
        if cancelled():
            raise Interrupted(
                f"indexing {index.store} was stopped.", action="nothing; it begins anew with the task."
            )
        found = sorted({entry for key, value in chunk for entry in index.entries(key, value)})
        stores.load(index.family, [(entry, b"") for entry in found], StorePosition("unfinished", total))
        total += len(chunk)
    stores.apply({}, {index.family: index.mark})
    return total


def marked_names(mark: StorePosition) -> list[str]:
    """The names of the indexes that a mark stands for."""
    return mark.topic_id.split(":", 2)[2].split(",")


def found_keys(reader: StoreReader, name: str, value: Any) -> Iterator[bytes]:
    """Store keys that an index holds for a value, in order, for readers without the application's code."""
    prefix = lookup_prefix(name, value)
    return (key[len(prefix) :] for key, _ in reader.scan(prefix, prefix_end(prefix)))


def fingerprint(picks: Mapping[str, Pick], codec: Codec[Any], version: int) -> str:
    """Changes with the functions' code, the codec, and the version, which the application counts."""
    from hashlib import sha256  # loads OpenSSL, which few processes need so early

    parts: list[object] = [version, repr(sorted(codec.describe().items(), key=str))]
    for name, pick in sorted(picks.items()):
        parts += [name, *_code_parts(pick)]
    return sha256(repr(parts).encode()).hexdigest()[:24]


def _code_parts(pick: Pick) -> Iterable[object]:
    code = getattr(pick, "__code__", None)
    if not isinstance(code, CodeType):
        return [repr(pick)]  # what shows its address is made anew in every process
    return [*_code(code), repr(getattr(pick, "__defaults__", None))]


def _code(code: CodeType) -> list[object]:
    """What a function does, without where it is written."""
    return [code.co_code.hex(), code.co_names, *(_constant(part) for part in code.co_consts)]


def _constant(part: object) -> object:
    if isinstance(part, CodeType):
        return _code(part)
    return sorted(map(repr, part)) if isinstance(part, frozenset) else repr(part)
