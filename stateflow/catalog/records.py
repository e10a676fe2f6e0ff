"""The records of the control topic, told apart: the catalog, records that cannot be read, and those of somebody else.

Whoever may write to the topic may write anything. A bad record of an entry that the application can do without is
passed over, as if it had not been written; so the record before it under that key counts, where the log still has it.
A bad record of an entry that it needs is never passed over: without it the application would look like another one, or
like a new one, and topics would be made over existing state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stateflow.catalog.encoding import BARRIER_KEY, decode_entry
from stateflow.catalog.model import (
    FORMAT_NEWEST,
    AppEntry,
    BarrierEntry,
    Catalog,
    CatalogEntry,
    GenerationEntry,
    SavepointEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.names import changelog_topic, control_topic
from stateflow.changelog.format import is_reserved
from stateflow.errors import CatalogIncompatible
from stateflow.record import is_topic_name

_SHOWN_MAX = 5


class Stored(NamedTuple):
    """A record under some key."""

    offset: int
    value: bytes | None


History = Mapping[bytes, Sequence[Stored]]
"""Key → its records in the log, the newest last."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """The newest record under a key of the catalog, which cannot be read."""

    key: bytes
    offset: int
    """-1 for a record that is missing."""
    why: str
    is_needed: bool
    """Whether the application cannot do without the entry."""
    older: Stored | None
    """The newest record under the key that can be read, where the log still has one."""

    @property
    def name(self) -> str:
        """The key, for people."""
        return shown_key(self.key)

    def __str__(self) -> str:
        where = f" at offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.name!r}{where} ({self.why})"


@dataclass(frozen=True, slots=True)
class Found:
    """What is on a control topic."""

    app: str
    catalog: Catalog | None
    """Of all entries that can be read; None without the entry ``app``."""
    bad: tuple[BadRecord, ...] = ()
    unknown: tuple[tuple[bytes, Stored], ...] = ()
    """Records under keys that are not the catalog's: of another version, or of something else."""

    def whole(self) -> Catalog | None:
        """The catalog; None for an application that was never started.

        Raises ``CatalogIncompatible`` when an entry that is needed is missing or cannot be read.
        """
        self.refuse(tuple(bad for bad in self.bad if bad.is_needed))
        return self.catalog

    def without_details(self) -> Catalog | None:
        """As ``whole``, for those who need no stages and stores: entries of these are left out when they are bad."""
        details = (b"stage/", b"store/")
        self.refuse(tuple(bad for bad in self.bad if bad.is_needed and not bad.key.startswith(details)))
        return self.catalog

    def refuse(self, needed: Sequence[BadRecord]) -> None:
        """Raise ``CatalogIncompatible``, naming the records, unless there are none."""
        if not needed:
            return
        named = "; ".join(str(bad) for bad in needed[:_SHOWN_MAX])
        noun = "entry" if len(needed) == 1 else "entries"
        raise CatalogIncompatible(
            f"the catalog {noun} of {self.app!r} on {control_topic(self.app)}, partition 0, cannot be read: {named}.",
            action="nothing was changed. Where a newer stateflow wrote it, upgrade this one. Else something else wrote"
            f" to the topic: `stateflow repair --app {self.app}` shows what is there, and puts the records back that"
            " stood there before.",
            app=self.app,
            topic=control_topic(self.app),
            partition=0,
            keys=[bad.name for bad in needed],
            offsets=[bad.offset for bad in needed],
        )


def shown_key(key: bytes) -> str:
    """A key for people, whatever its bytes are."""
    return key[:200].decode(errors="backslashreplace")


def sort_records(app: str, history: History) -> Found:
    """Tell the records of ``app``'s control topic apart. Raises ``CatalogIncompatible`` for a newer format."""
    entries: dict[bytes, CatalogEntry] = {}
    broken: dict[bytes, tuple[str, Stored | None]] = {}
    unknown: list[tuple[bytes, Stored]] = []
    for key, stored in history.items():
        newest = stored[-1]
        if newest.value is None or is_reserved(key):
            continue
        try:
            entry = decode_entry(app, key, newest.value)
        except ValueError as error:
            broken[key] = str(error), _readable(app, key, stored[:-1])
            continue
        if entry is None:
            unknown.append((key, newest))
        else:
            entries[key] = entry
    _refuse_newer_format(app, entries.values())
    for key, why in _unconnected(entries, broken):
        del entries[key]
        broken[key] = why, _readable(app, key, history[key][:-1])
    bad = tuple(
        BadRecord(key, history[key][-1].offset, why, _is_needed(app, key, entries), older)
        for key, (why, older) in broken.items()
    )
    for one in bad:
        if not one.is_needed and one.older is not None and one.older.value is not None:
            before = decode_entry(app, one.key, one.older.value)
            assert before is not None, "the key is the catalog's"
            entries[one.key] = before
    return Found(app, _catalog(entries), bad + _missing_app(app, entries, broken, history), tuple(unknown))


