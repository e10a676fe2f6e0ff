"""A count in the native core and one in Python, through the same crashes: the same log and disks, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

import stateflow as sf
from stateflow.catalog.model import Guarantee
from stateflow.changelog.format import is_reserved
from stateflow.log.base import TopicSpec
from stateflow.native.loading import core
from stateflow.store import folded
from stateflow.store.folded import FoldedStore
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(core() is None, reason="the native core is not in use"),
]

SOURCE, STORE, TASKS = "words", "counted", 2
WORDS = b"to be or not to be that is the question to be or".split()


def machine(guarantee: Guarantee) -> OneMachine:
    app = sf.App("counting")
    words = app.stream(app.topic(SOURCE, key=bytes, value=bytes))
    words.key_by(lambda word: word, name="by-word", key=bytes).count(name=STORE)
    world = OneMachine(app.topology(), guarantee, [TopicSpec(SOURCE, 2)], partitions=TASKS)
    world.feed_topic(SOURCE, [(word, index) for index, word in enumerate(WORDS)], partitions=2)
    return world


@contextmanager
def in_python() -> Iterator[None]:
    """Stores made within count in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folded, "_core", lambda: None)
        yield


def live(guarantee: Guarantee, plan: CrashPlan, *, power_cut: bool) -> OneMachine:
    """One life as planned, and another that ends what it left."""
    world = machine(guarantee)
    world.live_through(plan, power_cut=power_cut)
    return world


def changelog(world: OneMachine) -> list[tuple[int, int, int, bytes, bytes | None]]:
    """All of it, commit records included."""
    topics = [name for name in world.cluster.list_topics() if name.endswith("changelog")]
    assert topics, "a count has one"
    return [
        (record.partition, record.offset, record.timestamp_ms, record.key, record.value)
        for topic in topics
        for record in world.read(topic)
    ]


def disks(world: OneMachine) -> dict[str, list[tuple[bytes, bytes]]]:
    counting = {task: disk for task, disk in world.disks.items() if task.startswith("by-word-")}
    assert counting or not world.disks, sorted(world.disks)
    return {task: list(disk.reader(STORE).scan()) for task, disk in counting.items()}


def counted(world: OneMachine) -> dict[bytes, int]:
    return {key: sf.Integer.decode(value) for disk in disks(world).values() for key, value in disk}


@pytest.mark.parametrize(
    ("guarantee", "power_cut"),
    [("exactly-once", True), ("at-least-once", False)],
    ids=["exactly-once-machine", "at-least-once-process"],
)
def test_killed_at_every_write_it_leaves_what_python_leaves(guarantee: Guarantee, power_cut: bool) -> None:
    whole = CrashPlan()
    live(guarantee, whole, power_cut=False)
    assert whole.calls > 40, "a run must consist of many writes, or this test shows little"
    for call in range(1, whole.calls + 1):
        after = bool(call % 2)
        native = live(guarantee, plan := CrashPlan(call, after=after), power_cut=power_cut)
        with in_python():
            plain = live(guarantee, CrashPlan(call, after=after), power_cut=power_cut)
        where = f"killed {plan.died_at}, call {call}"
        assert changelog(native) == changelog(plain), where
        assert disks(native) == disks(plain), where
        if guarantee == "exactly-once":
            assert counted(native) == Counter(WORDS), where


def test_both_are_what_they_are_taken_for() -> None:
    """Else the comparison above would show nothing; and what is logged is what is on disk."""
    kinds = []
    for native in (True, False):
        world = machine("exactly-once")
        with nullcontext() if native else in_python():
            worker = world.worker(CrashPlan())
            world.run_to_the_end(worker)
        stores = [
            task.context.stores[STORE] for task in worker.tasks.values() if STORE in task.context.stores
        ]
        kinds += [isinstance(store, FoldedStore) for store in stores]
        worker.stop()
        worker.run()
        newest = {key: value for _, _, _, key, value in changelog(world) if not is_reserved(key)}
        assert newest == {key: value for disk in disks(world).values() for key, value in disk}
        assert counted(world) == Counter(WORDS)
    assert kinds == [True] * TASKS + [False] * TASKS
