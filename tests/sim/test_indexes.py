"""Secondary indexes: as the values say, whatever way the state came to be where it is."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import stateflow as sf
from stateflow.cli.state import _index
from stateflow.clock import ManualClock
from stateflow.errors import ConfigError, EncodeError, GraphError, Interrupted, ProcessingError
from stateflow.query.local import LocalState
from stateflow.state import index as indexing
from stateflow.state.declare import declared_fields
from stateflow.state.index import StateIndex, bring_up, fingerprint, found_keys
from stateflow.state.layout import prefixed_key
from stateflow.state.scope import Scope
from stateflow.store.base import StorePosition, TaskStores
from stateflow.store.derived import index_family
from stateflow.store.directory import task_directory
from stateflow.store.dirty import DirtyStore
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.rocks import RocksResources, RocksTaskStores
from stateflow.testing.driver import TestDriver

pytestmark = pytest.mark.slow


@dataclass
class User:
    country: str
    age: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Change:
    team: str
    user: str
    value: User | None
    fails: bool = False


def team_app() -> tuple[sf.App, sf.Topic[bytes, Change]]:
    app = sf.App("teams")
    changes = app.topic("changes", value=Change)

    @app.operator("teams", source=changes, key="team", on_error=sf.Skip())
    class Teams(sf.Operator[str, Change, None]):
        newest: sf.Value[User | None] = sf.state(index={"country": lambda user: user.country})
        users: sf.MapOf[str, User] = sf.state(
            index={
                "country": lambda user: user.country,
                "age": lambda user: user.age if user.age else None,
                "tag": lambda user: user.tags,
            }
        )

        def on_record(self, value: Change, ctx: sf.Context[None]) -> None:
            if value.value is None:
                self.users.remove(value.user)
            else:
                self.users.put(value.user, value.value)
                self.newest.set(value.value)
                here = dict(self.users.by("country", value.value.country))
                assert here[value.user] == value.value, "what is not committed is found, too"
                assert here == {
                    name: user for name, user in self.users.items() if user.country == value.value.country
                }
            if value.fails:
                raise ValueError("taken back")

    return app, changes


USERS = st.builds(
    User,
    country=st.sampled_from(["de", "d\0", "fr", ""]),
    age=st.integers(0, 3),
    tags=st.lists(st.sampled_from("xyz"), max_size=2),
)
CHANGES = st.builds(
    Change,
    team=st.sampled_from(["red", "blue", "r"]),
    user=st.sampled_from(["ann", "bob", ""]),
    value=st.none() | USERS,
    fails=st.booleans(),
)


class Indexes(RuleBasedStateMachine):
    """Changes, some of which fail, between the things that go wrong."""

    def __init__(self) -> None:
        super().__init__()
        app, self.changes = team_app()
        self.driver = TestDriver(app, partitions=3)
        self.users: dict[tuple[str, str], User] = {}
        self.newest: dict[str, User] = {}
        self.kept: dict[tuple[int, str], MemoryTaskStores] = {}

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=8))
    def change(self, changes: list[Change]) -> None:
        for change in changes:
            self.driver.send(self.changes, change)
            if change.fails:
                continue
            if change.value is None:
                self.users.pop((change.team, change.user), None)
            else:
                self.users[change.team, change.user] = self.newest[change.team] = change.value

    @rule(disk_lost=st.booleans())
    def crash_and_restore(self, disk_lost: bool) -> None:
        self.driver.crash(disk_lost=disk_lost)
        self.driver.restore()

    @rule(partitions=st.integers(1, 4))
    def repartition(self, partitions: int) -> None:
        if partitions != self.driver._wiring.catalog.active.partitions:
            self.driver.repartition(partitions)

    @rule()
    def keep_a_copy_of_the_disks(self) -> None:
        self.kept = {place: disk.flushed_copy() for place, disk in self.driver._disks.items()}

    @rule()
    def go_on_with_the_copy(self) -> None:
        """Its index is marked as up to date with a store whose tail is still to be read."""
        self.driver.crash()
        self.driver._disks.update(self.kept)
        self.kept = {}
        self.driver.restore()

    def found(self, state: str, index: str, value: Any) -> list[tuple[str, Any]]:
        return sorted((key, part) for key, part, _ in self.driver.find("teams", state, index, value))

    @invariant()
    def every_index_says_what_the_values_say(self) -> None:
        for country in ("de", "d\0", "fr", "", "x"):
            teams = sorted((team, None) for team, user in self.newest.items() if user.country == country)
            assert self.found("newest", "country", country) == teams
            users = sorted(key for key, user in self.users.items() if user.country == country)
            assert self.found("users", "country", country) == users
        for age in range(1, 4):
            assert self.found("users", "age", age) == sorted(k for k, u in self.users.items() if u.age == age)
        for tag in "xyz":
            tagged = sorted(key for key, user in self.users.items() if tag in user.tags)
            assert self.found("users", "tag", tag) == tagged


TestIndexes = Indexes.TestCase
TestIndexes.settings = settings(
    max_examples=12, stateful_step_count=10, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_an_index_is_never_logged() -> None:
    app, changes = team_app()
    driver = TestDriver(app, partitions=1)
    driver.send(changes, Change("red", "ann", User("de", 3, ["x", "y"])))
    logged = [
        record for record in driver._read("teams-teams-users-changelog") if b"ann" in (record.key or b"")
    ]
    assert [record.value is None for record in logged] == [False]
    assert not [topic for topic in driver.cluster.list_topics() if "index" in topic]


# --- bringing up, over both stores --------------------------------------------------------------------


class Numbered:
    numbers: sf.MapOf[int, int] = sf.state(index={"parity": lambda number: number % 2})
    dated: sf.MapOf[int, int] = sf.state(
        index={"parity": lambda number: number % 2}, ttl=timedelta(seconds=1)
    )


def stores_of(kind: str, path: Path) -> TaskStores:
    if kind == "memory":
        return MemoryTaskStores(["op-numbers"], ManualClock())
    place = task_directory(path, "app", "cluster", 0, "main-0")
    return RocksTaskStores.open(place, ["op-numbers"], RocksResources(), ManualClock())


def number_index() -> StateIndex:
    declared = next(f for f in declared_fields(Numbered, "op") if f.attribute == "numbers")
    return declared.made_index(declared.entry("stage", sf.String))


def entry(number: int) -> tuple[bytes, bytes]:
    return prefixed_key(b"k", sf.OrderedInteger.encode(number)), sf.Integer.encode(number)


def odd(stores: TaskStores) -> int:
    return sum(1 for _ in found_keys(stores.reader(index_family("op-numbers")), "parity", 1))


@pytest.mark.parametrize("kind", ["memory", "rocks"])
@pytest.mark.parametrize("by", ["apply", "load", "clear"])
def test_whatever_changes_the_store_alone_outdates_its_index(kind: str, by: str, tmp_path: Path) -> None:
    stores, index = stores_of(kind, tmp_path), number_index()
    position = StorePosition("topic", 5)
    stores.load("op-numbers", [entry(number) for number in range(10)], position)
    assert bring_up(stores, index, lambda: False) == 10
    assert (odd(stores), bring_up(stores, index, lambda: False)) == (5, 0)
    stores.apply({}, {"op-numbers": StorePosition("topic", 6)})
    assert stores.position(index.family) == index.mark, "a marker in the log changes nothing"
    if by == "apply":
        stores.apply({"op-numbers": [entry(11)]}, {"op-numbers": StorePosition("topic", 7)})
    elif by == "load":
        stores.load("op-numbers", [entry(11)], StorePosition("topic", 7))
    else:
        stores.clear("op-numbers")
        stores.apply({"op-numbers": [entry(11)]}, {"op-numbers": StorePosition("topic", 7)})
    assert stores.position(index.family) is None
    bring_up(stores, index, lambda: False)
    assert odd(stores) == (1 if by == "clear" else 6)
    stores.close()


def test_an_index_survives_on_disk_and_is_no_store_of_its_own(tmp_path: Path) -> None:
    stores, index = stores_of("rocks", tmp_path), number_index()
    assert isinstance(stores, RocksTaskStores)
    stores.load("op-numbers", [entry(number) for number in range(10)], StorePosition("topic", 5))
    bring_up(stores, index, lambda: False)
    assert stores.checkpoint(tmp_path / "image").keys() == {"op-numbers"}
    stores.close()
    again = stores_of("rocks", tmp_path)
    assert isinstance(again, RocksTaskStores)
    assert again.stores == ["op-numbers"]
    assert (bring_up(again, index, lambda: False), odd(again)) == (0, 5)
    again.close()
    other = task_directory(tmp_path / "other machine", "app", "cluster", 0, "main-0")
    other.claim()
    (tmp_path / "image").rename(other.database)
    installed = RocksTaskStores.open(other, ["op-numbers"], RocksResources(), ManualClock())
    assert (bring_up(installed, index, lambda: False), odd(installed)) == (0, 5)
    installed.close()


def test_an_index_is_read_beside_the_worker_and_only_while_it_is_up_to_date(tmp_path: Path) -> None:
    app, _ = team_app()
    catalog = TestDriver(app, partitions=1)._wiring.catalog
    (stage,) = (stage for stage in app.topology().stages if stage.indexes)
    index = stage.indexes["teams-users"](catalog.stores["teams-users"])
    place = task_directory(tmp_path, "teams", "cluster", 0, "teams-0")
    stores = RocksTaskStores.open(place, ["teams-users", "teams-newest"], RocksResources(), ManualClock())
    rows = [
        (prefixed_key(b"red", name.encode()), sf.MsgPackOf(User).encode(User(country, 1)))
        for name, country in (("ann", "de"), ("bob", "fr"), ("cid", "de"))
    ]
    stores.load("teams-users", rows, StorePosition("topic", 5))
    stores.flush()
    state = LocalState(tmp_path, catalog)
    with pytest.raises(ConfigError, match=r"no index 'country'.*it has none"):
        list(state.find("teams-users", "country", "de"))
    bring_up(stores, index, lambda: False)
    stores.flush()
    found = [(row.task, row.row.map_key) for row in state.find("teams-users", "country", "de")]
    assert found == [("teams-0", "ann"), ("teams-0", "cid")]
    with pytest.raises(ConfigError, match="has no partition 1"):
        list(state.find("teams-users", "country", "de", [1]))
    with pytest.raises(ConfigError, match="it has age, country, tag"):
        list(state.find("teams-users", "size", 1))
    stores.close()


def test_what_is_asked_for_on_the_command_line() -> None:
    asked = {
        text: _index(f"name={text}")[1]
        for text in ("de", "5", '"5"', "true", "1.5", "a=b", "[1]", "null", "")
    }
    assert asked == {
        "de": "de", "5": 5, '"5"': "5", "true": True, "1.5": 1.5, "a=b": "a=b", "[1]": "[1]", "null": "null", "": "",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="names no value"):
        _index("country")


def test_other_functions_make_it_anew_and_the_same_written_elsewhere_do_not() -> None:
    def of(pick: Any, version: int = 1) -> str:
        return fingerprint({"parity": pick}, sf.Integer, version)

    elsewhere = of(
        lambda number: number % 2,
    )
    assert of(lambda number: number % 2) == elsewhere
    assert of(lambda number: number % 2 in (1, 3)) == of(lambda number: number % 2 in (1, 3))
    different = [
        of(lambda number: number % 2),
        of(lambda number: number % 3),
        of(lambda number: number % 2, 2),
    ]
    assert len(set(different)) == 3


def test_bringing_up_in_pieces_can_be_stopped_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[indexing.__name__], "_ENTRIES_PER_STEP", 3)
    stores, index = MemoryTaskStores(["op-numbers"], ManualClock()), number_index()
    stores.load("op-numbers", [entry(number) for number in range(10)], StorePosition("topic", 5))
    answers = iter([False, True])
    with pytest.raises(Interrupted):
        bring_up(stores, index, lambda: next(answers))
    assert (bring_up(stores, index, lambda: False), odd(stores)) == (10, 5)


# --- inside the operator ------------------------------------------------------------------------------


def bound(attribute: str) -> tuple[Any, Scope, DirtyStore, Any]:
    (declared,) = (f for f in declared_fields(Numbered, "op") if f.attribute == attribute)
    stores = MemoryTaskStores(["s", "d"], ManualClock())
    base, derived, scope = DirtyStore(stores.reader("s")), DirtyStore(stores.reader("d")), Scope()
    scope.key, scope.timestamp_ms = b"k", 0
    handle, expiry = declared.bind(base, scope, None, derived)
    return handle, scope, derived, expiry


def test_by_is_about_the_current_key() -> None:
    numbers, scope, _, _ = bound("numbers")
    for number in (5, -3, 4):
        numbers.put(number, number)
    scope.key = b"other"
    numbers.put(7, 7)
    assert numbers.by("parity", 1) == [(7, 7)]
    scope.key = b"k"
    assert numbers.by("parity", 1) == [(-3, -3), (5, 5)]
    numbers.put(5, 6)
    numbers.remove(-3)
    assert (numbers.by("parity", 1), numbers.by("parity", 0)) == ([], [(4, 4), (5, 6)])
    numbers.clear()
    assert numbers.by("parity", 0) == []
    with pytest.raises(GraphError, match="no index 'size'"):
        numbers.by("size", 1)
    with pytest.raises(EncodeError):
        numbers.by("parity", [1])


def test_what_is_forgotten_is_forgotten_by_the_index() -> None:
    numbers, scope, derived, expiry = bound("dated")
    numbers.put(1, 1)
    scope.timestamp_ms = 900
    numbers.put(3, 3)
    scope.reached_ms = 1000
    assert numbers.by("parity", 1) == [(3, 3)]
    expiry.advance(1000)
    assert len(list(derived.scan())) == 1


def test_a_value_that_cannot_be_indexed_is_the_records_fault() -> None:
    index = StateIndex("s", {"first": lambda value: value[0]}, sf.Json, 0, "")
    with pytest.raises(ProcessingError, match="index 'first' of s"):
        index.entries(b"k", sf.Json.encode([]))
    with pytest.raises(ProcessingError, match="an index holds bool"):
        index.entries(b"k", sf.Json.encode([{"a": 1}]))
    assert len(index.entries(b"k", sf.Json.encode([["a", "b", "a"]]))) == 2
    assert index.entries(b"k", sf.Json.encode([None])) == set()
