"""What follows the clock and not event time. When it happens is nobody's promise: that it does, once, for each is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

_PERIOD = timedelta(seconds=2)
Results = Iterable[tuple[Any, Any]]


def clocked_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("timers by the clock", _later, _each_once, is_clocked=True),
        Verb("functions with timers", _functions, _each_once, is_clocked=True),
        Verb("rounds by the clock", _rounds, _each_once, is_clocked=True),
        Verb("rounds as long as there is state", _lasting, _lasting_results, is_clocked=True),
        Verb("suppress by the clock", _suppressed, _newest, is_clocked=True),
    ]


def _each_once(rows: Sequence[Row]) -> Results:
    return [(row.key, row.given) for row in rows]


def _newest(rows: Sequence[Row]) -> Results:
    return {row.key: row.given for row in rows}.items()


class Later(sf.Operator[str, int, int]):
    """Tells each value when so much time has passed, by a timer of its own; the payload is all that it keeps."""

    number: sf.Counter = sf.state()

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        """Wait."""
        self.number.add()
        after = timedelta(milliseconds=value * 40)
        ctx.timer(f"{self.number.get()}", after=after, time="processing", payload=value)

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - the payload says it
        """Tell it."""
        ctx.emit(ctx.payload)


def _later(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(Later, name="later").to(topic)
    return topic, "all"


def _keep(
    value: int,
    ctx: sf.Context[int],
    kept: sf.ListOf[int] = sf.state(),  # noqa: B008
) -> None:
    kept.append(value)
    ctx.timer("tell", after=_PERIOD, time="processing")


def _tell(name: str, ctx: sf.Context[int], kept: sf.ListOf[int]) -> None:  # noqa: ARG001 - it has but one
    for value in kept:
        ctx.emit(value)
    kept.clear()


def _functions(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(_keep, name="kept", on_timer=_tell).to(topic)
    return topic, "all"


class Rounds(sf.Operator[str, int, int]):
    """Tells, at each tick, what has come since the one before."""

    every = sf.Every(_PERIOD, "processing")
    kept: sf.ListOf[int] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - told at the tick
        """Keep it."""
        self.kept.append(value)

    def on_every(self, ctx: sf.Context[int]) -> None:
        """Tell all."""
        for value in self.kept:
            ctx.emit(value)
        self.kept.clear()


def _rounds(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(Rounds, name="rounds").to(topic)
    return topic, "all"


class Lasting(sf.Operator[str, int, int]):
    """Tells one at each tick for each odd value that has come, and keeps no state when it has told all."""

    every = sf.Every(_PERIOD, "processing")
    left: sf.Value[int | None] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - told at the ticks
        """Owe one more."""
        if value % 2:
            self.left.set((self.left.get() or 0) + 1)

    def on_every(self, ctx: sf.Context[int]) -> None:
        """Tell one."""
        left = self.left.get()
        assert left, "without state a key takes no part"
        ctx.emit(1)
        if left > 1:
            self.left.set(left - 1)
        else:
            self.left.clear()


def _lasting(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(Lasting, name="lasting").to(topic)
    return topic, "all"


def _lasting_results(rows: Sequence[Row]) -> Results:
    return [(row.key, 1) for row in rows if row.given % 2]


def _suppressed(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().suppress(sf.Every(_PERIOD, "processing"), name="held").to(topic)
    return topic, "newest"
