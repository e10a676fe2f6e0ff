"""The change feed of a store beside a running application: whoever applies its rows has the state, whatever happens."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.catalog.names import changelog_topic
from stateflow.errors import ConfigError, SavepointUnfit, TopicMissing, TopicRecreated
from stateflow.query.feed import Feed, FeedPlace, checked_start
from stateflow.scale.generation import finalize
from stateflow.testing import TestDriver

pytestmark = pytest.mark.slow

PARTITIONS = 3


def counting() -> tuple[sf.App, Any]:
    app = sf.App("shop", partitions=PARTITIONS)
    lines = app.topic("lines", value=str)
    app.stream(lines).key_by(str, name="by-word", key=str).count(name="counts")
    return app, lines


class Follower:
    """Reads a feed, and keeps what its rows say: the newest by key."""

    def __init__(self, driver: TestDriver, store: str = "counts", start: str = "earliest") -> None:
        self.feed = Feed(driver.cluster, "shop", store)
        self.driver = driver
        self.place = self.feed.first(checked_start(start))
        self.rows: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}

    def follow(self, slots_max: int | None = None) -> list[dict[str, Any]]:
        """Batch after batch to the end; every place goes through the form in which Spark keeps it."""
        before = len(self.rows)
        for _ in range(1_000):
            found = FeedPlace.from_fields(self.feed.next(self.place, slots_max).to_fields())
            if found == self.place:
                return self.rows[before:]
            self.take(found)
        raise AssertionError("the feed does not come to its end")

    def take(self, until: FeedPlace) -> None:
        batches = []
        for part in self.feed.ranges(self.place, until):
            batch = [row for one in part.batches(self.driver.cluster) for row in one.to_pylist()]
            assert batch == sorted(batch, key=lambda row: row["offset"])
            batches += batch
        self.rows += batches
        for row in batches:
            assert row["deleted"] == (row["value"] is None)
            if row["deleted"]:
                self.state.pop(row["key"], None)
            else:
                self.state[row["key"]] = row["value"]
        self.place = until


def fed(driver: TestDriver, topic: Any, seed: int, words: int = 60) -> Counter[str]:
    rng = random.Random(seed)
    found = [f"w{rng.randrange(20)}" for _ in range(words)]
    for word in found:
        driver.send(topic, word)
    return Counter(found)


@pytest.mark.parametrize("slots_max", [None, 1, 7])
def test_its_rows_are_the_state_across_crashes_and_repartitions(slots_max: int | None) -> None:
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    expected = fed(driver, lines, 1)
    follower = Follower(driver)
    follower.follow(slots_max)
    assert follower.state == expected
    assert len(follower.rows) == 60, "every commit had one record"
    assert follower.follow(slots_max) == []
    for number, change in enumerate((driver.crash, lambda: driver.repartition(5), driver.compact)):
        change()
        if change == driver.crash:
            driver.restore()
        expected += fed(driver, lines, number + 2)
        follower.follow(slots_max)
        assert follower.state == expected
    assert {row["generation"] for row in follower.rows} == {0, 1}
    names = [(row["generation"], row["partition"], row["offset"]) for row in follower.rows]
    assert len(set(names)) == len(names), "no change was told twice"


def test_the_moved_state_comes_once_more_and_deletions_before_it() -> None:
    app = sf.App("shop", partitions=PARTITIONS)
    lines = app.topic("lines", value=str)

    @app.operator("known", source=lines, key=lambda line: line.split()[0])
    class Known(sf.Operator[str, str, str]):
        seen: sf.Value[str | None] = sf.state(ttl=timedelta(hours=10))

        def on_record(self, value: str, ctx: sf.Context[str]) -> None:
            if value.endswith("gone"):
                self.seen.clear()
            else:
                self.seen.set(value)

    driver = TestDriver(app, partitions=PARTITIONS)
    for line in ("a 1", "b 1", "a 2", "c 1"):
        driver.send(lines, line)
    follower = Follower(driver, "known-seen")
    follower.follow()
    driver.send(lines, "b gone")
    driver.repartition(4)
    driver.send(lines, "c 2")
    rows = follower.follow()
    old = [(row["key"], row["deleted"]) for row in rows if row["generation"] == 0]
    assert old == [("b", True)]
    copies = sorted((row["key"], row["value"]) for row in rows if row["generation"] == 1)
    assert copies == [("a", "a 2"), ("c", "c 1"), ("c", "c 2")]
    assert follower.state == {"a": "a 2", "c": "c 2"}
    assert all(row["written_at"] is not None for row in rows if not row["deleted"])


def test_from_latest_only_what_comes() -> None:
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    fed(driver, lines, 1)
    follower = Follower(driver, start="latest")
    assert follower.follow() == []
    driver.send(lines, "w1")
    (row,) = follower.follow()
    assert (row["key"], row["deleted"], row["generation"]) == ("w1", False, 0)
    until = follower.feed.latest()
    driver.send(lines, "w2")
    assert follower.feed.next(follower.place, until=until) == follower.place, (
        "what was fixed as the end is it"
    )


def test_half_a_commit_is_no_row_and_what_sets_it_right_is() -> None:
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    expected = fed(driver, lines, 1)
    driver.crash()
    driver.cluster.end_sessions("shop")
    topic = changelog_topic("shop", "counts")
    writer = driver.cluster.writer()
    for partition in range(PARTITIONS):
        writer.send(topic, b"of nobody", (99).to_bytes(8, "big"), partition=partition)
    writer.commit()
    writer.close()
    follower = Follower(driver)
    follower.follow()
    assert follower.state == expected
    driver.restore()
    expected += fed(driver, lines, 2)
    follower.follow()
    assert follower.state == expected
    assert "of nobody" not in {row["key"] for row in follower.rows if not row["deleted"]}


def test_after_a_savepoint_was_restored_the_feed_begins_anew() -> None:
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    fed(driver, lines, 1)
    follower = Follower(driver)
    driver.savepoint("one")
    driver.restore_savepoint("one")
    with pytest.raises(SavepointUnfit, match="shop/one"):
        follower.follow()


def test_topics_that_are_gone_are_an_error() -> None:
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    fed(driver, lines, 1)
    follower = Follower(driver)
    follower.follow()
    other = FeedPlace(0, "of another topic", follower.place.offsets)
    with pytest.raises(TopicRecreated):
        follower.feed.next(other)
    driver.repartition(4)
    finalize(driver.cluster, "shop")
    with pytest.raises(TopicMissing, match="Keys that were deleted meanwhile"):
        follower.follow()


def test_what_cannot_be_read_is_said() -> None:
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    fed(driver, lines, 1)
    with pytest.raises(ConfigError, match="its stores are: counts"):
        Feed(driver.cluster, "shop", "nonsense").table()
    with pytest.raises(ConfigError, match="yesterday"):
        checked_start("yesterday")
    names = [name for name, _ in Feed(driver.cluster, "shop", "counts").table().columns]
    assert names == ["key", "value", "deleted", "changed_at", "generation", "partition", "offset"]
