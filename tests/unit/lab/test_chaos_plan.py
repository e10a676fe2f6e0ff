"""The study of chaos without its processes: the plan, the input, and the oracle, which must see what is planted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from stateflow.lab.chaos import application as shop_application
from stateflow.lab.chaos.actions import ACTIONS
from stateflow.lab.chaos.oracle import (
    EXACT,
    STORES,
    Comparison,
    Row,
    Truth,
    compare_rows,
    compare_state,
    compare_totals,
    truth,
)
from stateflow.lab.chaos.plan import FULL, KINDS, QUICK, Event, plan
from stateflow.lab.chaos.report import Report
from stateflow.lab.chaos.shop import GRACE_MS, ORDER_PARTITIONS, Order, Shop, Timed
from stateflow.testing import TestDriver

ROUNDS = 3


def drawn(seed: int = 1) -> list[Timed]:
    shop = Shop(seed, customers=9, shops=4)
    return [
        record
        for number in range(ROUNDS)
        for chunk in shop.round(30, 3, is_last=number == ROUNDS - 1)
        for record in chunk
    ]


def by_partition(records: list[Timed]) -> list[list[Timed]]:
    found: dict[tuple[bool, int], list[Timed]] = defaultdict(list)
    for record in records:
        found[isinstance(record.value, Order), record.partition].append(record)
    return list(found.values())


@pytest.fixture(scope="module")
def expected() -> Truth:
    return truth(by_partition(drawn()))


# --- the plan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_seed_draws_the_same_events_and_input_again(brokers: int) -> None:
    assert plan(7, FULL, brokers) == plan(7, FULL, brokers) != plan(8, FULL, brokers)
    assert drawn(7) == drawn(7) != drawn(8)


def test_three_brokers_meet_the_same_events_as_one() -> None:
    one, three = plan(7, FULL, 1), plan(7, FULL, 3)
    assert [[str(event) for _, event in each.events] for each in one] == [
        [str(event) for _, event in each.events] for each in three
    ]


def test_every_kind_is_drawn_and_can_be_carried_out() -> None:
    events = [event for one in plan(1, replace(FULL, rounds=20), 3) for _, event in one.events]
    assert {event.kind for event in events} == set(KINDS) == ACTIONS.keys()
    assert all(str(event).startswith(event.kind) for event in events)
    assert {event.target for event in events if event.kind == "kill-broker"} <= {0, 1, 2}


def test_a_quick_study_has_the_cheap_kinds() -> None:
    for seed in range(5):
        kinds = {event.kind for one in plan(seed, QUICK, 1) for _, event in one.events}
        assert kinds == set(QUICK.kinds)


def test_no_supervisor_is_asked_to_restart_a_worker_more_often_than_it_does() -> None:
    counted = {"kill-worker", "freeze-worker", "kill-broker", "restart-broker"}
    for seed in range(50):
        restarts = 0
        for one in plan(seed, replace(FULL, rounds=40), 1):
            for _, event in one.events:
                restarts += event.kind in counted
                restarts *= event.kind in counted or event.kind in ("savepoint", "compaction")
                assert restarts < 5, seed


def test_a_change_of_partitions_changes_them() -> None:
    for seed in range(20):
        partitions = FULL.partitions_first
        for one in plan(seed, replace(FULL, rounds=40), 1):
            for _, event in one.events:
                if event.partitions:
                    assert event.partitions != partitions
                    is_there = event.kind == "scale" or event.finishes
                    partitions = event.partitions if is_there else partitions


# --- the input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_late_and_the_topics_drift_apart(seed: int) -> None:
    newest_ms = 0
    apart_ms = Counter[bool]()
    for record in drawn(seed):
        assert record.at_ms > newest_ms - GRACE_MS
        newest_ms = max(newest_ms, record.at_ms)
        apart_ms[isinstance(record.value, Order)] = record.at_ms
    assert (
        len({record.partition for record in drawn(seed) if isinstance(record.value, Order)})
        == ORDER_PARTITIONS
    )
    assert apart_ms[True] != apart_ms[False]


def test_windows_of_some_rounds_close_while_the_study_goes_on() -> None:
    times = [record.at_ms for record in drawn(1)]
    assert max(after - before for before, after in pairwise(times)) > GRACE_MS


# --- the oracle -------------------------------------------------------------------------------------


def test_the_application_gives_what_the_oracle_says(expected: Truth) -> None:
    """Straight, in memory: what the oracle says is what the verbs promise."""
    driver = TestDriver(shop_application.app, partitions=ORDER_PARTITIONS)
    for record in drawn():
        kind = "order" if isinstance(record.value, Order) else "payment"
        topic = getattr(shop_application, f"{kind}_topic")
        driver.send_many(topic, [(None, record.value, record.at_ms)], partitions=record.partition)
    driver.end_input()
    found = Counter(
        Row(name, row.key, row.timestamp_ms, row.value)
        for name in EXACT
        for row in driver.rows(shop_application.outputs[name])
    )
    totals = defaultdict(list)
    for row in driver.rows(shop_application.outputs["shops"]):
        totals[row.key].append(int(row.value))
    compared = Comparison()
    compare_rows(expected.rows, found, compared)
    compare_totals(expected.state["shops"], totals, compared)
    assert compared == Comparison()
    assert {row.topic for row in found} == set(EXACT)


def lost(rows: Counter[Row], row: Row) -> None:
    rows[row] -= 1


def doubled(rows: Counter[Row], row: Row) -> None:
    rows[row] += 1


def wrong(rows: Counter[Row], row: Row) -> None:
    rows[row] -= 1
    rows[row._replace(text=f"{row.text}0")] += 1


def made_up(rows: Counter[Row], row: Row) -> None:
    rows[row._replace(key="nobody")] += 1


@pytest.mark.parametrize("topic", EXACT)
@pytest.mark.parametrize(
    ("plant", "seen"),
    [(lost, "lost"), (doubled, "duplicated"), (wrong, "different"), (made_up, "different")],
)
def test_a_planted_fault_is_seen_and_counted_once(
    expected: Truth, topic: str, plant: Callable[[Counter[Row], Row], None], seen: str
) -> None:
    found = expected.rows.copy()
    plant(found, next(row for row in found if row.topic == topic))
    compared = Comparison()
    compare_rows(expected.rows, found, compared)
    counts = {kind: getattr(compared, kind) for kind in ("lost", "duplicated", "different")}
    assert counts == {"lost": 0, "duplicated": 0, "different": 0} | {seen: 1}
    assert len(compared.examples) == 1


@pytest.mark.parametrize("store", STORES)
def test_a_planted_fault_of_the_state_is_seen(expected: Truth, store: str) -> None:
    key = next(iter(expected.state[store]))
    for found, seen in (
        ({name: value for name, value in expected.state[store].items() if name != key}, (1, 0)),
        (expected.state[store] | {key: -1}, (0, 1)),
        (expected.state[store] | {"nobody": 1}, (0, 1)),
    ):
        compared = Comparison()
        compare_state(expected.state, {**expected.state, store: found}, compared)
        assert (compared.lost, compared.different) == seen


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        ([1, 4, 9], (0, 0, 0)),
        ([9], (0, 0, 0)),
        ([], (1, 0, 0)),
        ([1, 4, 4, 9], (0, 1, 0)),
        ([4, 1, 9], (0, 0, 1)),
        ([1, 4], (0, 0, 1)),
    ],
)
def test_totals_grow_up_to_the_last(told: list[int], seen: tuple[int, int, int]) -> None:
    compared = Comparison()
    compare_totals({"s1": 9}, {"s1": told}, compared)
    assert (compared.lost, compared.duplicated, compared.different) == seen


# --- the report -------------------------------------------------------------------------------------


def test_every_finding_makes_a_study_bad() -> None:
    assert not Report(1, 1).is_bad
    crashed = partial(Report.note_crashed, times=2)
    for note in (Report.note_ended, Report.note_stuck, Report.note_refused, crashed):
        report = Report(1, 1)
        note(report, "something")
        assert report.is_bad
        assert len(report.as_dict()["findings"]) == 1
    for kind in ("lost", "duplicated", "different"):
        report = Report(1, 1)
        report.compared.note(kind, "something")
        assert report.is_bad
        assert report.as_dict()[kind] == 1


def test_an_event_says_what_it_is() -> None:
    assert str(Event(kind="scale-killed", partitions=5, seconds=1.24, finishes=False, kills=True)) == (
        "scale-killed to 5, killed after 1.2 s and undone, application killed"
    )
    assert str(Event(kind="kill-broker", seconds=2.0)) == "kill-broker for 2 s"
