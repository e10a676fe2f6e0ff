"""Repartition from beginning to end on the memory cluster: what it keeps, and what it records."""

from __future__ import annotations

import pytest

from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.clock import ManualClock
from stateflow.lab.applications.written import STEP, STORES, WrittenApp
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale import progress
from stateflow.scale.engine import InProcess
from stateflow.scale.plan import make_plan
from stateflow.scale.progress import Progress
from stateflow.scale.start import start
from tests.counting_cluster import CountingCluster
from tests.sim.repartitioned import assert_everything_kept, run, written

CHANGES = [
    pytest.param(RoutingTable.modulo(4), RoutingTable.modulo(6), id="4-to-6"),
    pytest.param(RoutingTable.modulo(6), RoutingTable.modulo(3), id="6-to-3"),
    pytest.param(RoutingTable.modulo(3), RoutingTable.modulo(1), id="3-to-1"),
    pytest.param(RoutingTable.modulo(4), RoutingTable.even_ranges(4), id="modulo-to-ranges"),
    pytest.param(RoutingTable.even_ranges(4), RoutingTable.even_ranges(4).split(1), id="split"),
    pytest.param(RoutingTable.even_ranges(4), RoutingTable.even_ranges(4).merge(0, 2), id="merge"),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_everything_is_kept_and_audited(
    cluster: MemoryCluster, before: RoutingTable, after: RoutingTable
) -> None:
    app = written(cluster, before)

    outcome = run(cluster, after.entry())

    assert_everything_kept(app, 1, after)
    assert (outcome.partitions_from, outcome.partitions_to) == (before.partitions, after.partitions)
    assert outcome.keys_total == sum(len(state) for state in app.expected.values())
    assert outcome.unread_total == 51
    assert len(outcome.audit) == (len(STORES) + 1) * after.partitions
    assert all(row.equal for row in outcome.audit)
    catalog = generations.load_catalog(cluster, "shop")
    assert catalog.active.generation == 1
    assert catalog.active.routing == after.entry()
    assert catalog.active.audit == outcome.audit
    assert catalog.generations[0].state == "retired"


def test_tasks_begin_where_the_slowest_task_before_them_was(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry())
    positions = app.positions(1)
    assert set(positions) == set(range(6))
    for position in positions.values():
        assert (list(position.offsets.values()), position.event_time.reached_ms) == ([0], 100)
    assert {at: held.offset_next for at, held in app.committed_inputs(1).items()} == dict.fromkeys(
        range(6), 0
    )


def test_new_topics_have_the_settings_of_the_old_ones_and_their_ids_are_recorded(
    cluster: MemoryCluster,
) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    cluster.alter_topic_config(changelog_topic("shop", "totals"), {"min.cleanable.dirty.ratio": "0.17"})
    run(cluster, RoutingTable.modulo(6).entry())
    topics = [changelog_topic("shop", store.name, 1) for store in STORES] + [
        repartition_topic("shop", STEP, 1)
    ]
    found = cluster.describe(topics)
    assert {info.partitions for info in found.values()} == {6}
    recorded = generations.load_catalog(cluster, "shop").active.topic_ids
    assert recorded == {name: info.topic_id for name, info in found.items()}
    for topic in topics:
        assert cluster.topic_config(topic) == cluster.topic_config(topic.removesuffix("-g1"))
    assert cluster.topic_config(topics[0])["min.cleanable.dirty.ratio"] == "0.17"
    assert app.found_state("totals", 0), "the old generation is still there"


def test_a_task_without_committed_input_makes_nothing_late(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(2))
    other = WrittenApp(cluster, "other", RoutingTable.modulo(2))
    other.create()
    other.write_unread([(b"a", b"1", 10), (b"b", b"2", 20)])
    start(cluster, "other", RoutingTable.modulo(3).entry(), InProcess(cluster), ManualClock())
    assert sum(len(records) for records in other.found_unread(1).values()) == 2
    reached = [position.event_time.reached_ms for position in other.positions(1).values()]
    assert reached == [-1, -1, -1]
    assert app.app != other.app


def test_one_change_after_another(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry())
    run(cluster, RoutingTable.modulo(3).entry())
    assert_everything_kept(app, 2, RoutingTable.modulo(3))
    states = {n: entry.state for n, entry in generations.load_catalog(cluster, "shop").generations.items()}
    assert states == {0: "retired", 1: "retired", 2: "active"}


def test_several_lanes_do_the_same(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry(), engine=InProcess(cluster, lanes=3))
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_at_least_once_applications_are_moved_too(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4), guarantee="at-least-once")
    run(cluster, RoutingTable.modulo(6).entry())
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_the_plan_names_what_moves_and_changes_nothing(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    topics = cluster.list_topics()
    catalog = generations.load_catalog(cluster, "shop")
    plan = make_plan(cluster, catalog, RoutingTable.modulo(6).entry(), lanes=2, count_keys=True)
    assert (plan.generation_from, plan.generation_to, plan.resumes) == (0, 1, False)
    assert len(plan.partitions) == 4 * (len(STORES) + 1)
    keys = dict.fromkeys([*app.expected, f"{STEP}-repartition"], 0)
    for row in plan.partitions:
        assert row.keys is not None
        keys[row.name] += row.keys
    assert keys == {**{store: len(state) for store, state in app.expected.items()}, f"{STEP}-repartition": 51}
    assert plan.slots_total >= 900
    assert plan.bytes_total > 5_000
    assert 0 < plan.prediction.total.low < plan.prediction.total.high
    jobs = len(plan.partitions) + len(STORES)  # each partition is read whole, each store is one slice
    assert (plan.work.moves, plan.work.slots) == (jobs, plan.slots_total)
    assert plan.work.audits == 2 * jobs
    assert cluster.list_topics() == topics


def test_a_move_of_less_than_a_second_is_not_worth_a_bar(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(cluster, RoutingTable.modulo(4))
    seen: list[Progress] = []
    engine = InProcess(cluster)
    start(cluster, "shop", RoutingTable.modulo(6).entry(), engine, ManualClock(), on_progress=seen.append)
    assert all(row.seconds >= 1 for row in seen)
    monkeypatch.setattr(progress, "WORTH_SHOWING_SECONDS", 0.0)
    start(cluster, "shop", RoutingTable.modulo(4).entry(), engine, ManualClock(), on_progress=seen.append)
    moved = [row for row in seen if row.step == "moving"]
    assert moved[-1].slots_done == moved[-1].slots_total > 300
    assert moved[-1].records_written_total > 100
    assert seen[-1].slots_done == seen[-1].slots_total > 300
    assert seen[-1].eta_seconds == 0.0


# --- refusals -------------------------------------------------------------------------------------------


# --- predictions ----------------------------------------------------------------------------------------


def test_a_run_is_experience_for_the_next_prediction(cluster: MemoryCluster) -> None:
    written(cluster, RoutingTable.modulo(4))
    clock, engine = ManualClock(), InProcess(cluster)
    outcome = start(
        cluster, "shop", RoutingTable.modulo(6).entry(), engine, clock, seconds_starting=5.0, past=()
    )
    run_made = outcome.run(clock)
    assert "general figures" in outcome.prediction.rests_on
    assert outcome.seconds_total > 5.0
    assert run_made.seconds["starting"] == 5.0
    assert sum(run_made.seconds.values()) == pytest.approx(outcome.seconds_total, abs=0.01)
    assert run_made.work == outcome.work
    catalog = generations.load_catalog(cluster, "shop")
    plan = make_plan(cluster, catalog, RoutingTable.modulo(4).entry(), lanes=1, past=[run_made])
    assert plan.prediction.rests_on == "the last repartition of shop on this machine"


def test_a_long_log_is_probed_where_nothing_is_known(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    app.write_state("totals", [(f"key-{number % 50}".encode(), b"value") for number in range(30_000)])
    catalog = generations.load_catalog(cluster, "shop")
    routing = RoutingTable.modulo(6).entry()
    assert "a probe just now" in make_plan(cluster, catalog, routing, lanes=1).prediction.rests_on


def test_readers_are_used_again_and_tasks_are_fenced_without_a_client(cluster: MemoryCluster) -> None:
    """Of 108 clients that a small change made, 77 were readers of short ranges and 12 producers that wrote nothing."""
    written(cluster, RoutingTable.modulo(8))
    counting = CountingCluster(cluster)
    run(counting, RoutingTable.modulo(9).entry())
    assert counting.readers <= 4 + 8, (
        "one for each round of jobs, and those of the lanes that read last commits"
    )
    assert not [name for name in counting.writers if name is None or name.startswith("shop-0-")]
