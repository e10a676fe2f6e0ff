"""Declaring typed state in a class, and binding it to stores."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.details import details_of
from stateflow.codec.faithful import faithful
from stateflow.codec.infer import codec_for
from stateflow.codec.optional import NothingCodec, OptionalCodec
from stateflow.codec.ordered import key_codec_for
from stateflow.codec.scalar import Integer
from stateflow.codec.timed import TIME_BYTES, TIMES_BYTES, ExpiringCodec, TimedCodec
from stateflow.errors import GraphError
from stateflow.state.decoded_value import may_stay_decoded
from stateflow.state.evolution import Rewriter, application_codec, rewriter
from stateflow.state.index import IndexedStore, StateIndex, fingerprint
from stateflow.state.kinds import (
    KINDS,
    NESTED,
    Advancing,
    Binding,
    Kind,
    StateOptions,
    advancing,
    milliseconds,
)
from stateflow.state.mapof import MapOf
from stateflow.state.merging import MergeFor, value_merge
from stateflow.state.option_rules import check_options, wrong
from stateflow.state.scope import Scope
from stateflow.store.base import StateStore


@dataclass(frozen=True, slots=True)
class StateField:
    """One declared state, checked: attribute, store name, kind, codecs (of map keys or elements first)."""

    attribute: str
    store: str
    kind: Kind
    codec: Codec[Any]
    key_codecs: tuple[Codec[Any], ...]
    options: StateOptions

    def entry(self, stage: str, key_codec: Codec[Any]) -> StoreEntry:
        """The store as the catalog describes it."""
        is_versioned = self.kind.kind == "versioned"
        kept = self.options.history if is_versioned else self.options.ttl
        return StoreEntry(
            name=self.store,
            stage=stage,
            kind=self.kind.kind,
            layout=self.kind.layout,
            key_codec=key_codec.describe(),
            value_codec=self._value_description(),
            retention_ms=milliseconds(kept),
            max_length=self.options.max_versions if is_versioned else self.options.max_length,
            version=self.options.version,
            evolves=self.kind.evolves,
            migrates=tuple(sorted(self.options.migrations or ())),
            value_details=details_of(self.codec),
        )

    def _value_description(self) -> dict[str, Any]:
        stored: Codec[Any] = OptionalCodec(self.codec) if self.kind.kind == "versioned" else self.codec
        if self.kind.is_stamped and self.options.ttl_per_write:
            stored = ExpiringCodec(stored)
        elif self.kind.is_stamped and self.options.ttl is not None:
            stored = TimedCodec(stored)
        described = stored.describe()
        keys = [codec.describe() for codec in self.key_codecs]
        if self.kind is NESTED:
            return {**described, "map_keys": keys}
        return (
            {**described, ("element" if self.kind.kind == "set" else "map_key"): keys[0]}
            if keys
            else described
        )

    def merge(self) -> MergeFor | None:
        """The application's function for two values of one key, if it declared one."""
        function = self.options.merge or self.options.reduce
        if function is None:
            return None
        return lambda found: value_merge(self.reading(found), function)

    def made_index(self, found: StoreEntry) -> StateIndex:
        """Its indexes, which it has, over a store that is described so."""
        assert self.options.index, "the state was declared with an index"
        stamped = {True: TIMES_BYTES, False: TIME_BYTES if self.options.ttl is not None else 0}
        times_bytes = stamped[bool(self.options.ttl_per_write)]
        written = fingerprint(self.options.index, self.codec, self.options.version)
        return StateIndex(self.store, self.options.index, self.reading(found), times_bytes, written)

    def reading(self, found: StoreEntry) -> Codec[Any]:
        """The codec of its values, all schemas of which the catalog knows that they are there among them."""
        if not self.kind.evolves:
            return self.codec
        wanted = self.entry("", self.codec)
        return application_codec(self.codec, wanted, found, self.options.migrations or {})

    def number_codec(self, found: StoreEntry) -> Codec[Any] | None:
        """What reads and writes a plain number that nothing else is kept with; None for any other state."""
        options = self.options
        is_plain = self.kind.kind == "value" and not (options.index or options.ttl or options.ttl_per_write)
        return self.reading(found) if is_plain and may_stay_decoded(self.codec) else None

    def rewriter(self, found: StoreEntry) -> Rewriter:
        """What writes an entry of the store by the present schema; ``found`` is the store as the catalog has it."""
        wanted = self.entry("", self.codec)
        return rewriter(found, application_codec(self.codec, wanted, found, self.options.migrations or {}))

    def bind(
        self,
        store: StateStore,
        scope: Scope,
        found: StoreEntry | None = None,
        derived: StateStore | None = None,
    ) -> tuple[Any, Advancing | None]:
        """A handle on the store, and what deletes its forgotten entries.

        ``found`` is the store as the catalog has it, with all schemas of which it holds values; ``derived`` holds
        its indexes.
        """
        found = found or self.entry("", self.codec)
        if self.options.index:
            assert derived is not None, "an indexed state has a store for its indexes"
            store = IndexedStore(store, derived, self.made_index(found))
        expiry = self.kind.expiry(store, self.options)
        bound = Binding(store, scope, self.key_codecs, self.reading(found), self.options, expiry)
        return self.kind.bind(bound), advancing(self.kind, bound)


