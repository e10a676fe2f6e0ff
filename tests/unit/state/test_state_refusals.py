"""Declarations of state that cannot be: each is refused when the graph is built, with what to do."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.catalog.compatibility import compare
from stateflow.catalog.model import AppEntry, Catalog
from stateflow.errors import GraphError
from stateflow.state.declare import declared_fields


class CounterOfDefault:
    x: sf.Counter = sf.state(default=1)


class CounterCodec:
    x: sf.Counter = sf.state(codec=sf.Int32)


class NoFunction:
    x: sf.Reducing[int] = sf.state(initial=0)


class NotNeutral:
    x: sf.Reducing[int] = sf.state(reduce=int.__add__, initial=1)


class NoInitial:
    x: sf.Reducing[int] = sf.state(reduce=int.__add__)


class ForEver:
    x: sf.Versioned[int] = sf.state()


class NoVersions:
    x: sf.Versioned[int] = sf.state(max_versions=0)


class MapOfLists:
    x: sf.MapOf[str, sf.ListOf[int]] = sf.state()


class MapOfCounters:
    x: sf.MapOf[str, sf.Counter] = sf.state()


class ListOfSets:
    x: sf.ListOf[sf.SetOf[int]] = sf.state()


class SetOfNothing:
    x: sf.SetOf = sf.state()  # type: ignore[type-arg]


class ReduceOfList:
    x: sf.ListOf[int] = sf.state(reduce=int.__add__)


class ShortHistory:
    x: sf.Versioned[int] = sf.state(history=timedelta(0))


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (CounterOfDefault, "a counter with a default.*starts at 0"),
        (CounterCodec, "a counter with a codec"),
        (NoFunction, "has no function.*reduce="),
        (NotNeutral, "not neutral"),
        (NoInitial, "before the first value"),
        (ForEver, "for ever.*history="),
        (NoVersions, "max_versions of 0"),
        (MapOfLists, r"a map of a list.*list\[T\]"),
        (MapOfCounters, "a map of a counter.*merge"),
        (ListOfSets, "a list of a set"),
        (SetOfNothing, r"a set of nothing.*SetOf\[int\]"),
        (ReduceOfList, "a list with a reduce.*for Reducing"),
        (ShortHistory, "history below 1 ms"),
    ],
)
def test_state_that_cannot_be_is_refused_with_what_to_do(owner: type, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        declared_fields(owner, "op")


class Before:
    x: sf.Value[int] = sf.state(default=0)


class AfterCounter:
    x: sf.Counter = sf.state()


class BeforeMap:
    x: sf.MapOf[int, int] = sf.state(key_codec=sf.Integer)


class AfterMap:
    x: sf.MapOf[int, int] = sf.state()


class AfterNested:
    x: sf.MapOf[int, sf.MapOf[int, int]] = sf.state()


class BeforeSet:
    x: sf.SetOf[str] = sf.state(max_length=5)


class AfterSet:
    x: sf.SetOf[str] = sf.state(max_length=9)


def catalog_of(owner: type) -> Catalog:
    (declared,) = declared_fields(owner, "op")
    return Catalog(
        app=AppEntry(app="a", guarantee="exactly-once"),
        stages={},
        stores={declared.store: declared.entry("stage", sf.String)},
        generations={},
    )


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (Before, AfterCounter, 'kind is "counter" in the code, "value" in the catalog'),
        (BeforeMap, AfterMap, "value_codec|map_key"),
        (AfterMap, AfterNested, 'kind is "nested"'),
    ],
)
def test_a_type_of_other_bytes_is_refused(before: type, after: type, why: str) -> None:
    differences = list(compare(catalog_of(after), catalog_of(before)))
    assert differences
    assert re.search(why, "; ".join(differences))


def test_bounds_may_change() -> None:
    assert list(compare(catalog_of(AfterSet), catalog_of(BeforeSet))) == []
