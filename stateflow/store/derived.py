"""Stores that are derived from another one of the same task: never logged, made anew whenever they may be behind.

A derived store has a *mark* in place of a position: it is there exactly while the store holds what follows from its
base. Whoever changes the base writes the derived store and its mark in the same epoch; any other change to the base
(a restore, above all) takes the mark away in the batch that makes it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from stateflow.store.base import Change, StorePosition

_PREFIX = "sf:index:"
"""No store can be called so: a colon is not allowed in the topic name that a store's name becomes part of."""


def index_family(store: str) -> str:
    """The family that holds the indexes of a store."""
    return _PREFIX + store


def is_derived(family: str) -> bool:
    """True for the family of an index."""
    return family.startswith(_PREFIX)


def outdated(
    epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition], known: Container[str]
) -> list[str]:
    """The derived stores of which an epoch changes the base and not themselves: their marks must go with it."""
    families = {index_family(store) for store, changes in epoch.items() if changes}
    return sorted(family for family in families if family in known and family not in positions)
