"""What a restore newest first promises of its answers: killed, with a log that is trimmed, with many tasks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.image_selection import images_of
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.recovery import Outcome
from stateflow.failpoints import VARIABLE
from stateflow.scale.early.asks import Answer, Ask, Bound
from stateflow.scale.early.files import ranges_on_disk
from stateflow.scale.early.open_tasks import TASKS_OPEN_MAX
from stateflow.scale.early.restore import EarlyRestore, Watchers
from stateflow.store.directory import RANGES_FOLDER
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from tests.unit.scale.early_child import COMMITS
from tests.unit.scale.early_site import KEYS, SMALL, EarlySite
from tests.unit.scale.test_early_restore import STORES, wrong

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
BESIDE_SLOTS = SMALL.slots_max * 2
"""Other lanes read meanwhile what nobody asks for; here they do not do it at the same time."""


class Promises:
    """Asks, and compares how much was read until each answer with the bound that was told."""

    def __init__(self, restore: EarlyRestore) -> None:
        self.asks: list[Ask] = []
        self.broken: list[tuple[str, int, Bound]] = []
        self._restore = restore
        self._told: dict[Ask, tuple[Bound, int]] = {}

    def ask(self, store: str, key: str) -> None:
        self.asks.append(self._restore.ask(store, key))

    def run(self, each_turn: Callable[[], None] = lambda: None) -> list[Outcome]:
        """Run the restore to its end; all questions are answered then."""

        def look() -> None:
            each_turn()
            self._look()

        outcomes = self._restore.run(Watchers(report=lambda _: look(), on_answer=self._answered))
        assert [ask.key for ask in self.asks if ask.answer is None] == []
        return outcomes

    @property
    def answers(self) -> list[Answer]:
        return [ask.answer for ask in self.asks if ask.answer is not None]

    def _look(self) -> None:
        for ask in self.asks:
            if ask.bound is not None and (ask not in self._told or self._told[ask][0] is not ask.bound):
                self._told[ask] = ask.bound, self._restore.progress.slots_done

    def _answered(self, answer: Answer) -> None:
        done = self._restore.progress.slots_done
        for ask in self.asks:
            if (ask.entry.name, ask.key) == (answer.store, answer.key) and ask in self._told:
                bound, since = self._told[ask]
                if ask.bound is bound and done - since > bound.slots + BESIDE_SLOTS:
                    self.broken.append((ask.key, done - since, bound))


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_comes_within_its_bound_also_behind_other_questions(seed: int, tmp_path: Path) -> None:
    site, rng = EarlySite(seed), random.Random(seed)
    site.commits(80)
    restore = site.early(tmp_path)
    promises = Promises(restore)

    def ask() -> None:
        if len(promises.asks) < 40 and not restore.is_whole:
            promises.ask(rng.choice(STORES), rng.choice(["never-written", *KEYS]))

    for _ in range(10):
        ask()
    promises.run(ask)
    assert promises.broken == []


@pytest.mark.parametrize("point", ["restore.before_ingest", "restore.after_ingest", "early.before_flush"])
@pytest.mark.parametrize("hit", [1, 3])
def test_killed_amid_ingestion_it_goes_on_and_answers_right(point: str, hit: int, tmp_path: Path) -> None:
    seed, state_dir = 20 + hit, tmp_path / "early"
    strike = f"{point}:{min(hit, 2) if 'flush' in point else hit}:kill"
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.scale.early_child", str(seed), str(state_dir)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: strike},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    site = EarlySite(seed)
    site.commits(COMMITS)
    had = sum(
        read.offsets.slots for job in site.jobs(state_dir) for read in ranges_on_disk(job.directory.ranges)
    )
    assert had > 0, "ranges outlive the process until their task is durable"
    expected = site.in_order(tmp_path / "in-order")
    restore = site.early(state_dir)
    promises = Promises(restore)
    for key in KEYS:
        promises.ask("totals", key)
    promises.ask("hourly", KEYS[0])
    first: list[int] = []
    promises.run(lambda: first.append(restore.progress.slots_done))
    assert first[0] >= had, "no range is read twice"
    assert site.content(state_dir) == expected
    assert wrong(site, expected, promises.answers) == []
    assert promises.broken == []
    assert not [*state_dir.rglob(RANGES_FOLDER)]


@pytest.mark.parametrize("seed", range(3))
def test_where_a_log_is_trimmed_meanwhile_it_goes_on_from_an_image(seed: int, tmp_path: Path) -> None:
    """The image was made, and the log before it deleted, after the restore had begun without one."""
    site = EarlySite(seed)
    site.commits(60)
    images = str(tmp_path / "images")
    for log in {name: log for job in site.jobs(tmp_path) for name, log in job.changelogs.items()}.values():
        site.cluster.alter_topic_config(log.topic, {"cleanup.policy": "compact,delete"})
    restore = site.early(tmp_path / "early", images)
    promises, turns = Promises(restore), list[int]()
    for key in ["never-written", *KEYS]:
        promises.ask("totals", key)
    promises.ask("recent", KEYS[0])
    before: list[Bound | None] = []

    def trim() -> None:
        turns.append(1)
        if len(turns) == 3:
            before.append(promises.asks[-1].bound)
            make_images_and_trim(site, tmp_path / "other", images)

    outcomes = promises.run(trim)
    assert [outcome.image is not None for outcome in outcomes] == [True, True]
    expected = site.content(tmp_path / "other")
    assert {task: rows_of(content) for task, content in site.content(tmp_path / "early").items()} == {
        task: rows_of(content) for task, content in expected.items()
    }
    assert wrong(site, expected, promises.answers) == []
    assert promises.broken == []
    last = promises.asks[-1].bound
    assert last is not None
    assert last is not before[0], "what was promised is promised anew with the new plan"
    assert last.image_bytes > 0


def make_images_and_trim(site: EarlySite, state_dir: Path, images: str) -> None:
    """As a worker elsewhere does with `trim`."""
    site.in_order(state_dir)
    for job in site.jobs(state_dir, images):
        stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources(), site.clock)
        create_image(
            stores, images_of(job, open_objects(images), site.clock), job.changelogs, job.topic_ids, {}
        )
        reached = {log: stores.position(name) for name, log in job.changelogs.items()}
        stores.close()
        site.cluster.trim({log: at.offset_next - 1 for log, at in reached.items() if at is not None})


def rows_of(content: object) -> list[object]:
    """The rows of each store, without its position's time: images have their own."""
    assert isinstance(content, dict)
    return [rows for _, (_, rows) in sorted(content.items())]


def test_of_many_tasks_a_bounded_number_is_open(tmp_path: Path) -> None:
    many = 4 * TASKS_OPEN_MAX
    site = EarlySite(3, partitions=many)
    for partition in range(many):
        if site.keys_of(partition):
            site.commit(partition)
    restore = site.early(tmp_path / "early", lanes=2)
    promises, opened, files, threads = Promises(restore), list[int](), list[int](), list[int]()
    for store, key in [("totals", key) for key in KEYS] + [("hourly", key) for key in KEYS[:5]]:
        promises.ask(store, key)
    files_before, threads_before = open_files(), native_threads()

    def look() -> None:
        opened.append(sum(task.is_begun for task in restore.tasks))
        files.append(open_files() - files_before)
        threads.append(native_threads() - threads_before)

    promises.run(look)
    assert max(opened) == TASKS_OPEN_MAX
    assert max(files) < 25 * TASKS_OPEN_MAX
    assert max(threads) < 20
    expected = site.in_order(tmp_path / "in-order")
    assert site.content(tmp_path / "early") == expected
    assert wrong(site, expected, promises.answers) == []
    assert promises.broken == []


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def native_threads() -> int:
    """Of this process, RocksDB's among them."""
    return len(os.listdir("/proc/self/task"))
