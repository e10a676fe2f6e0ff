"""What the stages of some code write of what the catalog holds: an older version of it does not write all.

A worker that runs a stage and does not know of a step or state behind it commits input that the new step never sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stateflow.catalog.model import Catalog, CatalogEntry, StageEntry, StoreEntry
from stateflow.errors import CatalogIncompatible


@dataclass(frozen=True, slots=True)
class Written:
    """Stage → the re-key steps and the stores that it writes to."""

    steps: Mapping[str, frozenset[str]]
    stores: Mapping[str, frozenset[str]]

    @classmethod
    def of_catalog(cls, catalog: Catalog) -> Written:
        """What code writes that knows all of a catalog."""
        steps: dict[str, set[str]] = {name: set() for name in catalog.stages}
        stores: dict[str, set[str]] = {name: set() for name in catalog.stages}
        for stage in catalog.stages.values():
            for port in stage.rekeys:
                steps.setdefault(port.upstream or "", set()).add(port.name)
        for store in catalog.stores.values():
            stores.setdefault(store.stage, set()).add(store.name)
        return cls(_frozen(steps), _frozen(stores))

    def lacks(self, entry: CatalogEntry) -> list[str]:
        """What of an entry these stages would have to write, and do not know of."""
        if isinstance(entry, StageEntry):
            return [
                f"step {port.name!r} behind stage {port.upstream!r}"
                for port in entry.rekeys
                if port.name not in self.steps.get(port.upstream or "", frozenset([port.name]))
            ]
        if isinstance(entry, StoreEntry) and entry.stage in self.stores:
            is_known = entry.name in self.stores[entry.stage]
            return [] if is_known else [f"state {entry.name!r} of stage {entry.stage!r}"]
        return []

    def lacking(self, catalog: Catalog) -> list[str]:
        """What of a catalog these stages would have to write, and do not know of."""
        entries: Iterable[CatalogEntry] = (*catalog.stages.values(), *catalog.stores.values())
        return [lack for entry in entries for lack in self.lacks(entry)]


def refuse_older(app: str, lacking: list[str]) -> None:
    """Raise ``CatalogIncompatible`` where this process would commit input without all that is to be made of it."""
    if lacking:
        raise CatalogIncompatible(
            f"{app!r} has got {', '.join(lacking)} since this worker started, which its code does not have: what it"
            " goes on to process would be missing there.",
            action="start the worker again with the new version of the application.",
            app=app,
            lacking=lacking,
        )


def _frozen(found: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(each) for name, each in found.items()}
