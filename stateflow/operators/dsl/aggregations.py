"""The aggregating verbs, which streams and streams in windows have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from stateflow.callbacks import checked
from stateflow.codec.base import Codec
from stateflow.errors import GraphError
from stateflow.operators.aggregates import aggregates
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.operators.aggregates.combined import combined
from stateflow.operators.aggregates.keeping import kept_as, read_as, value_type_of
from stateflow.operators.stateful.stateful import Stateful
from stateflow.operators.steps.error_policy import Fail, Policy
from stateflow.operators.steps.fields import Pick

if TYPE_CHECKING:
    from stateflow.operators.dsl.stream import Stream

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
N = TypeVar("N", int, float)

FAIL = Fail()


class Aggregations(ABC, Generic[K, V]):
    """The aggregating verbs; K is the key of their results.

    ``name`` names the store and its changelog, and is part of the application's data: renaming loses the
    state. ``ttl`` is in event time: without a window a key is forgotten so long after its last record; a
    window's state is kept so long after its end. A record that an aggregate fails on follows ``on_error``
    and leaves no trace in the state. A result that fails follows it, too, and is not passed on; its record
    stays. Results are passed on once per key and batch, newest first contributing record deciding their time.
    """

    @abstractmethod
    def _aggregated(self, spec: Stateful) -> Stream[K, Any]: ...

    @abstractmethod
    def _value_codec(self) -> Codec[Any] | None: ...

    def count(self, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL) -> Stream[K, int]:
        """Number of records."""
        return self._run("count", aggregates.count(), name, ttl, on_error)

    @overload
    def sum(
        self: Aggregations[K, N], *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, N]: ...
    @overload
    def sum(
        self, of: Callable[[V], N], *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, N]: ...
    @overload
    def sum(
        self, of: str | None = None, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, Any]: ...
    def sum(
        self, of: Pick | None = None, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, Any]:
        """Sum of the values, or of the picked part of each."""
        return self._run("sum", aggregates.sum(of), name, ttl, on_error)

    @overload
    def min(self, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL) -> Stream[K, V]: ...
    @overload
    def min(
        self, of: Callable[[V], R], *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, R]: ...
    @overload
    def min(
        self, of: str, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, Any]: ...
    def min(
        self, of: Pick | None = None, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, Any]:
        """Smallest value, or picked part."""
        kind = self._kept_type() if of is None else Any
        return self._run("min", aggregates.min(of, type=kind), name, ttl, on_error)

    @overload
    def max(self, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL) -> Stream[K, V]: ...
    @overload
    def max(
        self, of: Callable[[V], R], *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, R]: ...
    @overload
    def max(
        self, of: str, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, Any]: ...
    def max(
        self, of: Pick | None = None, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, Any]:
        """Largest value, or picked part."""
        kind = self._kept_type() if of is None else Any
        return self._run("max", aggregates.max(of, type=kind), name, ttl, on_error)

    def mean(
        self, of: Pick | None = None, *, name: str, ttl: timedelta | None = None, on_error: Policy = FAIL
    ) -> Stream[K, float | None]:
        """Arithmetic mean of the values, or of the picked part of each."""
        return self._run("mean", aggregates.mean(of), name, ttl, on_error)

    def reduce(
        self,
        function: Callable[[V, V], V],
        *,
        name: str,
        ttl: timedelta | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, V]:
        """Values combined two by two by an associative function."""
        combined = aggregates.reduce(checked(function, "reduce", name), type=self._kept_type())
        return self._run("reduce", combined, name, ttl, on_error)

    @overload
    def aggregate(
        self,
        one: Aggregate[V, A, R],
        /,
        *,
        name: str,
        ttl: timedelta | None = None,
        on_error: Policy = FAIL,
    ) -> Stream[K, R]: ...
    @overload
    def aggregate(
        self,
        *,
        name: str,
        ttl: timedelta | None = None,
        on_error: Policy = FAIL,
        **several: Aggregate[Any, Any, Any],
    ) -> Stream[K, dict[str, Any]]: ...
    def aggregate(
        self,
        *one: Aggregate[Any, Any, Any],
        name: str,
        ttl: timedelta | None = None,
        on_error: Policy = FAIL,
        **several: Aggregate[Any, Any, Any],
    ) -> Stream[K, Any]:
        """One aggregate (``sf.fold`` makes your own), or several whose results come as one dict.

        ``.aggregate(name="by-shop", orders=sf.count(), cents=sf.sum("cents"))``
        """
        if len(one) + bool(several) != 1:
            raise GraphError(
                f"The aggregate {name!r} names {'both one and several' if several else len(one) or 'no'} aggregates.",
                action="Pass one aggregate, or several by name.",
            )
        for each in (*one, *several.values()):
            _check_aggregate(name, each)
        values = value_type_of(self._value_codec())
        told = {part: read_as(each, values) for part, each in several.items()}
        kind = one[0] if one else combined(told)
        return self._run("aggregate", kind, name, ttl, on_error)

    def _kept_type(self) -> Any:
        """What min, max and reduce keep: values as they come, by their codec where that is known."""
        return self._value_codec() or Any

    def _run(
        self,
        kind: str,
        aggregate: Aggregate[Any, Any, Any],
        name: str,
        ttl: timedelta | None,
        on_error: Policy,
    ) -> Stream[K, Any]:
        kept = kept_as(read_as(aggregate, value_type_of(self._value_codec())), name)
        return self._aggregated(Stateful(kind=kind, name=name, aggregate=kept, ttl=ttl, on_error=on_error))


def _check_aggregate(name: str, found: object) -> None:
    """Raise ``GraphError`` for what is no aggregate; ``sf.count`` for ``sf.count()`` is the usual one."""
    if isinstance(found, Aggregate):
        return
    made = getattr(found, "__name__", "")
    if made and getattr(aggregates, made, None) is found:
        what, action = f"the function sf.{made}", f"Call it: sf.{made}(…)."
    else:
        what, action = repr(found), "Give sf.count(), sf.sum(…), sf.fold(…) or another aggregate of sf."
    raise GraphError(f"The aggregate {name!r} was given {what}, which is not an aggregate.", action=action)
