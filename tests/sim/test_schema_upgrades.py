"""State across versions of an application: migrated when read, through crash, loss, repartition and rolling upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import CatalogIncompatible
from stateflow.runtime.settings import WorkerSettings
from stateflow.scale import rewriting
from stateflow.scale.rewriting import as_it_would_be, outdated
from stateflow.testing.driver import TestDriver

KEYS = [f"k{number}" for number in range(24)]


@dataclass
class Euros:
    euros: float
    times: int = 1


def to_euros(cents: int) -> dict[str, Any]:
    return {"euros": cents / 100}


class Cents(sf.Operator[str, str, Any]):
    total: sf.Value[int | None] = sf.state(ttl=timedelta(days=1))
    each: sf.ListOf[int] = sf.state()

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        amount = int(value.split()[1])
        self.total.set((self.total.get() or 0) + amount)
        self.each.append(amount)
        ctx.emit(self.total.get())


class InEuros(sf.Operator[str, str, Any]):
    total: sf.Value[Euros | None] = sf.state(ttl=timedelta(days=1), version=2, migrations={1: to_euros})
    each: sf.ListOf[str] = sf.state(version=2, migrations={1: str})

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        total = self.total.get() or Euros(0, 0)
        if not value.endswith("?"):
            total = Euros(total.euros + int(value.split()[1]) / 100, total.times + 1)
            self.total.set(total)
            self.each.append(value.split()[1])
        ctx.emit([total.euros, total.times, list(self.each)])


class Text(sf.Operator[str, str, Any]):
    total: sf.Value[str | None] = sf.state(ttl=timedelta(days=1))
    each: sf.ListOf[int] = sf.state()

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.total.set(value)


def app_of(operator: Any, on_error: Any = sf.Fail()) -> tuple[sf.App, Any, Any]:  # noqa: B008
    app = sf.App("till")
    paid, out = app.topic("paid", value=str), app.topic("out", key=str, value=sf.Json)
    app.operator("till", source=paid, key=lambda line: line.split()[0], sink=out, on_error=on_error)(operator)
    return app, paid, out


def newest(driver: TestDriver, out: Any) -> dict[str, Any]:
    return {record.key: record.value for record in driver.output(out)}


@pytest.mark.parametrize("disk_lost", [False, True])
def test_old_and_new_values_live_side_by_side(disk_lost: bool) -> None:
    old, paid, _ = app_of(Cents)
    new, _, out = app_of(InEuros)
    driver = TestDriver(old, partitions=3)
    driver.send(paid, *[f"{key} 150" for key in KEYS])
    driver.upgrade(new)
    driver.send(paid, *[f"{key} 250" for key in KEYS[:12]])
    driver.compact()
    driver.crash(disk_lost=disk_lost)
    driver.restore()
    for partitions in (5, 2):
        driver.repartition(partitions)
    assert driver.state("till", "total", key="k0") == {"euros": 4.0, "times": 2}
    assert driver.state("till", "total", key="k20") == 150, "tools show what is stored"
    assert driver.state("till", "each", key="k0") == [150, "250"]
    driver.send(paid, *[f"{key} ?" for key in KEYS])
    assert newest(driver, out) == {
        key: [4.0, 2, ["150", "250"]] if key in KEYS[:12] else [1.5, 1, ["150"]] for key in KEYS
    }
    assert driver.state("till", "total", key="k20") == 150, "reading writes nothing back"


def test_code_that_cannot_read_the_state_is_refused_and_nothing_changes() -> None:
    old, paid, _ = app_of(Cents)
    driver = TestDriver(old, partitions=2)
    driver.send(paid, "a 1")
    broken, _, _ = app_of(Text)
    with pytest.raises(CatalogIncompatible, match="integer of 64 bits became string") as caught:
        driver.upgrade(broken)
    assert "migrations={old version: function}" in caught.value.action
    driver.upgrade(old)
    driver.send(paid, "a 2")
    assert driver.state("till", "total", key="a") == 3
    new, _, _ = app_of(InEuros)
    driver.upgrade(new)
    with pytest.raises(CatalogIncompatible, match="version is 1 in the code, 2 in the catalog"):
        driver.upgrade(old)


@pytest.mark.parametrize("policy", [sf.Fail(), sf.Skip()])
def test_a_worker_of_before_stops_at_a_value_of_after(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling upgrade: a task that ran on a new worker comes back to one that has read the catalog before it."""
    old, paid, out = app_of(Cents, policy)
    new, _, _ = app_of(InEuros)
    driver = TestDriver(old, partitions=1)
    driver.send(paid, "a 100", "b 100")
    before = driver._wiring
    driver.upgrade(new)
    driver.send(paid, "a 50")
    driver.stop()
    driver.cluster.end_sessions("till")
    monkeypatch.setattr("stateflow.testing.driver.prepare", lambda *_: before)
    driver.restore()
    driver.send(paid, "b 5")
    with pytest.raises(CatalogIncompatible, match="start this worker again with that version"):
        driver.send(paid, "a 5")
    monkeypatch.undo()
    driver.cluster.end_sessions("till")
    driver.upgrade(new)
    driver.send(paid, "a ?", "b ?")
    assert newest(driver, out) == {"a": [1.55, 3, ["100", "50", "5"]], "b": [1.05, 1, ["100", "5"]]}


