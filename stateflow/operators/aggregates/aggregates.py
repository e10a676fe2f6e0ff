"""Aggregates: how values are folded into one accumulator per key, and what is shown of it.

Every aggregate has a ``merge``: two accumulators, folded over two parts of the input, become the one that
folding the whole would have given. It is what lets partial results be combined wherever a key's records
were seen in two places. ``merge`` of each kind is documented with it; :func:`fold` takes yours.

A value picked by ``of`` that is None is left out, as SQL's aggregates do.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from stateflow.callbacks import checked, checked_or_none
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for
from stateflow.errors import GraphError
from stateflow.native.folds import Folding, Operation
from stateflow.operators.aggregates.accumulator_types import (
    known_type,
    list_type,
    optional_type,
    part_type,
    type_of_initial,
)
from stateflow.operators.aggregates.adding import (
    added,
    are_numbers,
    count_rows,
    difference,
    each,
    kinds_of,
    only,
    outgrowing,
    outgrows,
    pair_difference,
    sum_rows,
)
from stateflow.operators.steps.fields import Pick, picked_of, picker
from stateflow.operators.steps.reads import Reads, all_of, reads_of

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
N = TypeVar("N")


@dataclass(frozen=True)
class Aggregate(Generic[V, A, R]):
    """One kind of aggregation. ``add_many`` must equal ``add`` for each value in turn."""

    initial: Callable[[], A]
    add_many: Callable[[A, Sequence[V]], A]
    """Folds values into an accumulator, which it may change in place; returns the new one. May raise ``Outgrown`` for
    several values: then they are folded one by one."""
    merge: Callable[[A, A], A] | None
    result: Callable[[A], R]
    type: Any
    """Type of the accumulator, or its codec."""
    result_type: Any = None
    """Type of the result where it is known: the codec of a re-key step behind it."""
    only_counts: bool = False
    """True when the values do not matter, only how many there are."""
    subtract: Callable[[A, A], A | None] | None = None
    """The accumulator without a part that was merged into it, or None where that would not be exact (floats). With it a
    sliding window moves on without folding anew what stays in it."""
    may_wait: Callable[[Sequence[A]], bool] | None = None
    """Whether these accumulators may be kept as they are until the commit: they are immutable, and what is encoded of
    them comes back the same. None where they never may."""
    outgrows: Callable[[A], bool] | None = None
    """Whether no codec takes the accumulator, an integer: it is looked at where it is not encoded after each record.
    None where that need not be."""
    add_rows: Callable[[dict[Any, A], Sequence[Any], Sequence[V]], None] | None = None
    """``add_many`` for many keys at once, where that is faster: the accumulators by key, which has each of the keys,
    then rows of key and value."""
    folding: Folding | None = None
    """The same as the native core does it, with what ``pick`` picks of each value."""
    pick: Callable[[Any], Any] | None = None
    reads: Reads | None = None
    """What is read of the values; None where that may be anything."""
    infer: Callable[[Any], Any] | None = None
    """Where no type was given: the accumulator's, of the type of the values (None where that is unknown); None where it
    cannot be told."""
    kept: Any = None
    """The type as which an accumulator is read that ``type`` does not say; it is written and described as that."""

    kind: Any = None
    """Its name, by kind of part where it is made of several: state of another kind is not carried on. None for one that
    is not known."""

    def codec(self) -> Codec[A]:
        """Codec of the accumulator; raises ``ConfigError`` when there is none for its type."""
        return codec_for(self.type, "msgpack")


def same(accumulator: A) -> A:
    """The accumulator as the result."""
    return accumulator


def picked(
    of: Pick | None, add_many: Callable[[Any, Sequence[Any]], Any]
) -> Callable[[Any, Sequence[Any]], Any]:
    """``add_many`` over what ``of`` picks, None left out."""
    if of is None:
        return add_many
    pick = picker(of)
    return lambda accumulator, values: add_many(
        accumulator, [part for part in picked_of(pick, values) if part is not None]
    )


def reads_of_pick(of: Pick | None) -> Reads | None:
    """What ``of`` reads of a value; without it the value itself is folded."""
    return None if of is None else reads_of(picker(of))


def count(of: Pick | None = None) -> Aggregate[Any, int, int]:
    """Number of records, or of those whose ``of`` is not None. Merge: the sum."""
    return Aggregate(
        initial=int,
        add_many=picked(of, lambda total, values: total + len(values)),
        reads=Reads() if of is None else reads_of(picker(of)),
        merge=lambda one, two: one + two,
        result=same,
        type=int,
        result_type=int,
        only_counts=of is None,
        kind="count",
        subtract=difference,
        may_wait=are_numbers,
        add_rows=count_rows if of is None else None,
        folding=Folding("count") if of is None else None,
    )


def sum(of: Pick | None = None) -> Aggregate[Any, int | float, int | float]:
    """Sum of the values, or of what ``of`` picks. Integers stay exact (64 bits). Merge: the sum."""
    return Aggregate(
        initial=int,
        kind="sum",
        add_many=picked(of, added),
        reads=reads_of_pick(of),
        merge=lambda one, two: one + two,
        result=same,
        type=int | float,
        result_type=int | float,
        subtract=difference,
        may_wait=are_numbers,
        outgrows=outgrows,
        add_rows=sum_rows(of),
        folding=Folding("sum", floats=True, skips_none=of is not None),
        pick=None if of is None else picker(of),
    )


@overload
def min(of: Pick | None = None, *, type: type[N]) -> Aggregate[Any, N | None, N | None]: ...
@overload
def min(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]: ...
def min(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]:
    """Smallest value, None before the first. ``type`` says what it is where it is no plain JSON value."""
    return _extreme(of, type, lambda one, two: one if one <= two else two, "min", "least")


@overload
def max(of: Pick | None = None, *, type: type[N]) -> Aggregate[Any, N | None, N | None]: ...
@overload
def max(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]: ...
def max(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]:
    """Largest value, None before the first. ``type`` says what it is where it is no plain JSON value."""
    return _extreme(of, type, lambda one, two: one if one >= two else two, "max", "most")


def reduce(function: Callable[[V, V], V], *, type: Any = Any) -> Aggregate[V, V | None, V | None]:
    """Values combined two by two by an associative function, which is the merge as well."""
    return _extreme(None, type, function, "reduce", returned=function)


def _extreme(
    of: Pick | None,
    type_: Any,
    choose: Callable[[Any, Any], Any],
    kind: str,
    operation: Operation | None = None,
    returned: Callable[..., Any] | None = None,
) -> Aggregate[Any, Any, Any]:
    def either(one: Any, two: Any) -> Any:
        if one is None or two is None:
            return two if one is None else one
        return choose(one, two)

    optional = type_ if isinstance(type_, Codec) or type_ is Any else type_ | None
    kinds = None if operation is None or isinstance(type_, Codec) else kinds_of(type_)
    folding = None
    if operation is not None and kinds is not None:
        folding = Folding(operation, int in kinds, float in kinds, skips_none=True)
    return Aggregate(
        kind=kind,
        initial=lambda: None,
        add_many=picked(of, each(either, type_)),
        outgrows=outgrowing(type_),
        reads=reads_of_pick(of),
        merge=either,
        result=same,
        type=optional,
        result_type=optional,
        may_wait=None if kinds is None else only(*kinds),
        folding=folding,
        pick=None if of is None else picker(of),
        infer=None
        if type_ is not Any
        else lambda values: optional_type(known_type(returned) or part_type(of, values)),
    )


def mean(of: Pick | None = None) -> Aggregate[Any, tuple[int, int | float], float | None]:
    """Arithmetic mean, None without values. Kept as count and sum; merge: both added."""

    def add_many(pair: tuple[int, int | float], values: Sequence[Any]) -> tuple[int, int | float]:
        return pair[0] + len(values), added(pair[1], values)

    return Aggregate(
        kind="mean",
        initial=lambda: (0, 0),
        add_many=picked(of, add_many),
        reads=reads_of_pick(of),
        merge=lambda one, two: (one[0] + two[0], one[1] + two[1]),
        result=lambda pair: pair[1] / pair[0] if pair[0] else None,
        type=tuple[int, int | float],
        result_type=float | None,
        subtract=pair_difference,
        may_wait=lambda pairs: are_numbers([total for _, total in pairs]),
        outgrows=lambda pair: outgrows(pair[1]),
        folding=Folding("mean", floats=True, skips_none=of is not None),
        pick=None if of is None else picker(of),
    )


@overload
def first(of: Pick | None = None, *, type: type[N]) -> Aggregate[Any, N | None, N | None]: ...
@overload
def first(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]: ...
def first(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]:
    """The value that came first. Merge: the first of the two parts, in their order."""
    return _extreme(of, type, lambda one, _two: one, "first")


@overload
def last(of: Pick | None = None, *, type: type[N]) -> Aggregate[Any, N | None, N | None]: ...
@overload
def last(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]: ...
def last(of: Pick | None = None, *, type: Any = Any) -> Aggregate[Any, Any, Any]:
    """The value that came last. Merge: the last of the two parts, in their order."""
    return _extreme(of, type, lambda _one, two: two, "last")


@overload
def collect(of: Pick | None = None, *, limit: int, type: type[N]) -> Aggregate[Any, list[N], list[N]]: ...
@overload
def collect(
    of: Pick | None = None, *, limit: int, type: Any = Any
) -> Aggregate[Any, list[Any], list[Any]]: ...
def collect(of: Pick | None = None, *, limit: int, type: Any = Any) -> Aggregate[Any, list[Any], list[Any]]:
    """The first ``limit`` values, in order. Merge: appended, then cut to the limit."""
    return Aggregate(
        kind="collect",
        initial=list,
        add_many=picked(of, lambda kept, values: [*kept, *values][:limit]),
        reads=reads_of_pick(of),
        merge=lambda one, two: [*one, *two][:limit],
        result=same,
        type=list[type],
        result_type=list[type],
        infer=None if type is not Any else lambda values: list_type(part_type(of, values)),
    )


def top_k(k: int, *, by: Pick, item: Pick) -> Aggregate[Any, list[tuple[float, Any]], list[list[Any]]]:
    """The ``k`` items with the largest scores, as ``[item, score]``, largest first.

    An item seen again replaces its earlier score, so running totals may be fed in; that is exact as long as
    scores grow. Equal scores: the smaller item first. Merge: each item's larger score, then the ``k``
    largest.
    """
    score_of, item_of = picker(by), picker(item)

    def add_many(kept: list[tuple[float, Any]], values: Sequence[Any]) -> list[tuple[float, Any]]:
        ranked = list(kept)
        held = {scored[1]: scored for scored in ranked}
        for entry, score in zip(picked_of(item_of, values), picked_of(score_of, values), strict=True):
            before = held.get(entry)
            if before is not None:
                ranked.remove(before)
                entry = before[1]
            elif len(ranked) == k and _rank((score, entry)) > _rank(ranked[-1]):
                continue
            held[entry] = scored = (score, entry)
            insort(ranked, scored, key=_rank)
            # After each value: what is left must not depend on how values were cut into batches.
            if len(ranked) > k:
                del held[ranked.pop()[1]]
        return ranked

    def merge(one: list[tuple[float, Any]], two: list[tuple[float, Any]]) -> list[tuple[float, Any]]:
        scores: dict[Any, float] = {}
        for score, entry in [*one, *two]:
            scores[entry] = score if entry not in scores or score > scores[entry] else scores[entry]
        return _largest(scores, k)

    return Aggregate(
        kind="top_k",
        initial=list,
        add_many=add_many,
        reads=all_of([reads_of(score_of), reads_of(item_of)]),
        merge=merge,
        result=lambda kept: [[entry, score] for score, entry in kept],
        type=list[tuple[int | float, str | int]],
        result_type=list[list[Any]],
    )


def _largest(scores: Mapping[Any, float], k: int) -> list[tuple[float, Any]]:
    return sorted(((score, entry) for entry, score in scores.items()), key=_rank)[:k]


def _rank(scored: tuple[float, Any]) -> tuple[float, Any]:
    score, entry = scored
    return -score, entry


@overload
def fold(
    initial: Callable[[], A] | A,
    add: Callable[[A, V], A],
    *,
    merge: Callable[[A, A], A] | None = None,
    subtract: Callable[[A, A], A | None] | None = None,
    type: Any = Any,
) -> Aggregate[V, A, A]: ...
@overload
def fold(
    initial: Callable[[], A] | A,
    add: Callable[[A, V], A],
    *,
    merge: Callable[[A, A], A] | None = None,
    subtract: Callable[[A, A], A | None] | None = None,
    result: Callable[[A], R],
    type: Any = Any,
) -> Aggregate[V, A, R]: ...
def fold(
    initial: Callable[[], A] | A,
    add: Callable[[A, V], A],
    *,
    merge: Callable[[A, A], A] | None = None,
    subtract: Callable[[A, A], A | None] | None = None,
    result: Callable[[A], Any] | None = None,
    type: Any = Any,
) -> Aggregate[V, A, Any]:
    """Your own: ``add`` takes the accumulator and one value and returns the new accumulator.

    ``merge`` makes one accumulator of two, the first one's records having come first; sessions and sliding windows need
    it. ``subtract`` takes a part out of an accumulator again, exactly, or gives None where it cannot.
    ``initial`` is a function, or a value that cannot be changed. ``type`` is the accumulator's type or
    codec; without it what ``add`` is annotated to return, or what ``initial`` is. An accumulator that would not come
    back as it is, such as a dict with keys of an Enum, is refused at its record: name the type.
    """
    checked(add, "add of fold")
    for what, function in (("merge", merge), ("subtract", subtract), ("result", result)):
        checked_or_none(function, f"{what} of fold")
    return Aggregate(
        kind="fold",
        initial=_factory(initial),
        add_many=each(add, type),
        outgrows=outgrowing(type),
        merge=merge,
        subtract=subtract,
        result=result or same,
        type=type,
        result_type=None if result else type,
        infer=None if type is not Any else lambda _values: known_type(add) or type_of_initial(initial),
    )


def _factory(initial: Callable[[], A] | A) -> Callable[[], A]:
    if callable(initial):
        return initial
    if isinstance(initial, (list, dict, set, bytearray)):
        raise GraphError(
            f"initial={initial!r} would be shared by all keys.", action="Pass a function: `initial=dict`."
        )
    return lambda: initial
