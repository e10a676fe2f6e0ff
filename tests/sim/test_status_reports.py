"""Late records, from a worker's task to what ``stateflow workers`` shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

import stateflow as sf
from stateflow.catalog.names import members_topic
from stateflow.cli.workers import command, standby_facts
from stateflow.errors import BrokerUnreachable, StateLocked
from stateflow.lab.faults.simulation.parked import ParkedExecutor
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.runtime.opening.inline import InlineExecutor
from stateflow.runtime.opening.retries import Retries
from stateflow.runtime.standby.placement_mode import read_membership, refuse_mixed
from stateflow.runtime.worker.member_records import MembershipTopic, membership_partition
from stateflow.runtime.worker.status_reports import StatusReports
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
MINUTE = timedelta(minutes=1)


def counting() -> tuple[TestDriver, Any]:
    app = sf.App("shop")
    orders = app.topic("orders", key=str, value=int)
    app.stream(orders, co_partitioned=True).window(sf.Tumbling(MINUTE)).count(name="per-minute")
    return TestDriver(app, partitions=1), orders


def met(driver: TestDriver) -> Any:
    return [met for task in driver._worker.tasks.values() for met in task.out_of_bounds.met()]


def test_late_records_are_shown_by_workers_of_any_kind() -> None:
    driver, orders = counting()
    news = StatusReports(driver.cluster, "shop", "w1", driver.clock, InlineExecutor())
    driver.send(orders, 1, key="a", timestamp_ms=T0)
    news.turn(met(driver))
    assert members_topic("shop") not in driver.cluster.list_topics(), "nothing to say, nothing created"
    driver.send(orders, 2, key="a", timestamp_ms=T0 + 300_000)
    driver.send(orders, 3, 4, key="a", timestamp_ms=T0 + 1)
    driver.advance(seconds=6)
    news.turn(met(driver))
    (shown,) = standby_facts(driver.cluster, "shop", driver.clock)["out_of_bounds"]
    assert (shown["task"], shown["step"], shown["kind"]) == ("orders-0", "per-minute", "late")
    assert (shown["records_total"], shown["place"], shown["off_ms"]) == (2, "orders[0]@3", 299_999)
    assert (shown["timestamp_ms"], shown["worker"]) == (T0 + 1, "w1")
    refuse_mixed(driver.cluster, "shop", placed=False)  # the topic makes nobody a worker with copies
    news.close()


def test_the_command_shows_them_to_people(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, orders = counting()
    news = StatusReports(driver.cluster, "shop", "w1", driver.clock, InlineExecutor())
    driver.send(orders, 2, key="a", timestamp_ms=T0 + 300_000)
    driver.send(orders, 3, key="a", timestamp_ms=T0)
    news.turn(met(driver))
    news.close()
    monkeypatch.setattr("stateflow.log.kafka.connect", lambda *_: driver.cluster)
    shown = CliRunner().invoke(command, ["--app", "shop"], catch_exceptions=False).output.splitlines()
    assert shown[0].split() == ["worker", "host", "tasks"]
    assert "orders-0" in shown[1]
    assert shown[3].split()[:5] == ["task", "step", "what", "records", "newest"]
    assert shown[4].split()[:5] == ["orders-0", "per-minute", "late", "1", "orders[0]@1"]
    assert "2024-01-01 00:00:00.000+00:00  0:05:00" in shown[4]


def test_what_has_not_changed_is_said_again_before_the_topic_forgets() -> None:
    driver, orders = counting()
    news = StatusReports(driver.cluster, "shop", "w1", driver.clock, InlineExecutor())
    driver.send(orders, 2, key="a", timestamp_ms=T0 + 300_000)
    driver.send(orders, 3, key="a", timestamp_ms=T0)

    def told() -> int:
        news.turn(met(driver))
        place = membership_partition("shop")
        return driver.cluster.ranges([place])[place].offset_next

    assert told() == 1
    assert told() == 1
    driver.clock.advance(seconds=10)
    assert told() == 1
    driver.send(orders, 4, key="a", timestamp_ms=T0)
    assert told() == 1, "too soon"
    driver.clock.advance(seconds=10)
    assert told() == 2
    driver.clock.advance(seconds=601)
    assert told() == 3
    driver.send(orders, 5, key="a", timestamp_ms=T0)
    news.turn(met(driver), is_last=True)
    assert told() == 4
    news.close()


class _Unwritable:
    """A cluster that refuses what is asked of it beyond descriptions."""

    def __init__(self, cluster: Cluster) -> None:
        self.describe = cluster.describe
        self.tried = 0

    def create(self, topics: object) -> None:
        self.tried += 1
        raise BrokerUnreachable("not allowed", action="allow it")


def test_a_cluster_that_takes_no_news_does_not_stop_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    driver, orders = counting()
    refusing = _Unwritable(driver.cluster)
    news = StatusReports(refusing, "shop", "w1", driver.clock, InlineExecutor())  # type: ignore[arg-type]
    driver.send(orders, 2, key="a", timestamp_ms=T0 + 300_000)
    driver.send(orders, 3, key="a", timestamp_ms=T0)
    news.turn(met(driver))
    driver.clock.advance(seconds=30)
    news.turn(met(driver))
    assert refusing.tried == 1
    assert "Cannot report late records and waiting tasks" in caplog.text
    driver.clock.advance(seconds=700)
    news.turn(met(driver))
    assert refusing.tried == 2
    news.close()


def test_tasks_that_wait_are_shown_until_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees a task that is not there; that it waits is in one worker's log only."""
    driver, _ = counting()
    primary = TopicPartition("orders", 0)
    retries = Retries(driver.clock)
    news = StatusReports(driver.cluster, "shop", "w1", driver.clock, InlineExecutor())

    def shown() -> list[dict[str, Any]]:
        task = retries.waiting(primary)
        news.turn((), [] if task is None else [task])
        found = standby_facts(driver.cluster, "shop", driver.clock)["waiting"]
        assert isinstance(found, list)
        return found

    assert shown() == []
    retries.failed(primary, "orders-0", StateLocked("its directory is in use.", action="wait for it."))
    driver.clock.advance(seconds=6)
    retries.failed(primary, "orders-0", StateLocked("its directory is in use.", action="wait for it."))
    (row,) = shown()
    assert (row["task"], row["worker"], row["attempts"], row["error"]) == ("orders-0", "w1", 2, "StateLocked")
    assert (row["message"], row["action"]) == ("its directory is in use.", "wait for it.")
    monkeypatch.setattr("stateflow.log.kafka.connect", lambda *_: driver.cluster)
    monkeypatch.setattr("stateflow.cli.workers.SystemClock", lambda: driver.clock)
    printed = CliRunner().invoke(command, ["--app", "shop"], catch_exceptions=False).output.splitlines()
    assert printed[3].split()[:3] == ["task", "worker", "waits"]
    assert printed[4].split()[:2] == ["orders-0", "w1"]
    assert printed[4].endswith("its directory is in use.")
    retries.committed(primary)
    driver.clock.advance(seconds=6)
    assert shown() == []
    news.close()


