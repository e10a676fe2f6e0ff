"""A restore that reads the newest records first, against the ordinary restore of the same logs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.image_selection import images_of
from stateflow.checkpoint.locations import open_objects
from stateflow.errors import ChangelogTrimmed, ConfigError, Interrupted, StateLocked
from stateflow.failpoints import handled
from stateflow.scale.early.asks import Answer, Ask
from stateflow.scale.early.files import ranges_on_disk
from stateflow.scale.early.restore import Watchers
from stateflow.state.decoding import StoreDecoder
from stateflow.store.directory import RANGES_FOLDER
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from tests.unit.scale.early_site import KEYS, PARTITIONS, Content, EarlySite, run_with

pytestmark = pytest.mark.slow

STORES = ("totals", "hourly", "recent")


def wrong(site: EarlySite, restored: dict[str, Content], answers: list[Answer]) -> list[Answer]:
    """The answers that are not what the restored stores hold."""
    stores = {task: MemoryTaskStores(STORES) for task in restored}
    for task, content in restored.items():
        stores[task].apply({name: rows for name, (_, rows) in content.items()}, {})
    found = []
    for answer in answers:
        decoder = StoreDecoder(site.catalog.stores[answer.store])
        held = (task.reader(answer.store) for task in stores.values())
        rows = [row for reader in held for row in decoder.rows_of(reader, answer.key.encode())]
        if rows != list(answer.rows):
            found.append(answer)
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ending", ["committed", "torn"])
def test_the_result_and_every_answer_are_those_of_a_restore_in_order(
    seed: int, ending: str, tmp_path: Path
) -> None:
    site = EarlySite(seed)
    site.commits(40)
    site.commit(seed % PARTITIONS, how=ending)
    expected = site.in_order(tmp_path / "in-order")
    restore, rng, asks = site.early(tmp_path / "early"), random.Random(seed), list[Ask]()

    def ask() -> None:
        if len(asks) < 60 and not restore.is_whole:
            asks.append(restore.ask(rng.choice(STORES), rng.choice([*KEYS, "never-written"])))

    ask()
    outcomes = run_with(restore, ask)
    assert site.content(tmp_path / "early") == expected
    assert len(asks) > 10
    assert [ask.answer.key for ask in asks if ask.answer] == [ask.key for ask in asks], "all are answered"
    assert wrong(site, expected, [ask.answer for ask in asks if ask.answer]) == []
    assert sum(outcome.progress.slots_done for outcome in outcomes) == restore.progress.slots_total
    assert not [*(tmp_path / "early").rglob(RANGES_FOLDER)], "nothing stays behind"


def test_a_key_of_the_newest_range_is_answered_when_little_is_read(tmp_path: Path) -> None:
    site = EarlySite(1)
    site.commits(60)
    restore, read = site.early(tmp_path), dict[str, float]()
    newest = [key for key in KEYS if site.routing.partition_of(key.encode()) == 0]
    for key in newest:
        restore.ask("totals", key)
    restore.run(Watchers(on_answer=lambda answer: read.update({answer.key: restore.progress.fraction})))
    assert len(read) == len(newest)
    assert min(read.values()) < 0.1, "the first are answered long before the end"
    assert max(read.values()) < 0.5, "what is asked for is read first: nothing else is read for it"


def test_a_bound_counts_what_may_have_to_be_read(tmp_path: Path) -> None:
    site = EarlySite(2)
    site.commits(40)
    restore = site.early(tmp_path)
    value, windows = restore.ask("totals", KEYS[0]), restore.ask("hourly", KEYS[0])
    slots = {
        plan.store: plan.offsets.slots
        for outcome in restore.run()
        for plan in outcome.plan.stores
        if outcome.plan.task == f"by-key-{site.routing.partition_of(KEYS[0].encode())}"
    }
    assert value.bound is not None
    assert (value.bound.slots, value.bound.image_bytes) == (slots["totals"], 0)
    assert windows.bound is not None
    assert windows.bound.slots == sum(slots.values()), "its windows may stand anywhere in the log"


class Killed(BaseException):
    """SIGKILL: nothing of the program's own runs after it."""


