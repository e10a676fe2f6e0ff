"""What holds for windows of every kind: bounded turns, savepoints, repartitions, merged applications."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.operators.steps import timers as timing
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
SIZE_MS = 1_000
SIZE, GRACE = timedelta(milliseconds=SIZE_MS), timedelta(milliseconds=700)
WINDOWS: dict[str, Any] = {
    "hopping": sf.Hopping(SIZE, SIZE / 4, grace=GRACE),
    "offset": sf.Tumbling(SIZE, grace=GRACE, offset=SIZE / 2),
    "session": sf.Session(SIZE / 4, grace=GRACE),
    "sliding": sf.Sliding(SIZE, grace=GRACE),
}
KEYS: dict[str, Any] = {"session": sf.SessionKey(sf.String)}
KIND = pytest.mark.parametrize("kind", WINDOWS)
Row = tuple[None, list[Any], int]


def app_of(kind: str, emit: Any = "on_close", name: str = "w") -> tuple[sf.App, sf.Topic[Any, Any], Any]:
    app = sf.App(name)
    source = app.topic(f"{name}-in", value=sf.Json)
    out = app.topic(f"{name}-out", key=KEYS.get(kind, sf.WindowedKey(sf.String, SIZE_MS)), value=int)
    keyed = app.stream(source).key_by(lambda row: str(row[0]), name="by-key", key=str, value=sf.Json)
    keyed.window(WINDOWS[kind], emit=emit).sum(lambda row: row[1], name="n").to(out)
    return app, source, out


def rows_of(seed: int, count: int = 60) -> list[Row]:
    draw, at_ms, rows = random.Random(seed), T0, []
    for number in range(count):
        at_ms += draw.choice((0, 40, 90, 400, 2_500))
        when_ms = at_ms - draw.choice((0, 0, 0, 50, 300))
        rows.append((None, [f"k{draw.randrange(4)}", 1 << (number % 30)], when_ms))
    return rows


def results(driver: TestDriver, out: Any) -> Counter[tuple[Any, ...]]:
    return Counter((*record.key, record.value) for record in driver.output(out))


def newest(driver: TestDriver, out: Any) -> dict[Any, int]:
    """The last of each window, those that were withdrawn left out."""
    found = {record.key: record.value for record in driver.output(out)}
    return {key: value for key, value in found.items() if value is not None}


def straight(kind: str, rows: list[Row], name: str = "w") -> Counter[tuple[Any, ...]]:
    app, source, out = app_of(kind, name=name)
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, rows)
    driver.end_input()
    found = results(driver, out)
    assert set(found.values()) == {1}
    return found


@KIND
@pytest.mark.parametrize("per_turn", [1, 3])
def test_they_close_in_turns_in_order_and_once(
    kind: str, per_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = straight(kind, rows_of(1))
    monkeypatch.setattr(timing, "WINDOWS_PER_TURN", per_turn)
    monkeypatch.setattr(timing, "WINDOWS_PER_CHUNK", max(1, per_turn - 1))
    app, source, out = app_of(kind)
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, rows_of(1))
    driver.end_input()
    assert results(driver, out) == expected
    order = [(record.key.end_ms, record.key.key) for record in driver.output(out)]
    assert order == sorted(order)
    assert driver.state("n", key="k0") is None


@KIND
def test_on_update_ends_with_what_closing_tells(kind: str) -> None:
    expected = straight(kind, rows_of(2))
    app, source, out = app_of(kind, emit="on_update")
    driver = TestDriver(app, partitions=1)
    for row in rows_of(2):
        driver.send_many(source, [row])
    assert {(*key, value) for key, value in newest(driver, out).items()} == set(expected)


@KIND
def test_a_repartition_and_a_savepoint_in_the_middle_change_nothing(kind: str) -> None:
    rows = rows_of(3)
    expected = straight(kind, rows)
    app, source, out = app_of(kind)
    driver = TestDriver(app, partitions=1)
    driver.send_many(source, rows[:20])
    driver.repartition(3)
    driver.send_many(source, rows[20:30])
    driver.savepoint("half")
    told = results(driver, out)
    driver.send_many(source, rows[30:40])
    driver.crash(disk_lost=True)
    driver.restore()
    driver.restore_savepoint("half")  # what came after it is read again from the source
    driver.repartition(1)
    driver.send_many(source, rows[40:])
    driver.end_input()
    again = results(driver, out)
    assert set(again) == set(expected)
    assert all(count <= 2 for count in again.values())
    assert all(again[result] == 1 for result in told)


@KIND
def test_windows_of_two_applications_become_one(kind: str) -> None:
    rows = rows_of(4)
    expected = straight(kind, rows, "one")
    one, source, out = app_of(kind, name="one")
    ours = TestDriver(one, partitions=1)
    other, their_source, _ = app_of(kind, name="two")
    theirs = TestDriver(other, partitions=1, beside=ours)
    early = [
        row for row in rows[:20] if row[2] < T0 + 900
    ]  # nothing closes: windows are partly here, partly there
    ours.send_many(source, early[::2])
    theirs.send_many(their_source, early[1::2])
    assert min(len(early[::2]), len(early[1::2])) > 1
    ours.merge(theirs)
    ours.send_many(source, [row for row in rows[:20] if row[2] >= T0 + 900])
    ours.send_many(source, rows[20:])
    ours.end_input()
    assert results(ours, out) == expected