def _readable(app: str, key: bytes, older: Sequence[Stored]) -> Stored | None:
    """The newest of some records that can be read; a deletion can."""
    for stored in reversed(older):
        try:
            if stored.value is not None:
                decode_entry(app, key, stored.value)
        except ValueError:  # one more that cannot be read: the one before it, then
            continue
        return stored
    return None


def _refuse_newer_format(app: str, entries: Iterable[CatalogEntry]) -> None:
    for entry in entries:
        if isinstance(entry, AppEntry) and entry.format > FORMAT_NEWEST:
            raise CatalogIncompatible(
                f"the catalog of {app!r} is written in format {entry.format}; this version knows"
                f" {FORMAT_NEWEST}.",
                action="upgrade stateflow on this machine to the version that the application's workers run.",
                app=app,
            )


def _unconnected(
    entries: Mapping[bytes, CatalogEntry], broken: Mapping[bytes, object]
) -> list[tuple[bytes, str]]:
    """Entries that name a stage which is not there, nor is a record of it that cannot be read."""
    stages = {entry.name for entry in entries.values() if isinstance(entry, StageEntry)}
    stages |= {key.decode(errors="replace").removeprefix("stage/") for key in broken}
    found = []
    for key, entry in entries.items():
        if isinstance(entry, StoreEntry) and entry.stage not in stages:
            found.append((key, f"there is no stage {entry.stage!r}"))
    return found


def _is_needed(app: str, key: bytes, entries: Mapping[bytes, CatalogEntry]) -> bool:
    kind, separator, name = key.decode(errors="replace").partition("/")
    if separator and not (
        re.fullmatch(r"0|[1-9][0-9]*", name) if kind == "generation" else is_topic_name(name)
    ):
        return False  # no entry of ours has such a key
    generations = [entry for entry in entries.values() if isinstance(entry, GenerationEntry)]
    if key == BARRIER_KEY or kind == "savepoint":
        return False
    if kind == "store":  # needed where it has, or may have, a changelog
        topics = {topic for entry in generations for topic in entry.topic_ids}
        numbers = {entry.generation for entry in generations} | {
            entry.source_generation for entry in generations
        }
        return not generations or any(changelog_topic(app, name, number) in topics for number in numbers)
    if kind == "generation":  # one before the active is over; one behind it may be about to become active
        active = max((entry.generation for entry in generations if entry.state == "active"), default=-1)
        return int(name) >= active
    return True


def _missing_app(
    app: str, entries: Mapping[bytes, CatalogEntry], broken: Mapping[bytes, object], history: History
) -> tuple[BadRecord, ...]:
    """The entry ``app`` is written with the first of the others and never removed: without it they are no catalog."""
    if b"app" in entries or b"app" in broken:
        return ()
    if not any(isinstance(entry, StageEntry | StoreEntry | GenerationEntry) for entry in entries.values()):
        return ()
    values = [stored for stored in history.get(b"app", ()) if stored.value is not None]
    why = "it is not there, and other entries are"
    return (BadRecord(b"app", -1, why, is_needed=True, older=_readable(app, b"app", values)),)


def _catalog(entries: Mapping[bytes, CatalogEntry]) -> Catalog | None:
    found = entries.get(b"app")
    if not isinstance(found, AppEntry):
        return None
    values = list(entries.values())
    barrier = entries.get(BARRIER_KEY)
    return Catalog(
        app=found,
        stages={entry.name: entry for entry in values if isinstance(entry, StageEntry)},
        stores={entry.name: entry for entry in values if isinstance(entry, StoreEntry)},
        generations={entry.generation: entry for entry in values if isinstance(entry, GenerationEntry)},
        barrier=barrier if isinstance(barrier, BarrierEntry) else None,
        savepoints={entry.name: entry for entry in values if isinstance(entry, SavepointEntry)},
    )
