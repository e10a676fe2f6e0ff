"""Tables with a history: streams joined with what held at the time of their records."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
HISTORY_MS = 20_000


def priced(count: str, price: str | None) -> str:
    return f"{count}@{price}"


def made(
    grace: timedelta | None, *, inner: bool = False
) -> tuple[sf.App, sf.Topic[str, str], sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("versions")
    sales, prices = app.topic("sales", key=str, value=str), app.topic("prices", key=str, value=str)
    out = app.topic("out", key=str, value=str)
    table = app.table(prices, name="prices-table", history=timedelta(milliseconds=HISTORY_MS))
    stream = app.stream(sales)
    (stream.join if inner else stream.left_join)(table, priced, name="priced", grace=grace).to(out)
    return app, sales, prices, out


def test_a_record_meets_what_held_at_its_time() -> None:
    app, sales, prices, out = made(None)
    driver = TestDriver(app, partitions=2)
    for at_ms, price in ((0, "a"), (1_000, "b"), (3_000, None), (2_000, "late"), (5_000, "c")):
        driver.send(prices, price, key="k", timestamp_ms=T0 + at_ms)
    for at_ms in (6_000, 4_000, 2_500, 1_999, 500):
        driver.send(sales, str(at_ms), key="k", timestamp_ms=T0 + at_ms)
        driver.crash(disk_lost=True)
        driver.restore()
    told = [record.value for record in driver.output(out)]
    assert told == ["6000@c", "4000@None", "2500@late", "1999@b", "500@a"]


def test_late_changes_take_their_place_and_change_nothing_that_is() -> None:
    app = sf.App("versions")
    prices, out = app.topic("prices", key=str, value=str), app.topic("out", key=str, value=str)
    app.table(prices, name="t", co_partitioned=True, history=timedelta(seconds=20)).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(
        prices, [("k", "a", T0), ("k", "b", T0 + 10), ("k", "late", T0 + 5), ("k", None, T0 + 10)]
    )
    assert [record.value for record in driver.output(out)] == ["a", "b", None]
    assert driver.state("t", key="k") == {T0 + 10: None, T0 + 5: "late", T0: "a"}


def test_a_tombstone_before_any_time_hides_nothing() -> None:
    """It is of the first moment of all, and not of the one at which it is written."""
    app = sf.App("versions")
    times = app.topic("times", key=str, value=int, timestamp=lambda at_ms: at_ms)
    out = app.topic("out", key=str, value=int)
    app.table(times, name="t", history=timedelta(seconds=20)).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(times, [("k", None, T0), ("k", T0 + 5, T0 + 5)])
    assert [(row.value, row.timestamp_ms) for row in driver.rows(out)][-1] == (T0 + 5, T0 + 5)
    assert driver.state("t", key="k") == {T0 + 5: T0 + 5}


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_with_a_grace_the_answer_is_that_of_the_logs_alone(seed: int, inner: bool) -> None:
    """Whichever topic is read first, in any batches, through crashes and repartitions."""
    rng = random.Random(f"{seed}-{inner}")
    grace_ms = 1_000
    app, sales, prices, out = made(timedelta(milliseconds=grace_ms), inner=inner)
    logs: dict[str, list[tuple[str, str | None, int]]] = {"sales": [], "prices": []}
    for name, rows in logs.items():
        now_ms = T0
        for number in range(40):
            now_ms += rng.choice((0, 50, 300))
            value = None if name == "prices" and rng.random() < 0.2 else f"{name[0]}{number}"
            rows.append(
                (f"k{rng.randrange(3)}", value, now_ms - rng.choice((0, 0, rng.randint(0, grace_ms))))
            )
    expected: Counter[tuple[str, str]] = Counter()
    for key, value, at_ms in logs["sales"]:
        held = [
            (ms, at, price) for at, (k, price, ms) in enumerate(logs["prices"]) if k == key and ms <= at_ms
        ]
        price = max(held)[2] if held else None
        if value is not None and (price is not None or not inner):
            expected[key, priced(value, price)] += 1
    driver = TestDriver(app, partitions=1, poll_records=rng.choice((None, 3)))
    rest, partitions = {name: list(rows) for name, rows in logs.items()}, 1
    topics = {"sales": sales, "prices": prices}
    while any(rest.values()):
        name, count = rng.choice(sorted(rest)), rng.choice((1, 5, 40))
        batch, rest[name] = rest[name][:count], rest[name][count:]
        driver.send_many(topics[name], batch)
        if rng.random() < 0.2:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
        elif rng.random() < 0.1:
            partitions = partitions % 3 + 1
            driver.repartition(partitions)
    driver.end_input()
    assert Counter((record.key, record.value) for record in driver.output(out)) == expected


def kept(rows: list[tuple[str, str | None, int]], history_ms: int) -> list[tuple[str, str | None, int]]:
    """What a table with a history passes on of the records of one partition, by times alone."""
    written: dict[str, dict[int, str | None]] = {}
    mark_ms, told = T0, []
    for key, value, at_ms in rows:
        mark_ms = max(mark_ms, at_ms)
        versions, horizon_ms = written.setdefault(key, {}), mark_ms - history_ms
        if at_ms <= horizon_ms - history_ms or any(at_ms < other <= horizon_ms for other in versions):
            continue
        newest = max(versions, default=-1)
        before = versions.get(newest)
        versions[at_ms] = value
        if at_ms >= newest and (before is not None or value is not None):
            told.append((key, value, at_ms))
    return told


@pytest.mark.parametrize("seed", range(6))
def test_what_is_too_late_does_not_depend_on_batches(seed: int) -> None:
    rng, history_ms = random.Random(seed), 1_000
    app = sf.App("versions")
    prices, out = app.topic("prices", key=str, value=str), app.topic("out", key=str, value=str)
    table = app.table(prices, name="t", co_partitioned=True, history=timedelta(milliseconds=history_ms))
    table.to_stream().to(out)
    rows: list[tuple[str, str | None, int]] = []
    now_ms = T0
    for number in range(150):
        now_ms += rng.choice((0, 20, 300, 1_500))
        late_ms = rng.choice((0, 0, rng.randint(0, 4) * history_ms // 2, rng.randint(0, 4 * history_ms)))
        rows.append((f"k{rng.randrange(4)}", rng.choice((None, f"v{number}")), max(T0, now_ms - late_ms)))
    driver, rest = TestDriver(app, partitions=1, poll_records=rng.choice((None, 1, 7))), list(rows)
    while rest:
        count = rng.choice((1, 5, 40))
        driver.send_many(prices, rest[:count])
        rest = rest[count:]
        if rng.random() < 0.3:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
    assert [(row.key, row.value, row.timestamp_ms) for row in driver.rows(out)] == kept(rows, history_ms)


def test_changes_that_are_too_late_are_counted() -> None:
    app = sf.App("versions")
    prices, out = app.topic("prices", key=str, value=str), app.topic("out", key=str, value=str)
    app.table(prices, name="t", co_partitioned=True, history=timedelta(seconds=10)).to_stream().to(out)
    driver = TestDriver(app, partitions=1)
    rows = [("k", "a", 0), ("k", None, 1_000), ("z", "b", 61_000), ("z", "c", 61_001), ("k", "late", 500)]
    for key, value, at_ms in rows:
        driver.send(prices, value, key=key, timestamp_ms=T0 + at_ms)
    assert [row.value for row in driver.rows(out)] == ["a", None, "b", "c"]
    (task,) = driver._worker.tasks.values()
    assert task.context.counters["late_records_total"] == 1


def test_a_grace_needs_a_history_that_reaches_as_far() -> None:
    app = sf.App("versions")
    sales, prices = app.topic("sales", key=str, value=str), app.topic("prices", key=str, value=str)
    with pytest.raises(GraphError, match="remembers nothing"):
        app.stream(sales).join(app.table(prices, name="a"), priced, name="b", grace=timedelta(seconds=1))
    short = app.table(prices, name="c", history=timedelta(seconds=1))
    with pytest.raises(GraphError, match="remembers 1000 ms"):
        app.stream(sales).join(short, priced, name="d", grace=timedelta(seconds=1))
    with pytest.raises(GraphError, match="below 1 ms"):
        app.table(prices, name="e", history=timedelta(0))
