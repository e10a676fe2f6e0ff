"""Declaring typed state in a class, and binding it to stores."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from stateflow.catalog.model import KeyLayout, StoreEntry, StoreKind
from stateflow.codec.base import Codec
from stateflow.codec.infer import codec_for
from stateflow.codec.timed import TimedCodec
from stateflow.errors import GraphError
from stateflow.state.expiry import Expiry
from stateflow.state.listof import ListOf
from stateflow.state.mapof import MapOf
from stateflow.state.scope import Scope
from stateflow.state.value import Value
from stateflow.store.base import StateStore

_KINDS: dict[Any, tuple[StoreKind, KeyLayout]] = {
    Value: ("value", "plain"),
    ListOf: ("list", "prefixed"),
    MapOf: ("map", "prefixed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """What ``state(…)`` was called with."""

    default: Any
    ttl: timedelta | None
    max_length: int | None
    codec: Codec[Any] | None
    key_codec: Codec[Any] | None
    version: int


def state(
    *,
    default: Any = None,
    ttl: timedelta | None = None,
    max_length: int | None = None,
    codec: Codec[Any] | None = None,
    key_codec: Codec[Any] | None = None,
    version: int = 1,
) -> Any:
    """Declare a state of an operator class; the annotation beside it says of which type.

    ``default`` is what a ``Value`` reads before it is set. ``ttl`` (``Value``, ``MapOf``) forgets what was
    not written for so long in event time. ``max_length`` (``ListOf``) drops the oldest elements. ``codec``
    and ``key_codec`` (``MapOf``) replace the codecs inferred from the annotation. ``version`` counts
    changes of the value's schema. Options that do not fit the type are refused with ``GraphError`` when the
    graph is built.
    """
    return StateOptions(
        default=default, ttl=ttl, max_length=max_length, codec=codec, key_codec=key_codec, version=version
    )


@dataclass(frozen=True, slots=True)
class StateField:
    """One declared state, checked: attribute, store name, kind, codecs."""

    attribute: str
    store: str
    kind: Any
    codec: Codec[Any]
    map_key_codec: Codec[Any] | None
    options: StateOptions

    def entry(self, stage: str, key_codec: Codec[Any]) -> StoreEntry:
        """The store as the catalog describes it."""
        kind, layout = _KINDS[self.kind]
        value_codec = TimedCodec(self.codec) if self.options.ttl else self.codec
        described = value_codec.describe()
        if self.map_key_codec is not None:
            described = {**described, "map_key": self.map_key_codec.describe()}
        return StoreEntry(
            name=self.store,
            stage=stage,
            kind=kind,
            layout=layout,
            key_codec=key_codec.describe(),
            value_codec=described,
            retention_ms=self.ttl_ms,
            version=self.options.version,
        )

    @property
    def ttl_ms(self) -> int | None:
        """Time to live in ms, None for ever."""
        return None if self.options.ttl is None else self.options.ttl // timedelta(milliseconds=1)

    def bind(self, store: StateStore, scope: Scope) -> tuple[Any, Expiry | None]:
        """A handle on the store, and what deletes its expired entries."""
        expiry = None if self.ttl_ms is None else Expiry(store, self.ttl_ms)
        if self.kind is Value:
            return Value[Any](store, self.codec, scope, self.options.default, expiry), expiry
        if self.kind is ListOf:
            return ListOf[Any](store, self.codec, scope, self.options.max_length), None
        assert self.map_key_codec is not None, "a map has a codec for its keys"
        return MapOf[Any, Any](store, (self.map_key_codec, self.codec), scope, expiry), expiry


def declared_fields(owner: type, prefix: str) -> tuple[StateField, ...]:
    """The states that a class declares, its bases' included; raises ``GraphError`` for one that cannot be."""
    hints = _hints(owner)
    found: dict[str, StateOptions] = {}
    for base in reversed(owner.__mro__):
        found |= {name: value for name, value in vars(base).items() if isinstance(value, StateOptions)}
    undeclared = [
        name for name, hint in hints.items() if typing.get_origin(hint) in _KINDS and name not in found
    ]
    if undeclared:
        raise _wrong(owner, undeclared[0], "is annotated but never declared", "Add `= sf.state()`.")
    return tuple(_field(owner, prefix, name, hints.get(name), options) for name, options in found.items())


def _field(owner: type, prefix: str, name: str, hint: Any, options: StateOptions) -> StateField:
    kind, arguments = typing.get_origin(hint), typing.get_args(hint)
    if kind not in _KINDS:
        raise _wrong(
            owner, name, "has no annotation that says its type", "Write Value[int], ListOf[…] or MapOf[…]."
        )
    value_type, is_optional = _without_none(arguments[-1])
    codec = options.codec or codec_for(value_type, "msgpack")
    map_key_codec = (options.key_codec or codec_for(arguments[0], "msgpack")) if kind is MapOf else None
    checked = StateField(name, f"{prefix}-{name}", kind, codec, map_key_codec, options)
    _check_options(owner, checked, is_optional)
    return checked


def _check_options(owner: type, field: StateField, is_optional: bool) -> None:
    options, name = field.options, field.attribute
    if field.kind is Value and options.default is None and not is_optional:
        raise _wrong(owner, name, "has no default", "Give default=…, or annotate it Value[… | None].")
    if field.kind is not Value and options.default is not None:
        raise _wrong(owner, name, "has a default, but starts empty", "Leave the default out.")
    if field.kind is ListOf and options.ttl is not None:
        raise _wrong(owner, name, "is a list with a ttl", "Bound a list by max_length, or use a MapOf.")
    if options.max_length is not None and (field.kind is not ListOf or options.max_length < 1):
        raise _wrong(
            owner, name, "has a max_length that does not fit", "max_length is for a ListOf, from 1 up."
        )
    if field.ttl_ms is not None and field.ttl_ms < 1:
        raise _wrong(owner, name, "has a ttl below 1 ms", "Give a longer one.")
    if options.default is not None:
        field.codec.encode(options.default)


def _without_none(type_: Any) -> tuple[Any, bool]:
    """The type without ``| None``, and whether it was there: None is never stored."""
    if typing.get_origin(type_) not in (typing.Union, types.UnionType):
        return type_, type_ is Any
    rest = [part for part in typing.get_args(type_) if part is not type(None)]
    is_optional = len(rest) < len(typing.get_args(type_))
    return (typing.Union[tuple(rest)] if is_optional else type_), is_optional  # noqa: UP007 - built at run time


def _hints(owner: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner)
    except NameError as cause:
        raise GraphError(
            f"The annotations of {owner.__name__} cannot be read: {cause}.",
            action="Import the named type at run time, outside TYPE_CHECKING and functions.",
        ) from cause


def _wrong(owner: type, name: str, what: str, action: str) -> GraphError:
    return GraphError(f"The state {owner.__name__}.{name} {what}.", action=action)
