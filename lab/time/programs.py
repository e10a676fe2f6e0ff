"""Applications of the study, each with what it must say about a log."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import stateflow as sf
from stateflow.config import Guarantee
from stateflow.lab.time.logs import UNIT_MS, LogShape, Row, random_shape
from stateflow.lab.time.oracle import (
    MERGES,
    Computation,
    Kind,
    Place,
    Sequences,
    aggregated,
    chained,
    fold_step,
    group_of,
    is_closed,
    with_ttl,
)
from stateflow.lab.time.timed import (
    Emitted,
    Forgetful,
    ForgetfulOracle,
    Sessions,
    SessionsOracle,
    TimedOracle,
    said,
    summed,
)
from stateflow.operators.dsl.windowed_stream import WindowedStream
from stateflow.operators.windows.windows import Window

SOURCE = "in"
Rule = Literal["each", "bag", "coalesced", "newest"]
_OPERATORS = ("count", "sum", "max", "fold")
_KINDS: tuple[Kind, ...] = ("tumbling", "hopping", "session", "sliding")
_AGGREGATES: Mapping[str, Any] = {
    "count": lambda: sf.count(),
    "sum": lambda: sf.sum(),
    "max": lambda: sf.max(type=int),
    "fold": lambda: sf.fold(
        lambda: 7, lambda total, value: fold_step(total, value), merge=MERGES["fold"], type=int
    ),
}


class Expected(NamedTuple):
    """What one output topic must hold."""

    operator: str
    sequences: Sequences
    rule: Rule
    """``each``: every result, in order. ``bag``: every result. ``coalesced``: some of them, in order, and the last.
    ``newest``: the last."""
    late: int = 0
    asked: Computation | None = None
    """What Kafka Streams can be asked for to compare with."""
    is_judged: Callable[[Place], bool] = lambda _: True
    """Which places are compared: a window that is open at the end may have told something at an interval, or not."""


class Program(Protocol):
    """One application and its oracle."""

    @property
    def shape(self) -> LogShape:
        """The logs that it may be given."""
        ...

    @property
    def is_scalable(self) -> bool:
        """True when it can be repartitioned."""
        ...

    def build(self, guarantee: Guarantee) -> tuple[sf.App, Sequence[sf.Topic[Any, Any]]]:
        """The application, and its output topics."""
        ...

    def expected(self, rows: Sequence[Row]) -> list[Expected]:
        """What each output topic must hold for a log."""
        ...


@dataclass(frozen=True)
class Aggregating:
    """Several aggregates over one source, each to an output of its own."""

    shape: LogShape
    computations: tuple[Computation, ...]
    ttl_ms: int = 0
    """Time to live of those without windows, which Kafka Streams does not have."""
    changelog: sf.Eventual | None = None
    """For windows behind a key_by: a restore then computes some of them again from the input."""
    tells_late: bool = False
    """Whether what is late goes to an output, too."""

    @property
    def is_scalable(self) -> bool:
        """True when all of them stand behind a key_by."""
        return all(wanted.groups for wanted in self.computations)

    def build(self, guarantee: Guarantee) -> tuple[sf.App, Sequence[sf.Topic[Any, Any]]]:
        """One stage, or two."""
        app = sf.App("time", guarantee=guarantee)
        stream = app.stream(app.topic(SOURCE, key=str, value=int), co_partitioned=self.shape.by_key)
        rekeyed: dict[int, sf.Stream[str, int]] = {}
        outputs = []
        for number, wanted in enumerate(self.computations):
            if wanted.groups and wanted.groups not in rekeyed:
                rekeyed[wanted.groups] = _rekeyed(stream, wanted.groups)
            keyed = rekeyed[wanted.groups] if wanted.groups else stream
            outputs.append(self._output(app, keyed, wanted, number))
            if self.tells_late and wanted.size_ms:
                outputs.append(app.topic(f"late-{number}", key=str, value=int))
                _windowed(keyed, wanted).late().to(outputs[-1])
        return app, outputs

    def _output(
        self, app: sf.App, stream: sf.Stream[str, int], wanted: Computation, number: int
    ) -> sf.Topic[Any, Any]:
        aggregate, name = _AGGREGATES[wanted.operator](), f"{wanted.operator}-{number}"
        if not wanted.size_ms:
            output = app.topic(f"out-{number}", key=str, value=int)
            ttl = timedelta(milliseconds=self.ttl_ms) if self.ttl_ms else None
            stream.aggregate(aggregate, name=name, ttl=ttl).to(output)
            return output
        key: Any = sf.WindowedKey(sf.String, wanted.size_ms)
        windowed = app.topic(
            f"out-{number}", key=sf.SessionKey(sf.String) if wanted.kind == "session" else key, value=int
        )
        _windowed(stream, wanted, self.changelog).aggregate(aggregate, name=name).to(windowed)
        return windowed

    def expected(self, rows: Sequence[Row]) -> list[Expected]:
        """By the oracle, record by record; with several partitions the order between them is not known."""
        found = []
        for wanted in self.computations:
            rule: Rule = (
                "each" if wanted.on_close else "coalesced" if self.shape.partitions == 1 else "newest"
            )
            if self.ttl_ms:
                sequences = with_ttl(rows, wanted.operator, self.ttl_ms)
                found.append(Expected(f"{wanted.operator} ttl", sequences, rule))
                continue
            sequences, late = aggregated(rows, wanted)
            asked = wanted if self.shape.partitions == 1 else None
            name = wanted.name + ("" if asked else ", partitions") + (" eventual" if self.changelog else "")
            part = Expected(name, sequences, rule, sum(map(len, late.values())), asked)
            found.append(
                part._replace(is_judged=partial(is_closed, rows, wanted)) if wanted.every_ms else part
            )
            if self.tells_late and wanted.size_ms:
                is_in_order = self.shape.partitions == 1 or not wanted.groups
                found.append(Expected("late", late, "each" if is_in_order else "bag"))
        return found


@dataclass(frozen=True)
class Chained:
    """Counts by windows, and in the next stage the largest of them by windows behind those."""

    shape: LogShape
    inner: Computation
    outer: Computation

    @property
    def is_scalable(self) -> bool:
        """True when both stand behind a key_by."""
        return bool(self.inner.groups)

    def build(self, guarantee: Guarantee) -> tuple[sf.App, Sequence[sf.Topic[Any, Any]]]:
        """Two stages, or three."""
        app = sf.App("time", guarantee=guarantee)
        stream = app.stream(app.topic(SOURCE, key=str, value=int), co_partitioned=self.shape.by_key)
        keyed = _rekeyed(stream, self.inner.groups) if self.inner.groups else stream
        counts = _windowed(keyed, self.inner).count(name="inner")
        named = counts.map_pairs(_with_key, value=sf.Json).key_by(_first, name="again", key=str)
        output = app.topic("out-0", key=sf.WindowedKey(sf.String, self.outer.size_ms), value=int)
        _windowed(named.map(_second, value=int), self.outer).max(name="outer").to(output)
        return app, [output]

    def expected(self, rows: Sequence[Row]) -> list[Expected]:
        """What is left when all is closed; on the way batches may have coalesced updates."""
        return [Expected(f"max behind {self.inner.name}", chained(rows, self.inner, self.outer), "each")]


def _windowed(
    stream: sf.Stream[Any, Any], wanted: Computation, changelog: sf.Eventual | None = None
) -> WindowedStream[Any, Any]:
    emit: Any = "on_close" if wanted.on_close else "on_update"
    if wanted.every_ms:
        emit = sf.Every(timedelta(milliseconds=wanted.every_ms))
    return stream.window(_window_of(wanted), emit=emit, changelog=changelog)


def _window_of(wanted: Computation) -> Window:
    names = ("size_ms", "grace_ms", "advance_ms", "offset_ms")
    size, grace, advance, offset = (timedelta(milliseconds=getattr(wanted, name)) for name in names)
    match wanted.kind:
        case "hopping":
            return sf.Hopping(size, advance, grace=grace, offset=offset)
        case "session":
            return sf.Session(size, grace=grace)
        case "sliding":
            return sf.Sliding(size, grace=grace)
        case _:
            return sf.Tumbling(size, grace=grace, offset=offset)


def _with_key(key: Any, value: int) -> list[Any]:
    return [key.key, value]


def _first(row: list[Any]) -> str:
    return str(row[0])


def _second(row: list[Any]) -> int:
    return int(row[1])


@dataclass(frozen=True)
class Timed:
    """An operator with timers, its rows to one output, their sums by windows behind it to another."""

    shape: LogShape
    kind: Literal["sessions", "forgetful"]
    groups: int
    size_ms: int
    """0 without windows behind the operator."""
    grace_ms: int

    @property
    def is_scalable(self) -> bool:
        """True when a key_by stands before the operator."""
        return bool(self.groups)

    def build(self, guarantee: Guarantee) -> tuple[sf.App, Sequence[sf.Topic[Any, Any]]]:
        """One stage, or two."""
        app = sf.App("time", guarantee=guarantee)
        stream = app.stream(app.topic(SOURCE, key=str, value=int), co_partitioned=True)
        keyed = _rekeyed(stream, self.groups) if self.groups else stream
        rows = keyed.process(Sessions if self.kind == "sessions" else Forgetful, name="timed")
        outputs: list[sf.Topic[Any, Any]] = [app.topic("out-0", key=str, value=sf.Json)]
        rows.to(outputs[0])
        if self.size_ms:
            outputs.append(app.topic("out-1", key=sf.WindowedKey(sf.String, self.size_ms), value=int))
            window = _tumbling(self.size_ms, self.grace_ms)
            rows.map(_seen).window(window, emit="on_close").sum(name="behind").to(outputs[1])
        return app, outputs

    def expected(self, rows: Sequence[Row]) -> list[Expected]:
        """By the operator's oracle."""
        emitted: list[Emitted] = []
        for partition in range(self.shape.partitions):  # each is a task of its own, with its own event time
            oracle: TimedOracle = SessionsOracle() if self.kind == "sessions" else ForgetfulOracle()
            emitted += oracle.run([row for row in rows if row.partition == partition], self.groups)
        found = [Expected(f"{self.kind}{' rekeyed' if self.groups else ''}", said(emitted), "each")]
        if self.size_ms:
            sequences, late = summed(emitted, self.size_ms, self.grace_ms, rows[-1].timestamp_ms)
            found.append(Expected(f"{self.kind} before windows", sequences, "each", late))
        return found


