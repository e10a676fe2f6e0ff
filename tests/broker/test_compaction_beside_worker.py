"""A worker process that keeps its application's changelog restorable in time while it works."""

from __future__ import annotations

import json
import signal

import pytest

from stateflow.catalog.names import changelog_topic
from tests.broker.command_site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_worker_tunes_its_own_changelog_and_one_rollback_undoes_it(site: Site) -> None:
    site.topic("in", "out")
    site.set(
        STATEFLOW_HOME=str(site.place / "home"),
        STATEFLOW_CLIENT__TRANSACTION_TIMEOUT_MS="5000",
    )
    topic = changelog_topic(site.name, "seen")
    decisions = site.state / site.name / "compaction-decisions.jsonl"
    site.feed(range(1000))
    worker = site.begin("run", site.digits, "--restore-within", "2s", "--verbose")

    def is_tuned() -> bool:
        site.feed(range(200))
        return decisions.exists() and '"action": "change"' in decisions.read_text()

    try:
        wait_until(is_tuned, lambda: f"a change of settings in:\n{worker.said}")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0, worker.said
    finally:
        worker.close()
    made = [json.loads(line) for line in decisions.read_text().splitlines()]
    (change, *_) = [one for one in made if one["action"] == "change"]
    assert change["topic"] == topic
    config = site.cluster.topic_config(topic)
    assert int(config["segment.bytes"]) < 1 << 30 or int(config["segment.ms"]) < 604_800_000
    assert int(config["min.compaction.lag.ms"]) > 5000, "no transaction may be cleaned that is still open"

    undone = site.type("compaction", "rollback", "--topic", topic, "--json")
    assert undone.code == 0, undone.out
    assert int(site.cluster.topic_config(topic)["min.compaction.lag.ms"]) == 0
    assert sum(site.counted().values()) > 1000
