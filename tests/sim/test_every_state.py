"""Every type of state against plain Python, through crashes, lost disks, compaction and repartition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stateflow.lab.time.plays import killed_anywhere
from stateflow.testing.driver import TestDriver
from tests.sim.every_state import STATES, VERBS, Command, Model, every_state_app, send_in_order

pytestmark = pytest.mark.slow

KEYS = ["a", "b", "", "a\0"]
NUMBERS = st.integers(-3, 3)
ARGUMENTS: dict[tuple[str, str], st.SearchStrategy[tuple[Any, ...]]] = {
    ("nested", "put"): st.tuples(st.sampled_from(["x", "x\0", ""]), NUMBERS, NUMBERS),
    ("nested", "remove inner"): st.tuples(st.sampled_from(["x", "x\0", ""]), NUMBERS),
    ("nested", "remove"): st.tuples(st.sampled_from(["x", "x\0", ""])),
    ("scores", "put"): st.tuples(NUMBERS, NUMBERS),
    ("versioned", "set"): st.tuples(st.integers(0, 9), NUMBERS),
    **{key: st.just(()) for key in VERBS if key[1] in ("clear", "reset") and key[0] != "versioned"},
}
COMMANDS = st.sampled_from(sorted(VERBS)).flatmap(
    lambda which: st.builds(
        Command,
        key=st.sampled_from(KEYS),
        state=st.just(which[0]),
        verb=st.just(which[1]),
        arguments=ARGUMENTS.get(which, st.tuples(NUMBERS)).map(list),
    )
)


class EveryState(RuleBasedStateMachine):
    """Commands in batches between the things that go wrong."""

    def __init__(self) -> None:
        super().__init__()
        app, self.commands = every_state_app()
        self.driver = TestDriver(app, partitions=3)
        self.model = Model()
        self.touched: set[str] = set()
        self.disk = self.driver.copy_of_disk()

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=12))
    def change(self, commands: list[Command]) -> None:
        send_in_order(self.driver, self.commands, commands)
        for command in commands:
            self.model.change(command)
            self.touched.add(command.key)

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=6), places=st.integers(1, 150))
    def change_and_be_killed(self, commands: list[Command], places: int) -> None:
        """The worker dies at the so-many-th failpoint that it comes by, or behind all of them."""
        for command in commands:
            killed_anywhere(places, lambda: send_in_order(self.driver, self.commands, [command]))  # noqa: B023 - called at once
            self.model.change(command)
            self.touched.add(command.key)
            self.driver.crash()
            self.driver.restore()

    @rule()
    def keep_the_disk(self) -> None:
        self.disk = self.driver.copy_of_disk()

    @rule(places=st.integers(1, 150))
    def crash_and_find_an_old_disk(self, places: int) -> None:
        """And the successor may die before it has caught up."""
        self.driver.crash(disk=self.disk)
        if killed_anywhere(places, self.driver.restore):
            self.driver.crash()
            self.driver.restore()

    @rule(disk_lost=st.booleans())
    def crash_and_restore(self, disk_lost: bool) -> None:
        self.driver.crash(disk_lost=disk_lost)
        self.driver.restore()

    @rule(partitions=st.integers(1, 5))
    def repartition(self, partitions: int) -> None:
        if partitions != self.partitions:
            self.driver.repartition(partitions)

    @rule()
    def compact(self) -> None:
        self.driver.compact()

    @property
    def partitions(self) -> int:
        return self.driver._wiring.catalog.active.partitions

    @invariant()
    def equal(self) -> None:
        for key in self.touched:
            for state in STATES:
                assert self.driver.state("all", state, key=key) == self.model.seen(key, state), (key, state)


TestEveryState = EveryState.TestCase
TestEveryState.settings = settings(
    max_examples=20, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_the_model_covers_every_type() -> None:
    app, _ = every_state_app()
    kinds = {store.kind for store in app.topology().stores}
    assert kinds == {"value", "counter", "reducing", "list", "set", "map", "nested", "versioned"}
