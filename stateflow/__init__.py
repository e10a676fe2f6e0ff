"""A changelog state service for stateful streams on Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stateflow.state.declaration import state  # at once: its package would be found under its name else

if TYPE_CHECKING:
    from stateflow import testing
    from stateflow.app import App
    from stateflow.changelog.eventual import Eventual
    from stateflow.codec.avro import AvroCodec as Avro
    from stateflow.codec.base import Codec
    from stateflow.codec.change import Change
    from stateflow.codec.confluent import ConfluentAvro
    from stateflow.codec.ordered import OrderedFloat, OrderedInteger
    from stateflow.codec.scalar import Boolean, Bytes, Float, Float32, Int32, Integer, String
    from stateflow.codec.schema_registry import SchemaRegistry
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
    from stateflow.operators.steps.columns import Column, col, when
    from stateflow.operators.steps.error_policy import DeadLetter, Fail, Retry, Skip
    from stateflow.operators.steps.record_steps import StreamRecord
    from stateflow.operators.topics.lookup_tables import GlobalTable, StaticTable
    from stateflow.operators.topics.topic_options import Topic
    from stateflow.operators.windows.windows import Calendar, CountWindow, Hopping, Session, Sliding, Tumbling
    from stateflow.query.read import read_state
    from stateflow.state.counter import Counter
    from stateflow.state.listof import ListOf
    from stateflow.state.mapof import MapOf
    from stateflow.state.reducing import Reducing
    from stateflow.state.setof import SetOf
    from stateflow.state.value import Value
    from stateflow.state.versioned import Version, Versioned
    from stateflow.state_from_rows import write_state

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
    "Column",
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
    "col",
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
    "when",
    "write_state",
]

_FOUND_IN = {
    "Aggregate": "stateflow.operators.aggregates.aggregates:Aggregate",
    "App": "stateflow.app:App",
    "AppOptions": "stateflow.config:AppOptions",
    "Avro": "stateflow.codec.avro:AvroCodec",
    "Boolean": "stateflow.codec.scalar:Boolean",
    "Bytes": "stateflow.codec.scalar:Bytes",
    "Cache": "stateflow.operators.calls.async_step:Cache",
    "Calendar": "stateflow.operators.windows.windows:Calendar",
    "CalendarKey": "stateflow.codec.windowed:CalendarCodec",
    "Change": "stateflow.codec.change:Change",
    "Codec": "stateflow.codec.base:Codec",
    "Column": "stateflow.operators.steps.columns:Column",
    "ConfluentAvro": "stateflow.codec.confluent:ConfluentAvro",
    "Context": "stateflow.operators.classes.operator:Context",
    "CountWindow": "stateflow.operators.windows.windows:CountWindow",
    "Counted": "stateflow.codec.windowed:Counted",
    "CountedKey": "stateflow.codec.windowed:CountedCodec",
    "Counter": "stateflow.state.counter:Counter",
    "DeadLetter": "stateflow.operators.steps.error_policy:DeadLetter",
    "EdgeGraph": "stateflow.graphs.edge_graph:EdgeGraph",
    "Eventual": "stateflow.changelog.eventual:Eventual",
    "Every": "stateflow.operators.classes.every:Every",
    "Fail": "stateflow.operators.steps.error_policy:Fail",
    "Float": "stateflow.codec.scalar:Float",
    "Float32": "stateflow.codec.scalar:Float32",
    "GlobalTable": "stateflow.operators.topics.lookup_tables:GlobalTable",
    "GroupedTable": "stateflow.operators.dsl.table:GroupedTable",
    "HopQuery": "stateflow.graphs.neighbourhoods:HopQuery",
    "Hopping": "stateflow.operators.windows.windows:Hopping",
    "Int32": "stateflow.codec.scalar:Int32",
    "Integer": "stateflow.codec.scalar:Integer",
    "Json": "stateflow.codec.structured:Json",
    "JsonOf": "stateflow.codec.structured:JsonOf",
    "ListOf": "stateflow.state.listof:ListOf",
    "MapOf": "stateflow.state.mapof:MapOf",
    "Match": "stateflow.operators.patterns.match:Match",
    "MsgPack": "stateflow.codec.structured:MsgPack",
    "MsgPackOf": "stateflow.codec.structured:MsgPackOf",
    "OnClose": "stateflow.operators.stateful.limits:OnClose",
    "Operator": "stateflow.operators.classes.operator:Operator",
    "OrderedFloat": "stateflow.codec.ordered:OrderedFloat",
    "OrderedInteger": "stateflow.codec.ordered:OrderedInteger",
    "Pattern": "stateflow.operators.patterns.patterns:Pattern",
    "PatternSteps": "stateflow.operators.patterns.patterns:PatternSteps",
    "PendingTimer": "stateflow.operators.classes.operator:PendingTimer",
    "Port": "stateflow.operators.dsl.port:Port",
    "Reducing": "stateflow.state.reducing:Reducing",
    "Retry": "stateflow.operators.steps.error_policy:Retry",
    "SchemaRegistry": "stateflow.codec.schema_registry:SchemaRegistry",
    "Session": "stateflow.operators.windows.windows:Session",
    "SessionKey": "stateflow.codec.windowed:SessionCodec",
    "SetOf": "stateflow.state.setof:SetOf",
    "Skip": "stateflow.operators.steps.error_policy:Skip",
    "SkipTo": "stateflow.operators.patterns.patterns:SkipTo",
    "Sliding": "stateflow.operators.windows.windows:Sliding",
    "StaticTable": "stateflow.operators.topics.lookup_tables:StaticTable",
    "Stream": "stateflow.operators.dsl.stream:Stream",
    "StreamRecord": "stateflow.operators.steps.record_steps:StreamRecord",
    "String": "stateflow.codec.scalar:String",
    "Table": "stateflow.operators.dsl.table:Table",
    "TimeLimit": "stateflow.operators.stateful.limits:TimeLimit",
    "Topic": "stateflow.operators.topics.topic_options:Topic",
    "Tumbling": "stateflow.operators.windows.windows:Tumbling",
    "Value": "stateflow.state.value:Value",
    "Version": "stateflow.state.versioned:Version",
    "Versioned": "stateflow.state.versioned:Versioned",
    "Windowed": "stateflow.codec.windowed:Windowed",
    "WindowedKey": "stateflow.codec.windowed:WindowedCodec",
    "Within": "stateflow.operators.joins.intervals:Within",
    "col": "stateflow.operators.steps.columns:col",
    "collect": "stateflow.operators.aggregates.aggregates:collect",
    "count": "stateflow.operators.aggregates.aggregates:count",
    "first": "stateflow.operators.aggregates.aggregates:first",
    "fold": "stateflow.operators.aggregates.aggregates:fold",
    "graph": "stateflow.graphs.edge_graph:graph",
    "histogram": "stateflow.operators.aggregates.histograms:histogram",
    "last": "stateflow.operators.aggregates.aggregates:last",
    "max": "stateflow.operators.aggregates.aggregates:max",
    "mean": "stateflow.operators.aggregates.aggregates:mean",
    "min": "stateflow.operators.aggregates.aggregates:min",
    "pattern": "stateflow.operators.patterns.patterns:pattern",
    "port": "stateflow.operators.dsl.port:port",
    "quantile": "stateflow.operators.aggregates.histograms:quantile",
    "read_state": "stateflow.query.read:read_state",
    "reduce": "stateflow.operators.aggregates.aggregates:reduce",
    "sum": "stateflow.operators.aggregates.aggregates:sum",
    "top_k": "stateflow.operators.aggregates.aggregates:top_k",
    "when": "stateflow.operators.steps.columns:when",
    "write_state": "stateflow.state_from_rows:write_state",
}
"""Module and name of what is imported when it is first used: commands that need no application do not wait for one."""


def __getattr__(name: str) -> Any:
    """What is imported when it is first used, which is nearly all of it."""
    import importlib  # which brings other modules, too

    if name == "testing":
        return importlib.import_module("stateflow.testing")
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'stateflow' has no attribute {name!r}")
    module, _, attribute = _FOUND_IN[name].partition(":")
    found = globals()[name] = getattr(importlib.import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
