"""What one task has for a key, decoded as `stateflow state get` decodes it."""

from __future__ import annotations

from dataclasses import dataclass
from tempfile import TemporaryDirectory

from stateflow.record import OffsetRange
from stateflow.scale.early.asks import Ask, Source
from stateflow.state.decoding import Row, StoreDecoder
from stateflow.store.directory import TaskDirectory
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_CACHE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a key, and where they were found; none for a key that was deleted or never written."""

    rows: tuple[Row, ...]
    source: Source
    offsets: OffsetRange | None


def found_value(ask: Ask, value: bytes | None, source: Source, offsets: OffsetRange | None) -> Found:
    """The value of a store that has one per key; None when the key was deleted, or is not there."""
    name = ask.entry.name
    held = MemoryTaskStores([name])
    held.apply({name: [(ask.routing_key, value)]}, {})
    rows = StoreDecoder(ask.entry).rows_of(held.reader(name), ask.routing_key)
    return Found(tuple(rows), "nothing" if value is None and offsets is None else source, offsets)


def found_in_store(directory: TaskDirectory, ask: Ask) -> Found:
    """What a restored database has, which a worker may have opened meanwhile."""
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        stores = RocksTaskStores.open_secondary(directory, scratch, RocksResources(cache_bytes=_CACHE_BYTES))
        try:
            rows = tuple(StoreDecoder(ask.entry).rows_of(stores.reader(ask.entry.name), ask.routing_key))
        finally:
            stores.close()
    return Found(rows, "restored" if rows else "nothing", None)
