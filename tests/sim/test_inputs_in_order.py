"""An operator that reads several inputs in one order of event time: sorted, let go by the slowest, also in crashes."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.testing import TestDriver

pytestmark = pytest.mark.slow

T0 = 1_704_067_200_000


class Told(sf.Operator[str, Any, str]):
    """Says what it is given, a pause of two seconds too."""

    def on_left(self, value: int | None, ctx: sf.Context[str]) -> None:
        self._tell(f"l{value}", ctx)

    def on_right(self, value: str | None, ctx: sf.Context[str]) -> None:
        self._tell(f"r{value}", ctx)

    def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
        ctx.emit(name)

    def _tell(self, what: str, ctx: sf.Context[str]) -> None:
        ctx.emit(what)
        ctx.timer("pause", after=timedelta(seconds=2))


class Inputs:
    """The application, with values of two types."""

    def __init__(self) -> None:
        self.app = sf.App("x", guarantee="exactly-once")
        self.left = self.app.topic("left", key=str, value=int)
        self.right = self.app.topic("right", key=str, value=str)
        self.out = self.app.topic("out", key=str, value=str)

    def ports(self, **tie_breaks: Any) -> tuple[sf.Port[str, str], sf.Port[str, str]]:
        left, right = self.app.stream(self.left), self.app.stream(self.right)
        return (
            sf.port(left, Told.on_left, tie_break=tie_breaks.get("left")),
            sf.port(right, Told.on_right, tie_break=tie_breaks.get("right")),
        )

    def told(self, driver: TestDriver, key: str = "k") -> str:
        return " ".join(row.value for row in driver.rows(self.out) if row.key == key)

    def send(self, driver: TestDriver, side: str, *rows: tuple[Any, int], key: str = "k") -> None:
        topic: Any = self.left if side == "left" else self.right
        driver.send_many(topic, [(key, value, T0 + second * 1_000) for value, second in rows])


def in_order(**tie_breaks: Any) -> Inputs:
    x = Inputs()
    x.app.process(Told, *x.ports(**tie_breaks), name="told", order="event-time").to(x.out)
    return x


def by_decorator() -> Inputs:
    x = Inputs()
    named: Any = {"on_left": x.left, "on_right": x.right}
    x.app.operator("told", inputs=named, sink=x.out, order="event-time")(Told)
    return x


@pytest.mark.parametrize("made", [in_order, by_decorator])
@pytest.mark.parametrize("first", ["left", "right"])
def test_records_of_all_inputs_come_by_time_and_then_by_the_order_of_the_inputs(
    made: Any, first: str
) -> None:
    x = made()
    driver = TestDriver(x.app, partitions=2)
    sent: dict[str, list[tuple[Any, int]]] = {"left": [(1, 1), (3, 3), (4, 4)], "right": [("2", 2), ("3", 3)]}
    for side in sorted(sent, reverse=first == "right"):
        x.send(driver, side, *sent[side])
    driver.end_input()
    assert x.told(driver) == "l1 r2 l3 r3 l4 pause"


def test_what_one_input_has_waits_for_the_other() -> None:
    x = in_order()
    driver = TestDriver(x.app, partitions=1)
    x.send(driver, "left", (1, 1), (9, 9))
    assert x.told(driver) == "", "the right stands before them"
    x.send(driver, "right", ("0", 0), ("4", 4))
    assert x.told(driver) == "r0 l1 pause"
    x.send(driver, "right", ("8", 8))
    assert x.told(driver) == "r0 l1 pause r4 pause", "timers fire between the records of their key"
    x.send(driver, "right", ("10", 10))
    assert x.told(driver) == "r0 l1 pause r4 pause r8", "the left stands at nine, where more may come"
    x.send(driver, "left", (10, 10))
    assert x.told(driver) == "r0 l1 pause r4 pause r8 l9"


def test_tie_breaks_compare_the_inputs() -> None:
    x = in_order(left=lambda value: value, right=int)
    driver = TestDriver(x.app, partitions=1)
    x.send(driver, "left", (4, 1), (2, 1), (3, 1), (1, 2))
    x.send(driver, "right", ("3", 1), ("1", 1), ("5", 0))
    driver.end_input()
    assert x.told(driver) == "r1 l2 l3 r3 l4 l1 pause", "r5 is behind its partition, and left out"


def test_a_tie_break_that_fails_follows_the_policy() -> None:
    for policy, told in ((sf.Fail(), ""), (sf.Skip(), "l1 r2 pause")):
        x = Inputs()
        ports = x.ports(left=lambda value: value, right=int)
        x.app.process(Told, *ports, name="told", order="event-time", on_error=policy).to(x.out)
        driver = TestDriver(x.app, partitions=1)
        x.send(driver, "left", (1, 1))
        x.send(driver, "right", ("x", 1), ("2", 1))
        if told:
            driver.end_input()
        else:
            with pytest.raises(ProcessingError, match="invalid literal"):
                driver.end_input()
        assert x.told(driver) == told


def test_deletions_come_in_their_turn() -> None:
    x = in_order()
    driver = TestDriver(x.app, partitions=1)
    x.send(driver, "left", (1, 1), (None, 3))
    x.send(driver, "right", (None, 2))
    driver.end_input()
    assert x.told(driver) == "l1 rNone lNone pause"


def test_inputs_with_a_grace_are_sorted_first() -> None:
    """The grace is that of the streams; what they let go is not late between them."""
    x, grace = Inputs(), timedelta(seconds=3)
    left = x.app.stream(x.left).key_by_pairs(lambda key, _: key, name="l", key=str)
    right = x.app.stream(x.right).key_by_pairs(lambda key, _: key, name="r", key=str)
    ports = (
        sf.port(left.in_order(name="lefts", grace=grace), Told.on_left),
        sf.port(right.in_order(name="rights", grace=grace), Told.on_right),
    )
    x.app.process(Told, *ports, name="told", order="event-time").to(x.out)
    driver = TestDriver(x.app, partitions=2)
    x.send(driver, "left", (5, 5), (2, 2), (1, 1), (8, 8))
    x.send(driver, "right", ("6", 6), ("4", 4), ("8", 8))
    driver.end_input()
    assert x.told(driver) == "l2 pause r4 l5 r6 pause l8 r8 pause", "l1 is too late"


class Folded(sf.Operator[str, int, int]):
    """A number that depends on all values, on which inputs they came by, and on their order."""

    number: sf.Value[int] = sf.state(default=1)

    def on_left(self, value: int, ctx: sf.Context[int]) -> None:
        self.number.set((3 * self.number.get() + value) % 10_007)
        ctx.emit(self.number.get())

    def on_right(self, value: int, ctx: sf.Context[int]) -> None:
        self.number.set((7 * self.number.get() - value) % 10_007)
        ctx.emit(self.number.get())


@pytest.mark.parametrize("seed", range(8))
def test_crashes_and_repartitions_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    app = sf.App("x", guarantee="exactly-once")
    topics = {side: app.topic(side, key=str, value=int) for side in ("left", "right")}
    out = app.topic("out", key=str, value=int)
    ports = (
        sf.port(app.stream(topics["left"]), Folded.on_left, tie_break=lambda value: -value),
        sf.port(app.stream(topics["right"]), Folded.on_right, tie_break=lambda value: value),
    )
    app.process(Folded, *ports, name="folded", order="event-time").to(out)
    driver = TestDriver(app, partitions=2, poll_records=rng.choice((1, 3, None)))
    times_ms = {"left": T0, "right": T0}
    rows: list[tuple[int, int, str, int, str, int]] = []
    for step in range(50):
        side, key = rng.choice(("left", "right")), rng.choice("abc")
        times_ms[side] += rng.choice((0, 0, 1, 500))
        value = rng.randrange(100)
        driver.send_many(topics[side], [(key, value, times_ms[side])])
        rows.append((times_ms[side], -value if side == "left" else value, side, len(rows), key, value))
        if step % 11 == 5:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
        if step in (15, 35):
            driver.repartition({15: 3, 35: 2}[step])
    driver.end_input()
    for key in "abc":
        number, wanted = 1, []
        for *_, side, _, own, value in sorted(rows):
            if own == key:
                number = (3 * number + value if side == "left" else 7 * number - value) % 10_007
                wanted.append(number)
        assert [row.value for row in driver.rows(out) if row.key == key] == wanted


class Even(sf.Operator[str, int, int]):
    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        ctx.emit(value)


def test_an_operator_of_one_source_reads_in_order_too() -> None:
    app = sf.App("x")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=str, value=int)
    options: Any = {"key": lambda value: "all", "sink": out}
    app.operator("even", source=source, **options, order="event-time", tie_break=lambda value: -value)(Even)
    driver = TestDriver(app, partitions=2)
    rows = [("a", 3, T0 + 3), ("b", 1, T0 + 1), ("b", 2, T0 + 3), ("b", 7, T0 + 3)]
    driver.send_many(source, rows, partitions=[0, 1, 1, 1])
    driver.end_input()
    assert [row.value for row in driver.rows(out)] == [1, 7, 3, 2]


def test_what_does_not_fit_is_refused() -> None:
    x = Inputs()
    with pytest.raises(GraphError, match="has a tie-break, and reads records as they come"):
        x.app.process(Told, *x.ports(left=abs), name="a")
    with pytest.raises(GraphError, match="have a tie-break, but for 'on_right'"):
        x.app.process(Told, *x.ports(left=abs), name="b", order="event-time")
    with pytest.raises(GraphError, match="in the order 'time'"):
        x.app.process(Told, *x.ports(), name="c", order="time")  # type: ignore[arg-type]
