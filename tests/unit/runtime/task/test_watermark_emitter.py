"""How often the stages behind a task are told of its event time."""

from __future__ import annotations

from dataclasses import replace

import pytest

import stateflow as sf
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.task.commit import EventTimeNews, WatermarkEmitter, pause_between_watermarks
from stateflow.runtime.worker.prepare import prepare


@pytest.mark.parametrize(
    ("tasks", "partitions", "seconds"), [(16, 16, 0.0), (64, 64, 1.0), (128, 128, 4.0), (512, 512, 64.0)]
)
def test_few_tasks_tell_with_each_commit_and_many_take_turns(
    tasks: int, partitions: int, seconds: float
) -> None:
    assert pause_between_watermarks(tasks, partitions) == seconds


def test_time_that_only_moves_waits_and_what_others_wait_for_does_not() -> None:
    clock, cluster = ManualClock(1_000_000), MemoryCluster()
    app = sf.App("many")
    source = app.topic("many-in", value=sf.String)
    app.stream(source).key_by(str, name="by", key=sf.String).count(name="counts")
    cluster.create([TopicSpec("many-in", 2)])
    tasks = prepare(cluster, app.topology(), "exactly-once", 2, clock).tasks()
    wiring = next(wiring for wiring in tasks if wiring.rekeys)
    emitter = WatermarkEmitter(replace(wiring, stage_tasks=4 * 4_096), clock)
    writer = cluster.writer()

    assert emitter.is_due(EventTimeNews(5)), "nothing was told yet"
    emitter.send(writer, EventTimeNews(5))
    assert not emitter.is_new(EventTimeNews(5))
    assert emitter.is_new(EventTimeNews(6))
    assert not emitter.is_due(EventTimeNews(6))
    assert emitter.is_due(EventTimeNews(6, idle=True))
    assert emitter.is_due(EventTimeNews(5, ended=True))
    clock.advance(ms=8_000)
    assert emitter.is_due(EventTimeNews(6)), "16,384 tasks times 2 partitions take 8 s"
    writer.commit()
    writer.close()
