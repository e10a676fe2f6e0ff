"""What is wrong with a control topic, and the records that put it right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from stateflow.catalog.encoding import BARRIER_KEY, encode_item
from stateflow.catalog.model import BarrierEntry
from stateflow.catalog.records import BadRecord, Found, shown_key

Kind = Literal["bad", "needed", "unknown", "open savepoint", "unfinished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something on the control topic that is not as it should be."""

    key: bytes
    offset: int | None
    """Where it stands in partition 0; None for what is missing, and for what stands there rightly."""
    kind: Kind
    """``bad``: cannot be read, and is passed over. ``needed``: cannot be read, and commands are refused. ``unknown``:
    not of the catalog. ``open savepoint``: one that is being made, or was given up. ``unfinished``: a generation.
    """
    why: str
    what_to_do: str
    record: tuple[bytes, bytes | None] | None
    """What is written to put it right; None where nothing is, or nothing as the choices are."""

    @property
    def name(self) -> str:
        """The key, for people."""
        return shown_key(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What may be done beyond taking out what is passed over anyway."""

    restore_older: bool = False
    """Put entries that are needed back as they stood before."""
    unknown: bool = False
    """Remove records that are not of the catalog; a newer stateflow, or something else, may need them."""
    abort_savepoint: bool = False
    """Give up the savepoint that is being made, before its time is over."""
    discard: frozenset[str] = frozenset()
    """Keys of entries that are needed and are to be removed: the application then does not know of them."""


def findings(found: Found, now_ms: int, choices: Choices | None = None) -> list[Finding]:
    """All that is not as it should be, each with the record that puts it right under these choices."""
    choices = choices or Choices()
    listed = [_of_bad(found, bad, now_ms, choices) for bad in found.bad]
    for key, stored in found.unknown:
        record = (key, None) if choices.unknown else None
        listed.append(
            Finding(
                key=key,
                offset=stored.offset,
                kind="unknown",
                why="it is not of the catalog as this version knows it",
                what_to_do="remove it" if choices.unknown else "leave it, or remove it with --unknown",
                record=record,
            )
        )
    return [*listed, *_of_catalog(found, now_ms, choices)]


def records(listed: list[Finding]) -> dict[bytes, bytes | None]:
    """The records to be written."""
    return dict(finding.record for finding in listed if finding.record is not None)


def _of_bad(found: Found, bad: BadRecord, now_ms: int, choices: Choices) -> Finding:
    what_to_do, record = _needed(bad, choices) if bad.is_needed else _not_needed(found, bad, now_ms)
    return Finding(
        key=bad.key,
        offset=bad.offset if bad.offset >= 0 else None,
        kind="needed" if bad.is_needed else "bad",
        why=bad.why,
        what_to_do=what_to_do,
        record=record,
    )


def _needed(bad: BadRecord, choices: Choices) -> tuple[str, tuple[bytes, bytes | None] | None]:
    if bad.name in choices.discard:
        return "remove it: the application will not know of it", (bad.key, None)
    if bad.older is None:
        return (
            "upgrade, if a newer stateflow wrote it; write it again from a backup; or, if it never was one of the"
            f" application's, remove it with --discard {bad.name}",
            None,
        )
    before = f"what stood at offset {bad.older.offset}"
    if choices.restore_older:
        return f"put {before} back", (bad.key, bad.older.value)
    return f"upgrade, if a newer stateflow wrote it; else put {before} back with --restore-older", None


def _not_needed(found: Found, bad: BadRecord, now_ms: int) -> tuple[str, tuple[bytes, bytes | None]]:
    if bad.older is not None:
        return f"put back what stood at offset {bad.older.offset}", (bad.key, bad.older.value)
    if bad.key == BARRIER_KEY:
        return "write a barrier that is over, with an id above all before", _barrier_above(found, now_ms)
    return "remove it", (bad.key, None)


def _barrier_above(found: Found, now_ms: int) -> tuple[bytes, bytes | None]:
    """A barrier that is over, with an id above all that there were: tasks take no part in one with a lower id.

    They are counted from 1, and those of which nothing is known any more cannot be as many as seconds have passed.
    """
    savepoints = [] if found.catalog is None else found.catalog.savepoints.values()
    barrier_id = max([now_ms // 1000, *(saved.number for saved in savepoints)]) + 1
    return encode_item(
        BarrierEntry(
            barrier_id=barrier_id,
            savepoint="repaired",
            location="-",
            generation=0,
            state="aborted",
            requested_ms=now_ms,
            deadline_ms=now_ms,
            reason="the record of the one before could not be read",
        )
    )


def _of_catalog(found: Found, now_ms: int, choices: Choices) -> list[Finding]:
    catalog = found.catalog
    if catalog is None:
        return []
    listed = []
    if catalog.barrier is not None and catalog.barrier.state == "open":
        listed.append(_open_barrier(catalog.barrier, now_ms, choices))
    for entry in catalog.generations.values():
        if entry.state != "preparing":
            continue
        verb = "scale" if entry.savepoint is None else "savepoint"
        finish = "scale start" if entry.savepoint is None else "savepoint restore"
        listed.append(
            Finding(
                key=encode_item(entry)[0],
                offset=None,
                kind="unfinished",
                why=f"generation {entry.generation} was begun and is not finished",
                what_to_do=f"finish it with `stateflow {finish}`, or undo it with `stateflow {verb} abort`",
                record=None,
            )
        )
    return listed


def _open_barrier(barrier: BarrierEntry, now_ms: int, choices: Choices) -> Finding:
    seconds = (barrier.deadline_ms - now_ms) // 1000
    record, what_to_do = None, "wait for it, or give it up with --abort-savepoint"
    if choices.abort_savepoint or seconds < 0:
        reason = "it was given up by a repair"
        ended = msgspec.structs.replace(barrier, state="aborted", reason=reason)
        record, what_to_do = encode_item(ended), "give it up"
    late = f"whoever asked for it is {-seconds} s late" if seconds < 0 else f"it has {seconds} s left"
    return Finding(
        key=BARRIER_KEY,
        offset=None,
        kind="open savepoint",
        why=f"the savepoint {barrier.savepoint!r} is being made; {late}",
        what_to_do=what_to_do,
        record=record,
    )
