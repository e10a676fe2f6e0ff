"""Changelogs deleted before images, by the real worker: what stays is enough for any restore that was promised."""

from __future__ import annotations

import contextlib
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.changelog.commit_record import COMMIT_KEY
from stateflow.checkpoint.jobs import jobs_of
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.recovery import run_job
from stateflow.checkpoint.tails import read_tails
from stateflow.config import Guarantee
from stateflow.errors import ChangelogTrimmed
from stateflow.failpoints import POINTS, handled
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.snapshots.trim_policy import TRIMMED_CONFIG
from stateflow.store.resources import RocksResources
from tests.sim.counting import APP, STORE
from tests.sim.crashing import Crash
from tests.sim.imaged import TASKS, WORDS, Machine

pytestmark = pytest.mark.slow

TOPIC = f"{APP}-{STORE}-changelog"
CHANGELOGS = [TopicPartition(TOPIC, number) for number in range(2)]
MORE = b"whether tis nobler in the mind to suffer".split()


def logs(machine: Machine) -> list[OffsetRange]:
    ranges = machine.cluster.ranges(CHANGELOGS)
    return [ranges[changelog] for changelog in CHANGELOGS]


def positions(machine: Machine, task: int) -> list[int]:
    """How far the images of a task reach, newest first."""
    images = machine.images(TASKS[task])
    return [images.load(name).stores[STORE].offset_next for name in images.names()]


def is_trimmed(machine: Machine) -> bool:
    return all(log.offset_first > 0 for log in logs(machine))