class WithoutMigrations(InEuros):
    total: sf.Value[Euros | None] = sf.state(ttl=timedelta(days=1), version=2)
    each: sf.ListOf[str] = sf.state(version=2)


def opened_by(driver: TestDriver) -> dict[str, Any]:
    """What it takes to open tasks beside the driver's worker, on its disks."""
    settings = WorkerSettings(state_dir=Path("in-memory"), restore_threads=0)
    return {"open_stores": driver._open_stores, "settings": settings, "clock": driver.clock}


def test_all_state_can_be_written_anew_so_that_migrations_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    old, paid, _ = app_of(Cents)
    new, _, out = app_of(InEuros)
    driver = TestDriver(old, partitions=3)
    driver.send(paid, *[f"{key} 150" for key in KEYS])
    driver.upgrade(new)
    driver.send(paid, *[f"{key} 250" for key in KEYS[:12]])
    last, _, _ = app_of(WithoutMigrations)
    with pytest.raises(CatalogIncompatible, match=r"version 2 has no migration 1 → 2"):
        driver.upgrade(last)
    driver.cluster.end_sessions("till")
    wiring = as_it_would_be(driver.cluster, new.topology())
    assert {each.store: dict(each.values) for each in outdated(driver.cluster, wiring)} == {
        "till-total": {1: 12, 2: 12},
        "till-each": {1: 24, 2: 12},
    }
    monkeypatch.setattr(rewriting, "ENTRIES_PER_COMMIT", 5)
    done = rewriting.rewrite(driver.cluster, wiring, **opened_by(driver))
    assert (done.values_total, done.tasks_done) == (12 + 24, 3)
    assert list(outdated(driver.cluster, as_it_would_be(driver.cluster, new.topology()))) == []
    assert (
        rewriting.rewrite(
            driver.cluster, as_it_would_be(driver.cluster, new.topology()), **opened_by(driver)
        ).values_total
        == 0
    )
    driver.upgrade(last)
    driver.crash(disk_lost=True)
    driver.restore()
    driver.send(paid, *[f"{key} ?" for key in KEYS])
    assert newest(driver, out) == {
        key: [4.0, 2, ["150", "250"]] if key in KEYS[:12] else [1.5, 1, ["150"]] for key in KEYS
    }


def test_a_savepoint_of_the_version_before_can_be_restored_by_the_one_after() -> None:
    old, paid, _ = app_of(Cents)
    new, _, out = app_of(InEuros)
    driver = TestDriver(old, partitions=2)
    driver.send(paid, "a 150", "b 150")
    driver.savepoint("before")
    driver.upgrade(new)
    driver.send(paid, "a 50")
    driver.stop()
    driver.cluster.end_sessions("till")
    rewriting.rewrite(driver.cluster, as_it_would_be(driver.cluster, new.topology()), **opened_by(driver))
    driver.restore()
    driver.restore_savepoint("before")
    driver.send(paid, "a ?", "b ?")
    assert newest(driver, out) == {"a": [2.0, 2, ["150", "50"]], "b": [1.5, 1, ["150"]]}
