"""Recovery by sub-ranges against a restore in order: the same content, byte for byte."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.checkpoint.image_selection import install_best
from stateflow.checkpoint.jobs import RestoreJob, jobs_of
from stateflow.checkpoint.recovery import run_job
from stateflow.checkpoint.runs import Merged, MergeJob, Scratch, merge_runs
from stateflow.checkpoint.sub_ranges import sub_ranges
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, Interrupted, StateLocked
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import Cluster
from stateflow.log.memory import MemoryCluster
from stateflow.record import OffsetRange
from stateflow.routing import RoutingTable
from stateflow.scale import progress as progress_module
from stateflow.scale import recover as recover_module
from stateflow.scale.engine import InProcess
from stateflow.scale.progress import Progress
from stateflow.scale.recover import Recovered, RecoverSettings, recover
from stateflow.state.layout import window_key
from stateflow.store.base import StorePosition
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

pytestmark = pytest.mark.slow

CLOCK = SystemClock()
SMALL = RecoverSettings(slots_min=50, bytes_max=20_000)
Content = dict[str, tuple[StorePosition | None, list[tuple[bytes, bytes]]]]


@pytest.fixture
def app() -> Iterator[WrittenApp]:
    cluster = MemoryCluster()
    made = WrittenApp(cluster, "shop", RoutingTable.modulo(2))
    made.create()
    rng = random.Random(3)
    keys = [b"key-%d" % number for number in range(120)]
    # Deletions in later sub-ranges must shadow what earlier ones say, and writes behind them win again.
    made.write_state(
        "totals", [(rng.choice(keys), None if rng.random() < 0.3 else b"%d" % n) for n in range(2000)]
    )
    made.write_state(
        "hourly", [(window_key(rng.choice(keys), rng.randrange(4) * 3_600_000), b"w") for _ in range(400)]
    )
    made.commit_inputs({0: 7, 1: 9})
    yield made
    cluster.close()


def recovered(app: WrittenApp, folder: Path, lanes: int = 1, **where: object) -> Recovered:
    catalog = ControlTopic(app.cluster, "shop").load()
    return recover(
        app.cluster,
        catalog,
        InProcess(app.cluster, lanes),
        CLOCK,
        scratch=str(folder / "scratch"),
        settings=SMALL,
        **where,  # type: ignore[arg-type]
    )


def jobs(app: WrittenApp, state_dir: Path) -> list[RestoreJob]:
    return jobs_of(ControlTopic(app.cluster, "shop").load(), app.cluster.cluster_id, state_dir)


def replayed(app: WrittenApp, folder: Path) -> dict[str, Content]:
    """Every task restored in order, in the ordinary way."""
    found = {}
    for job in jobs(app, folder / "replayed"):
        run_job(app.cluster, job, RocksResources(), lambda _: None, lambda: False, CLOCK)
        found[job.task] = content(job)
    return found


def content(job: RestoreJob) -> Content:
    stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
    try:
        return {
            name: (stores.position(name), [*stores.reader(name).scan()]) for name in sorted(job.changelogs)
        }
    finally:
        stores.close()


@pytest.mark.parametrize("lanes", [1, 3])
def test_in_place_it_equals_a_replay_in_order(app: WrittenApp, tmp_path: Path, lanes: int) -> None:
    done = recovered(app, tmp_path, lanes, state_dir=tmp_path / "state")
    expected = replayed(app, tmp_path)
    assert {job.task: content(job) for job in jobs(app, tmp_path / "state")} == expected
    assert sum(len(rows) for task in expected.values() for _, rows in task.values()) > 200
    assert done.tasks == 2
    assert done.ranges >= (2 if lanes == 1 else 4) * done.tasks, "each log is read in several parts"
    assert done.records_total >= 2400
    assert [*(tmp_path / "scratch").rglob("*.sst")] == [], "nothing stays behind"


def test_an_image_of_it_is_what_a_worker_begins_with(app: WrittenApp, tmp_path: Path) -> None:
    place = str(tmp_path / "images")
    done = recovered(app, tmp_path, images=place)
    assert done.images.keys() == {job.task for job in jobs(app, tmp_path)}
    expected = replayed(app, tmp_path)
    for job in jobs(app, tmp_path / "fresh"):
        image = install_best(app.cluster, job, place, CLOCK, lambda: False)
        assert image is not None
        assert image.name == done.images[job.task]
        assert content(job) == expected[job.task]


def test_what_was_there_before_is_replaced(app: WrittenApp, tmp_path: Path) -> None:
    (job, _) = jobs(app, tmp_path / "state")
    stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
    stores.apply({"totals": [(b"of another life", b"1")]}, {"totals": StorePosition("other topic", 1)})
    with pytest.raises(StateLocked):  # as a worker has it open
        recovered(app, tmp_path, state_dir=tmp_path / "state")
    stores.close()
    recovered(app, tmp_path, state_dir=tmp_path / "state")
    assert {job.task: content(job) for job in jobs(app, tmp_path / "state")} == replayed(app, tmp_path)


def test_only_some_partitions(app: WrittenApp, tmp_path: Path) -> None:
    done = recovered(app, tmp_path, state_dir=tmp_path / "state", partitions=[1])
    assert done.tasks == 1
    assert content(jobs(app, tmp_path / "state")[1]) == replayed(app, tmp_path)["by-key-1"]


def test_it_says_how_much_is_read(app: WrittenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "WORTH_SHOWING_SECONDS", 0.0)
    told: list[Progress] = []
    done = recovered(app, tmp_path, state_dir=tmp_path / "state", on_progress=told.append)
    assert (told[-1].step, told[-1].records_read_total) == ("reading", done.records_total)
    assert told[-1].slots_done == told[-1].slots_total == done.slots_total


def test_where_to_is_asked_for(app: WrittenApp, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        recovered(app, tmp_path)


def test_sub_ranges_are_the_whole_without_gaps() -> None:
    for slots in (1, 7, 99, 100, 101, 1000):
        parts = sub_ranges(OffsetRange(5, 5 + slots), 100)
        assert [part.offset_first for part in parts[1:]] == [part.offset_next for part in parts[:-1]]
        assert (parts[0].offset_first, parts[-1].offset_next) == (5, 5 + slots)
        assert max(part.slots for part in parts) <= 100
    assert sub_ranges(OffsetRange(5, 5), 100) == [OffsetRange(5, 5)]


class Killed(BaseException):
    """SIGKILL: nothing of the program's own runs after it."""


