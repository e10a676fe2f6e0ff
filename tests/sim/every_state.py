"""An application with a state of every type, driven by commands, and the same in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import stateflow as sf
from stateflow.testing.driver import TestDriver

MAX_VERSIONS = 4
MAX_LENGTH = 5


@dataclass
class Command:
    """One change of one state of one key."""

    key: str
    state: str
    verb: str
    arguments: list[Any]


class All(sf.Operator[str, Command, None]):
    value: sf.Value[int | None] = sf.state(merge=int.__sub__)
    counter: sf.Counter = sf.state()
    reducing: sf.Reducing[int | None] = sf.state(reduce=max)
    listed: sf.ListOf[int] = sf.state(max_length=MAX_LENGTH)
    tags: sf.SetOf[int] = sf.state()
    scores: sf.MapOf[int, int] = sf.state(merge=int.__sub__)
    nested: sf.MapOf[str, sf.MapOf[int, int]] = sf.state(merge=int.__sub__)
    versioned: sf.Versioned[int] = sf.state(max_versions=MAX_VERSIONS, merge=int.__sub__)

    def on_record(self, value: Command, ctx: sf.Context[None]) -> None:
        VERBS[value.state, value.verb].real(getattr(self, value.state), *value.arguments)


def every_state_app(name: str = "every") -> tuple[sf.App, sf.Topic[bytes, Command]]:
    """An application and its topic of commands, ``<name>-commands``."""
    app = sf.App(name)
    commands = app.topic(f"{name}-commands", value=Command)

    app.operator("all", source=commands, key="key")(All)
    return app, commands


def send_in_order(driver: TestDriver, topic: sf.Topic[bytes, Command], commands: Iterable[Command]) -> None:
    """Send commands so that those of one key stay in order: each key has its own partition of the source."""
    by_key: dict[str, list[Command]] = defaultdict(list)
    for command in commands:
        by_key[command.key].append(command)
    for key, own in by_key.items():
        driver.send(topic, *own, key=key.encode())


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

    def merge(self, other: Model) -> None:
        """Take in another model's states, key by key."""
        for (key, state), theirs in other.states.items():
            ours = self._of(key, state)
            if isinstance(ours, Box):
                ours.value = theirs.value if ours.value is None else _both(state, ours.value, theirs.value)
            elif isinstance(ours, list):
                ours.extend(theirs)
                del ours[:-MAX_LENGTH]
            elif isinstance(ours, set):
                ours |= theirs
            else:
                _merge_map(ours, theirs)
                if state == "versioned":
                    for oldest in sorted(ours)[:-MAX_VERSIONS]:
                        del ours[oldest]


def _both(state: str, ours: int, theirs: int | None) -> int:
    """Our value and theirs; what merges in most places subtracts, so that the order shows."""
    if theirs is None:
        return ours
    return {"counter": ours + theirs, "reducing": max(ours, theirs)}.get(state, ours - theirs)


def _merge_map(ours: dict[Any, Any], theirs: dict[Any, Any]) -> None:
    for key, value in theirs.items():
        if isinstance(value, dict):
            _merge_map(ours.setdefault(key, {}), value)
        elif ours.get(key) is None:  # absent, or cleared at that instant
            ours[key] = value
        elif value is not None:
            ours[key] -= value
