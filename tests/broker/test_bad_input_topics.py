"""Brokers that are not there, topics that are missing, changed, or not the ones they were."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from stateflow.log.base import TopicSpec
from tests.broker.command_site import Process, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where something listens that never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_no_broker_at_the_address(site: Site, silent_port: int) -> None:
    tried = {
        "127.0.0.1:1": ["run", site.digits, "--workers", "2"],
        f"127.0.0.1:{silent_port}": ["restore", "--app", "nobody"],
        "no-such-host.invalid:9092": ["topics", "plan", site.digits],
        "127.0.0.1:99999": ["scale", "plan", "--app", "nobody", "--partitions", "2"],
        "[[": ["reset", site.digits],
    }
    running = {
        address: Process(site.command(*line, "--brokers", address, "--json"), site.place / f"said-{index}")
        for index, (address, line) in enumerate(tried.items())
    }
    for address, process in running.items():
        code = process.ended()
        *noise, last = process.said.splitlines()
        assert code in (2, 10), process.said
        body = json.loads(last)
        assert not any(line.startswith(("Traceback", "%")) for line in noise), process.said
        is_address = address not in ("127.0.0.1:99999", "[[")
        error, said = ("BrokerUnreachable", "address") if is_address else ("ConfigError", "host:port")
        assert (body["error"], body["exit_code"]) == (error, code), body
        assert address in body["message"]
        assert said in body["action"]


def test_a_missing_topic_is_named_with_the_command_that_makes_it(site: Site) -> None:
    ended = site.drained(None, "--json")
    assert (ended.code, ended.error["error"]) == (11, "TopicMissing")
    assert ended.error["fields"]["topics"] == [f"{site.name}-in", f"{site.name}-out"]
    assert "stateflow topics apply" in ended.error["action"]
    assert site.type("topics", "apply", site.digits).code == 0
    assert site.type("run", site.digits, "--dry-run").code == 0


def test_more_partitions_where_state_follows_them(site: Site) -> None:
    site.topic("in", "out")
    site.feed([3], key=b"a")
    assert site.drained(site.shelves).code == 0
    grow(site, "in", 3)
    ended = site.drained(site.shelves, "--json")
    assert (ended.code, ended.error["error"]) == (12, "PartitionCountChanged")
    fields = ended.error["fields"]
    assert (fields["partitions_before"], fields["partitions_now"]) == (1, 3)
    assert "key_by" in ended.error["action"]


def test_source_and_own_topics_that_changed(site: Site) -> None:
    """One application, damaged in one way after another; what was damaged first is met first."""
    site.topic("in", "out")
    site.feed([1, 11])
    assert site.drained().code == 0

    grow(site, "in", 2)  # no state follows the source: the new partition is read as well
    site.feed([21])
    assert site.drained().code == 0
    assert site.counted() == {1: 3}

    for change in ("another codec", "another store"):
        site.set(DIGITS_CHANGE=change)
        ended = site.drained(None, "--json")
        assert (ended.code, ended.error["error"]) == (40, "CatalogIncompatible")
        assert "seen" in ended.error["message"]
        assert "another name" in ended.error["action"]
    site.set(DIGITS_CHANGE="")

    for suffix in ("by-digit-repartition", "seen-changelog"):
        topic = f"{site.name}-{suffix}"
        recreate(site, suffix, 1)
        ended = site.drained(None, "--json")
        assert (ended.code, ended.error["error"]) == (13, "TopicRecreated"), ended
        assert ended.error["fields"]["topic"] == topic
        assert "reset" in ended.error["action"]
        site.cluster.delete([topic])
        ended = site.drained(None, "--json")
        assert (ended.code, ended.error["error"]) == (11, "TopicMissing")
        assert topic in ended.error["fields"]["topics"]
    assert site.type("restore", site.digits, "--dry-run", "--json").code == 11

    assert site.type("reset", site.digits, "--yes").code == 0
    assert site.drained().code == 0
    assert site.counted() == {1: 3}


def test_a_source_that_was_recreated_is_not_read_as_if_it_went_on(site: Site) -> None:
    site.topic("in", "out")
    site.feed([1, 2, 3])
    assert site.drained().code == 0
    recreate(site, "in", 1)
    site.feed([4, 5, 6, 7])
    ended = site.drained(None, "--json")
    assert (ended.code, ended.error["error"]) == (13, "TopicRecreated")
    assert ended.error["fields"]["topic"] == f"{site.name}-in"
    assert "--to-earliest" in ended.error["action"]

    assert site.type("reset", site.digits, "--to-earliest", "--yes").code == 0
    assert site.drained().code == 0
    assert site.counted() == dict.fromkeys(range(1, 8), 1)


@pytest.mark.parametrize("suffix", ["in", "by-digit-repartition"])
def test_a_worker_that_runs_ends_when_a_topic_of_its_is_recreated(site: Site, suffix: str) -> None:
    """At once, its client would read on in the new topic behind what the new one begins with."""
    site.topic("in", "out")
    site.feed([1, 2, 3])
    run = site.begin("run", site.digits)
    try:
        wait_until(lambda: len(site.counted()) == 3, lambda: run.said, run.still_runs)
        recreate(site, suffix, 1)
        site.feed([4, 5, 6, 7, 8, 9])
        assert run.ended() == 13
    finally:
        run.close()
    assert f"{site.name}-{suffix} was deleted and created again" in run.said
    assert "Traceback" not in run.said


def test_a_changelog_whose_partition_count_was_altered(site: Site) -> None:
    site.topic("in", "out")
    assert site.type("run", site.digits, "--until-drained").code == 0
    grow(site, "seen-changelog", 2)
    ended = site.drained(None, "--json")
    assert (ended.code, ended.error["error"]) == (12, "PartitionCountChanged")
    assert "scale" in ended.error["action"]


def grow(site: Site, suffix: str, partitions: int) -> None:
    """Add partitions to a topic, as somebody does with Kafka's own tool."""
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    topic = f"{site.name}-{suffix}"
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    (future,) = client.create_partitions([NewPartitions(topic, partitions)]).values()
    future.result(20)
    site.see(topic, partitions)


def recreate(site: Site, suffix: str, partitions: int) -> None:
    """Delete a topic and make one of the same name."""
    topic = f"{site.name}-{suffix}"
    site.cluster.delete([topic])
    site.cluster.create([TopicSpec(topic, partitions)])