def test_a_worker_that_ends_has_no_tasks_that_wait() -> None:
    driver, _ = counting()
    news = StatusReports(driver.cluster, "shop", "w1", driver.clock, InlineExecutor())
    retries = Retries(driver.clock)
    primary = TopicPartition("orders", 0)
    retries.failed(primary, "orders-0", StateLocked("in use.", action="wait."))
    task = retries.waiting(primary)
    assert task is not None
    news.turn((), [task])
    assert len(standby_facts(driver.cluster, "shop", driver.clock)["waiting"]) == 1
    news.turn((), [task], is_last=True)
    assert standby_facts(driver.cluster, "shop", driver.clock)["waiting"] == []
    news.close()


def test_nobody_connects_to_tell_that_no_broker_answers() -> None:
    """The request would fail, and nothing would be told for ten minutes after the brokers are back."""
    driver, _ = counting()
    refusing = _Unwritable(driver.cluster)
    news = StatusReports(refusing, "shop", "w1", driver.clock, InlineExecutor())  # type: ignore[arg-type]
    retries, primary = Retries(driver.clock), TopicPartition("orders", 0)
    for error, tried in (
        (BrokerUnreachable("away.", action="wait."), 0),
        (StateLocked("in use.", action="wait."), 1),
    ):
        retries.failed(primary, "orders-0", error)
        task = retries.waiting(primary)
        assert task is not None
        news.turn((), [task])
        assert refusing.tried == tried
    news.close()


