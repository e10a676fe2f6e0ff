"""Joins of streams and tables: against brute force, and by hand where the point is one rule."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.timer import EncodedTimer, Timer
from stateflow.errors import GraphError
from stateflow.state.layout import prefixed_key
from stateflow.store.groups import GROUP_ENTRIES_MAX
from stateflow.testing import TestDriver
from tests.sim.test_tables import newest

T0 = 1_704_067_200_000
SECOND_MS = 1_000
FAR_MS = T0 + 10_000 * SECOND_MS


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def pair(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


# --- two streams --------------------------------------------------------------------------------------------


def joined_app(
    how: str, within: sf.Within, *, co_partitioned: bool = False
) -> tuple[sf.App, sf.Topic[str, str], sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("joins", guarantee="exactly-once")
    lefts, rights = app.topic("lefts", key=str, value=str), app.topic("rights", key=str, value=str)
    out = app.topic("out", key=str, value=str)
    left = app.stream(lefts, co_partitioned=co_partitioned)
    right = app.stream(rights, co_partitioned=co_partitioned)
    joins: dict[str, Any] = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}
    joins[how](right, pair, name="pairs", within=within).to(out)
    return app, lefts, rights, out


def brute_force(
    how: str, within: sf.Within, sent: list[tuple[str, str, str, int]]
) -> Counter[tuple[str, str, int]]:
    """Every pair, and what is without a partner, of records that are not late in their own topic."""
    marks: dict[str, int] = {}
    taken = []
    for side, key, value, at_ms in sent:
        marks[side] = max(marks.get(side, 0), at_ms)
        if at_ms + within.grace_ms >= marks[side]:
            taken.append((side, key, value, at_ms))
    found: Counter[tuple[str, str, int]] = Counter()
    for side, key, value, at_ms in taken:
        partners = [
            (other, other_ms)
            for other_side, other_key, other, other_ms in taken
            if (other_side, other_key) == ("right" if side == "left" else "left", key)
            and (
                at_ms - within.before_ms <= other_ms <= at_ms + within.after_ms
                if side == "left"
                else at_ms - within.after_ms <= other_ms <= at_ms + within.before_ms
            )
        ]
        if side == "left":
            found.update((key, pair(value, other), max(at_ms, ms)) for other, ms in partners)
            if not partners and how != "inner":
                found[key, pair(value, None), at_ms] += 1
        elif not partners and how == "outer":
            found[key, pair(None, value), at_ms] += 1
    return found


@pytest.mark.parametrize("co_partitioned", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize("seed", range(3))
def test_two_topics_join_as_brute_force_says(how: str, seed: int, co_partitioned: bool) -> None:
    """In random batches of both topics, with late records and ties, through crashes and repartitions."""
    rng = random.Random(f"{how}-{seed}")
    spans = [seconds(rng.choice((0, 0.3, 1))) for _ in range(3)]
    within = sf.Within(*spans)
    app, lefts, rights, out = joined_app(how, within, co_partitioned=co_partitioned)
    driver = TestDriver(app, partitions=1, poll_records=rng.choice((None, 2)))
    sent, now_ms = [], T0
    for number in range(60):
        at_ms = now_ms + rng.choice((0, 0, 70, 400)) - (rng.randint(0, 1_500) if rng.random() < 0.3 else 0)
        now_ms = max(now_ms, at_ms)
        side = rng.choice(("left", "right"))
        sent.append((side, f"k{rng.randrange(3)}", f"{side[0]}{number}", at_ms))
    rest, partitions = list(sent), 1
    while rest:
        count = rng.choice((1, 4, 20))
        batch, rest = rest[:count], rest[count:]
        for side, topic in (("left", lefts), ("right", rights)):
            driver.send_many(topic, [row[1:] for row in batch if row[0] == side])
        if rng.random() < 0.2:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
        elif rng.random() < 0.1 and not co_partitioned:
            partitions = partitions % 3 + 1
            driver.repartition(partitions)
    driver.end_input()
    rows = [(record.key, record.value, record.timestamp_ms) for record in driver.output(out)]
    assert Counter(rows) == brute_force(how, within, sent)
    for task in driver._worker.tasks.values():
        kept = [name for name in task.context.stores if not name.startswith("index")]
        assert all(not list(task.context.store(name).scan(b"", None)) for name in kept), "all is forgotten"


def test_unmatched_records_come_once_when_their_interval_closes() -> None:
    within = sf.Within(before=seconds(1), after=seconds(2), grace=seconds(3))
    app, lefts, rights, out = joined_app("outer", within, co_partitioned=True)
    driver = TestDriver(app, partitions=1)
    driver.send(lefts, "l", key="k", timestamp_ms=T0)
    driver.send(rights, "r", key="m", timestamp_ms=T0)
    driver.advance_event_time(T0 + 4_000)
    assert driver.output(out) == []
    driver.advance_event_time(T0 + 4_001)
    assert [record.value for record in driver.output(out)] == ["None+r"], "what is before it may come no more"
    driver.advance_event_time(T0 + 5_000)
    assert len(driver.output(out)) == 1
    driver.send(rights, "just", key="k", timestamp_ms=T0 + 2_000)
    assert driver.output(out)[-1].value == "l+just", "in time: three seconds late, two after the left one"
    driver.advance_event_time(FAR_MS)
    told = [(record.value, record.timestamp_ms - T0) for record in driver.output(out)]
    assert told == [("None+r", 0), ("l+just", 2_000)]


def test_timers_that_a_former_version_left_are_deleted() -> None:
    """Its entries have no timers now: they close by their times, and what it kept of timers goes."""
    app, lefts, _, out = joined_app("left", sf.Within(seconds(1)), co_partitioned=True)
    driver = TestDriver(app, partitions=1)
    driver.send(lefts, "l", key="k", timestamp_ms=T0)
    (task,) = driver._worker.tasks.values()
    timer = EncodedTimer.encode(Timer("event", T0 + 1_001, T0, b""))
    task.context.store("pairs-timers").put(prefixed_key(b"k", b"close"), timer)
    driver.send(lefts, "l", key="m", timestamp_ms=T0)
    driver.crash(disk_lost=True)
    driver.restore()
    driver.end_input()
    assert {record.key: record.value for record in driver.output(out)} == {"k": "l+None", "m": "l+None"}
    assert driver.state("pairs-timers", key="k") is None


def test_rows_without_a_partner_come_before_the_next_record_of_their_key() -> None:
    """As a timer would have it, wherever a batch ends."""
    app, lefts, rights, out = joined_app("outer", sf.Within(seconds(1)), co_partitioned=True)
    driver = TestDriver(app, partitions=1)
    driver.send(rights, "r", key="k", timestamp_ms=T0 + 20_000)
    rows = [("k", "a", T0), ("k", "b", T0 + 10), ("m", "c", T0), ("k", "d", T0 + 19_500)]
    driver.send_many(lefts, rows)
    driver.end_input()
    of_key = [record.value for record in driver.output(out) if record.key == "k"]
    assert of_key == ["a+None", "b+None", "d+r"]


def test_a_key_with_many_open_records_joins_as_others_do() -> None:
    """More than are kept in memory: they are read as ranges."""
    app, lefts, rights, out = joined_app("outer", sf.Within(seconds(1)), co_partitioned=True)
    driver = TestDriver(app, partitions=1)
    many = GROUP_ENTRIES_MAX + 50
    driver.send_many(lefts, [("k", f"l{number}", T0 + number // 60) for number in range(many)])
    driver.send(rights, "r", key="k", timestamp_ms=T0 + 3)
    driver.send(lefts, "last", key="k", timestamp_ms=T0 + 6)
    driver.send(rights, "far", key="k", timestamp_ms=FAR_MS)
    driver.end_input()
    told = Counter(record.value for record in driver.output(out))
    assert told == Counter([*(f"l{number}+r" for number in range(many)), "last+r", "None+far"])


def test_late_records_are_counted_and_can_be_kept() -> None:
    app = sf.App("joins")
    lefts, rights = app.topic("lefts", key=str, value=str), app.topic("rights", key=str, value=str)
    left, right = app.stream(lefts, co_partitioned=True), app.stream(rights, co_partitioned=True)
    left.join(right, pair, name="pairs", within=seconds(1), late=sf.DeadLetter("too-late")).to(
        app.topic("out", key=str, value=str)
    )
    dead = app.topic("too-late", key=str, value=str)
    driver = TestDriver(app, partitions=1)
    for at_ms in (T0, T0 + 10_000, T0 + 9_999):
        driver.send(lefts, f"l{at_ms - T0}", key="k", timestamp_ms=at_ms)
    assert [record.value for record in driver.output(dead)] == ["l9999"]
    (task,) = driver._worker.tasks.values()
    assert task.context.counters["late_records_total"] == 1


@pytest.mark.parametrize("batched", [True, False])
def test_windows_behind_a_join_take_what_it_waited_for(batched: bool) -> None:
    """Rows without a partner come late by the whole interval; they are in time for windows without any grace."""
    app = sf.App("joins")
    lefts, rights = app.topic("lefts", key=str, value=str), app.topic("rights", key=str, value=str)
    left, right = app.stream(lefts, co_partitioned=True), app.stream(rights, co_partitioned=True)
    rows = left.left_join(right, pair, name="pairs", within=sf.Within(seconds(30), grace=seconds(30)))
    out = app.topic("out", key=str, value=int)
    again = app.topic("again", key=str, value=int)
    window = sf.Tumbling(seconds(10))
    rows.window(window, emit="on_close").count(name="here").to(out)
    rows.key_by(lambda row: row[0], name="by-first", key=str).window(window, emit="on_close").count(
        name="there"
    ).to(again)
    driver = TestDriver(app, partitions=1)
    sent = [("k", f"l{second}", T0 + second * SECOND_MS) for second in range(0, 200, 5)]
    for some in [sent] if batched else [[row] for row in sent]:
        driver.send_many(lefts, some)
        driver.send_many(rights, [("other", "r", some[-1][2])])
        driver.crash()
        driver.restore()
    driver.end_input()
    for topic in (out, again):
        starts = {record.timestamp_ms - T0: record.value for record in driver.output(topic)}
        assert starts == {second * SECOND_MS: 2 for second in range(0, 200, 10)}


@pytest.mark.parametrize("sorted_sides", ["lr", "l", "r"])
def test_sides_that_wait_before_the_join_lose_no_partner(sorted_sides: str) -> None:
    """Rows of a side that is let go first move event time no further than the join was told: the others still wait."""
    app = sf.App("joins", guarantee="exactly-once")
    out = app.topic("out", key=str, value=str)
    topics = {side: app.topic(side, key=str, value=str) for side in "lr"}
    streams = {}
    for side, topic in topics.items():
        stream = app.stream(topic).key_by_pairs(lambda key, _: key, name=f"by-{side}", key=str)
        is_sorted = side in sorted_sides
        streams[side] = stream.in_order(name=f"{side}-sorted", grace=seconds(3)) if is_sorted else stream
    within = sf.Within(before=seconds(1), after=seconds(1), grace=seconds(3))
    streams["l"].outer_join(streams["r"], pair, name="pairs", within=within).to(out)
    driver = TestDriver(app, partitions=1)
    for side in "lr":
        rows = [("k", f"{side}{second}", T0 + second * SECOND_MS) for second in (1, 10, 7, 16, 20)]
        driver.send_many(topics[side], rows)
    driver.end_input()
    found = sorted(row.value for row in driver.rows(out))
    assert found == ["l1+r1", "l10+r10", "l16+r16", "l20+r20", "l7+r7"]


def test_a_stream_joins_itself_behind_one_re_key_step() -> None:
    app = sf.App("joins")
    numbers, out = app.topic("numbers", key=str, value=int), app.topic("out", key=int, value=str)
    keyed = app.stream(numbers).key_by(lambda value: value % 3, name="by-rest", key=int)
    evens, odds = keyed.branch(lambda value: value % 2 == 0)
    evens.join(odds, lambda even, odd: f"{even}+{odd}", name="both", within=seconds(5), value=str).to(out)
    assert app.topology().stage("by-rest").shared_inputs == {"by-rest"}
    driver = TestDriver(app, partitions=2)
    driver.send_many(numbers, [("any", value, T0 + value) for value in range(9)])
    told = {record.value for record in driver.output(out)}
    assert told == {"0+3", "6+3", "4+1", "4+7", "2+5", "8+5"}


# --- a stream with a table ----------------------------------------------------------------------------------


def test_a_stream_joins_what_the_table_holds_then() -> None:
    app = sf.App("joins")
    orders, prices = app.topic("orders", key=str, value=int), app.topic("prices", key=str, value=int)
    paid, unpriced = app.topic("paid", key=str, value=int), app.topic("all", key=str, value=str)
    table = app.table(prices, name="prices-table")
    stream = app.stream(orders).key_by(lambda count: f"item{count % 2}", name="by-item", key=str)
    stream.join(table, int.__mul__, name="paid", value=int).to(paid)
    stream.left_join(table, lambda count, price: f"{count}*{price}", name="left", value=str).to(unpriced)
    driver = TestDriver(app, partitions=2)
    for topic, key, value in (
        (orders, "o", 3),
        (prices, "item1", 10),
        (orders, "o", 5),
        (prices, "item1", 20),
        (orders, "o", 5),
        (prices, "item1", None),
        (orders, "o", 7),
    ):
        driver.send(topic, value, key=key)
        driver.crash(disk_lost=True)
        driver.restore()
    assert [record.value for record in driver.output(paid)] == [50, 100]
    assert [record.value for record in driver.output(unpriced)] == ["3*None", "5*10", "5*20", "7*None"]


@pytest.mark.parametrize("batched", [True, False])
def test_a_stream_joins_a_table_made_of_its_own_topic_in_the_order_of_the_log(batched: bool) -> None:
    app = sf.App("joins")
    numbers, out = app.topic("numbers", key=str, value=int), app.topic("out", key=str, value=str)
    evens, odds = app.stream(numbers, co_partitioned=True).branch(lambda value: value % 2 == 0)
    odds.left_join(evens.to_table(name="even"), lambda odd, even: f"{odd} after {even}", name="j").to(out)
    driver = TestDriver(app, partitions=1)
    rows = [("k", value, T0) for value in (1, 2, 3, 5, 8, 9)]
    for some in [rows] if batched else [[row] for row in rows]:
        driver.send_many(numbers, some)
    told = [record.value for record in driver.output(out)]
    assert told == ["1 after None", "3 after 2", "5 after 2", "9 after 8"]


# --- two tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize("seed", range(3))
def test_tables_join_as_their_contents_do(how: str, seed: int) -> None:
    """Whatever the batches of three tables and what happens between: the last result is the join of the contents."""
    rng = random.Random(f"tables-{how}-{seed}")
    app = sf.App("joins")
    topics = [app.topic(name, key=str, value=str) for name in ("one", "two", "three")]
    one, two, three = (app.table(topic, name=f"{topic.name}-kept") for topic in topics)
    joins: dict[str, Any] = {"inner": one.join, "left": one.left_join, "outer": one.outer_join}
    both: sf.Table[str, str] = joins[how](two.filter(lambda value: value != "b1"), pair, name="both")
    out, counted = app.topic("out", key=str, value=str), app.topic("counted", key=str, value=int)
    both.left_join(three, pair, name="all", value=str).to(out)
    both.group_by(lambda value: value[:1], name="by-first", key=str).count(name="n").to(counted)
    driver = TestDriver(app, partitions=2, poll_records=rng.choice((None, 3)))
    held: list[dict[str, str]] = [{}, {}, {}]
    for _ in range(25):
        number = rng.randrange(3)
        rows = [
            (f"k{rng.randrange(4)}", rng.choice((None, *(f"{'abc'[number]}{i}" for i in range(3)))), T0)
            for _ in range(rng.choice((1, 6)))
        ]
        driver.send_many(topics[number], rows)
        for key, value, _ in rows:
            held[number].pop(key, None)
            if value is not None:
                held[number][key] = value
        if rng.random() < 0.15:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
    seconds_ = {key: value for key, value in held[1].items() if value != "b1"}
    keys = {"inner": held[0].keys() & seconds_.keys(), "left": held[0].keys()}
    chosen = keys.get(how, held[0].keys() | seconds_.keys())
    joined = {key: pair(held[0].get(key), seconds_.get(key)) for key in chosen}
    assert newest(driver.output(out)) == {key: pair(value, held[2].get(key)) for key, value in joined.items()}
    assert newest(driver.output(counted)) == dict(Counter(value[:1] for value in joined.values()))


def test_a_table_joined_with_itself_changes_in_one_step() -> None:
    app = sf.App("joins")
    numbers, out = app.topic("numbers", key=str, value=int), app.topic("out", key=str, value=str)
    table = app.table(numbers, name="t", co_partitioned=True)
    doubled = table.map(lambda value: 2 * value, value=int)
    table.join(doubled, lambda one, two: f"{one},{two}", name="self", value=str).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(numbers, [("k", 1, T0), ("k", 2, T0), ("k", None, T0)])
    assert newest(driver.output(out)) == {}
    driver.send_many(numbers, [("k", 5, T0)])
    assert newest(driver.output(out)) == {"k": "5,10"}


# --- what does not fit --------------------------------------------------------------------------------------


def test_what_cannot_be_joined_is_refused_with_what_to_do() -> None:
    app = sf.App("joins")
    a, b = app.topic("a", key=str, value=str), app.topic("b", key=str, value=str)
    table = app.table(a, name="by-producers", co_partitioned=True)
    keyed = app.stream(b).key_by(str, name="by-text", key=str)
    with pytest.raises(GraphError, match="Leave co_partitioned=True out"):
        keyed.join(table, pair, name="one")
    with pytest.raises(GraphError, match="written differently"):
        app.stream(b).key_by(len, name="by-length", key=int).join(keyed, pair, name="two", within=seconds(1))  # type: ignore[arg-type]
    untyped: Any = keyed
    with pytest.raises(GraphError, match="has no interval"):
        untyped.join(app.stream(b), pair, name="three")
    with pytest.raises(GraphError, match="has an interval"):
        untyped.join(app.table(b, name="t"), pair, name="four", within=seconds(1))
    with pytest.raises(GraphError, match="not negative"):
        sf.Within(seconds(-1))
    keyed.join(app.stream(a), pair, name="five", within=seconds(1))
    with pytest.raises(GraphError, match="used by two joins"):
        keyed.join(app.stream(a), pair, name="five", within=seconds(1))
