"""Every type of state over RocksDB: epochs in batches, then the same from sorted files, as a restore writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.state.declare import declared_fields
from stateflow.state.scope import Scope
from stateflow.state.view import StoreView
from stateflow.store.base import StorePosition
from stateflow.store.directory import task_directory
from stateflow.store.dirty import DirtyStore
from stateflow.store.rocks import RocksResources, RocksTaskStores
from tests.sim.every_state import STATES, VERBS, All, Command, Model
from tests.sim.test_every_state import COMMANDS, KEYS

FIELDS = {field.attribute: field for field in declared_fields(All, "all")}
NAMES = [field.store for field in FIELDS.values()]


class Disk:
    """One task's RocksDB with a handle on every state."""

    def __init__(self, path: Path) -> None:
        place = task_directory(path, "every", "cluster", 0, "all-0")
        self.stores = RocksTaskStores.open(place, NAMES, RocksResources())
        self.dirty = {name: DirtyStore(self.stores.reader(name)) for name in NAMES}
        self.scope = Scope()
        self.handles = {
            name: field.bind(self.dirty[field.store], self.scope)[0] for name, field in FIELDS.items()
        }

    def change(self, command: Command) -> None:
        self.scope.key = command.key.encode()
        VERBS[command.state, command.verb].real(self.handles[command.state], *command.arguments)

    def commit(self, log: dict[str, dict[bytes, bytes | None]], offset_next: int) -> None:
        """Apply the epoch, and remember the newest value of every key, as a compacted changelog does."""
        epoch = {name: changes for name, store in self.dirty.items() if (changes := store.changes())}
        self.stores.apply(epoch, {name: StorePosition("topic", offset_next) for name in epoch})
        for name, changes in epoch.items():
            log.setdefault(name, {}).update(iter(changes))
        for store in self.dirty.values():
            store.committed()

    def check(self, model: Model) -> None:
        for state in STATES:
            field = FIELDS[state]
            view = StoreView(field.entry("all", sf.String), self.dirty[field.store])
            for key in KEYS:
                assert view.get(key) == model.seen(key, state), (key, state)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(COMMANDS, min_size=1, max_size=20), min_size=1, max_size=4))
def test_epochs_and_sorted_files_give_what_plain_python_gives(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[list[Command]]
) -> None:
    root = tmp_path_factory.mktemp("every")
    disk, model, log = Disk(root / "worked"), Model(), dict[str, dict[bytes, bytes | None]]()
    for number, commands in enumerate(epochs, 1):
        for command in commands:
            disk.change(command)
            model.change(command)
        disk.check(model)
        disk.commit(log, number)
        disk.check(model)
    disk.stores.close()

    reopened = Disk(root / "worked")
    reopened.check(model)
    reopened.stores.close()

    restored = Disk(root / "restored")
    for name, newest in log.items():
        restored.stores.load(name, sorted(newest.items()), StorePosition("topic", len(epochs)))
    restored.check(model)
    restored.stores.close()