def declared_fields(owner: type, prefix: str) -> tuple[StateField, ...]:
    """The states that a class declares, its bases' included; raises ``GraphError`` for one that cannot be."""
    hints = _hints(owner)
    found: dict[str, StateOptions] = {}
    for base in reversed(owner.__mro__):
        found |= {name: value for name, value in vars(base).items() if isinstance(value, StateOptions)}
    undeclared = [name for name, hint in hints.items() if _is_state(hint) and name not in found]
    if undeclared:
        raise wrong(owner, undeclared[0], "is annotated but never declared", "Add `= sf.state()`.")
    return tuple(_field(owner, prefix, name, hints.get(name), options) for name, options in found.items())


def _is_state(hint: Any) -> bool:
    return typing.get_origin(hint) in KINDS or (isinstance(hint, type) and hint in KINDS)


def _field(owner: type, prefix: str, name: str, hint: Any, options: StateOptions) -> StateField:
    origin = typing.get_origin(hint) or hint
    kind = KINDS.get(origin) if isinstance(origin, type) else None
    if kind is None:
        known = ", ".join(sorted(found.__name__ for found in KINDS))
        raise wrong(owner, name, "has no annotation that says its type", f"Write one of {known}: Value[int].")
    arguments = typing.get_args(hint)
    if not arguments and kind.kind != "counter":
        raise wrong(owner, name, f"is {kind.noun} of nothing", f"Say of what: {origin.__name__}[int].")
    is_optional = False
    codec: Codec[Any] = Integer
    keys: tuple[Codec[Any], ...] = ()
    if kind.kind == "set":
        codec, keys = NothingCodec(), ((options.codec or key_codec_for(arguments[0])).for_keys(),)
    elif kind.kind != "counter":
        kind, keys, value_type = _unfolded(owner, name, kind, arguments, options)
        value_type, is_optional = _without_none(value_type)
        codec = options.codec or codec_for(value_type, "msgpack")
        if options.codec is None or value_type is not Any:  # else nothing is said but how it is written
            codec = faithful(codec, f"{prefix}-{name}", alike=True)
    checked = StateField(name, f"{prefix}-{name}", kind, codec, keys, options)
    check_options(owner, name, kind, options, codec, is_optional=is_optional)
    return checked


def _unfolded(
    owner: type, name: str, kind: Kind, arguments: tuple[Any, ...], options: StateOptions
) -> tuple[Kind, tuple[Codec[Any], ...], Any]:
    """The kind, the codecs of the keys outermost first, and the type of the innermost value."""
    keys: list[Codec[Any]] = []
    value_type = arguments[-1]
    if kind.kind == "map":
        keys.append((options.key_codec or key_codec_for(arguments[0])).for_keys())
        while typing.get_origin(value_type) is MapOf:
            key_type, value_type = typing.get_args(value_type)
            keys.append(key_codec_for(key_type))
    if _is_state(value_type):
        inner = value_type if isinstance(value_type, type) else typing.get_origin(value_type)
        what = f"is {kind.noun} of {KINDS[inner].noun}"
        raise wrong(owner, name, what, f"Only maps nest; {_INSTEAD[KINDS[inner].kind]}.")
    return (NESTED if len(keys) > 1 else kind), tuple(keys), value_type


_INSTEAD = {
    "value": "write the value's type itself, as in MapOf[str, int]",
    "counter": "write MapOf[…, int] and count with merge(key, 1, int.__add__)",
    "reducing": "write MapOf[…, T] and add with merge(key, value, function)",
    "list": "write MapOf[…, MapOf[int, T]] by position, or MapOf[…, list[T]] for short lists",
    "set": "write MapOf[…, MapOf[T, bool]]",
    "map": "write the state as MapOf[K, MapOf[K2, V]]",
    "versioned": "write MapOf[…, MapOf[int, T]] by time",
}


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
