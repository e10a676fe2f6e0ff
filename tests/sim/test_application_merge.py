"""Two applications become one: every type of state is merged, whatever dies on the way, or nothing is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import (
    AuditFailed,
    CatalogIncompatible,
    ConfigError,
    GenerationUnfinished,
    MergeUndefined,
    StateBoundExceeded,
    StillRunning,
)
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.scale import application_merge
from stateflow.scale import generation as generations
from stateflow.scale.application_merge import ApplicationMerge, StoreOverlap, preview, refuse_undefined
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.testing.driver import TestDriver
from tests.sim.every_state import STATES, Command, Model, every_state_app, send_in_order
from tests.sim.test_every_state import COMMANDS, KEYS

BATCH = st.lists(COMMANDS, max_size=25)


class Side:
    """One application and its model."""

    def __init__(self, name: str, partitions: int, beside: TestDriver | None = None) -> None:
        app, self.commands = every_state_app(name)
        self.driver = TestDriver(app, partitions=partitions, beside=beside)
        self.model = Model()

    def change(self, *commands: Command) -> Side:
        send_in_order(self.driver, self.commands, commands)
        for command in commands:
            self.model.change(command)
        return self

    def check(self) -> None:
        for key in KEYS:
            for state in STATES:
                assert self.driver.state("all", state, key=key) == self.model.seen(key, state), (key, state)


def two_sides(ours: int = 3, theirs: int = 2) -> tuple[Side, Side]:
    one = Side("one", ours)
    return one, Side("two", theirs, beside=one.driver)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(BATCH, BATCH, BATCH, st.integers(1, 4), st.integers(1, 4))
def test_both_together_are_what_the_types_say(
    ours: list[Command], theirs: list[Command], later: list[Command], partitions: int, others: int
) -> None:
    one, two = two_sides(partitions, others)
    one.change(*ours)
    two.change(*theirs)
    one.driver.merge(two.driver)
    one.model.merge(two.model)
    one.check()
    one.change(*later)
    one.driver.crash(disk_lost=True)
    one.driver.restore()
    one.check()


ADDS = [Command(key, "counter", "add", [number]) for number, key in enumerate(KEYS, 1)]


def rest(*sides: Side) -> None:
    """Stop the applications and let their memberships end."""
    for side in sides:
        side.driver.stop()
        side.driver.cluster.end_sessions(side.driver._topology.app)


def merge_of_two(one: Side) -> ApplicationMerge:
    return ApplicationMerge("two", one.driver._topology.merges, keys_max=3)


def take_in(one: Side, merge: ApplicationMerge) -> None:
    """The repartition alone, of an application at rest that is not started after it."""
    cluster = one.driver.cluster
    routing = generations.load_catalog(cluster, "one").active.routing
    start(cluster, "one", routing, InProcess(cluster), one.driver.clock, application_merge=merge)


@pytest.mark.parametrize("dies_at", range(0, 20, 3))
def test_an_attempt_that_dies_anywhere_is_finished_by_the_next(
    monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    one, two = two_sides()
    one.change(*ADDS)
    two.change(*ADDS, *ADDS)
    done = 0
    whole = application_merge.merge_partition

    def dying(cluster: Cluster, job: application_merge.MergeJob) -> Any:
        nonlocal done
        result = whole(cluster, job)
        done += 1
        if done == dies_at + 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr("stateflow.scale.start.merge_partition", dying)
    rest(one, two)
    with pytest.raises(KeyboardInterrupt):
        take_in(one, merge_of_two(one))
    monkeypatch.undo()
    assert generations.load_catalog(one.driver.cluster, "one").active.generation == 0
    take_in(one, merge_of_two(one))
    one.driver.restore()
    one.model.merge(two.model)
    one.check()


def test_where_theirs_stopped_ours_may_go_on() -> None:
    one, two = two_sides()
    two.change(*ADDS)
    one.driver.merge(two.driver)
    sources = [TopicPartition("two-commands", partition) for partition in range(2)]
    positions = one.driver.cluster.committed("one", sources)
    assert {source: found.offset_next for source, found in positions.items()} == {
        source: log.offset_next for source, log in one.driver.cluster.ranges(sources).items()
    }


def test_a_second_time_is_refused() -> None:
    one, two = two_sides()
    two.change(*ADDS)
    one.driver.merge(two.driver)
    rest(one)
    with pytest.raises(ConfigError, match="'two' was merged into 'one' already, in generation 1"):
        take_in(one, merge_of_two(one))


def test_what_meets_is_counted_beforehand() -> None:
    one, two = two_sides()
    one.change(ADDS[0], Command("a", "listed", "append", [1]))
    two.change(*ADDS, Command("a", "listed", "append", [2]), Command("b", "tags", "add", [1]))
    rest(one, two)
    cluster = one.driver.cluster
    overlaps = preview(cluster, generations.load_catalog(cluster, "one"), merge_of_two(one))
    met = {row.store: (row.keys_theirs, row.keys_both) for row in overlaps if row.keys_theirs}
    assert met == {"all-counter": (4, 1), "all-listed": (1, 1), "all-tags": (1, 0)}
    refuse_undefined(overlaps)
    with pytest.raises(MergeUndefined, match=r"all-value \(1 keys\)"):
        refuse_undefined([*overlaps, StoreOverlap("all-value", 2, 1, is_defined=False)])


def test_a_value_without_a_merge_function_is_refused_where_it_meets() -> None:
    one, two = two_sides()
    one.change(Command("a", "value", "set", [1]))
    two.change(Command("b", "value", "set", [2]))
    rest(one, two)
    take_in(one, ApplicationMerge("two"))
    one.driver.restore()
    assert [one.driver.state("all", "value", key=key) for key in "ab"] == [1, 2], "they never met"

    three = Side("three", 2, beside=one.driver).change(Command("b", "value", "set", [5]))
    rest(one, three)
    with pytest.raises(MergeUndefined, match=r"'all-value'.*sf.state\(merge="):
        take_in(one, ApplicationMerge("three"))
    cluster = one.driver.cluster
    assert generations.load_catalog(cluster, "one").active.generation == 1
    generations.abort(cluster, "one")
    one.driver.restore()
    assert one.driver.state("all", "value", key="b") == 2


def test_a_sum_beyond_64_bits_is_refused() -> None:
    one, two = two_sides()
    one.change(Command("a", "counter", "add", [(1 << 63) - 1]))
    two.change(Command("a", "counter", "add", [1]))
    with pytest.raises(StateBoundExceeded):
        one.driver.merge(two.driver)


def test_only_applications_that_fit_and_rest() -> None:
    one, two = two_sides()
    with pytest.raises(StillRunning):
        take_in(one, merge_of_two(one))
    rest(one, two)
    with pytest.raises(ConfigError, match="cannot be merged with itself"):
        take_in(one, ApplicationMerge("one"))
    shared = TestDriver(other_app(), partitions=2, beside=one.driver)
    shared.stop()
    shared.cluster.end_sessions("shared")
    catalog = generations.load_catalog(shared.cluster, "shared")
    with pytest.raises(ConfigError, match="both read two-commands"):
        ApplicationMerge("two").check(shared.cluster, catalog)
    with pytest.raises(CatalogIncompatible, match=r"'all-value': value_codec is .*string"):
        ApplicationMerge("one").check(shared.cluster, catalog)


def other_app() -> sf.App:
    """An application that reads what ``two`` reads and keeps text where the others keep numbers."""
    app = sf.App("shared")

    @app.operator("all", source=app.topic("two-commands", value=Command), key="key")
    class Shared(sf.Operator[str, Command, None]):
        value: sf.Value[str | None] = sf.state()

        def on_record(self, value: Command, ctx: sf.Context[None]) -> None:
            self.value.set(value.verb)

    return app


def test_an_unfinished_merge_is_told_from_a_repartition(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = two_sides()
    two.change(*ADDS)

    def fails(cluster: Cluster, job: application_merge.MergeJob) -> Any:
        raise AuditFailed("stopped by the test", action="none")

    monkeypatch.setattr("stateflow.scale.start.merge_partition", fails)
    rest(one, two)
    with pytest.raises(AuditFailed):
        take_in(one, merge_of_two(one))
    cluster = one.driver.cluster
    catalog = generations.load_catalog(cluster, "one")
    with pytest.raises(GenerationUnfinished, match="merging 'two'"):
        start(cluster, "one", catalog.active.routing, InProcess(cluster), one.driver.clock)
    generations.abort(cluster, "one")
