"""An application with a state of every type, driven by commands, and the same in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import stateflow as sf

MAX_VERSIONS = 4
MAX_LENGTH = 5


@dataclass
class Command:
    """One change of one state of one key."""

    key: str
    state: str
    verb: str
    arguments: list[Any]


def every_state_app() -> tuple[sf.App, sf.Topic[bytes, Command]]:
    """The application ``every`` and its topic of commands."""
    app = sf.App("every")
    commands = app.topic("commands", value=Command)

    @app.operator("all", source=commands, key="key")
    class All(sf.Operator[str, Command, None]):
        value: sf.Value[int | None] = sf.state()
        counter: sf.Counter = sf.state()
        reducing: sf.Reducing[int | None] = sf.state(reduce=max)
        listed: sf.ListOf[int] = sf.state(max_length=MAX_LENGTH)
        tags: sf.SetOf[int] = sf.state()
        scores: sf.MapOf[int, int] = sf.state()
        nested: sf.MapOf[str, sf.MapOf[int, int]] = sf.state()
        versioned: sf.Versioned[int] = sf.state(max_versions=MAX_VERSIONS)

        def on_record(self, value: Command, ctx: sf.Context[None]) -> None:
            VERBS[value.state, value.verb].real(getattr(self, value.state), *value.arguments)

    return app, commands


@dataclass(frozen=True)
class Verb:
    """A change: of the real state, and of its model in place."""

    real: Callable[..., object]
    model: Callable[..., object]


@dataclass
class Box:
    """A model of a value that is replaced."""

    value: Any = None


def _append(model: list[int], number: int) -> None:
    model.append(number)
    del model[:-MAX_LENGTH]


def _set_version(model: dict[int, Any], at_ms: int, number: int | None) -> None:
    model[at_ms] = number
    for oldest in sorted(model)[:-MAX_VERSIONS]:
        del model[oldest]


def _put_inner(model: dict[str, dict[int, int]], outer: str, inner: int, number: int) -> None:
    model.setdefault(outer, {})[inner] = number


def _remove_inner(model: dict[str, dict[int, int]], outer: str, inner: int) -> None:
    model.get(outer, {}).pop(inner, None)
    if not model.get(outer, {"": 0}):
        del model[outer]


def _box(change: Callable[[Any, Any], Any]) -> Callable[..., None]:
    def apply(model: Box, number: Any = None) -> None:
        model.value = change(model.value, number)

    return apply


VERBS: dict[tuple[str, str], Verb] = {
    ("value", "set"): Verb(lambda s, n: s.set(n), _box(lambda _, n: n)),
    ("value", "clear"): Verb(lambda s: s.clear(), _box(lambda _, __: None)),
    ("counter", "add"): Verb(lambda s, n: s.add(n), _box(lambda old, n: (old or 0) + n)),
    ("counter", "reset"): Verb(lambda s: s.reset(), _box(lambda _, __: 0)),
    ("reducing", "add"): Verb(lambda s, n: s.add(n), _box(lambda old, n: n if old is None else max(old, n))),
    ("reducing", "clear"): Verb(lambda s: s.clear(), _box(lambda _, __: None)),
    ("listed", "append"): Verb(lambda s, n: s.append(n), _append),
    ("listed", "clear"): Verb(lambda s: s.clear(), lambda m: m.clear()),
    ("tags", "add"): Verb(lambda s, n: s.add(n), lambda m, n: m.add(n)),
    ("tags", "discard"): Verb(lambda s, n: s.discard(n), lambda m, n: m.discard(n)),
    ("tags", "clear"): Verb(lambda s: s.clear(), lambda m: m.clear()),
    ("scores", "put"): Verb(lambda s, k, n: s.put(k, n), lambda m, k, n: m.__setitem__(k, n)),
    ("scores", "remove"): Verb(lambda s, k: s.remove(k), lambda m, k: m.pop(k, None)),
    ("nested", "put"): Verb(lambda s, a, b, n: s[a].put(b, n), _put_inner),
    ("nested", "remove inner"): Verb(lambda s, a, b: s[a].remove(b), _remove_inner),
    ("nested", "remove"): Verb(lambda s, a: s.remove(a), lambda m, a: m.pop(a, None)),
    ("versioned", "set"): Verb(lambda s, at, n: s.set(n, at=at), _set_version),
    ("versioned", "clear"): Verb(lambda s, at: s.clear(at=at), lambda m, at: _set_version(m, at, None)),
}

STATES = sorted({state for state, _ in VERBS})


@dataclass
class Model:
    """Every state of every key in plain Python."""

    states: dict[tuple[str, str], Any] = field(default_factory=dict)

    def change(self, command: Command) -> None:
        """Do what the command says."""
        VERBS[command.state, command.verb].model(self._of(command.key, command.state), *command.arguments)

    def seen(self, key: str, state: str) -> Any:
        """What a tool should see."""
        found = self._of(key, state)
        if isinstance(found, Box):
            return found.value or 0 if state == "counter" else found.value
        if isinstance(found, set):
            return sorted(found) or None
        return found or None

    def _of(self, key: str, state: str) -> Any:
        kinds = defaultdict(dict, listed=[], tags=set())  # type: ignore[var-annotated]
        boxed = state in ("value", "counter", "reducing")
        return self.states.setdefault((key, state), Box() if boxed else kinds[state])