POINTS = ["early.before_note", "early.after_note", "restore.within_clear"]
POINTS += ["restore.before_ingest", "restore.after_ingest", "early.before_flush", "early.after_flush"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("grows", [False, True])
def test_one_that_was_killed_resumes_with_the_ranges_that_it_had(
    point: str, hit: int, grows: bool, tmp_path: Path
) -> None:
    site, reached = EarlySite(7), list[str]()
    site.commits(40)

    def strike(at: str) -> None:
        reached.append(at)
        if reached.count(point) >= hit:
            raise Killed

    with handled(strike), pytest.raises(Killed):
        site.early(tmp_path / "early").run()
    notes = [read for job in site.jobs(tmp_path / "early") for read in ranges_on_disk(job.directory.ranges)]
    had = sum(read.offsets.slots for read in notes)
    if grows:
        site.commits(10)
    expected = site.in_order(tmp_path / "in-order")
    seen: list[int] = []
    again = site.early(tmp_path / "early")
    run_with(again, lambda: seen.append(again.progress.slots_done))
    assert site.content(tmp_path / "early") == expected
    if "flush" not in point and not grows:
        assert seen[0] >= had, "no range is read twice"


def test_ctrl_c_keeps_what_was_read(tmp_path: Path) -> None:
    site, turns = EarlySite(3), list[int]()
    site.commits(40)
    restore = site.early(tmp_path / "early")
    asked = restore.ask("totals", "never-written")
    with pytest.raises(Interrupted):
        restore.run(Watchers(report=lambda _: turns.append(1), cancelled=lambda: len(turns) == 5))
    assert asked.is_over
    assert asked.answer is None
    again = site.early(tmp_path / "early")
    seen: list[int] = []
    run_with(again, lambda: seen.append(again.progress.slots_done))
    assert seen[0] > 200, "it begins with what the first attempt has read"
    assert site.content(tmp_path / "early") == site.in_order(tmp_path / "in-order")


def test_what_was_read_too_long_ago_is_read_again(tmp_path: Path) -> None:
    """The log may have dropped deletions that were written since."""
    site, turns = EarlySite(4), list[int]()
    site.commits(40)
    with pytest.raises(Interrupted):
        site.early(tmp_path / "early").run(
            Watchers(report=lambda _: turns.append(1), cancelled=lambda: len(turns) == 5)
        )
    site.clock.advance(ms=200 * 3_600_000)
    site.commits(1)
    again = site.early(tmp_path / "early")
    seen: list[int] = []
    run_with(again, lambda: seen.append(again.progress.slots_done))
    assert seen[0] < 200
    assert site.content(tmp_path / "early") == site.in_order(tmp_path / "in-order")


@pytest.mark.parametrize("where", ["local", "image"])
@pytest.mark.parametrize("seed", range(4))
def test_onto_what_is_held_already_only_the_tail_is_read(where: str, seed: int, tmp_path: Path) -> None:
    site = EarlySite(seed)
    site.commits(40)
    for folder in ("early", "in-order") if where == "local" else ("first",):
        site.in_order(tmp_path / folder)
    images = None if where == "local" else str(tmp_path / "images")
    if images is not None:
        for job in site.jobs(tmp_path / "first", images):
            stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources(), site.clock)
            create_image(
                stores, images_of(job, open_objects(images), site.clock), job.changelogs, job.topic_ids, {}
            )
            stores.close()
    site.commits(6)
    restore = site.early(tmp_path / "early", images)
    asks = [restore.ask("totals", key) for key in KEYS]
    outcomes = restore.run()
    assert {plan.action for outcome in outcomes for plan in outcome.plan.stores} == {"tail"}
    assert all((outcome.image is not None) == (where == "image") for outcome in outcomes)
    expected = site.in_order(tmp_path / "in-order", images)
    assert site.content(tmp_path / "early") == expected
    answers = [ask.answer for ask in asks if ask.answer]
    assert len(answers) == len(KEYS)
    assert {answer.source for answer in answers} <= {"range", where, "restored", "nothing"}
    assert {"range", where} <= {answer.source for answer in answers}
    assert wrong(site, expected, answers) == []


def test_where_nothing_is_to_be_read_keys_are_answered(tmp_path: Path) -> None:
    site = EarlySite(5)
    site.commits(10)
    expected = site.in_order(tmp_path)
    restore = site.early(tmp_path)
    asked = restore.ask("recent", KEYS[1])
    restore.run()
    assert asked.answer is not None
    assert wrong(site, expected, [asked.answer]) == []


def test_several_lanes_and_a_memory_that_is_small(tmp_path: Path) -> None:
    site = EarlySite(6)
    site.commits(50)
    restore = site.early(tmp_path / "early", lanes=3)
    restore.run()
    assert site.content(tmp_path / "early") == site.in_order(tmp_path / "in-order")


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    site = EarlySite(8)
    restore = site.early(tmp_path)
    with pytest.raises(ConfigError, match="no store 'others'"):
        restore.ask("others", "a")


def test_a_task_that_a_worker_has_is_refused(tmp_path: Path) -> None:
    site = EarlySite(9)
    site.commits(3)
    job = site.jobs(tmp_path)[1]
    stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
    with pytest.raises(StateLocked):
        site.early(tmp_path).run()
    stores.close()
    site.early(tmp_path).run()
    assert site.content(tmp_path) == site.in_order(tmp_path / "in-order")


def test_whoever_opens_the_task_otherwise_drops_the_ranges(tmp_path: Path) -> None:
    site, turns = EarlySite(10), list[int]()
    site.commits(40)
    with pytest.raises(Interrupted):
        site.early(tmp_path / "early").run(
            Watchers(report=lambda _: turns.append(1), cancelled=lambda: len(turns) == 5)
        )
    assert [*(tmp_path / "early").rglob("*.sst")]
    expected = site.in_order(tmp_path / "in-order")
    assert site.in_order(tmp_path / "early") == expected
    assert not [*(tmp_path / "early").rglob(RANGES_FOLDER)]


def test_a_log_that_lost_its_beginning_is_refused_without_an_image(tmp_path: Path) -> None:
    site, turns = EarlySite(11), list[int]()
    site.commits(40)
    restore = site.early(tmp_path)
    log = site.jobs(tmp_path)[0].changelogs["totals"]
    site.cluster.alter_topic_config(log.topic, {"cleanup.policy": "compact,delete"})

    def trim() -> None:
        turns.append(1)
        if len(turns) == 2:
            site.cluster.trim({log: 20})

    with pytest.raises(ChangelogTrimmed):
        run_with(restore, trim)
