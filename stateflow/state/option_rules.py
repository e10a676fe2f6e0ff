"""Which options fit which type of state, checked when the graph is built."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from stateflow.callbacks import checked_or_none
from stateflow.codec.base import Codec
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.state.kinds import KINDS, Kind, StateOptions

_INDEX_NAME = re.compile(r"[a-zA-Z0-9_]{1,100}")
_ALWAYS = frozenset({"codec", "version", "migrations"})
_ADVICE = {
    "counter codec": "A counter is always 64 bits; use a Value[…] for another format.",
    "map default": "It starts empty: leave the default out.",
    "list default": "It starts empty: leave the default out.",
    "counter default": "It starts at 0: leave the default out.",
    "reducing merge": "Two states are merged by reduce as well: leave merge out.",
    "set key_codec": "Pass the codec of the elements as codec.",
}


def check_options(
    owner: type, name: str, kind: Kind, options: StateOptions, codec: Codec[Any], *, is_optional: bool
) -> None:
    """Raise ``GraphError`` for options that do not fit, ``EncodeError`` for a default of another type."""
    _check_known(owner, name, kind, options)
    for option in ("max_length", "max_versions"):
        bound = getattr(options, option)
        if bound is not None and bound < 1:
            raise wrong(owner, name, f"has a {option} of {bound}", "Give a number from 1 up.")
    for option in ("ttl", "history"):
        duration = getattr(options, option)
        if (
            duration is not None
            and declared_ms(f"{option} of the state {owner.__name__}.{name}", duration) < 1
        ):
            raise wrong(owner, name, f"has a {option} below 1 ms", "Give a longer one.")
    if codec.describe()["codec"] == "confluent-avro":
        what = "is written with schemas of a registry, which tools and restores do not ask"
        raise wrong(owner, name, what, "Use sf.Avro(schema): the catalog keeps its writers' schemas.")
    _check_versions(owner, name, kind, options)
    _check_functions(owner, name, options)
    if kind.kind == "value" and options.default is None and not is_optional:
        raise wrong(owner, name, "has no default", "Give default=…, or annotate it Value[… | None].")
    if kind.kind == "reducing":
        _check_reducing(owner, name, options, is_optional=is_optional)
    if kind.kind == "versioned" and options.history is None and options.max_versions is None:
        raise wrong(
            owner, name, "would keep every version for ever", "Give history=…, max_versions=… or both."
        )
    for index in options.index or ():
        if not isinstance(index, str) or not _INDEX_NAME.fullmatch(index):
            raise wrong(owner, name, f"has an index called {index!r}", "Use letters, digits and underscores.")
    for value in (options.default, options.initial):
        if value is not None:
            codec.encode(value)


def wrong(owner: type, name: str, what: str, action: str) -> GraphError:
    """The error about one state."""
    return GraphError(f"The state {owner.__name__}.{name} {what}.", action=action)


def _check_known(owner: type, name: str, kind: Kind, options: StateOptions) -> None:
    given = {field.name for field in fields(options) if getattr(options, field.name) is not None}
    takes = kind.takes | (_ALWAYS if kind.kind != "counter" else {"version", "migrations"})
    for option in sorted(given - takes):
        others = sorted(cls.__name__ for cls, other in KINDS.items() if option in other.takes)
        advice = _ADVICE.get(f"{kind.kind} {option}") or f"{option} is for {', '.join(others)}: leave it out."
        raise wrong(owner, name, f"is {kind.noun} with a {option}", advice)


def _check_versions(owner: type, name: str, kind: Kind, options: StateOptions) -> None:
    if options.version < 1:
        raise wrong(owner, name, f"has the version {options.version}", "Count versions from 1.")
    beyond = [version for version in options.migrations or () if not 1 <= version < options.version]
    if beyond:
        what = f"has a migration of version {beyond[0]}, but is itself version {options.version}"
        raise wrong(owner, name, what, "Raise version=…; migrations={1: …} makes version 2 of version 1.")
    if options.migrations and not kind.evolves:
        raise wrong(
            owner, name, f"is {kind.noun} with migrations", "Its values have no schema: leave them out."
        )


def _check_functions(owner: type, name: str, options: StateOptions) -> None:
    functions: dict[str, Any] = {"reduce": options.reduce, "merge": options.merge}
    functions |= {f"index {index!r}": function for index, function in (options.index or {}).items()}
    functions |= {f"migration {old!r}": function for old, function in (options.migrations or {}).items()}
    for what, function in functions.items():
        checked_or_none(function, f"the {what} of the state {owner.__name__}.{name}")


def _check_reducing(owner: type, name: str, options: StateOptions, *, is_optional: bool) -> None:
    reduce, initial = options.reduce, options.initial
    if reduce is None:
        raise wrong(owner, name, "has no function", "Give reduce=…, an associative function of two values.")
    if initial is None and not is_optional:
        action = "Give initial=…, its neutral element, or annotate it Reducing[… | None]."
        raise wrong(owner, name, "says nothing of what it is before the first value", action)
    if initial is not None and reduce(initial, initial) != initial:
        raise wrong(
            owner,
            name,
            f"begins with {initial!r}, which is not neutral: reduced with itself it is another value",
            "Begin with the neutral element (0 for a sum), or annotate it Reducing[… | None] without initial.",
        )