def late(driver: TestDriver, orders: Any) -> None:
    driver.send(orders, 3, key="a", timestamp_ms=T0)


def told(driver: TestDriver) -> list[int]:
    """How many late records each report has named."""
    found = standby_facts(driver.cluster, "shop", driver.clock)["out_of_bounds"]
    assert isinstance(found, list)
    return [row["records_total"] for row in found]


def reporting(requests: ParkedExecutor, cluster: Any = None) -> tuple[TestDriver, Any, StatusReports]:
    """With one late record to tell."""
    driver, orders = counting()
    news = StatusReports(cluster or driver.cluster, "shop", "w1", driver.clock, requests)
    driver.send(orders, 2, key="a", timestamp_ms=T0 + 300_000)
    late(driver, orders)
    return driver, orders, news


def test_nobody_waits_for_a_report_and_no_other_is_begun_meanwhile() -> None:
    requests = ParkedExecutor()
    driver, orders, news = reporting(requests)
    for _ in range(20):
        news.turn(met(driver))
        late(driver, orders)
        driver.clock.advance(seconds=6)
    assert members_topic("shop") not in driver.cluster.list_topics(), "nothing is written yet"
    assert requests.open_total == 1
    requests.drive(1)
    assert told(driver) == [1], "as it was when it was begun"
    news.turn(met(driver))
    requests.drive(1)
    assert told(driver) == [21]
    driver.clock.advance(seconds=6)
    news.turn(met(driver))
    assert requests.open_total == 0, "there is nothing new"
    news.close()


def test_the_last_report_follows_one_that_is_under_way() -> None:
    requests = ParkedExecutor()
    driver, orders, news = reporting(requests)
    news.turn(met(driver))
    late(driver, orders)
    news.turn(met(driver), is_last=True)
    assert told(driver) == [2]
    place = membership_partition("shop")
    assert driver.cluster.ranges([place])[place].offset_next == 2
    news.close()


def test_a_worker_that_closes_amid_a_report_leaves_its_writer_alone_until_it_is_over() -> None:
    requests = ParkedExecutor()
    driver, _, news = reporting(requests)
    news.turn(met(driver))
    news.close()
    assert told(driver) == [1]


def test_a_report_that_was_refused_is_said_when_it_is_known(caplog: pytest.LogCaptureFixture) -> None:
    requests = ParkedExecutor()
    driver, orders = counting()
    refusing = _Unwritable(driver.cluster)
    news = StatusReports(refusing, "shop", "w1", driver.clock, requests)  # type: ignore[arg-type]
    driver.send(orders, 2, key="a", timestamp_ms=T0 + 300_000)
    late(driver, orders)
    for seconds, tried in ((0, 1), (30, 1), (570, 1), (10, 2)):
        driver.clock.advance(seconds=seconds)
        news.turn(met(driver))
        requests.drive(1)
        news.turn(met(driver))
        assert refusing.tried == tried
    assert caplog.text.count("Cannot report late records and waiting tasks") == 2
    news.close()


def test_a_report_of_another_format_is_passed_over() -> None:
    membership = MembershipTopic()
    membership.take(b"untimely/late/orders-0/per-minute", b'{"task": 5}')
    assert membership.out_of_bounds == {}
    driver, _ = counting()
    assert read_membership(driver.cluster, "shop") is None
