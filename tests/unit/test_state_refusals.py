"""Declarations of state that cannot be: each is refused when the graph is built, with what to do."""

from __future__ import annotations

from datetime import timedelta

import pytest

import stateflow as sf
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
