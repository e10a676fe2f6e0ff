"""The loop beside a worker: one of several watches, and goes on elsewhere; several topics share a restore time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stateflow.checkpoint.progress import Progress
from stateflow.clock import ManualClock
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.control.beside_worker import WatchBesideWorker
from stateflow.compaction.control.decision_log import BYTES_MAX, DecisionLog
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.several import SeveralOptions, SeveralWatchers
from stateflow.compaction.control.watch import Decision
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.model.workload import RestoreRate
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import BrokerUnreachable
from tests.sim.compaction_topic import SimulatedTopic, cluster_of, measurement

RELAXED = Policy(segment_ms=1000, dirty_ratio=0.5)
CALM = Stream(seconds=30, rates=(RateStep(0, 3000),))
ELECTED = "by-key-0"
WAIT_SECONDS = 20.0


class Site:
    """A simulated topic, and how often a loop was opened on it, with which restore rate, on which thread."""

    def __init__(self, folder: Path) -> None:
        self.topic = SimulatedTopic(CALM, RELAXED)
        for update in replace(CALM, seconds=6).updates():
            self.topic.simulation.feed(update)
        self.folder = folder
        self.opened: list[RestoreRate | None] = []
        self.closed = threading.Semaphore(0)
        self.looks = threading.Semaphore(0)
        self.failures: list[Exception] = []

    @contextmanager
    def open(self, learnt: RestoreRate | None) -> Iterator[SeveralWatchers]:
        self.opened.append(learnt)
        if self.failures:
            raise self.failures.pop()
        try:
            yield SeveralWatchers(
                cluster_of(self.topic),
                self.topic,
                ["t"],
                Objective(0.2),
                Journal("sim", self.folder),
                measure=self.measure,
            )
        finally:
            self.closed.release()

    def measure(self, topic: str) -> Measurement:
        self.looks.release()
        return measurement(RELAXED, 3000.0, 4000)

    def beside(self) -> WatchBesideWorker:
        log = DecisionLog(self.folder / "decisions.jsonl")
        return WatchBesideWorker(ELECTED, self.open, log, interval_seconds=0.01, retry_seconds=0.01)


def test_only_the_owner_of_the_elected_task_watches_and_its_successor_goes_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.beside() as first, site.beside() as second:
        second.on_running("by-key-1")
        assert not second.is_watching()
        first.on_running(ELECTED)
        assert site.looks.acquire(timeout=WAIT_SECONDS)
        first.on_released("by-key-1")
        assert first.is_watching()
        first.on_released(ELECTED)
        assert site.closed.acquire(timeout=WAIT_SECONDS)
        second.on_running(ELECTED)
        assert site.looks.acquire(timeout=WAIT_SECONDS)
        assert second.is_watching()
    assert not first.is_watching()
    assert not second.is_watching()
    assert len(site.opened) == 2


def test_a_cluster_that_does_not_answer_is_asked_again_and_the_worker_never_hears_of_it(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    away = BrokerUnreachable("gone", action="wait")
    site.failures = [away, OSError("input/output error"), away]
    with site.beside() as beside:
        beside.on_running(ELECTED)
        assert site.looks.acquire(timeout=WAIT_SECONDS)
        assert len(site.opened) == 4


def test_the_restores_of_the_worker_tell_the_rate(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.beside() as beside:
        beside.on_restore("a", Progress("a", 100, 100, 100, 1000, 1.0))  # too short to tell
        beside.on_restore("b", Progress("b", 50_000, 100_000, 50_000, 1000, 1.0))  # not over
        beside.on_restore("c", Progress("c", 100_000, 100_000, 90_000, 1000, 0.5))
        beside.on_running(ELECTED)
        assert site.looks.acquire(timeout=WAIT_SECONDS)
    (learnt,) = site.opened
    assert learnt is not None
    assert learnt.records_per_second == 180_000


def test_decisions_are_kept_within_bounds_and_repeated_only_now_and_then(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "kept" / "decisions.jsonl")
    hold = Decision(0, "hold", "The policy holds.", 1, 1.0, 1.0, 1.0, 1.0, {})
    for at_ms in range(0, 120_001, 1000):
        log.add("t", replace(hold, at_ms=at_ms))
    log.add("t", replace(hold, at_ms=121_000, action="change", changes={"segment.ms": "100"}))
    kept = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [one["at_ms"] for one in kept] == [0, 60_000, 120_000, 121_000]
    assert kept[-1]["changes"] == {"segment.ms": "100"}
    long = replace(hold, action="change", reason="x" * 100_000)
    for _ in range(25):
        log.add("t", long)
    files = list(log.path.parent.iterdir())
    assert len(files) == 2
    assert all(path.stat().st_size <= BYTES_MAX for path in files)


def test_a_log_that_outgrew_its_measurement_is_measured_again(tmp_path: Path) -> None:
    clock, topic = ManualClock(), SimulatedTopic(CALM, RELAXED)
    measured: list[float] = []

    def measure(name: str) -> Measurement:
        measured.append(clock.monotonic_seconds())
        size = topic.simulation.size_bytes
        return replace(measurement(RELAXED, 10.0, 10), size_bytes=size)

    watchers = SeveralWatchers(
        cluster_of(topic),
        topic,
        ["t"],
        Objective(1.0),
        Journal("sim", tmp_path),
        measure=measure,
        options=SeveralOptions(measure_interval_seconds=500.0, measure_interval_min_seconds=5.0),
        clock=clock,
    )
    second = 0
    for update in replace(CALM, seconds=12).updates():
        topic.simulation.feed(update)
        if update.seconds >= second:
            second += 1
            clock.advance(seconds=1)
            watchers.look()
    assert measured[:2] == [0.0, 5.0]
    assert len(measured) <= 3
    assert watchers.watchers["t"].policy.segment_ms != RELAXED.segment_ms


def test_a_log_that_cannot_be_read_again_is_watched_with_what_is_known(tmp_path: Path) -> None:
    clock, topic = ManualClock(), SimulatedTopic(CALM, RELAXED)
    for update in replace(CALM, seconds=6).updates():
        topic.simulation.feed(update)
    answers: list[Measurement | BrokerUnreachable] = [
        BrokerUnreachable("gone", action="wait"),
        measurement(RELAXED, 3000.0, 100),
    ]

    def measure(name: str) -> Measurement:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    watchers = SeveralWatchers(
        cluster_of(topic),
        topic,
        ["t"],
        Objective(1.0),
        Journal("sim", tmp_path),
        measure=measure,
        options=SeveralOptions(measure_interval_min_seconds=1.0),
        clock=clock,
    )
    decisions = []
    for _ in range(3):
        clock.advance(seconds=0.6)
        decisions += watchers.look()
    assert answers == [], "it was tried again"
    assert [decision.action != "blind" for _, decision in decisions] == [True] * 3


def test_two_topics_share_one_restore_time(tmp_path: Path) -> None:
    """Each held to the whole time they would take twice as long together; sharing makes both policies tighter."""
    alone, together = [
        _policies_after_a_look(tmp_path / str(shared), SeveralOptions(together=shared))
        for shared in (False, True)
    ]
    assert all(together[name] < alone[name] for name in ("a", "b"))


def _policies_after_a_look(folder: Path, options: SeveralOptions) -> dict[str, float]:
    """Predicted records at the peak of what each topic is given, with 0.3 s for one or for both."""
    found = {}
    for name in ("a", "b"):
        topic = SimulatedTopic(CALM, RELAXED)
        for update in replace(CALM, seconds=6).updates():
            topic.simulation.feed(update)
        both = SeveralWatchers(
            cluster_of(topic),
            topic,
            ["a", "b"],
            Objective(0.4),
            Journal("sim", folder / name),
            measure=lambda asked: replace(measurement(RELAXED, 3000.0, 4000), topic=asked),
            options=options,
            clock=ManualClock(),
        )
        both.look()
        policy = both.watchers[name].policy
        found[name] = float(min(policy.segment_ms * 3, policy.segment_bytes / 571))
    return found
