"""The catalog as records: keys and JSON values of the control topic. Bytes: ``docs/formats.md``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from stateflow.catalog.checks import check_entry
from stateflow.catalog.model import (
    AppEntry,
    BarrierEntry,
    CatalogEntry,
    GenerationEntry,
    SavepointEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.older import upgraded_stage

VALUE_BYTES_MAX = 16 << 20
"""Of one record of the control topic; an audit of 1,000 stores of 100 partitions each takes 12 MB."""
KEPT_BYTES_MAX = 4 << 10


@dataclass(frozen=True, slots=True)
class Removed:
    """An entry that is to be no longer there."""

    entry: CatalogEntry


CatalogItem = CatalogEntry | Removed

_APP = b"app"
STAGE_PREFIX = b"stage/"
_STORE = b"store/"
_GENERATION = b"generation/"
BARRIER_KEY = b"cut"
"""The key of the newest savepoint barrier: topics keep the word that the first version had for it."""
_SAVEPOINT = b"savepoint/"


def encode_item(entry: CatalogItem) -> tuple[bytes, bytes | None]:
    """Key and value of one entry. JSON with sorted keys, so that equal entries are equal bytes; None removes."""
    if isinstance(entry, Removed):
        return _key(entry.entry), None
    return _key(entry), msgspec.json.encode(entry, order="sorted")


def decode_entry(app: str, key: bytes, value: bytes) -> CatalogEntry | None:
    """The entry that a record holds; None under a key that is not the catalog's.

    Raises ``ValueError``, saying why, for what no version wrote: values are not trusted to be ours, and names in them
    become those of topics, directories and objects.
    """
    if len(value) > VALUE_BYTES_MAX:
        form = _form_of(key)
        if form is None:
            return None
        raise ValueError(f"it has {len(value)} bytes, more than {VALUE_BYTES_MAX}")
    return (_decode_kept if len(value) <= KEPT_BYTES_MAX else _decode)(app, key, value)


def _decode(app: str, key: bytes, value: bytes) -> CatalogEntry | None:
    form = _form_of(key)
    if form is None:
        return None
    entry = _decoded(value, form)
    if _key(entry) != key:
        raise ValueError(f"it holds the entry of {_key(entry).decode()!r}")
    check_entry(app, entry)
    return entry


_decode_kept = lru_cache(maxsize=256)(_decode)
"""Every task that is opened reads the catalog, and finds the same entries; nobody can change one."""


def _form_of(key: bytes) -> type[CatalogEntry] | None:
    exact: dict[bytes, type[CatalogEntry]] = {_APP: AppEntry, BARRIER_KEY: BarrierEntry}
    prefixes: dict[bytes, type[CatalogEntry]] = {
        STAGE_PREFIX: StageEntry,
        _STORE: StoreEntry,
        _GENERATION: GenerationEntry,
        _SAVEPOINT: SavepointEntry,
    }
    return exact.get(key) or next((form for start, form in prefixes.items() if key.startswith(start)), None)


def _key(entry: CatalogEntry) -> bytes:
    match entry:
        case AppEntry():
            return _APP
        case StageEntry(name=name):
            return STAGE_PREFIX + name.encode()
        case StoreEntry(name=name):
            return _STORE + name.encode()
        case GenerationEntry(generation=generation):
            return _GENERATION + str(generation).encode()
        case BarrierEntry():
            return BARRIER_KEY
        case SavepointEntry(name=name):
            return _SAVEPOINT + name.encode()


def _decoded(value: bytes, form: type[CatalogEntry]) -> CatalogEntry:
    try:
        if form is StageEntry:
            return msgspec.convert(upgraded_stage(msgspec.json.decode(value)), type=StageEntry)
        return msgspec.json.decode(value, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
