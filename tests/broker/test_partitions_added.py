"""Partitions that an operator adds to an input while workers run: they read them too, and nothing is lost."""

from __future__ import annotations

import signal
import struct
import time

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.broker.command_site import Process, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

COUNT = 3


@pytest.fixture(autouse=True)
def looking_often(site: Site) -> None:
    """The client looks for new partitions every five minutes otherwise."""
    site.set(STATEFLOW_CLIENT__TOPIC_METADATA_REFRESH_INTERVAL_MS="1000")


def add_partitions(site: Site) -> None:
    topic = f"{site.name}-in"
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    for done in admin.create_partitions([NewPartitions(topic, COUNT)]).values():
        done.result()
    site.see(topic, COUNT)


def feed_everywhere(site: Site, values: list[int]) -> None:
    now_ms = int(time.time() * 1000)
    writer = site.cluster.writer()
    writer.begin()
    for number in range(COUNT):
        for value in values:
            writer.send(
                f"{site.name}-in", None, struct.pack(">q", value), partition=number, timestamp_ms=now_ms
            )
    writer.commit()
    writer.close()


def counts(site: Site, run: Process, expected: dict[int, int]) -> None:
    wait_until(lambda: site.counted() == expected, lambda: f"{site.counted()}:\n{run.said}", run.still_runs)


@pytest.mark.parametrize("options", [[], ["--workers", "2"], ["--workers", "2", "--standby", "1"]])
def test_new_partitions_are_read_by_workers_that_run(site: Site, options: list[str]) -> None:
    site.topic("in", "out")
    site.feed([1, 11, 2])
    run = site.begin("run", site.digits, *options)
    try:
        counts(site, run, {1: 2, 2: 1})
        add_partitions(site)
        feed_everywhere(site, [21, 3])
        counts(site, run, {1: 2 + COUNT, 2: 1, 3: COUNT})
        for number in range(COUNT):
            run.until(f"task {site.name}-in-{number} is running")
        feed_everywhere(site, [31, 2])
        counts(site, run, {1: 2 + 2 * COUNT, 2: 1 + COUNT, 3: COUNT})
        run.send(signal.SIGTERM)
        assert run.ended() == 0
    finally:
        run.close()
    assert "partitions were added to the 1" in run.said
    assert "starting it again" not in run.said
    assert "Traceback" not in run.said


def test_where_state_depends_on_them_the_worker_ends_as_a_start_would(site: Site) -> None:
    site.topic("in", "out")
    run = site.begin("run", site.shelves)
    try:
        run.until(f"task {site.name}-in-0 is running")
        add_partitions(site)
        assert run.ended() == 12
    finally:
        run.close()
    assert "had 1 partitions when the state of pages was built" in run.said
    assert "Traceback" not in run.said
