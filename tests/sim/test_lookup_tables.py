"""Global and static tables: what streams are joined with that every worker has whole."""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import stateflow as sf
from stateflow.catalog.control import ControlTopic
from stateflow.clock import ManualClock
from stateflow.errors import GlobalTableTooLarge, GraphError, Interrupted, TopicMissing
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.task.global_tables import GlobalTables
from stateflow.testing import TestDriver

Order = tuple[str, int]


@dataclass
class Sale:
    country: str
    cents: int


def taxed(sale: Sale, percent: int | None) -> str:
    return f"{sale.cents} {percent}"


def shop(how: str = "left", **options: Any) -> tuple[sf.App, Any, Any, Any]:
    app = sf.App("shop", guarantee="exactly-once")
    sales, out = app.topic("sales", key=str, value=Sale), app.topic("out", key=str, value=str)
    taxes = app.topic("taxes", key=str, value=int)
    table = app.global_table(taxes, name="taxes", **options)
    stream = app.stream(sales)
    joins: dict[str, Any] = {"left": stream.left_join, "inner": stream.join}
    joins[how](table, taxed, name="taxed", by="country").to(out)
    return app, sales, taxes, out


def values(driver: TestDriver, out: Any) -> list[str]:
    return [row.value for row in driver.rows(out)]


def test_what_was_there_before_is_read_before_the_first_record() -> None:
    app, sales, taxes, out = shop()
    other = sf.App("other")
    driver = TestDriver(other_app(other), partitions=3)
    driver.cluster.create([TopicSpec("taxes", 3)])
    writer = driver.cluster.writer()
    for number in range(500):
        writer.send("taxes", f"k{number}".encode(), taxes.value.encode(number), partition=number % 3)
    writer.send("taxes", b"k1", None, partition=1)
    writer.send("taxes", None, taxes.value.encode(1), partition=0)
    writer.commit()
    writer.close()
    driver = TestDriver(app, partitions=3, beside=driver)
    driver.send(sales, Sale("k499", 100), Sale("k1", 200), Sale("?", 300), key="x")
    assert values(driver, out) == ["100 499", "200 None", "300 None"]


def other_app(app: sf.App) -> sf.App:
    app.stream(app.topic("nothing", value=str)).to(app.topic("no-out", value=str))
    return app


def test_it_follows_the_topic_also_while_no_record_comes_and_through_crashes_and_moves() -> None:
    app, sales, taxes, out = shop("inner")
    driver = TestDriver(app, partitions=2)
    driver.send_many(taxes, [("de", 19, 0), ("fr", 20, 0)])
    driver.send(sales, Sale("de", 1), Sale("fr", 1), Sale("it", 1), key="x")
    driver.send_many(taxes, [("de", 16, 0), ("fr", None, 0)])
    driver.send(sales, Sale("de", 2), Sale("fr", 2), key="x")
    driver.crash(disk_lost=True)
    driver.send_many(taxes, [("fr", 21, 0)])
    driver.restore()
    driver.send(sales, Sale("de", 3), Sale("fr", 3), key="x")
    assert values(driver, out) == ["1 19", "1 20", "2 16", "3 16", "3 21"]


def test_by_the_streams_own_key_behind_a_rekey_step() -> None:
    app = sf.App("shop")
    sales, taxes = app.topic("sales", key=str, value=Sale), app.topic("taxes", key=str, value=int)
    out = app.topic("out", key=str, value=str)
    table = app.global_table(taxes, name="taxes")
    app.stream(sales).key_by("country", name="by").join(table, taxed, name="taxed").to(out)
    driver = TestDriver(app)
    driver.send_many(taxes, [("de", 19, 0), ("fr", 20, 0)])
    driver.send(sales, Sale("fr", 1), Sale("de", 1), Sale("it", 2), key="x")
    driver.repartition(7)
    driver.send(sales, Sale("fr", 3), key="x")
    assert sorted(values(driver, out)) == ["1 19", "1 20", "3 20"]


def test_one_that_is_too_large_stops_with_what_to_do() -> None:
    app, sales, taxes, _ = shop(bytes_max=2_000)
    driver = TestDriver(app, partitions=1)
    driver.send_many(taxes, [("de", 19, 0)] * 100)
    driver.send(sales, Sale("de", 1), key="x")
    with pytest.raises(
        GlobalTableTooLarge, match="takes more than 2,000 bytes of memory: 11 keys so far"
    ) as raised:
        driver.send_many(taxes, [(f"k{number}", 1, 0) for number in range(10)])
    assert raised.value.fields == {"topic": "taxes", "bytes_max": 2_000, "keys": 11}
    assert "bytes_max=" in raised.value.action
    with pytest.raises(GlobalTableTooLarge):
        TestDriver(app, partitions=1, beside=driver).run()


