"""Whether what is derived from a running task's stores holds what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stateflow.state.due_order import TimersByDue
from stateflow.state.index import DerivedIndex
from stateflow.store.base import StoreReader


def not_derived(indexes: Iterable[DerivedIndex], stores: Mapping[str, StoreReader]) -> list[str]:
    """The families that are wrong, each in a sentence; all in order gives none."""
    return [
        f"{index.family} holds {_apart(held, wanted)} of what follows from {index.store}"
        for index in indexes
        if not _is_in_order(
            index,
            held := {entry for entry, _ in stores[index.family].scan()},
            wanted := {
                entry for key, data in stores[index.store].scan() for entry in index.entries(key, data)
            },
        )
    ]


def _is_in_order(index: DerivedIndex, held: set[bytes], wanted: set[bytes]) -> bool:
    if not isinstance(index, TimersByDue):
        return held == wanted
    earliest = _earliest(held)
    return all(subject in earliest and earliest[subject] <= due for subject, due in _earliest(wanted).items())


def _earliest(entries: set[bytes]) -> dict[bytes, bytes]:
    """What is due, of all keys, and its first time: one that was put off may have an earlier one."""
    found: dict[bytes, bytes] = {}
    for entry in sorted(entry for entry in entries if entry[:1] != b"k"):
        found.setdefault(entry[:1] + entry[9:], entry[1:9])
    return found


def _apart(held: set[bytes], wanted: set[bytes]) -> str:
    return f"{sorted(held - wanted)[:3]} and not {sorted(wanted - held)[:3]}"