@pytest.mark.parametrize("partitions", [(), (1,)])
def test_what_a_killed_one_left_goes_with_the_next_start(
    app: WrittenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: tuple[int, ...]
) -> None:
    def killed(cluster: Cluster, merge: MergeJob) -> Merged:
        raise Killed

    def in_place() -> Recovered:
        return recovered(app, tmp_path, state_dir=tmp_path / "state", partitions=partitions)

    with monkeypatch.context() as patch:
        patch.setattr(recover_module, "merge_runs", killed)
        patch.setattr(Scratch, "remove", lambda _: None)
        with pytest.raises(Killed):
            in_place()
    left = {*(tmp_path / "scratch").rglob("*.sst")}
    assert left
    beside = tmp_path / "scratch" / "shop" / "recovery" / "0-7" / "of-another" / "run.sst"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"at work")
    in_place()
    assert {*(tmp_path / "scratch").rglob("*.sst")} == {beside}, "one of other partitions may be at work"
    os.utime(beside, (1, 1))
    in_place()
    assert not beside.exists(), "a day later it is not"
    expected = replayed(app, tmp_path)
    found = {job.task: content(job) for job in jobs(app, tmp_path / "state") if job.directory.path.exists()}
    assert found == {task: expected[task] for task in found}
    assert len(found) == (1 if partitions else 2)


def test_one_that_was_not_dead_after_all_ends_when_another_is_started(
    app: WrittenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merged_late(cluster: Cluster, merge: MergeJob) -> Merged:
        monkeypatch.setattr(recover_module, "merge_runs", merge_runs)
        recovered(app, tmp_path, state_dir=tmp_path / "of-the-other")
        return merge_runs(cluster, merge)

    monkeypatch.setattr(recover_module, "merge_runs", merged_late)
    with pytest.raises(Interrupted, match="another recovery"):
        recovered(app, tmp_path, state_dir=tmp_path / "state")
    assert {job.task: content(job) for job in jobs(app, tmp_path / "of-the-other")} == replayed(app, tmp_path)
