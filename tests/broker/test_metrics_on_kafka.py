"""Metrics of real workers, scraped by HTTP: each of several at a port of its own."""

from __future__ import annotations

import os
import socket
import urllib.request
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.command_site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

WORKERS = 2
RECORDS = [1, 11, 2]


def free_ports_in_a_row(count: int) -> int:
    """The first of ports that nobody listens at, below those that systems give to connections: none is taken so until
    the workers listen.
    """
    for first in range(20_000 + os.getpid() % 10_000, 32_000, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


def scraped(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Metric → its samples; nothing while the worker does not listen yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {each.name: [(s.labels, s.value) for s in samples if s.name == each.name] for each in samples}


def test_each_worker_serves_its_own_metrics(site: Site) -> None:
    site.topic("in", "out")
    first = free_ports_in_a_row(WORKERS)
    worker = site.begin("run", site.digits, "--workers", str(WORKERS), "--metrics-port", str(first))
    try:
        worker.until("w0: task ")
        worker.until("w1: task ")
        site.feed(RECORDS)

        def total(name: str) -> float:
            samples = (sample for n in range(WORKERS) for sample in scraped(first + n).get(name, ()))
            return sum(value for _, value in samples)

        wait_until(lambda: total("stateflow_records_total") >= 2 * len(RECORDS), "both stages' records")
        wait_until(lambda: total("stateflow_changelog_offsets") > 0, "a changelog")
        wait_until(lambda: total("stateflow_input_lag_offsets") == 0, "no lag")
        for number in range(WORKERS):
            found = scraped(first + number)
            assert found["stateflow_native_core_info"][0][1] == 1
            running = {labels["state"]: value for labels, value in found["stateflow_tasks"]}
            assert running["running"] >= 1
            for labels, seconds in found["stateflow_commit_seconds_total"]:
                assert labels["app"] == site.name
                assert 0 <= seconds < 60
    finally:
        worker.close()


def test_a_port_that_is_taken_ends_the_start_with_advice(site: Site) -> None:
    site.topic("in", "out")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = site.type("run", site.digits, "--metrics-port", str(port), "--until-drained")
    assert ended.code == 2
    assert f"127.0.0.1:{port}" in ended.err
    assert "metrics_port" in ended.err
