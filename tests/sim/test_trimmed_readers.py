"""Who reads changelogs from their beginning when that was deleted: an image comes first, or it is an error."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import RoutingEntry
from stateflow.checkpoint.whole import find_base, with_base_slot
from stateflow.errors import ChangelogTrimmed
from stateflow.log.forwarding import ForwardingWriter
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale.audit import AuditJob, audit_partition
from stateflow.scale.engine import InProcess
from stateflow.scale.generation import preparing
from stateflow.scale.last_commits import refuse_trimmed_logs
from stateflow.scale.plan import make_plan
from stateflow.scale.reading import live_state
from stateflow.scale.settings import ScaleSettings
from stateflow.scale.start import start
from tests.sim.counting import APP, STORE, number_of
from tests.sim.crashing import Crash
from tests.sim.imaged import Machine
from tests.sim.test_worker_trim import CHANGELOGS, MORE, logs, trimmed

pytestmark = pytest.mark.slow


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Most keys are in no log any more, and on no disk."""
    machine = trimmed(tmp_path)
    before = logs(machine)
    machine.clock.advance(seconds=600)
    machine.feed(MORE)
    machine.run(
        lambda: all(
            now.offset_first > was.offset_first for now, was in zip(logs(machine), before, strict=True)
        )
    )
    machine.cluster.end_sessions(APP)
    machine.lose()  # only log and images are left
    return machine


def live(machine: Machine, keys_max: int = 1_000) -> dict[bytes, int]:
    catalog = ControlTopic(machine.cluster, APP).load()
    found: dict[bytes, int] = {}
    for source, log in machine.cluster.ranges(CHANGELOGS).items():
        base = find_base(machine.cluster, catalog, STORE, source, log, machine.clock)
        offsets = with_base_slot(log, base)
        for part in live_state(machine.cluster, source, offsets, keys_max=keys_max, base=base):
            assert not found.keys() & part.keys(), "slices do not overlap"
            found |= {key: number_of(value) for key, value in part.items()}
    return found


def live_of(machine: Machine, source: TopicPartition) -> set[bytes]:
    """Words of one partition."""
    routing = RoutingTable.modulo(2)
    return {word for word in machine.fed if routing.partition_of(word) == source.partition}


@pytest.mark.parametrize("keys_max", [1_000, 2])
def test_live_state_is_image_and_log(machine: Machine, keys_max: int) -> None:
    assert live(machine, keys_max) == machine.fed


def repartition(machine: Machine, partitions: int, cluster: Any = None) -> None:
    used = cluster or machine.cluster
    start(
        used,
        APP,
        RoutingEntry(kind="modulo", partitions=partitions),
        InProcess(used),
        machine.clock,
        settings=ScaleSettings(chunk_records_max=3),
    )


def test_a_repartition_begins_with_images_and_loses_nothing(machine: Machine) -> None:
    repartition(machine, 3)
    machine.prepare()
    machine.feed(MORE)
    machine.run()
    assert machine.wiring.generation == 1
    assert machine.state() == machine.fed
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed, "the new changelogs are whole"


class Dying:
    """The cluster of a job that dies at its n-th commit to a changelog."""

    def __init__(self, real: Any, dies_at: int) -> None:
        self._real = real
        self.left = dies_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        real = self._real.writer(transactional_id)
        return DyingWriter(real, self) if "repartition-g1" in (transactional_id or "") else real


class DyingWriter(ForwardingWriter):
    def __init__(self, inner: Any, cluster: Dying) -> None:
        super().__init__(inner)
        self._cluster = cluster

    def commit(self, timeout_seconds: float = 60.0) -> Any:
        self._cluster.left -= 1
        if self._cluster.left < 0:
            raise Crash("within the move")
        return super().commit(timeout_seconds)


def test_a_repartition_killed_anywhere_goes_on_and_loses_nothing(machine: Machine, tmp_path: Path) -> None:
    for dies_at in range(1, 40, 3):
        try:
            repartition(machine, 3, Dying(machine.cluster, dies_at))
        except Crash:
            continue
        break
    else:
        raise AssertionError("it never comes to an end")
    assert dies_at > 4, "it died several times"
    machine.prepare()
    machine.run()
    assert machine.state() == machine.fed


def test_without_a_usable_image_a_repartition_is_refused_before_anything_is_begun(machine: Machine) -> None:
    shutil.rmtree(machine.place)
    with pytest.raises(ChangelogTrimmed, match="there is no image of its task"):
        repartition(machine, 3)
    assert preparing(ControlTopic(machine.cluster, APP).load()) is None


def test_a_plan_counts_what_images_hold(machine: Machine) -> None:
    catalog = ControlTopic(machine.cluster, APP).load()
    plan = make_plan(
        machine.cluster,
        catalog,
        RoutingTable.modulo(3).entry(),
        lanes=1,
        count_keys=True,
        clock=machine.clock,
    )
    assert sum(row.keys or 0 for row in plan.partitions if row.name == STORE) == len(machine.fed)


def test_an_audit_reads_the_image_too_and_refuses_to_go_without(machine: Machine) -> None:
    catalog = ControlTopic(machine.cluster, APP).load()
    source = TopicPartition(CHANGELOGS[0].topic, 0)
    log = machine.cluster.ranges([source])[source]
    base = find_base(machine.cluster, catalog, STORE, source, log, machine.clock)
    assert base is not None
    job = AuditJob(
        store=STORE,
        source=source,
        offsets=with_base_slot(log, base),
        layout="plain",
        routing=catalog.active.routing,
        base=base,
    )
    whole = audit_partition(machine.cluster, job)
    assert whole.tallies[0].keys == sum(key in machine.fed for key in live_of(machine, source))
    with pytest.raises(ChangelogTrimmed):
        audit_partition(machine.cluster, replace(job, offsets=log, base=None))


def test_merging_applications_is_refused(machine: Machine) -> None:
    with pytest.raises(ChangelogTrimmed, match="reads changelogs alone") as caught:
        refuse_trimmed_logs(machine.cluster, ControlTopic(machine.cluster, APP).load())
    assert "scale start" in caught.value.action