def test_the_graph_shows_what_is_looked_up() -> None:
    app, *_ = shop(bytes_max=3 << 20)
    app.stream(app.topic("more", key=str, value=str)).join(
        app.static_table({"de": 1}, name="codes"), lambda value, code: f"{value}{code}", name="coded"
    ).to(app.topic("codes", key=str, value=str))
    text = app.describe_text()
    assert "looks up taxes (all of taxes, at most 3 MB in each worker)" in text
    assert "looks up codes (static, " in text


# --- one worker's tables ------------------------------------------------------------------------------------


def test_tasks_share_a_table_and_the_last_one_closes_it() -> None:
    cluster = MemoryCluster(clock=ManualClock(0))
    cluster.create([TopicSpec("t", 2)])
    tables = GlobalTables(cluster, ManualClock(0))
    one, two = tables.lease("t", 1_000, lambda: False), tables.lease("t", 1_000, lambda: False)
    assert one is two
    tables.release("t")
    writer = cluster.writer()
    writer.send("t", b"k", b"v", partition=0)
    writer.commit()
    one.catch_up()
    assert (one.get(b"k"), len(one), one.held_bytes) == (b"v", 1, 202)
    tables.release("t")
    assert tables.lease("t", 1_000, lambda: False) is not one


def test_a_stop_ends_the_reading_and_leaves_nothing() -> None:
    cluster = MemoryCluster(clock=ManualClock(0))
    cluster.create([TopicSpec("t", 1)])
    tables = GlobalTables(cluster, ManualClock(0))
    with pytest.raises(TopicMissing):
        tables.lease("missing", 1_000, lambda: False)
    writer = cluster.writer()
    writer.send("t", b"k", b"v", partition=0)
    writer.commit()
    with pytest.raises(Interrupted):
        tables.lease("t", 1_000, lambda: True)
    assert tables.lease("t", 1_000, lambda: False).get(b"k") == b"v"


# --- static tables ------------------------------------------------------------------------------------------

ROWS = [{"code": "de", "percent": 19}, {"code": "fr", "percent": 20}]


def static_app(data: Any, **options: Any) -> tuple[sf.App, Any, Any]:
    app = sf.App("shop")
    sales, out = app.topic("sales", key=str, value=Sale), app.topic("out", key=str, value=sf.Json)
    table = app.static_table(data, name="taxes", **options)
    joined = app.stream(sales).left_join(
        table, lambda sale, row: [sale.cents, row], name="taxed", by="country"
    )
    joined.to(out)
    return app, sales, out


def joined_rows(data: Any, **options: Any) -> list[Any]:
    app, sales, out = static_app(data, **options)
    driver = TestDriver(app, partitions=1)
    driver.send(sales, Sale("fr", 1), Sale("it", 2), key="x")
    driver.crash()
    driver.restore()
    driver.send(sales, Sale("de", 3), key="x")
    return [row.value for row in driver.rows(out)]


@pytest.mark.parametrize("kind", ["dict", "json", "csv", "parquet", "frame"])
def test_a_table_of_each_kind_of_data(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"taxes.{kind}"
        if kind == "dict":
            found = joined_rows({row["code"]: row for row in ROWS})
        elif kind == "frame":
            found = joined_rows(pytest.importorskip("pandas").DataFrame(ROWS), key="code")
        else:
            write(path, kind)
            found = joined_rows(path if kind == "json" else str(path), key="code")
    wanted: list[Any] = [[1, ROWS[1]], [2, None], [3, ROWS[0]]]
    if kind == "csv":
        wanted = json.loads(json.dumps(wanted).replace("19", '"19"').replace(": 20", ': "20"'))
    assert found == wanted


def write(path: Path, kind: str) -> None:
    if kind == "json":
        path.write_text(json.dumps(ROWS))
    elif kind == "csv":
        path.write_text("code,percent\nde,19\nfr,20\n")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(ROWS), path)


def fingerprint(data: Any, **options: Any) -> str:
    return static_app(data, **options)[0].topology().static_tables["taxes"]