def _seen(row: list[Any]) -> int:
    return int(row[2])


def _rekeyed(stream: sf.Stream[str, int], groups: int) -> sf.Stream[str, int]:
    return stream.key_by(lambda value: group_of(value, groups), name=f"by-{groups}", key=str, value=int)


def _tumbling(size_ms: int, grace_ms: int) -> sf.Tumbling:
    return sf.Tumbling(timedelta(milliseconds=size_ms), grace=timedelta(milliseconds=grace_ms))


def random_program(rng: random.Random, *, comparable: bool) -> Program:
    """An application; ``comparable`` ones are those that Kafka Streams can be compared with."""
    if comparable:
        shape = random_shape(rng, empty_ahead=False)
        if rng.random() < 0.1:
            wanted = Computation(rng.choice(_OPERATORS), UNIT_MS, UNIT_MS // 2, rng.random() < 0.5, 3)
            return Aggregating(shape, (wanted,), changelog=sf.Eventual(intensity=rng.choice((0.0, 0.1))))
        return Aggregating(shape, _computations(rng, _OPERATORS), tells_late=rng.random() < 0.3)
    kind = rng.choice(("partitions", "ttl", "sessions", "sessions", "forgetful", "chained"))
    if kind == "chained":
        return _random_chain(rng)
    if kind == "partitions":
        shape = random_shape(rng, partitions=rng.randint(2, 4), by_key=rng.random() < 0.5)
        computations = _computations(rng, _OPERATORS[:3], rekeyed=not shape.by_key, comparable=False)
        return Aggregating(shape, computations, tells_late=rng.random() < 0.3)
    groups = rng.choice((0, 3)) if kind != "ttl" else 0
    shape = random_shape(rng, partitions=1 if groups else rng.choice((1, 1, 3)))
    if kind == "ttl":
        computations = tuple(Computation(operator) for operator in rng.sample(_OPERATORS, 2))
        return Aggregating(shape, computations, ttl_ms=rng.choice((UNIT_MS // 2, 3 * UNIT_MS)))
    size_ms = rng.choice((0, UNIT_MS)) if kind == "sessions" else 0
    grace_ms = rng.choice((0, UNIT_MS // 2, 3 * UNIT_MS))
    return Timed(shape, "sessions" if kind == "sessions" else "forgetful", groups, size_ms, grace_ms)


def _random_chain(rng: random.Random) -> Program:
    inner_close, groups = rng.random() < 0.5, rng.choice((0, 2))
    sizes_ms = rng.choice(((UNIT_MS // 4, UNIT_MS), (UNIT_MS, UNIT_MS), (UNIT_MS, 3 * UNIT_MS)))
    graces_ms = (0, UNIT_MS // 2, 2 * UNIT_MS)
    every_ms = 0 if inner_close else rng.choice((0, UNIT_MS // 8))
    inner = Computation("count", sizes_ms[0], rng.choice(graces_ms), inner_close, groups, every_ms=every_ms)
    outer = Computation("max", sizes_ms[1], rng.choice(graces_ms), on_close=True)
    by_key = not groups or rng.random() < 0.5
    return Chained(random_shape(rng, partitions=rng.choice((1, 3)), by_key=by_key), inner, outer)


def _computations(
    rng: random.Random, operators: Sequence[str], *, rekeyed: bool = False, comparable: bool = True
) -> tuple[Computation, ...]:
    size_ms = rng.choice((UNIT_MS // 4, UNIT_MS, 2 * UNIT_MS + 1))
    grace_ms = rng.choice((0, 0, UNIT_MS // 2, 3 * UNIT_MS))
    kind = rng.choice(_KINDS)
    advance_ms = rng.choice((size_ms, size_ms // 2, size_ms // 3 + 1, size_ms // 7 + 1))
    spans_ms = (
        advance_ms if kind == "hopping" else 0,
        rng.choice((0, 17)) if kind == "tumbling" and not comparable else 0,
    )
    groups, part = rng.choice((1, 3)), 1.0 if rekeyed else rng.choice((0.0, 0.5, 1.0))
    if kind == "sliding":  # its values are folded in the order of time, in Kafka Streams as they came
        operators = [operator for operator in operators if operator != "fold"]
    found = []
    for operator in rng.sample(operators, 3):
        speaks = rng.choice(("update", "update", "close", "close", "ticks", "plain"))
        windowed = (size_ms, grace_ms, speaks == "close") if speaks != "plain" else (0, 0, False)
        own = groups if rng.random() < part else 0
        every_ms = rng.choice((UNIT_MS // 8, UNIT_MS)) if speaks == "ticks" else 0
        spans = spans_ms if windowed[0] else (0, 0)
        found.append(Computation(operator, *windowed, own, kind, *spans, every_ms))
    return tuple(found)
