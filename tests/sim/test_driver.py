"""The test driver as its users meet it: typed operators and windows through crash, lost disk and repartition."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.log.reading import read_topic
from stateflow.testing.driver import TestDriver

MINUTE_MS = 60_000


@dataclass
class Payment:
    card: str
    cents: int
    shop: str


@dataclass
class Alert:
    card: str
    total: int


def fraud_app() -> tuple[sf.App, sf.Topic[bytes, Payment], sf.Topic[str, Alert]]:
    app = sf.App("shop")
    payments = app.topic("payments", value=Payment)
    alerts = app.topic("alerts", key=str, value=Alert)

    @app.operator("fraud", source=payments, key=lambda p: p.card, sink=alerts)
    class Fraud(sf.Operator[str, Payment, Alert]):
        total: sf.Value[int] = sf.state(default=0)
        recent: sf.ListOf[Payment] = sf.state(max_length=2)
        by_shop: sf.MapOf[str, int] = sf.state()

        def on_record(self, payment: Payment, ctx: sf.Context[Alert]) -> None:
            self.total.set(self.total.get() + payment.cents)
            self.recent.append(payment)
            self.by_shop.merge(payment.shop, payment.cents, int.__add__)
            if self.total.get() > 1_000_000:
                ctx.emit(Alert(ctx.key, self.total.get()))

    return app, payments, alerts


@pytest.mark.parametrize("disk_lost", [False, True])
def test_typed_state_survives_crash_and_repartition(disk_lost: bool) -> None:
    app, payments, alerts = fraud_app()
    driver = TestDriver(app, partitions=4)
    cards = [f"c{number}" for number in range(20)]
    for card in cards:
        driver.send(payments, Payment(card, 600_000, "x"))
    driver.crash(disk_lost=disk_lost)
    driver.restore()
    for partitions in (7, 3):
        driver.repartition(partitions)
        for card in cards:
            driver.send(payments, Payment(card, 300_000, f"at-{partitions}"))
    for card in cards:
        assert driver.state("fraud", "total", key=card) == 1_200_000
        assert [payment["shop"] for payment in driver.state("fraud", "recent", key=card)] == ["at-7", "at-3"]
        assert driver.state("fraud", "by_shop", key=card) == {"x": 600_000, "at-7": 300_000, "at-3": 300_000}
    assert sorted(record.key for record in driver.output(alerts)) == sorted(cards), (
        "one alert each, none twice"
    )


def hourly_app() -> tuple[sf.App, sf.Topic[bytes, str], sf.Topic[str, int]]:
    app = sf.App("hourly")
    words = app.topic("words", value=sf.String)
    counts = app.topic("counts", key=str, value=int)
    (
        app.stream(words)
        .key_by(str.lower, name="by-word")
        .window(sf.Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10)))
        .count(name="per-minute", ttl=timedelta(hours=1))
        .to(counts)
    )
    return app, words, counts


def test_windows_keep_apart_what_belongs_apart() -> None:
    app, words, _ = hourly_app()
    driver = TestDriver(app, partitions=2, now_ms=0)
    for stamp_ms in (0, 59_999, 60_000, 30_000):
        driver.send(words, "Go", timestamp_ms=stamp_ms)
    assert driver.state("per-minute", key="go") == {0: 3, MINUTE_MS: 1}
    driver.crash(disk_lost=True)
    driver.restore()
    driver.compact()
    driver.repartition(5)
    driver.send(words, "Go", timestamp_ms=61_000)
    assert driver.state("per-minute", key="go") == {0: 3, MINUTE_MS: 2}


def test_a_partition_read_faster_makes_nothing_late() -> None:
    app, _words, _ = hourly_app()
    driver = TestDriver(app, partitions=2, now_ms=0)
    writer = driver.cluster.writer()
    for minute in range(30):  # partition 1 is half an hour ahead before partition 0 has said anything
        writer.send("words", None, b"ahead", partition=1, timestamp_ms=minute * MINUTE_MS)
    writer.commit()
    driver.run()
    for minute in range(30):
        writer.send("words", None, b"behind", partition=0, timestamp_ms=minute * MINUTE_MS)
    writer.commit()
    driver.run()
    assert driver.state("per-minute", key="behind") == {minute * MINUTE_MS: 1 for minute in range(30)}


def test_an_output_that_waits_for_its_record_may_be_the_first_of_its_commit() -> None:
    app = sf.App("echo")
    words, shouts = app.topic("words", value=sf.String), app.topic("shouts", key=str, value=str)

    @app.operator("shout", source=words, key=str.lower, sink=shouts, on_error=sf.Skip())
    class Shout(sf.Operator[str, str, str]):
        def on_record(self, word: str, ctx: sf.Context[str]) -> None:
            ctx.emit(word.upper())
            if word == "bad":
                raise ValueError(word)

    driver = TestDriver(app, partitions=1)
    driver.send(words, "good", "bad")
    assert [record.value for record in driver.output(shouts)] == ["GOOD"]


def test_a_savepoint_takes_typed_state_back_to_where_it_was() -> None:
    app, payments, alerts = fraud_app()
    driver = TestDriver(app, partitions=4)
    driver.send(payments, *(Payment(f"c{number}", 600_000, "x") for number in range(8)))
    driver.savepoint("before")
    driver.send(payments, *(Payment(f"c{number}", 600_000, "y") for number in range(8)))
    driver.restore_savepoint("before")
    for number in range(8):
        assert driver.state("fraud", "total", key=f"c{number}") == 1_200_000, "what came after is read again"
        assert driver.state("fraud", "by_shop", key=f"c{number}") == {"x": 600_000, "y": 600_000}
    assert len(driver.output(alerts)) == 16, "what was put out after the savepoint is put out again"
    driver.repartition(3)
    assert [payment["shop"] for payment in driver.state("fraud", "recent", key="c1")] == ["x", "y"]


@pytest.mark.parametrize(("poll_records", "batches"), [(None, [3]), (2, [2, 1]), (1, [1, 1, 1])])
def test_rows_of_several_times_are_one_batch_or_as_many_as_polls(
    poll_records: int | None, batches: list[int]
) -> None:
    app = sf.App("sums")
    numbers, sums = app.topic("numbers", key=str, value=int), app.topic("sums", key=str, value=int)
    app.stream(numbers, co_partitioned=True).sum(name="sum").to(sums)
    driver = TestDriver(app, partitions=1, poll_records=poll_records)
    driver.send_many(numbers, [("a", 1, 5_000), ("a", 1, 7_000), ("a", 1, 6_000)])
    results = driver.output(sums)
    assert [result.value for result in results] == [
        sum(batches[: count + 1]) for count in range(len(batches))
    ]
    assert results[-1].timestamp_ms == 6_000


def test_rows_go_to_the_partitions_that_are_named() -> None:
    app = sf.App("copy")
    numbers, copies = app.topic("numbers", key=str, value=int), app.topic("copies", key=str, value=int)
    app.stream(numbers).to(copies)
    driver = TestDriver(app, partitions=3)
    driver.send_many(numbers, [("a", 1, 5_000), (None, 2, 6_000)], partitions=[2, 0])
    driver.send_many(numbers, [("b", 3, 7_000)], partitions=1)
    sent = [record for batch in read_topic(driver.cluster, "numbers") for record in batch.records()]
    assert sorted((record.partition, record.timestamp_ms) for record in sent) == [
        (0, 6_000),
        (1, 7_000),
        (2, 5_000),
    ]
    assert sorted(copy.value for copy in driver.output(copies)) == [1, 2, 3]


def test_times_that_are_none_are_refused() -> None:
    app = sf.App("copy")
    numbers = app.topic("numbers", key=str, value=int)
    app.stream(numbers).to(app.topic("copies", key=str, value=int))
    driver = TestDriver(app)
    with pytest.raises(TypeError, match="whole milliseconds"):
        driver.send(numbers, 1, key="a", timestamp_ms=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="before 1970"):
        driver.send_many(numbers, [("a", 1, -2)])


def test_many_records_come_fast_and_leave_as_typed_rows() -> None:
    """100,000 a minute is the least; here is a tenth, against the CPU's clock."""
    app = sf.App("many")
    clicks, counts = app.topic("clicks", key=str, value=int), app.topic("counts", key=str, value=int)
    app.stream(clicks).key_by(lambda click: f"k{click % 100}", name="by-k", key=str).count(name="n").to(
        counts
    )
    driver = TestDriver(app, partitions=1)
    began = time.process_time()
    driver.send_many(clicks, [(str(click), click, click) for click in range(10_000)])
    rows = driver.rows(counts)
    assert time.process_time() - began < 6
    assert {row.key: row.value for row in rows} == {f"k{number}": 100 for number in range(100)}
    assert sum(row.timestamp_ms for row in rows if row.value == 100) == sum(range(9_900, 10_000))
