"""A changelog state service for stateful streams on Kafka."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stateflow.app import App
from stateflow.changelog.eventual import Eventual
from stateflow.codec.base import Codec
from stateflow.codec.change import Change
from stateflow.codec.ordered import OrderedFloat, OrderedInteger
from stateflow.codec.scalar import Boolean, Bytes, Float, Float32, Int32, Integer, String
from stateflow.codec.structured import Json, JsonOf, MsgPack, MsgPackOf
from stateflow.codec.windowed import CalendarCodec as CalendarKey
from stateflow.codec.windowed import Counted, Windowed
from stateflow.codec.windowed import CountedCodec as CountedKey
from stateflow.codec.windowed import SessionCodec as SessionKey
from stateflow.codec.windowed import WindowedCodec as WindowedKey
from stateflow.config import AppOptions
from stateflow.graphs.edge_graph import EdgeGraph, graph
from stateflow.graphs.neighbourhoods import HopQuery
from stateflow.operators.aggregates.aggregates import (
    Aggregate,
    collect,
    count,
    first,
    fold,
    last,
    max,
    mean,
    min,
    reduce,
    sum,
    top_k,
)
from stateflow.operators.aggregates.histograms import histogram, quantile
from stateflow.operators.calls.async_step import Cache
from stateflow.operators.classes.every import Every
from stateflow.operators.classes.operator import Context, Operator, PendingTimer
from stateflow.operators.dsl.port import Port, port
from stateflow.operators.dsl.stream import Stream
from stateflow.operators.dsl.table import GroupedTable, Table
from stateflow.operators.joins.intervals import Within
from stateflow.operators.patterns.match import Match
from stateflow.operators.patterns.patterns import Pattern, PatternSteps, SkipTo, pattern
from stateflow.operators.stateful.limits import OnClose, TimeLimit
from stateflow.operators.steps.error_policy import DeadLetter, Fail, Retry, Skip
from stateflow.operators.steps.record_steps import StreamRecord
from stateflow.operators.topics.lookup_tables import GlobalTable, StaticTable
from stateflow.operators.topics.topic_options import Topic
from stateflow.operators.windows.windows import Calendar, CountWindow, Hopping, Session, Sliding, Tumbling
from stateflow.state.counter import Counter
from stateflow.state.declare import state
from stateflow.state.listof import ListOf
from stateflow.state.mapof import MapOf
from stateflow.state.reducing import Reducing
from stateflow.state.setof import SetOf
from stateflow.state.value import Value
from stateflow.state.versioned import Version, Versioned

if TYPE_CHECKING:
    from stateflow import testing
    from stateflow.bootstrap.write import write_state
    from stateflow.codec.avro import AvroCodec as Avro
    from stateflow.codec.confluent import ConfluentAvro
    from stateflow.codec.schema_registry import SchemaRegistry
    from stateflow.query.read import read_state

__all__ = [
    "Aggregate",
    "App",
    "AppOptions",
    "Avro",
    "Boolean",
    "Bytes",
    "Cache",
    "Calendar",
    "CalendarKey",
    "Change",
    "Codec",
    "ConfluentAvro",
    "Context",
    "CountWindow",
    "Counted",
    "CountedKey",
    "Counter",
    "DeadLetter",
    "EdgeGraph",
    "Eventual",
    "Every",
    "Fail",
    "Float",
    "Float32",
    "GlobalTable",
    "GroupedTable",
    "HopQuery",
    "Hopping",
    "Int32",
    "Integer",
    "Json",
    "JsonOf",
    "ListOf",
    "MapOf",
    "Match",
    "MsgPack",
    "MsgPackOf",
    "OnClose",
    "Operator",
    "OrderedFloat",
    "OrderedInteger",
    "Pattern",
    "PatternSteps",
    "PendingTimer",
    "Port",
    "Reducing",
    "Retry",
    "SchemaRegistry",
    "Session",
    "SessionKey",
    "SetOf",
    "Skip",
    "SkipTo",
    "Sliding",
    "StaticTable",
    "Stream",
    "StreamRecord",
    "String",
    "Table",
    "TimeLimit",
    "Topic",
    "Tumbling",
    "Value",
    "Version",
    "Versioned",
    "Windowed",
    "WindowedKey",
    "Within",
    "collect",
    "count",
    "first",
    "fold",
    "graph",
    "histogram",
    "last",
    "max",
    "mean",
    "min",
    "pattern",
    "port",
    "quantile",
    "read_state",
    "reduce",
    "state",
    "sum",
    "testing",
    "top_k",
    "write_state",
]


def __getattr__(name: str) -> Any:
    """What is heavier than the rest is imported when it is first used."""
    if name == "Avro":
        return importlib.import_module("stateflow.codec.avro").AvroCodec
    if name == "ConfluentAvro":
        return importlib.import_module("stateflow.codec.confluent").ConfluentAvro
    if name == "SchemaRegistry":
        return importlib.import_module("stateflow.codec.schema_registry").SchemaRegistry
    if name == "read_state":
        return importlib.import_module("stateflow.query.read").read_state
    if name == "write_state":
        return importlib.import_module("stateflow.bootstrap.write").write_state
    if name == "testing":
        return importlib.import_module("stateflow.testing")
    raise AttributeError(f"module 'stateflow' has no attribute {name!r}")
