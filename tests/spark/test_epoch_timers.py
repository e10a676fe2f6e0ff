"""Timers in micro-batches: due ones fire in the epoch, and a silent input does not keep the clock's waiting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import stateflow as sf
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_topic
from stateflow.operators.steps import timers as timing
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.progress.lag import source_ends
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.spark.connection import Connection
from stateflow.spark.epoch import EpochRange, run_epoch
from stateflow.spark.ranges import RangeOptions, RangePlanner, TaskInputs, offset_key
from stateflow.store.rocks import RocksResources
from tests.sim.test_timer_crashes import sessions


class Query:
    """Plans micro-batches and runs each row, as Spark does."""

    def __init__(self, folder: Path, app: sf.App | None = None) -> None:
        app = app or sessions()[0]
        self.topology = app.topology()
        self.clock = ManualClock(1_000_000)
        self.cluster = MemoryCluster(clock=self.clock)
        self.cluster.create([TopicSpec("clicks", 1), TopicSpec("ends", 1)])
        self.wiring = prepare(self.cluster, self.topology, "exactly-once", 1, self.clock)
        self.settings = WorkerSettings(state_dir=folder)
        self.options = RangeOptions(
            connection=Connection("memory"),
            group="sessions",
            tasks=tuple(
                TaskInputs(
                    task.stage.name,
                    task.partition,
                    task.inputs,
                    announces=bool(task.rekeys),
                    has_timers=any(store.kind == "timers" for store in task.stage.stores),
                )
                for task in self.wiring.tasks()
            ),
            slots_per_batch_max=1_000,
            idle_seconds=5,
            from_end=False,
        )
        self.planner = RangePlanner(self.cluster, RangeOptions.from_json(self.options.to_json()), self.clock)
        self.offsets = self.planner.initial()

    def end_input(self) -> None:
        """From the next micro-batch on the input ends where it ends now."""
        ends = source_ends(self.cluster, self.wiring.catalog)
        named = {offset_key(source): end for source, end in ends.items()}
        self.planner = RangePlanner(self.cluster, replace(self.options, run="last", ends=named), self.clock)

    def click(self, *keys: str, second: int) -> None:
        writer = self.cluster.writer()
        for key in keys:
            writer.send("clicks", None, key.encode(), partition=0, timestamp_ms=second * 1000)
        writer.commit()
        writer.close()

    def micro_batches(self) -> int:
        """Run until nothing is left to do now; returns the number of rows run."""
        rows_total = 0
        while True:
            end = self.planner.latest(self.offsets)
            rows = self.planner.rows(self.offsets, end)
            self.offsets = end
            if not rows:
                return rows_total
            for row in rows:
                rows_total += 1
                self._run(EpochRange.of_row(*row))

    def _run(self, todo: EpochRange) -> None:
        task = self.wiring.task(self.topology.stage(todo.stage), todo.partition)
        opener = rocks_opener(self.cluster, self.settings, RocksResources(), self.clock)
        run_epoch(self.cluster, task, todo, opener, self.settings, self.clock)

    def ends(self) -> list[tuple[bytes, bytes]]:
        batches = list(read_topic(self.cluster, "ends"))
        return sorted((record.key, record.value) for batch in batches for record in batch.records())


def test_due_timers_fire_in_the_epoch_and_in_idle_time(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.click("a", "b", "a", second=1)
    query.micro_batches()
    query.click("c", second=100)
    query.micro_batches()
    assert query.ends() == [(b"a", b'["event",2,1]'), (b"b", b'["event",1,1]')]
    query.clock.advance(seconds=4)
    assert query.micro_batches() == 0, "nothing is due, and the input is not silent for long"
    query.clock.advance(seconds=8)
    assert query.micro_batches() > 0
    assert [end for end in query.ends() if b"clock" in end[1]] == [
        (b"a", b'["clock",2,2]'),
        (b"b", b'["clock",1,2]'),
        (b"c", b'["clock",1,1]'),
    ]
    assert query.micro_batches() == 0
    query.clock.advance(seconds=10)
    assert query.micro_batches() == 1, "woken again, in case a timer is due"
    assert len(query.ends()) == 5


def test_a_record_waits_in_the_epoch_until_its_keys_timers_have_fired_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_TURN", 2)
    query = Query(tmp_path)
    query.click(*[f"k{number}" for number in range(9)], second=1)
    query.micro_batches()
    query.click("k3", "k3", second=100)
    query.micro_batches()
    assert query.ends() == [(b"k%d" % number, b'["event",1,1]') for number in range(9)]
    query.end_input()
    query.micro_batches()
    assert [end for end in query.ends() if end[0] == b"k3"] == [
        (b"k3", b'["event",1,1]'),
        (b"k3", b'["event",3,2]'),
    ]


def test_the_end_of_the_input_fires_what_is_pending(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.click("a", "b", "a", second=1)
    query.micro_batches()
    assert query.ends() == []
    query.end_input()
    assert query.micro_batches() > 0
    assert query.ends() == [(b"a", b'["event",2,1]'), (b"b", b'["event",1,1]')]
    assert query.micro_batches() == 0
    query.click("c", second=100)
    query.micro_batches()
    assert len(query.ends()) == 2, "what comes after the end waits for event time again"