def trimmed(folder: Path, guarantee: Guarantee = "exactly-once") -> Machine:
    """A machine that has made two images of each task and deleted what no image needs."""
    machine = Machine(folder, trim=True, guarantee=guarantee)
    machine.feed(WORDS)
    machine.run(machine.have_images(1))
    machine.clock.advance(seconds=600)
    machine.feed(MORE)
    machine.run(lambda: is_trimmed(machine))
    return machine


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_the_log_is_deleted_before_the_older_of_two_images_and_both_can_be_begun_with(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    machine = trimmed(tmp_path, guarantee)
    for number, log in enumerate(logs(machine)):
        newest, oldest = positions(machine, number)
        assert 0 < log.offset_first <= oldest < newest <= log.offset_next
    machine.feed(MORE)
    machine.run()
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed
    for task in TASKS:  # the newest is lost as well
        images = machine.images(task)
        DirectoryObjects(machine.place).delete(images.names()[0])
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed


def test_one_image_is_not_enough_for_a_promise_of_two(tmp_path: Path) -> None:
    machine = Machine(tmp_path, trim=True)
    machine.feed(WORDS)
    machine.run(machine.have_images(1))
    machine.run()
    assert not any(log.offset_first for log in logs(machine))


def test_the_last_commit_is_found_also_when_nothing_was_committed_since(tmp_path: Path) -> None:
    machine = trimmed(tmp_path)
    changelogs = dict(zip(TASKS, CHANGELOGS, strict=True))
    tails = read_tails(machine.cluster, changelogs)
    for task, changelog in changelogs.items():
        last = tails[task].last
        assert last is not None
        images = machine.images(task)
        held = images.load(images.names()[-1]).stores[STORE].offset_next
        records = [
            (offset, key)
            for batch in read_range(machine.cluster, changelog, logs(machine)[changelog.partition])
            for offset, key in zip(batch.offsets, batch.keys, strict=True)
        ]
        first_offset, first_key = records[0]
        assert first_key == COMMIT_KEY, "the log begins with a commit record"
        assert first_offset < held
    machine.lose()
    machine.feed(MORE)
    machine.run()
    after = read_tails(machine.cluster, changelogs)
    for task in TASKS:
        before, now = tails[task].last, after[task].last
        assert before is not None
        assert now is not None
        assert (now.sequence, now.owner) > (before.sequence, before.owner), "they only rise"
    assert machine.state() == machine.fed


def test_a_damaged_image_is_passed_over_to_the_one_before_it(tmp_path: Path) -> None:
    machine = trimmed(tmp_path)
    for task in TASKS:
        newest = machine.images(task).names()[0]
        DirectoryObjects(machine.place).put(newest, io.BytesIO(b"{"))
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed


def test_without_any_image_a_start_is_an_error_and_not_an_empty_state(tmp_path: Path) -> None:
    machine = trimmed(tmp_path)
    shutil.rmtree(machine.place)
    machine.lose()
    with pytest.raises(ChangelogTrimmed, match="There is no image of this task") as caught:
        machine.run()
    assert "checkpoint list" in caught.value.action
    machine.settings = replace(machine.settings, images=None, trim=False)
    machine.prepare()
    with pytest.raises(ChangelogTrimmed):
        machine.run()


def test_an_upload_that_was_damaged_on_its_way_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Bitrot(DirectoryObjects):
        """Changes one byte of what it stores."""

        def put(self, name: str, source: io.BytesIO) -> None:  # type: ignore[override]
            content = bytearray(source.read())
            if "/files/" in name:
                content[-1] ^= 1
            super().put(name, io.BytesIO(bytes(content)))

    machine = Machine(tmp_path, trim=True)
    machine.feed(WORDS)
    bad = Bitrot(machine.place)
    machine.run(machine.have_images(1), bad)
    machine.clock.advance(seconds=600)
    machine.feed(MORE)
    machine.run(lambda: caplog.text.count("damaged") >= 2, bad)
    assert not any(log.offset_first for log in logs(machine))
    assert "an image is not safe, nothing is deleted for it" in caplog.text
    assert "damaged" in caplog.text
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed, "the log from its beginning is still there"


def test_local_state_that_reaches_so_far_needs_no_image(tmp_path: Path) -> None:
    machine = trimmed(tmp_path)
    shutil.rmtree(machine.place)
    machine.feed(MORE)
    machine.run()
    assert machine.state() == machine.fed


class TrimmedMeanwhile:
    """The machine's cluster, whose changelogs are deleted before images while somebody reads them."""

    def __init__(self, machine: Machine, trim_to: dict[TopicPartition, int]) -> None:
        self._real = machine.cluster
        self._trim_to = trim_to
        self.happened = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def reader(self, *, follows: bool = False) -> object:
        if self._trim_to:
            self._real.trim(self._trim_to)
            self._trim_to, self.happened = {}, self.happened + 1
        return self._real.reader(follows=follows)


def test_a_restore_whose_log_is_trimmed_meanwhile_begins_anew_with_an_image(tmp_path: Path) -> None:
    machine = Machine(tmp_path, trim=True)
    machine.feed(WORDS)
    machine.run(machine.have_images(1))
    stale = tmp_path / "stale"
    shutil.copytree(machine.settings.state_dir, stale)
    machine.settings = replace(machine.settings, trim=False)
    machine.feed(WORDS)
    machine.clock.advance(seconds=600)
    machine.run(machine.have_images(2))
    newest = {changelog: positions(machine, task)[0] for task, changelog in enumerate(CHANGELOGS)}
    trimmed = TrimmedMeanwhile(machine, newest)
    catalog = ControlTopic(machine.cluster, APP).load()
    for job in jobs_of(catalog, machine.cluster.cluster_id, stale):
        outcome = run_job(
            trimmed,  # type: ignore[arg-type]  # a memory cluster that trims
            job,
            RocksResources(),
            lambda progress: None,
            lambda: False,
            machine.clock,
        )
        assert outcome.image is not None
    assert trimmed.happened == 1
    machine.settings = replace(machine.settings, state_dir=stale)
    assert machine.state() == machine.fed


@pytest.mark.parametrize(
    "point", [name for name in POINTS if name.partition(".")[0] in ("image", "trim", "collect")]
)
def test_a_machine_lost_at_any_step_of_imaging_and_trimming_loses_nothing(tmp_path: Path, point: str) -> None:
    machine = trimmed(tmp_path)
    machine.settings = replace(machine.settings, state_dir=tmp_path / "first")
    lost: list[str] = []
    tidied: list[str] = []

    def strike(name: str) -> None:
        if name == point or lost:
            lost.append(name)
            raise Crash(name)
        if name == "image.before_discard":  # the last step: the upload, the trim and the collection are over
            tidied.append(name)

    for _ in range(3):  # images are collected once there are more than are kept
        machine.clock.advance(seconds=3_700)
        machine.feed(MORE)
        tidied.clear()
        with handled(strike), contextlib.suppress(Crash):  # the process is gone
            machine.run(lambda: bool(lost) or len(tidied) >= len(TASKS))
        if lost:
            break
    assert lost, f"{point} was never reached"
    machine.settings = replace(machine.settings, state_dir=tmp_path / "second")
    machine.feed(MORE)
    machine.run()
    assert machine.state() == machine.fed


# --- the policy in the catalog and on the topics -------------------------------------------------------


def test_switching_it_on_sets_the_topics_and_says_so_in_the_catalog(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.feed(WORDS)
    machine.run()
    assert machine.cluster.topic_config(TOPIC)["cleanup.policy"] == "compact"
    machine.cluster.alter_topic_config(TOPIC, {"delete.retention.ms": "5000"})
    machine.settings = replace(machine.settings, trim=True)
    machine.prepare()
    config = machine.cluster.topic_config(TOPIC)
    assert {name: config[name] for name in TRIMMED_CONFIG} == TRIMMED_CONFIG
    trim = machine.wiring.catalog.app.trim
    assert trim is not None
    assert trim.enabled
    assert trim.images == str(machine.place.resolve())
    assert (trim.since_ms, trim.tombstones_before_ms) == (machine.clock.now_ms(), 5000)
    machine.clock.advance(seconds=60)
    machine.prepare()
    assert machine.wiring.catalog.app.trim == trim, "the time stays that of the first start"


def test_switching_it_off_keeps_what_restores_need_to_know(tmp_path: Path) -> None:
    machine = trimmed(tmp_path)
    was = machine.wiring.catalog.app.trim
    assert was is not None
    machine.settings = replace(machine.settings, trim=False, images=None)
    machine.prepare()
    now = machine.wiring.catalog.app.trim
    assert now is not None
    assert (now.enabled, now.images, now.since_ms) == (False, was.images, was.since_ms)
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed, "the images are found by the catalog"


def test_a_retention_that_somebody_set_is_taken_back(tmp_path: Path) -> None:
    machine = trimmed(tmp_path)
    machine.cluster.alter_topic_config(TOPIC, {"retention.ms": "86400000"})
    machine.prepare()
    assert machine.cluster.topic_config(TOPIC)["retention.ms"] == "-1"
