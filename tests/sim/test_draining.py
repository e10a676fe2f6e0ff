"""Drained means: all input processed in all stages, watermarks told, and nothing due that fires in turns."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.operators.steps.timers import TIMERS_PER_TURN
from stateflow.runtime.progress.draining import Drain, Quiet, QuietHere, QuietPipe, QuietReader
from stateflow.testing import TestDriver

KEYS = 2 * TIMERS_PER_TURN + 100


class Waking(sf.Operator[str, str, str]):
    """Says each key again a minute later by the clock."""

    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        ctx.timer("wake", after=timedelta(minutes=1), time="processing")

    def on_timer(self, name: str, ctx: sf.Context[str]) -> None:
        ctx.emit(str(ctx.key))


def waking() -> tuple[TestDriver, Any, Any]:
    """An application whose timers send records to a second stage."""
    app = sf.App("waking", guarantee="exactly-once", partitions=2)
    source, out = app.topic("in", key=str, value=str), app.topic("out", key=str, value=int)
    woken = app.stream(source, co_partitioned=True).process(Waking, name="waking")
    woken.key_by(lambda key: key[-1], name="by-digit", key=str).count(name="per-digit").to(out)
    return TestDriver(app, partitions=1), source, out


def test_an_application_with_thousands_of_due_timers_has_not_drained() -> None:
    driver, _, out = waking()
    writer = driver.cluster.writer()
    for number in range(KEYS):
        writer.send("in", b"k%d" % number, b"v", partition=0, timestamp_ms=driver.clock.now_ms())
    writer.commit()
    writer.close()
    driver.run()
    driver.stop()
    driver.cluster.end_sessions("waking")
    driver.clock.advance(seconds=3_600)
    wiring, worker = driver._start()
    worker.quiet.listener = here = QuietHere()
    drain = Drain(driver.cluster, wiring, here.last, are_all=False)
    assert not drain.is_over(), "nothing was looked at yet, though all input is processed"
    turns = 0
    while not drain.is_over():
        worker.step()
        turns += 1
        assert turns < 1_000
    newest = {record.key: record.value for record in driver.output(out)}
    assert sum(newest.values()) == KEYS, "all timers fired, and what they sent was counted"
    worker.close()


def test_what_is_waited_for_is_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    driver, *_ = waking()
    writer = driver.cluster.writer("producer")
    writer.begin()
    writer.send("in", b"k", b"v", partition=0, timestamp_ms=1)
    writer.flush()
    drain = Drain(driver.cluster, driver._wiring, lambda: [Quiet("w0", 1, 2)], are_all=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert not drain.is_over()
    assert caplog.messages == ["Not drained yet: in-0 is 1 offsets behind in in[0]."]
    writer.abort()
    driver.run()
    assert drain.is_over() == (len(driver._wiring.tasks()) <= 2)


def test_a_worker_that_did_something_between_two_looks_is_not_quiet() -> None:
    driver, *_ = waking()
    words = [Quiet("w0", number, 2) for number in (1, 3, 3, 3)]
    answers = iter([[word] for word in words])
    drain = Drain(driver.cluster, driver._wiring, lambda: next(answers), are_all=False)
    assert not drain.is_over()
    assert drain.is_over() == (len(driver._wiring.tasks()) <= 2)


def test_all_tasks_must_be_running_somewhere() -> None:
    driver, *_ = waking()
    total = len(driver._wiring.tasks())

    def drained(*tasks: int | None, are_all: bool = True) -> bool:
        words = [Quiet(f"w{index}", 1, number) for index, number in enumerate(tasks)]
        return Drain(driver.cluster, driver._wiring, lambda: words, are_all=are_all).is_over()

    assert drained(total)
    assert drained(total - 1, 1)
    assert not drained(total, None)
    assert not drained(total - 1, 0), "one is on its way from one worker to another"
    assert not drained(total - 1, are_all=False), "the group has no other member that could run it"


def test_a_spare_worker_among_others_does_not_wait_for_ever() -> None:
    driver, *_ = waking()
    others = driver.cluster.group_consumer("waking", ["in"], driver._worker)
    drain = Drain(driver.cluster, driver._wiring, lambda: [Quiet("", 1, 0)], are_all=False)
    assert [drain.is_over() for _ in range(21)] == [False] * 20 + [True]
    others.close()


def test_quiet_children_are_heard_through_a_pipe() -> None:
    reader = QuietReader("w0", said_total=7)
    child = QuietPipe(os.dup(reader.write))
    assert reader.last() == Quiet("w0", 7, None)
    child.tell(3)
    assert reader.last() == Quiet("w0", 8, 3)
    child.tell(None)
    child.tell(3)
    assert reader.last() == Quiet("w0", 10, 3)
    reader.close_writing()
    reader.close()
    child.tell(None)
    os.close(child._descriptor)
