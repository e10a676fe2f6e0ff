"""What a scrape of a worker tells, asked by HTTP from another thread while the poll thread turns its loop."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stateflow.checkpoint.progress import Progress
from stateflow.clock import ManualClock
from stateflow.native.loading import native_state
from stateflow.runtime.worker.figures import FigureRequests, WorkerNews
from stateflow.runtime.worker.metrics import METRICS, RestoreFigures
from stateflow.runtime.worker.metrics_endpoint import PREFIX, ServedMetrics, serving_metrics
from stateflow.runtime.worker.status_reports import StatusReports
from stateflow.runtime.worker.worker import Worker
from tests.sim.asking_world import AskingWorld
from tests.sim.counting import APP, SOURCE, STORE
from tests.sim.test_worker_crashes import WORDS

TASKS = 5
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class Scraped:
    """A worker with an endpoint."""

    world: AskingWorld
    served: ServedMetrics
    worker: Worker

    def get(self, path: str = "/metrics", token: str | None = None) -> tuple[int, str]:
        """Status and text of one request, which the worker's loop is turned for."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.served.port}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")

        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, ""

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask)
            while not asked.done():
                self.worker.step()
            return asked.result()

    def values(self) -> Values:
        """Every sample of a scrape."""
        status, text = self.get()
        assert status == 200
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def turn(self, turns: int = 30) -> None:
        for _ in range(turns):
            self.worker.step()
            self.world.clock.advance(ms=10)


@contextmanager
def scraped(token: str | None = None) -> Iterator[Scraped]:
    world = AskingWorld(lambda: None)
    settings = replace(world.settings, metrics_token=token)
    with serving_metrics(APP, settings, world.cluster) as served:
        reports = StatusReports(world.cluster, APP, "w0", world.clock)
        news = WorkerNews(reports, served.requests)
        with closing(world.begin(news=news)) as worker:
            yield Scraped(world, served, worker)


def at(name: str, **labels: object) -> tuple[str, frozenset[tuple[str, str]]]:
    return PREFIX + name, frozenset(
        {"app": APP, **{key: str(value) for key, value in labels.items()}}.items()
    )


def test_a_scrape_tells_what_tasks_have_done() -> None:
    with scraped() as site:
        site.turn()
        site.world.feed(WORDS)
        site.turn()
        found = site.values()
        assert found[at("native_core_info", mode="core" if native_state().in_use else "python")] == 1
        assert found[at("tasks", state="running")] == TASKS
        assert found[at("tasks", state="opening")] == found[at("tasks", state="waiting")] == 0
        for stage, partitions in (("rekey", 2), ("number", 3)):
            seen = [found[at("records_total", stage=stage, partition=p)] for p in range(partitions)]
            assert sum(seen) == len(WORDS), stage
        task = {"stage": "rekey", "partition": 0}
        assert found[at("commits_total", **task)] >= 1
        assert found[at("commit_seconds_total", **task)] >= 0
        assert found[at("dirty_bytes", **task)] == 0
        assert found[at("input_lag_offsets", **task, topic=SOURCE)] == 0
        assert found[at("changelog_offsets", stage="number", store=STORE, partition=0)] > 0
        assert {name.removeprefix(PREFIX) for name, _ in found} <= {metric.name for metric in METRICS}


def test_what_is_not_read_is_lag() -> None:
    with scraped() as site:
        site.turn()
        site.world.feed(WORDS[:2])
        site.turn()
        behind = site.values()
        site.world.feed(WORDS)
        figures = site.served.requests.ask(0)
        assert figures is not None, "the last answer stands while nobody turns the loop"
        assert sum(task.records_total for task in figures.tasks if task.stage == "rekey") == 2
        site.turn()
        assert behind[at("records_total", stage="rekey", partition=0)] == 1
        assert site.values()[at("input_lag_offsets", stage="rekey", partition=0, topic=SOURCE)] == 0


def test_nothing_is_gathered_while_nobody_asks() -> None:
    with scraped() as site:
        site.turn()
        assert site.served.requests.ask(0) is None
        site.worker.step()
        assert site.served.requests.ask(0) is not None


def test_a_token_is_asked_for_and_other_paths_are_not_there() -> None:
    with scraped("s3cret") as site:
        assert site.get()[0] == 401
        assert site.get(token="wrong")[0] == 401
        assert site.get("/", token="s3cret")[0] == 404
        status, text = site.get(token="s3cret")
        assert status == 200
        assert f"{PREFIX}tasks" in text


def test_restores_under_way_are_told_until_they_are_whole() -> None:
    restores = RestoreFigures()
    assert not list(restores.samples(APP))
    for second in (1, 2, 3, 4):
        restores.on_restore("number-2", Progress("number-2", 100 * second, 1_000, 90 * second, 900, second))
    samples = list(restores.samples(APP))
    assert {sample.labels for sample in samples} == {(APP, "number", "2")}
    assert {sample.metric: sample.value for sample in samples} == {
        "restore_remaining_offsets": 600,
        "restore_records_per_second": 90,
        "restore_eta_seconds": pytest.approx(6.0),
    }
    restores.on_restore("number-2", Progress("number-2", 1_000, 1_000, 900, 9_000, 10))
    assert not list(restores.samples(APP))


def test_a_restore_that_goes_back_has_a_rate_of_its_own() -> None:
    restores = RestoreFigures()
    for done, second in ((800, 1), (810, 2), (820, 3), (100, 4), (200, 5), (300, 6)):
        restores.on_restore("number-2", Progress("number-2", done, 1_000, done, 900, second))
    found = {sample.metric: sample.value for sample in restores.samples(APP)}
    assert found["restore_eta_seconds"] == pytest.approx(7.0)


def test_a_question_that_nobody_answers_ends() -> None:
    assert FigureRequests(ManualClock()).ask(0.01) is None
