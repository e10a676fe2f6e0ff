"""Records of a far future: kept out of event time where the topic says how far ahead is too far, never unseen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.log.reading import read_topic
from stateflow.record import Record
from stateflow.testing import TestDriver

T0 = 1_700_000_040_000
MINUTE_MS = 60_000
YEAR = 365 * 86_400_000
HOUR = timedelta(hours=1)
LETTERS = "too-far"


class Site:
    """Values are event times, ms after T0; the clock stands at T0, and so do Kafka's timestamps unless given."""

    def __init__(self, max_ahead: timedelta | None = HOUR, *, own_time: bool = True, **stream: Any) -> None:
        app = sf.App("shop")
        timestamp: Callable[[int], int] | None = (lambda value: T0 + value) if own_time else None
        self.orders = app.topic("orders", key=str, value=int, timestamp=timestamp, max_ahead=max_ahead)
        self.counts = app.topic("counts", key=sf.WindowedKey(sf.String, MINUTE_MS), value=int)
        keyed = app.stream(self.orders, co_partitioned=True, **stream)
        keyed.window(sf.Tumbling(timedelta(minutes=1))).count(name="per-minute").to(self.counts)
        self.driver = TestDriver(app, partitions=1, now_ms=T0)
        if any(LETTERS in stage.outputs for stage in app.topology().stages):
            assert LETTERS in self.driver.cluster.list_topics()

    def send(self, *values: int, sent_ms: int | None = None) -> None:
        self.driver.send(self.orders, *values, key="a", timestamp_ms=sent_ms)

    def results(self) -> list[tuple[int, int]]:
        """Window start, ms after T0, and count."""
        return [(record.key.start_ms - T0, record.value) for record in self.driver.output(self.counts)]

    def met(self) -> list[tuple[str, str, int, str]]:
        (task,) = self.driver._worker.tasks.values()
        return [(met.kind, met.step, met.records_total, met.place) for met in task.out_of_bounds.met()]

    def count(self, metric: str) -> int:
        (task,) = self.driver._worker.tasks.values()
        return task.context.counters[metric]

    def letters(self) -> list[Record]:
        return [record for batch in read_topic(self.driver.cluster, LETTERS) for record in batch.records()]


def test_a_record_too_far_ahead_is_left_out_and_moves_nothing() -> None:
    site = Site()
    site.send(0, YEAR, 1_000)
    site.send(YEAR)
    site.send(2_000)
    assert site.results() == [(0, 2), (0, 3)]
    assert site.count("ahead_records_total") == 2
    assert site.count("late_records_total") == 0
    assert site.met() == [("ahead", "orders", 2, "orders[0]@3")]


def test_the_bound_is_included() -> None:
    site = Site()
    site.send(3_600_000)
    site.send(3_600_001)
    assert site.results() == [(3_600_000, 1)]
    assert site.count("ahead_records_total") == 1


def test_it_is_a_matter_of_the_log_where_event_time_is_the_values() -> None:
    """Read a year later, the same record is still ahead of the time at which Kafka got it."""
    site = Site()
    site.driver.clock.advance(ms=YEAR)
    site.send(YEAR, sent_ms=T0)
    assert site.results() == []
    assert site.count("ahead_records_total") == 1


def test_else_it_is_ahead_of_the_clock() -> None:
    site = Site(own_time=False)
    site.send(1, sent_ms=T0)
    site.send(2, sent_ms=T0 + YEAR)
    site.send(3, sent_ms=T0 + 3_600_000)
    assert site.results() == [(0, 1), (3_600_000, 1)]
    assert site.met() == [("ahead", "orders", 1, "orders[0]@1")]


def test_refused_records_go_to_a_topic_under_the_time_of_now() -> None:
    site = Site(own_time=False, late=sf.DeadLetter(LETTERS))
    site.send(7, sent_ms=T0 + YEAR)
    (letter,) = site.letters()
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"a", sf.Integer.encode(7), T0)
    headers = dict(letter.headers)
    assert headers["sf-offset"] == b"0"
    assert b"ahead" in headers["sf-error-message"]
    assert site.count("dead_letters_total") == 1


def test_two_streams_of_one_topic_refuse_the_same(caplog: pytest.LogCaptureFixture) -> None:
    app = sf.App("shop")
    orders = app.topic("orders", key=str, value=int, max_ahead=HOUR)
    outs = [app.topic(f"out-{number}", key=str, value=int) for number in range(2)]
    for out in outs:
        app.stream(orders).to(out)
    driver = TestDriver(app, partitions=1, now_ms=T0)
    driver.send(orders, 1, key="a", timestamp_ms=T0 + YEAR)
    driver.send(orders, 2, key="a", timestamp_ms=T0)
    assert [[record.value for record in driver.output(out)] for out in outs] == [[2], [2]]
    assert "left out of event time" in caplog.text


def test_a_jump_of_event_time_is_warned_about_where_nothing_forbids_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(None)
    site.send(0)
    site.send(86_400_000)
    assert site.met() == [], "a day is not more than a day"
    site.send(YEAR)
    site.send(YEAR + 60_000)
    site.send(1_000)
    assert [kind for kind, *_ in site.met()] == ["jump", "late"]
    assert site.met()[0] == ("jump", "orders", 1, "orders[0]@2")
    assert "orders[0]@2" in caplog.text
    assert "give the topic max_ahead" in caplog.text


def test_one_far_record_and_a_silence_do_not_end_all_windows() -> None:
    """With max_ahead, what one device with a wrong clock sends to one partition changes nothing for the others."""
    app = sf.App("shop")
    orders = app.topic("orders", value=int, max_ahead=HOUR)
    counts = app.topic("counts", key=str, value=int)
    keyed = app.stream(orders).key_by(lambda _value: "k", name="by", key=str)
    keyed.window(sf.Tumbling(timedelta(minutes=1))).count(name="c").to(counts)
    driver = TestDriver(app, partitions=4, now_ms=T0)

    def put(minute: int, partitions: range = range(4), ahead_ms: int = 0) -> None:
        writer = driver.cluster.writer()
        for partition in partitions:
            when = T0 + minute * MINUTE_MS + ahead_ms
            writer.send("orders", None, sf.Integer.encode(1), partition=partition, timestamp_ms=when)
        writer.commit()
        writer.close()
        driver.run()

    put(0)
    put(0, range(2, 3), 400 * 86_400_000)
    for minute in range(1, 5):
        driver.advance(seconds=6)
        put(minute)
    newest = {record.timestamp_ms: record.value for record in driver.output(counts)}
    assert newest == {T0 + minute * MINUTE_MS: 4 for minute in range(5)}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_ahead": timedelta(seconds=-1)}, "negative"),
        ({"max_ahead": timedelta(microseconds=1)}, "fraction of a millisecond"),
        ({"max_ahead": 5}, "timedelta"),
        ({"late": sf.Fail()}, r"late=.*Skip\(\) or DeadLetter"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(GraphError, match=why):
        Site(**options)


def test_topics_of_one_stream_agree_on_it() -> None:
    app = sf.App("shop")
    with pytest.raises(GraphError, match="max_ahead"):
        app.stream(app.topic("a", max_ahead=HOUR), app.topic("b"))
