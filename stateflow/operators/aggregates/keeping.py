"""As what a step keeps its accumulators: of which type, and refused where they would come back as something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.faithful import faithful
from stateflow.codec.structured import TypedCodec
from stateflow.operators.aggregates.aggregates import Aggregate


def value_type_of(codec: Codec[Any] | None) -> Any:
    """The type of a stream's values; None where its codec does not say it."""
    return codec.value_type if isinstance(codec, TypedCodec) else None


def read_as(aggregate: Aggregate[Any, Any, Any], values: Any) -> Aggregate[Any, Any, Any]:
    """The aggregate over values of a type, its accumulators' type inferred where it was left out."""
    inferred = None if aggregate.infer is None else aggregate.infer(values)
    return aggregate if inferred is None else replace(aggregate, kept=inferred)


def kept_as(aggregate: Aggregate[Any, Any, Any], store: str) -> Aggregate[Any, Any, Any]:
    """The aggregate with the codec of a store, which refuses what would come back as something else."""
    return replace(aggregate, type=faithful(aggregate.codec(), store, reads=aggregate.kept))