def test_the_fingerprint_is_that_of_the_content() -> None:
    one = fingerprint({"de": {"a": 1, "b": 2}, "fr": {"a": 2, "b": 3}})
    assert one == fingerprint({"fr": {"b": 3, "a": 2}, "de": {"b": 2, "a": 1}})
    assert one != fingerprint({"de": {"a": 1, "b": 2}, "fr": {"a": 2, "b": 4}})
    assert one != fingerprint({"de": {"a": 1, "b": 2}})


def test_other_data_than_at_the_start_before_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    app, *_ = static_app({"de": 19})
    driver = TestDriver(app)
    with caplog.at_level(logging.WARNING):
        driver.crash()
        driver.restore()
        assert "static table" not in caplog.text
        driver.upgrade(static_app({"de": 16})[0])
        assert caplog.text.count("The static table 'taxes' is not the one that was used before") == 1
        driver.crash()
        driver.restore()
    assert caplog.text.count("The static table 'taxes'") == 1
    catalog = ControlTopic(driver.cluster, "shop").load()
    assert catalog.app.static_tables == {"taxes": fingerprint({"de": 16})}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"a": 1}, {"key": "a"}, "is a mapping and names a column"),
        ("x.csv", {}, "does not say by which column"),
        ("missing.csv", {"key": "a"}, "cannot be read from missing.csv"),
        ("x.xlsx", {"key": "a"}, "a file of an unknown kind"),
        ([1], {"key": "a"}, "is made of a list"),
        ({"a": object()}, {}, "cannot be written as MessagePack"),
    ],
)
def test_what_cannot_be_a_static_table_is_refused(data: Any, options: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        static_app(data, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"b": 1}]', "has no column 'a' in row 2"),
        ('[{"a": 1}, {"a": 1}]', "has two rows of the key 1"),
        ('[{"a": [1]}]', "has a key in row 1 that is a list"),
        ('{"a": 1}', "does not hold rows"),
        ("[{", "cannot be read from"),
    ],
)
def test_rows_that_cannot_be_found_by_a_key_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(GraphError, match=message):
        static_app(path, key="a")


def test_what_such_a_join_does_not_know_is_refused() -> None:
    app = sf.App("shop")
    sales = app.stream(app.topic("sales", key=str, value=Sale))
    table: Any = app.static_table({"de": 19}, name="taxes")
    with pytest.raises(GraphError, match="knows no times"):
        sales.join(table, taxed, name="a", within=timedelta(seconds=1))
    other = app.table(app.topic("taxes", key=str, value=int), name="table")
    options: Any = {"by": "country"}
    with pytest.raises(GraphError, match="is not by the key of its stream"):
        sales.join(other, taxed, name="b", **options)
    with pytest.raises(GraphError, match="is used by two lookup tables"):
        app.static_table({"de": 19}, name="taxes")
    with pytest.raises(GraphError, match="may hold nothing"):
        app.global_table(app.topic("taxes", key=str, value=int), name="none", bytes_max=0)


def test_two_tables_of_a_topic_share_what_is_held_and_have_one_bound() -> None:
    app = sf.App("shop", guarantee="exactly-once")
    sales, out = app.topic("sales", key=str, value=Sale), app.topic("out", key=str, value=str)
    taxes = app.topic("taxes", key=str, value=int)
    one = app.global_table(taxes, name="one", bytes_max=2_000)
    with pytest.raises(GraphError, match=r"'one' and 'other' of the topic 'taxes'.*2,000 and 1,000 bytes"):
        app.global_table(taxes, name="other", bytes_max=1_000)
    same = app.global_table(taxes, name="same", bytes_max=2_000)
    app.global_table(app.topic("names", key=str, value=str), name="names", bytes_max=1_000)
    stream = app.stream(sales).left_join(one, taxed, name="first", by="country")
    stream.left_join(same, lambda text, percent: f"{text} {percent}", name="second", by=lambda _: "de").to(
        out
    )
    driver = TestDriver(app, partitions=2)
    driver.send(taxes, 19, key="de")
    driver.send(sales, Sale("de", 5), Sale("fr", 6), key="k")
    assert values(driver, out) == ["5 19 19", "6 None 19"]
    with pytest.raises(GlobalTableTooLarge, match="more than 2,000 bytes"):
        driver.send_many(taxes, [(f"k{number}", 1, 0) for number in range(20)])
