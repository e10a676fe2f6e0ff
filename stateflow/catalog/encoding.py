"""The catalog as records: keys and JSON values of the control topic. Bytes: ``docs/formats.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from stateflow.catalog.model import (
    FORMAT_VERSION,
    AppEntry,
    Catalog,
    CutEntry,
    GenerationEntry,
    SavepointEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.older import Upgrade, upgraded_stage
from stateflow.changelog.format import is_reserved
from stateflow.errors import CatalogIncompatible

_Entry = TypeVar("_Entry")

CatalogEntry = AppEntry | StageEntry | StoreEntry | GenerationEntry | CutEntry | SavepointEntry


@dataclass(frozen=True, slots=True)
class Removed:
    """An entry that is to be no longer there."""

    entry: CatalogEntry


CatalogItem = CatalogEntry | Removed

_APP = b"app"
_STAGE = b"stage/"
_STORE = b"store/"
_GENERATION = b"generation/"
CUT_KEY = b"cut"
_SAVEPOINT = b"savepoint/"


def encode_item(entry: CatalogItem) -> tuple[bytes, bytes | None]:
    """Key and value of one entry. JSON with sorted keys, so that equal entries are equal bytes; None removes."""
    if isinstance(entry, Removed):
        return _key(entry.entry), None
    return _key(entry), msgspec.json.encode(entry, order="sorted")


def decode_catalog(app: str, values: Mapping[bytes, bytes | None]) -> Catalog | None:
    """The catalog out of the newest value of every key; None when there is no ``app`` entry.

    Keys that begin otherwise belong to other readers of the topic (members) and are passed over.
    Raises ``CatalogIncompatible`` for a newer format or a broken entry.
    """
    present = {key: value for key, value in values.items() if value is not None and not is_reserved(key)}
    if _APP not in present:
        return None
    entry = _decode(present[_APP], AppEntry, app, _APP)
    if entry.format > FORMAT_VERSION:
        raise CatalogIncompatible(
            f"the catalog of {app!r} is written in format {entry.format}; this version knows"
            f" {FORMAT_VERSION}.",
            action="upgrade stateflow on this machine to the version that the application's workers run.",
            app=app,
        )
    stages = [
        _decode(present[key], StageEntry, app, key, upgraded_stage)
        for key in present
        if key.startswith(_STAGE)
    ]
    stores = [_decode(present[key], StoreEntry, app, key) for key in present if key.startswith(_STORE)]
    generations = [
        _decode(present[key], GenerationEntry, app, key) for key in present if key.startswith(_GENERATION)
    ]
    savepoints = [
        _decode(present[key], SavepointEntry, app, key) for key in present if key.startswith(_SAVEPOINT)
    ]
    return Catalog(
        app=entry,
        stages={stage.name: stage for stage in stages},
        stores={store.name: store for store in stores},
        generations={generation.generation: generation for generation in generations},
        cut=_decode(present[CUT_KEY], CutEntry, app, CUT_KEY) if CUT_KEY in present else None,
        savepoints={savepoint.name: savepoint for savepoint in savepoints},
    )


def decode_cut(app: str, value: bytes) -> CutEntry:
    """The value under ``CUT_KEY``. Raises ``CatalogIncompatible``."""
    return _decode(value, CutEntry, app, CUT_KEY)


def _key(entry: CatalogEntry) -> bytes:
    match entry:
        case AppEntry():
            return _APP
        case StageEntry(name=name):
            return _STAGE + name.encode()
        case StoreEntry(name=name):
            return _STORE + name.encode()
        case GenerationEntry(generation=generation):
            return _GENERATION + str(generation).encode()
        case CutEntry():
            return CUT_KEY
        case SavepointEntry(name=name):
            return _SAVEPOINT + name.encode()


def _decode(
    value: bytes, form: type[_Entry], app: str, key: bytes, upgraded: Upgrade | None = None
) -> _Entry:
    try:
        if upgraded is None:
            return msgspec.json.decode(value, type=form)
        return msgspec.convert(upgraded(msgspec.json.decode(value)), type=form)
    except (msgspec.DecodeError, TypeError, AttributeError, ValueError) as error:
        raise CatalogIncompatible(
            f"the catalog entry {key.decode(errors='replace')!r} of {app!r} cannot be read ({error}).",
            action="something else wrote to the control topic, or a newer stateflow did: upgrade, or write"
            " the entry"
            " again from a backup.",
            app=app,
            key=key,
        ) from error
