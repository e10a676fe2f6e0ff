"""A broker that is away for longer than every time-out of its clients: nobody ends, nothing is lost or twice."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import Interrupted
from tests.broker.command_site import Process, Site
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]  # long ones are begun early

OUTAGE_SECONDS = 95.0
"""Longer than any client waits for anything: requests 30 s, transactions and silence 60 s."""
NUMBERS = list(range(600))
END_SECONDS = 180.0
STOP_SECONDS = 25.0
"""Less than any client waits for a broker; 5 s on a machine that has nothing else to do."""


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    """One broker, which is taken for dead amid the outage: for a moment no partition has a leader then.

    Transactions that end in that moment end without a marker (KAFKA-20734): docs/exactly-once.md, "What the brokers
    must do".
    """
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture
def site(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Site]:
    """An application at which every number takes a while."""
    made = Site(kafka.bootstrap, tmp_path, f"t{uuid.uuid4().hex[:8]}", monkeypatch, capsys)
    made.set(DIGITS_SECONDS="0.02", STATEFLOW_CLIENT__TRANSACTION_TIMEOUT_MS="20000")
    made.topic("in", "out")
    made.feed(NUMBERS)  # at which they work for longer than it takes to let the broker go
    yield made
    made.cluster.close()


def stopped(kafka: EmbeddedKafka) -> Callable[[], None]:
    """End the broker in order; the answer starts it again on its data."""
    kafka.nodes[0].stop()
    return lambda: kafka.restart_node(1)


def silent(kafka: EmbeddedKafka) -> Callable[[], None]:
    """Let the broker hang: connections stay open, and nothing is answered; the answer lets it go on."""
    pid = kafka.pids[0]
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def assert_counted_once(site: Site, numbers: Iterable[int] = NUMBERS) -> None:
    """Counts only grow, and end where they should: how many of them are written depends on what was read at once."""
    found: dict[int, list[int]] = defaultdict(list)
    for record in site.records("out"):
        assert record.key is not None
        assert record.value is not None
        found[int.from_bytes(record.key, "big")].append(int(record.value))
    expected = Counter(number % 10 for number in numbers)
    assert {digit: counts[-1] for digit, counts in found.items()} == expected
    assert all(counts == sorted(set(counts)) for counts in found.values()), found


@pytest.mark.parametrize("goes_away", [stopped, silent])
def test_a_drain_bears_a_broker_that_is_away(
    kafka: EmbeddedKafka, site: Site, goes_away: Callable[[EmbeddedKafka], Callable[[], None]]
) -> None:
    run = site.begin("run", site.digits, "--workers", "2", "--until-drained")
    try:
        wait_until(lambda: len(site.records("out")) > 0, lambda: f"the first count in:\n{run.said}")
        wait_until(
            lambda: len(site.cluster.group_members(site.name)) == 2, "both workers, which start one by one"
        )
        workers = sorted(run.children())
        come_back = goes_away(kafka)
        be_away(run)
        assert sorted(run.children()) == workers, run.said[-8_000:]
        come_back()
        assert run.ended(END_SECONDS) == 0, run.said[-8_000:]
    finally:
        run.close()
    assert_counted_once(site)


@pytest.mark.parametrize(
    ("goes_away", "options", "code"),
    [
        (stopped, ["--workers", "1"], 0),
        (silent, ["--workers", "2", "--until-drained"], Interrupted.exit_code),
    ],
)
def test_ctrl_c_does_not_wait_for_a_broker_that_is_away(
    kafka: EmbeddedKafka,
    site: Site,
    goes_away: Callable[[EmbeddedKafka], Callable[[], None]],
    options: list[str],
    code: int,
) -> None:
    """Nothing can be committed: what was not is read again by the next start."""
    run = site.begin("run", site.digits, *options)
    try:
        wait_until(lambda: len(site.records("out")) > 0, lambda: f"the first count in:\n{run.said}")
        come_back = goes_away(kafka)
        be_away(run, 5.0)
        run.send(signal.SIGINT)
        assert run.ended(STOP_SECONDS) == code, run.said[-8_000:]
        assert "No broker answers" in run.said
        come_back()
        again = site.begin("run", site.digits, "--until-drained")
        assert again.ended(END_SECONDS) == 0, again.said[-8_000:]
    finally:
        run.close()
    assert_counted_once(site)


def be_away(run: Process, seconds: float = OUTAGE_SECONDS) -> None:
    """Let the time of the outage pass; the command does not end in it."""
    until = time.monotonic() + seconds
    wait_until(
        lambda: time.monotonic() >= until,
        "its end",
        run.still_runs,
        seconds=2 * seconds,
        every_seconds=1.0,
    )
