"""Being stopped: by Ctrl-C, by SIGTERM, by an error of one of several workers, by SIGKILL of the supervisor."""

from __future__ import annotations

import json
import signal

import pytest

from stateflow.log.base import Committed
from stateflow.record import TopicPartition
from tests.broker.command_site import Site, is_running
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_ctrl_c_and_sigterm_commit_and_close(site: Site) -> None:
    site.topic("in", "out")
    trace = site.place / "trace.txt"
    trace.touch()
    # Nothing but the close can commit in time; and nobody is put out of the group, without a commit, by being slow.
    site.set(
        STATEFLOW_COMMIT_INTERVAL_SECONDS="3600",
        STATEFLOW_CLIENT__SESSION_TIMEOUT_MS="45000",
        DIGITS_TRACE=str(trace),
    )
    source = TopicPartition(f"{site.name}-in", 0)
    for number, fed in ((signal.SIGINT, 3), (signal.SIGTERM, 6)):
        worker = site.begin("run", site.digits, "--workers", "2")
        try:
            # Else the group may raise its generation amid the close, and an epoch is left to the next start.
            worker.until("w0: task ")
            worker.until("w1: task ")
            children = worker.children()
            assert len(children) == 2
            site.feed([1, 11, 2])
            wait_until(lambda: len(trace.read_text().splitlines()) >= fed, lambda: f"{fed} numbers")  # noqa: B023
            assert site.cluster.committed(site.name, [source]).get(source, Committed(0)).offset_next < fed
            worker.send(number)
            assert worker.ended() == 0, worker.said
        finally:
            worker.close()
        assert not [pid for pid in children if is_running(pid)]
        assert "Traceback" not in worker.said
        committed = site.cluster.committed(site.name, [source])
        assert {place: found.offset_next for place, found in committed.items()} == {source: fed}, worker.said
    assert len(trace.read_text().splitlines()) == 6, "something was processed twice"


def test_ctrl_c_before_the_input_is_drained_is_not_success(site: Site) -> None:
    site.topic("in", "out")
    writer = site.cluster.writer("keeps-the-end-out-of-reach")
    writer.begin()
    writer.send(f"{site.name}-in", None, bytes(8), partition=0)
    try:
        for workers in ("1", "2"):
            worker = site.begin("run", site.digits, "--until-drained", "--workers", workers, "--json")
            try:
                worker.until(": task ", 2)
                worker.send(signal.SIGINT)
                assert worker.ended() == 130, worker.said
                body = json.loads(worker.said.splitlines()[-1])
                assert body["error"] == "Interrupted"
                assert "committed" in body["message"]
            finally:
                worker.close()
    finally:
        writer.abort()
        writer.close()


def test_one_worker_s_error_ends_all_with_its_code(site: Site) -> None:
    site.topic("in", "out")
    site.feed([1, b"no number"])
    worker = site.begin("run", site.digits, "--workers", "2", "--json")
    try:
        assert worker.ended() == 20, worker.said
        assert not worker.children()
        assert "What to do: " in worker.said, "the worker itself says what broke"
        assert "offset 1" in worker.said
        body = json.loads(worker.said.splitlines()[-1])
        assert (body["error"], body["exit_code"]) == ("WorkerFailed", 20)
    finally:
        worker.close()


def test_a_worker_shows_where_the_application_raised(site: Site) -> None:
    site.topic("in", "out")
    site.set(DIGITS_CHANGE="raises")
    site.feed([13])
    worker = site.begin("run", site.digits, "--workers", "2")
    try:
        assert worker.ended() == 22, worker.said
        assert 'raise LookupError("no thirteens here")' in worker.said
        assert "in last_digit" in worker.said
        assert "guard.py" not in worker.said
    finally:
        worker.close()


def test_workers_do_not_outlive_a_killed_supervisor(site: Site) -> None:
    site.topic("in", "out")
    site.feed([1])
    supervisor = site.begin("run", site.digits, "--workers", "2")
    try:
        supervisor.until(": task ", 2)
        children = supervisor.children()
        assert len(children) == 2
        supervisor.send(signal.SIGKILL)
        assert supervisor.ended() == -signal.SIGKILL
        wait_until(lambda: not any(is_running(pid) for pid in children), lambda: f"the end of {children}")
    finally:
        supervisor.close()
    again = site.begin(
        "run", site.digits, "--workers", "2", "--until-drained"
    )  # same names: no time-out to wait for
    try:
        assert again.ended() == 0, again.said
    finally:
        again.close()
    assert site.counted() == {1: 1}
