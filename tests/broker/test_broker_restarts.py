"""A single broker that is restarted in order, again and again, beneath an application that is at work.

It answers commits for a moment in which its partitions have no leader any more: they end without markers
(KAFKA-20734; docs/exactly-once.md, "What the brokers must do"). Under load one of some sixty such runs counted a
commit's records twice before anybody looked whether a commit had arrived.
``STATEFLOW_RESTARTS`` is how many runs there are.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from random import Random

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from tests.broker.command_site import Site
from tests.broker.test_broker_away import assert_counted_once
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(420)]  # most of it is waiting

RUNS = int(os.environ.get("STATEFLOW_RESTARTS", "1"))
NUMBERS = range(900)
STOPS = 3
AWAY_SECONDS = (0.0, 2.0, 25.0)
"""Less and more than a session (6 s) and a transaction (20 s) last."""
END_SECONDS = 240.0


@pytest.mark.parametrize("seed", range(RUNS))
def test_nothing_is_lost_or_twice(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(seed)
    with EmbeddedKafka() as kafka:
        site = Site(kafka.bootstrap, tmp_path, f"t{uuid.uuid4().hex[:8]}", monkeypatch, capsys)
        site.set(DIGITS_SECONDS="0.02", STATEFLOW_CLIENT__TRANSACTION_TIMEOUT_MS="20000")
        site.topic("in", "out")
        site.feed(NUMBERS)
        run = site.begin("run", site.digits, "--workers", "2", "--until-drained")
        try:
            wait_until(lambda: len(site.records("out")) > 0, lambda: f"the first count in:\n{run.said}")
            for away_seconds in random.sample(AWAY_SECONDS, STOPS):
                pass_time(random.uniform(1.0, 4.0))
                kafka.nodes[0].stop()
                pass_time(away_seconds)
                kafka.restart_node(1)
            assert run.ended(END_SECONDS) == 0, run.said[-8_000:]
        finally:
            run.close()
        assert_counted_once(site, NUMBERS)
        site.cluster.close()


def pass_time(seconds: float) -> None:
    """When a broker goes is what the test chooses; there is nothing to wait for."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, "its end", seconds=2 * seconds + 1.0, every_seconds=0.1)
