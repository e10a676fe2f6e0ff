"""Workers whose tasks share a writer, as processes on a broker: killed, replaced, and replaced by one that does not."""

from __future__ import annotations

import signal

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.names import claims_topic
from stateflow.clock import SystemClock
from stateflow.runtime.opening.claims import ClaimsLog
from tests.broker.command_site import Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.mark.timeout(180)
def test_a_killed_worker_is_taken_over_from_with_and_without_sharing(site: Site) -> None:
    site.topic("in", "out")
    counted = 0
    for number, shared in enumerate(("1", "0")):
        site.set(STATEFLOW_SHARED_WRITERS=shared)
        worker = site.begin("run", site.digits)
        try:
            site.feed(range(100))
            counted += 10
            expected = dict.fromkeys(range(10), counted)
            wait_until(lambda: site.counted() == expected, lambda: f"counts in:\n{worker.said}")  # noqa: B023
            worker.send(signal.SIGKILL)
            assert worker.ended() == -signal.SIGKILL
        finally:
            worker.close()
        claims = ClaimsLog(site.cluster, site.name, SystemClock())
        writers = claims.read().writers
        assert len(writers) == (1 if shared == "1" else 0), f"life {number}: {writers}"
        claims.close()

    site.set(STATEFLOW_SHARED_WRITERS="2")
    ended = site.begin("run", site.digits, "--until-drained")
    try:
        assert ended.ended() == 0, ended.said
    finally:
        ended.close()
    assert site.counted() == dict.fromkeys(range(10), counted)
    assert [record.value for record in site.records("out")].count(b"20") == 10, "nothing came out twice"
    claims = ClaimsLog(site.cluster, site.name, SystemClock())
    assert claims.read().by_key == {}, "who ends well lets go of its tasks"
    claims.close()
    assert ControlTopic(site.cluster, site.name).load().app.shared_writers
    assert site.type("reset", site.digits, "--yes").code == 0
    assert claims_topic(site.name) not in site.cluster.list_topics()
