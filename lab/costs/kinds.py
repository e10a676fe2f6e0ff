"""The types of state that are measured: one small application each, doing one typical write per record.

All read the same numbers: a number belongs to the key ``number % KEYS`` and brings the element
``number // KEYS % ELEMENTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import stateflow as sf

STEP = "cost"
KEYS = 2_000
ELEMENTS = 32
"""Distinct elements per key of what holds several."""

Attach = Callable[[sf.Stream[int, int]], None]


@dataclass(frozen=True, slots=True)
class StateKind:
    """One type of state: its name in the results, the write that is measured, and the step that does it."""

    name: str
    write: str
    attach: Attach
    store: str | None
    """Name of its store; None for the baseline, which keeps nothing."""


class _Number(sf.Operator[int, int, int]):
    """Takes a number apart."""

    def element(self, number: int) -> int:
        """What the number adds to its key."""
        return number // KEYS % ELEMENTS


class _Nothing(_Number):
    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.element(value)


class _Value(_Number):
    state: sf.Value[int] = sf.state(default=0, merge=int.__add__)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.set(self.state.get() + self.element(value))


class _ValueTtl(_Number):
    state: sf.Value[int] = sf.state(default=0, ttl=timedelta(days=1), merge=int.__add__)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.set(self.state.get() + self.element(value))


class _Counter(_Number):
    state: sf.Counter = sf.state()

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.add(self.element(value))


class _Reducing(_Number):
    state: sf.Reducing[int] = sf.state(initial=0, reduce=max)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.add(value)


class _List(_Number):
    state: sf.ListOf[int] = sf.state(max_length=ELEMENTS)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.append(self.element(value))


class _Set(_Number):
    state: sf.SetOf[int] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.add(self.element(value))


class _Map(_Number):
    state: sf.MapOf[int, int] = sf.state(merge=int.__add__)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.merge(self.element(value), 1, int.__add__)


class _Nested(_Number):
    state: sf.MapOf[int, sf.MapOf[int, int]] = sf.state(merge=int.__add__)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        element = self.element(value)
        self.state[element % 4].merge(element, 1, int.__add__)


class _Versioned(_Number):
    state: sf.Versioned[int] = sf.state(history=timedelta(hours=1), max_versions=ELEMENTS, merge=max)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.state.set(self.element(value))


class _Timers(_Number):
    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        ctx.timer("idle", after=timedelta(days=1))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:
        """Never due within a run."""


def _running(operator: type[_Number]) -> Attach:
    def attach(stream: sf.Stream[int, int]) -> None:
        stream.process(operator, name=STEP)

    return attach


def _window(stream: sf.Stream[int, int]) -> None:
    stream.window(sf.Tumbling(timedelta(minutes=1))).count(name=STEP, ttl=timedelta(days=1))


def _aggregate(stream: sf.Stream[int, int]) -> None:
    stream.count(name=STEP)


_FIELD = f"{STEP}-state"
BASELINE = StateKind("none", "nothing is kept", _running(_Nothing), None)
KINDS = (
    StateKind("value", "get and set", _running(_Value), _FIELD),
    StateKind("value with ttl", "get and set", _running(_ValueTtl), _FIELD),
    StateKind("counter", "add", _running(_Counter), _FIELD),
    StateKind("reducing", "add", _running(_Reducing), _FIELD),
    StateKind("list", f"append, at most {ELEMENTS}", _running(_List), _FIELD),
    StateKind("set", f"add, {ELEMENTS} elements", _running(_Set), _FIELD),
    StateKind("map", f"merge, {ELEMENTS} entries", _running(_Map), _FIELD),
    StateKind("nested map", f"merge, 4 × {ELEMENTS // 4} entries", _running(_Nested), _FIELD),
    StateKind("versioned", f"set, at most {ELEMENTS} versions", _running(_Versioned), _FIELD),
    StateKind("timers", "re-arm one timer", _running(_Timers), f"{STEP}-timers"),
    StateKind("aggregate", "count()", _aggregate, STEP),
    StateKind("window", "count() per minute", _window, STEP),
)


def application(kind: StateKind, number: int, options: sf.AppOptions) -> tuple[sf.App, sf.Topic[bytes, int]]:
    """An application of one kind, told from others of it by its number, and its source topic."""
    name = f"cost-{kind.name.replace(' ', '-')}-{number}"
    app = sf.App(name, options=options)
    numbers = app.topic(f"{name}-numbers", value=sf.Integer)
    kind.attach(app.stream(numbers).key_by(lambda number: number % KEYS, name="by-key", key=sf.Integer))
    return app, numbers
