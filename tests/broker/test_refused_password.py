"""Brokers that refuse the password of a running application: it waits for them, says why, and goes on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.lab.network.guarded_broker import Guarded
from tests.broker.command_site import Site
from tests.broker.test_broker_away import assert_counted_once
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
LISTENER = "SASL_PLAINTEXT"
NUMBERS = range(600)
END_SECONDS = 180.0


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    with made.kafka:
        made.set_scram_password()
        yield made


def test_a_password_that_is_refused_for_a_while_ends_nobody(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(guarded.kafka.bootstrap, tmp_path, f"t{uuid.uuid4().hex[:8]}", monkeypatch, capsys)
    site.topic("in", "out")
    site.feed(NUMBERS)
    settings = guarded.settings(LISTENER, "SCRAM-SHA-256")
    client = {f"STATEFLOW_CLIENT__{name.upper().replace('.', '_')}": str(settings[name]) for name in settings}
    site.set(STATEFLOW_BROKERS=guarded.address(LISTENER), DIGITS_SECONDS="0.02", **client)
    run = site.begin(
        "run", site.digits, "--workers", "2", "--until-drained"
    )  # one of them has nothing to read
    try:
        wait_until(lambda: len(site.records("out")) > 0, lambda: f"the first count in:\n{run.said}")
        guarded.set_scram_password("another")
        guarded.kafka.nodes[0].stop()  # connections that were made before are not asked for the password
        guarded.kafka.restart_node(1)
        run.until("SASL authentication error", times=4)
        guarded.set_scram_password()
        assert run.ended(END_SECONDS) == 0, run.said[-8_000:]
    finally:
        run.close()
    assert_counted_once(site, NUMBERS)
    site.cluster.close()
