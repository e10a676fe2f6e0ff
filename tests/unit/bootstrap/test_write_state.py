"""State written as rows: an application that starts from it goes on as if it had processed what the rows are of."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import stateflow as sf
from stateflow.bootstrap.write import WrittenState, write_rows
from stateflow.catalog.control import ControlTopic
from stateflow.checkpoint.savepoints import SavepointObjects
from stateflow.clock import ManualClock
from stateflow.errors import ConfigError, EncodeError
from stateflow.query.read import TableRequest, read_table
from stateflow.record import TopicPartition
from stateflow.runtime.worker.prepare import expected_catalog
from stateflow.savepoint.lookup import open_at, problems_of
from stateflow.savepoint.restore import restore
from stateflow.testing import TestDriver

PARTITIONS = 3
NOW_MS = 1_704_067_200_000
DAY = datetime(2024, 1, 2, tzinfo=UTC)


@dataclass
class Account:
    owner: str
    total: int


class Keeper(sf.Operator[str, str, str]):
    """One state of each kind that rows can be of."""

    account: sf.Value[Account | None] = sf.state()
    note: sf.Value[str | None] = sf.state(ttl=timedelta(days=400))
    seen: sf.Counter = sf.state()
    parts: sf.MapOf[str, int] = sf.state()
    tags: sf.SetOf[str] = sf.state()
    deep: sf.MapOf[str, sf.MapOf[str, int]] = sf.state()
    recent: sf.ListOf[str] = sf.state()

    def on_record(self, value: str, ctx: sf.Context[str]) -> None:
        before = self.account.get()
        self.account.set(Account(value, 1 if before is None else before.total + 1))
        self.note.set(value)
        self.seen.add()
        self.parts.put(value, (self.parts.get(value) or 0) + 1)
        self.tags.add(value)
        self.deep["x"].put(value, (self.deep["x"].get(value) or 0) + 1)


def keeping() -> tuple[sf.App, Any]:
    app = sf.App("kept", partitions=PARTITIONS)
    lines = app.topic("lines", value=str)
    app.operator("keep", source=lines, key=lambda line: line[0])(Keeper)
    return app, lines


STORES = ("keep-account", "keep-note", "keep-seen", "keep-parts", "keep-tags", "keep-deep")


def counting() -> tuple[sf.App, Any]:
    app = sf.App("shop", partitions=PARTITIONS)
    lines = app.topic("lines", value=str)
    app.stream(lines).key_by(str, name="by-word", key=str).count(name="counts")
    return app, lines


def written(
    driver: TestDriver, app: sf.App, place: Path, tables: dict[str, Any], **more: Any
) -> WrittenState:
    more.setdefault("sources", "latest")
    return write_rows(driver.cluster, app, tables, to=str(place), clock=ManualClock(NOW_MS), **more)


def begin_with(driver: TestDriver, app: sf.App, place: Path) -> None:
    """What `stateflow savepoint restore APP bootstrap --from PLACE` does, then a start."""
    driver.stop()
    driver.cluster.end_sessions(app.id)
    saved = open_at(str(place), app.id, "bootstrap", driver.clock)
    savepoint = saved.load()
    assert not any(problems_of(saved, savepoint).values())
    partitions = savepoint.routing.partitions
    expected = expected_catalog(driver.cluster, app.topology(), "exactly-once", partitions, driver.clock)
    restore(driver.cluster, savepoint, saved, expected, driver.clock)
    driver.restore()


def table_of(driver: TestDriver, app: sf.App, store: str) -> pa.Table:
    return read_table(driver.cluster, TableRequest(app=app.id, store=store))


def counts_of(driver: TestDriver) -> dict[str, int]:
    return {row["key"]: row["value"] for row in table_of(driver, counting()[0], "counts").to_pylist()}


@pytest.mark.parametrize("form", ["arrow", "pandas", "rows", "batches"])
def test_an_application_goes_on_from_rows_as_from_records(tmp_path: Path, form: str) -> None:
    """The batch job counts what was there, the application what comes: together it is the count of all."""
    rng = random.Random(3)
    app, lines = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    history, later = ([f"w{rng.randrange(40)}" for _ in range(200)] for _ in range(2))
    for word in history:
        driver.send(lines, word)
    table = pa.table({"key": list(Counter(history)), "value": list(Counter(history).values())})
    forms = {
        "arrow": table,
        "pandas": table.to_pandas(),
        "rows": table.to_pylist(),
        "batches": iter(table.to_batches(max_chunksize=7)),
    }
    sources = {"lines": {p: log.offset_next for p, log in ends(driver).items()}}
    done = written(driver, app, tmp_path, {"counts": forms[form]}, sources=sources, partitions=5)
    assert (done.rows, done.partitions) == ({"counts": len(Counter(history))}, 5)
    begin_with(driver, app, tmp_path)
    for word in later:
        driver.send(lines, word)
    assert counts_of(driver) == Counter(history + later)
    assert ControlTopic(driver.cluster, "shop").load().active.partitions == 5


def ends(driver: TestDriver) -> dict[int, Any]:
    found = driver.cluster.ranges(TopicPartition("lines", partition) for partition in range(PARTITIONS))
    return {source.partition: log for source, log in found.items()}


def test_every_kind_reads_back_as_it_was_and_goes_on(tmp_path: Path) -> None:
    app, lines = keeping()
    driver = TestDriver(app, partitions=PARTITIONS)
    for line in ("a1", "b2", "a2", "c3", "a1"):
        driver.send(lines, line)
    before = {store: table_of(driver, app, store).drop_columns("partition") for store in STORES}
    written(driver, app, tmp_path, before)
    begin_with(driver, app, tmp_path)
    for store, rows in before.items():
        now = table_of(driver, app, store).drop_columns("partition")
        assert sorted(now.to_pylist(), key=str) == sorted(rows.to_pylist(), key=str), store
    driver.send(lines, "a1")
    assert driver.state("keep", "account", key="a") == {"owner": "a1", "total": 4}
    assert driver.state("keep", "seen", key="a") == 4
    assert driver.state("keep", "parts", key="a") == {"a1": 3, "a2": 1}
    assert driver.state("keep", "tags", key="a") == ["a1", "a2"]
    assert driver.state("keep", "deep", key="a") == {"x": {"a1": 3, "a2": 1}}


def test_a_dry_run_checks_every_row_and_writes_nothing(tmp_path: Path) -> None:
    app, _ = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    rows = [{"key": f"w{number}", "value": number} for number in range(50)]
    would = written(driver, app, tmp_path / "to", {"counts": rows}, dry_run=True)
    assert would.rows == {"counts": 50}
    assert would.dry_run
    assert sum(would.rows_by_task.values()) == 50
    assert not (tmp_path / "to").exists()
    done = written(driver, app, tmp_path / "to", {"counts": rows})
    assert done.rows_by_task == would.rows_by_task
    with pytest.raises(EncodeError, match="row 50 of 'counts'"):
        written(
            driver, app, tmp_path / "to", {"counts": [*rows, {"key": "x", "value": "many"}]}, dry_run=True
        )


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ({"counts": [{"key": "a", "value": 1}, {"key": "a", "value": 2}]}, "several rows"),
        ({"counts": [{"key": "a", "value": None}]}, "value is null"),
        ({"counts": [{"key": None, "value": 1}]}, "key is null"),
        ({"counts": [{"key": 5, "value": 1}]}, "not a str"),
        ({"counts": [{"key": "a", "value": 1.5}]}, "row 0"),
        ({"counts": [{"key": "a", "value": True}]}, "boolean"),
        ({"counts": [{"key": "a"}]}, "lack the column 'value'"),
        ({"counts": [{"key": "a", "value": 1, "price": 2}]}, "have a column 'price'"),
        ({"nonsense": []}, "no store 'nonsense'"),
        ({"counts": "text"}, "no table of rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, tables: dict[str, Any], match: str) -> None:
    app, _ = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    with pytest.raises((ConfigError, EncodeError), match=match):
        written(driver, app, tmp_path, tables)
    with pytest.raises(Exception, match="there is no savepoint"):
        open_at(str(tmp_path), app.id, "bootstrap", driver.clock)


def test_values_are_checked_by_the_application_s_own_types(tmp_path: Path) -> None:
    app, _ = keeping()
    driver = TestDriver(app, partitions=PARTITIONS)
    good = {"key": "a", "value": '{"owner": "ada", "total": 3}'}
    written(driver, app, tmp_path, {"keep-account": [good]})
    for wrong in ('{"owner": "ada"}', '{"owner": 3, "total": 3}', "no JSON"):
        with pytest.raises(EncodeError, match="row 1"):
            written(driver, app, tmp_path, {"keep-account": [good, {"key": "b", "value": wrong}]})
    stamped = {"key": "a", "value": "x", "written_at": "yesterday"}
    with pytest.raises(EncodeError, match="not a timestamp"):
        written(driver, app, tmp_path, {"keep-note": [stamped]})
    written(driver, app, tmp_path, {"keep-note": [{**stamped, "written_at": DAY}]})
    with pytest.raises(ConfigError, match="'list'"):
        written(driver, app, tmp_path, {"keep-recent": []})


def test_offsets_that_a_source_does_not_have_are_refused(tmp_path: Path) -> None:
    app, _ = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    for sources in ({}, {"lines": {0: 0, 1: 0}}, {"lines": {0: 0, 1: 0, 2: 5}}):
        with pytest.raises(ConfigError, match="is to be read from"):
            written(driver, app, tmp_path, {"counts": []}, sources=sources)
    with pytest.raises(ConfigError, match="name of a savepoint"):
        written(driver, app, tmp_path, {"counts": []}, name="a/b")


class Killed(BaseException):
    """SIGKILL: nothing of the program's own runs after it."""


def test_what_a_killed_run_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = counting()
    driver = TestDriver(app, partitions=PARTITIONS)
    rows = [{"key": f"w{number}", "value": number} for number in range(50)]

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SavepointObjects, "publish", killed)
        with pytest.raises(Killed):
            written(driver, app, tmp_path, {"counts": rows})
    left = {file for file in tmp_path.rglob("savepoints/*") if str(NOW_MS) in file.name}
    assert left
    later = ManualClock(NOW_MS + 5_000)
    write_rows(driver.cluster, app, {"counts": rows}, to=str(tmp_path), sources="latest", clock=later)
    assert not [file for file in left if file.is_file()]
    assert not [file for file in tmp_path.rglob(f"*{NOW_MS}/**/*") if file.is_file()]
    begin_with(driver, app, tmp_path)
    assert counts_of(driver) == {row["key"]: row["value"] for row in rows}
