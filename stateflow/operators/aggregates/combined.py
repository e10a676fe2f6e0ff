"""Several aggregates over the same values as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stateflow.codec.base import Codec
from stateflow.errors import GraphError
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.operators.steps.reads import all_of


def combined(parts: Mapping[str, Aggregate[Any, Any, Any]]) -> Aggregate[Any, Any, dict[str, Any]]:
    """Several aggregates over the same values as one: the result is a dict of theirs. Merge: part by part."""
    import msgspec

    names = tuple(parts)
    several = tuple(parts.values())
    opaque = [name for name, part in parts.items() if isinstance(part.type, Codec)]
    if opaque:
        raise GraphError(
            f"The aggregates {', '.join(opaque)} have a codec of their own.",
            action="Give them a type instead (type=…), so that one record can hold them all.",
        )
    described: Any = msgspec.defstruct("Aggregates", [(name, part.type) for name, part in parts.items()])
    state, is_told = described, all(part.kept is None for part in several)
    if not is_told:
        kept = [(name, part.type if part.kept is None else part.kept) for name, part in parts.items()]
        state = msgspec.defstruct("Aggregates", kept)

    def add_many(accumulators: Any, values: Sequence[Any]) -> Any:
        return state(*(part.add_many(getattr(accumulators, name), values) for name, part in parts.items()))

    def merge(one: Any, two: Any) -> Any:
        pairs = [(part.merge, getattr(one, name), getattr(two, name)) for name, part in parts.items()]
        return state(*(_merged(function, left, right) for function, left, right in pairs))

    def subtract(whole: Any, part: Any) -> Any:
        pairs = [(each.subtract, getattr(whole, name), getattr(part, name)) for name, each in parts.items()]
        left = [_merged(function, one, two) for function, one, two in pairs]
        return None if None in left else state(*left)

    def outgrows(accumulators: Any) -> bool:
        return any(tells(getattr(accumulators, name)) for name, tells in growing.items())

    growing = {name: part.outgrows for name, part in parts.items() if part.outgrows is not None}
    return Aggregate(
        kind={name: part.kind for name, part in parts.items()},
        initial=lambda: state(*(part.initial() for part in several)),
        add_many=add_many,
        reads=all_of(part.reads for part in several),
        merge=merge if all(part.merge for part in several) else None,
        subtract=subtract if all(part.subtract for part in several) else None,
        outgrows=outgrows if growing else None,
        result=lambda kept: {name: parts[name].result(getattr(kept, name)) for name in names},
        type=described,
        kept=None if is_told else state,
        result_type=dict[str, Any],
    )


def _merged(function: Callable[[Any, Any], Any] | None, one: Any, two: Any) -> Any:
    assert function is not None, "only merged when every part can be"
    return function(one, two)
