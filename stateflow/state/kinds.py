"""The types of state: what the catalog calls each, where its keys stand, which options it takes, how it is bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from stateflow.catalog.model import KeyLayout, StoreKind
from stateflow.codec.base import Codec
from stateflow.duration import whole_ms
from stateflow.state.counter import Counter
from stateflow.state.decoded_value import DecodedValue
from stateflow.state.expiring_list import ExpiringListOf
from stateflow.state.expiry import Expiry
from stateflow.state.listof import ListOf
from stateflow.state.mapof import MapOf, Prefix
from stateflow.state.nested import NestedMapOf
from stateflow.state.reducing import Reducing
from stateflow.state.scope import Scope
from stateflow.state.setof import SetOf
from stateflow.state.stored import Stored
from stateflow.state.value import Value
from stateflow.state.versioned import HistoryExpiry, Retention, Versioned
from stateflow.store.base import StateStore
from stateflow.store.decoded import DecodedStore


class Advancing(Protocol):
    """What deletes forgotten entries of a store as event time moves on."""

    def advance(self, watermark_ms: int) -> None:
        """Event time is now this."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """What ``state(…)`` was called with."""

    default: Any = None
    initial: Any = None
    reduce: Callable[[Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    index: Mapping[str, Callable[[Any], Any]] | None = None
    ttl: timedelta | None = None
    ttl_per_write: bool | None = None
    history: timedelta | None = None
    max_length: int | None = None
    max_versions: int | None = None
    codec: Codec[Any] | None = None
    key_codec: Codec[Any] | None = None
    version: int = 1
    migrations: Mapping[int, Callable[[Any], Any]] | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """One declared state on its way to a handle: its store, codecs (map keys first) and options."""

    store: StateStore
    scope: Scope
    key_codecs: tuple[Codec[Any], ...]
    codec: Codec[Any]
    options: StateOptions
    expiry: Expiry | None

    @property
    def stored(self) -> Stored:
        """The store as the handle sees it."""
        return Stored(self.store, self.scope, self.expiry)

    @property
    def reduce(self) -> Callable[[Any, Any], Any]:
        """The function of a reducing state."""
        assert self.options.reduce is not None, "a reducing state was declared with its function"
        return self.options.reduce

    @property
    def retention(self) -> Retention:
        """What of a history is kept."""
        options = self.options
        return Retention(
            history_ms=milliseconds(options.history),
            max_versions=options.max_versions,
            ttl_ms=milliseconds(options.ttl),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One type of state."""

    noun: str
    kind: StoreKind
    layout: KeyLayout
    takes: frozenset[str]
    """Options beside ``codec`` and ``version``."""
    bind: Callable[[Binding], Any]
    evolves: bool = True
    """Whether its values have a schema that may change."""
    is_stamped: bool = True
    """Whether a time to live puts the time of writing before each value."""

    def expiry(self, store: StateStore, options: StateOptions) -> Expiry | None:
        """What hides and deletes the expired, where the values are stamped."""
        ttl_ms, per_write = milliseconds(options.ttl), bool(options.ttl_per_write)
        if not self.is_stamped or (ttl_ms is None and not per_write):
            return None
        return Expiry(store, ttl_ms, per_write=per_write)


def milliseconds(duration: timedelta | None) -> int | None:
    """A duration in whole ms."""
    return None if duration is None else whole_ms(duration)


def _bind_map(bound: Binding, prefix: Prefix | None = None, depth: int = 0) -> MapOf[Any, Any]:
    codecs = (bound.key_codecs[depth], bound.codec)
    if depth == len(bound.key_codecs) - 1:
        return MapOf(bound.store, codecs, bound.scope, bound.expiry, prefix)
    return NestedMapOf(
        bound.store,
        codecs,
        bound.scope,
        bound.expiry,
        lambda inner: _bind_map(bound, inner, depth + 1),
        prefix,
    )


def _bind_value(bound: Binding) -> Value[Any]:
    if isinstance(bound.store, DecodedStore):
        return DecodedValue(bound.store, bound.codec, bound.scope, bound.options.default)
    return Value(bound.store, bound.codec, bound.scope, bound.options.default, bound.expiry)


def _bind_list(bound: Binding) -> ListOf[Any]:
    if bound.expiry is not None:
        return ExpiringListOf(bound.stored, bound.codec, bound.options.max_length)
    return ListOf(bound.store, bound.codec, bound.scope, bound.options.max_length)


def _kind(noun: str, kind: StoreKind, layout: KeyLayout, takes: str, bind: Callable[[Binding], Any]) -> Kind:
    return Kind(
        noun=noun,
        kind=kind,
        layout=layout,
        takes=frozenset(takes.split()),
        bind=bind,
        evolves=kind not in ("counter", "set"),
        is_stamped=kind != "versioned",
    )


NESTED = _kind("a map of maps", "nested", "prefixed", "ttl ttl_per_write merge key_codec", _bind_map)

KINDS: dict[Any, Kind] = {
    Value: _kind(
        "a value",
        "value",
        "plain",
        "default ttl ttl_per_write merge index",
        _bind_value,
    ),
    Counter: _kind("a counter", "counter", "plain", "ttl", lambda b: Counter(b.stored)),
    Reducing: _kind(
        "a reducing state",
        "reducing",
        "plain",
        "reduce initial ttl",
        lambda b: Reducing(b.stored, b.codec, b.reduce, b.options.initial),
    ),
    ListOf: _kind(
        "a list",
        "list",
        "prefixed",
        "max_length ttl ttl_per_write",
        _bind_list,
    ),
    SetOf: _kind(
        "a set",
        "set",
        "prefixed",
        "max_length ttl ttl_per_write",
        lambda b: SetOf(b.stored, b.key_codecs[0], b.options.max_length),
    ),
    MapOf: _kind("a map", "map", "prefixed", "ttl ttl_per_write merge key_codec index", _bind_map),
    Versioned: _kind(
        "a versioned value",
        "versioned",
        "prefixed",
        "history max_versions ttl merge",
        lambda b: Versioned(b.store, b.scope, b.codec, b.retention),
    ),
}
"""Annotated class → its type of state. ``MapOf[K, MapOf[…]]`` is ``NESTED``."""


def advancing(kind: Kind, bound: Binding) -> Advancing | None:
    """What deletes the forgotten entries of a bound state, if it forgets any by time."""
    if kind.kind != "versioned":
        return bound.expiry
    retention = bound.retention
    if retention.history_ms is None and retention.ttl_ms is None:
        return None
    return HistoryExpiry(bound.store, retention)
