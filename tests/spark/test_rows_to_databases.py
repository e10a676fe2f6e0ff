"""`JdbcWriter` where attempts of tasks are lost, and where two drivers write as the same query, on databases in memory.

How micro-batches come again is in `test_state_as_table`, drivers that are killed in `test_killed_jdbc_drivers`;
PostgreSQL under kills is in docs/spark-tables.md.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql.functions import udf

from stateflow.errors import ConfigError, StillRunning
from stateflow.spark.jdbc_database import open_database, with_driver, with_text
from stateflow.spark.session import SparkSettings
from stateflow.spark.to_jdbc import JdbcWriter, staging_table
from tests.spark.jdbc_databases import tables_of, with_jars
from tests.spark.sessions import Sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Else each executor's Python imports this module, and pytest, for one function of it: half a second.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ROWS = 200
LOST_AT = 80


@pytest.fixture(scope="module")
def session(sessions: Sessions) -> Iterator[SparkSession]:
    # Rows go to the database by tens, so that an attempt that is lost has left some there.
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10", **with_jars()}
    with sessions.own(SparkSettings(is_python=True, conf=conf)) as made:
        yield made


@pytest.fixture(params=["derby", "h2", "hsqldb"])
def database(request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of one of its own, in this process."""
    name = uuid.uuid4().hex[:8]
    urls = {
        "derby": f"jdbc:derby:memory:{name};create=true",
        "h2": f"jdbc:h2:mem:{name};DB_CLOSE_DELAY=-1",
        "hsqldb": f"jdbc:hsqldb:mem:{name}",
    }
    return {"url": urls[request.param]}


def rows_of(session: SparkSession, database: dict[str, str], table: str) -> list[tuple[object, ...]]:
    found = session.read.format("jdbc").options(**with_driver(database), dbtable=table).load()
    return sorted(tuple(row) for row in found.collect())


def lost_once(number: int) -> int:
    """The number, but the first attempt of its task dies with it."""
    task = TaskContext.get()
    assert task is not None
    if number == LOST_AT and task.attemptNumber() == 0:
        raise RuntimeError("an attempt that is lost")
    return number


def some_rows(session: SparkSession) -> DataFrame:
    return session.range(0, ROWS, 1, 2).selectExpr("CAST(id AS INT) AS number")


def test_rows_that_a_lost_attempt_has_committed_are_left_out(
    session: SparkSession, database: dict[str, str]
) -> None:
    """As when an executor dies between the database's commit and the driver's hearing of it: by auto-commit here."""
    database |= {"isolationLevel": "NONE", "batchsize": "10"}
    lost = udf(lost_once, "int")
    frame = session.range(0, ROWS, 1, 2).select(lost("id").alias("number"))
    frame.write.format("jdbc").options(**with_driver(database), dbtable="spark_alone").mode("append").save()
    assert len(rows_of(session, database, "spark_alone")) > ROWS, "the first attempt has left rows there"
    JdbcWriter(database, "numbers", name="numbers")(frame, 0)
    JdbcWriter(database, "newest", name="newest", keys=["number"])(frame, 0)
    for table in ("numbers", "newest"):
        assert rows_of(session, database, table) == [(number,) for number in range(ROWS)]


def test_of_two_drivers_the_one_that_claimed_last_writes(
    session: SparkSession, database: dict[str, str]
) -> None:
    with open_database(session, database) as second:
        with open_database(session, database) as first:
            first.make_notes()
            assert first.claim("q", "id", 0, "stateflow_staging_a")
            rows = some_rows(session).write.format("jdbc").options(**with_driver(database))
            rows.option("dbtable", "stateflow_staging_a").save()
            assert second.claim("q", "id", 0, "stateflow_staging_b")
            assert not second.has("stateflow_staging_a"), "what a driver before it has left is removed"
            with pytest.raises(StillRunning):
                first.note("q", 1, "stateflow_staging_a")
        second.note("q", 1, "stateflow_staging_b")
        second.commit()
        assert not second.claim("q", "id", 0, "stateflow_staging_c"), "it is written"
        assert second.claim("q", "id", 1, "stateflow_staging_d")
        with pytest.raises(ConfigError, match="another checkpoint"):
            second.claim("q", "id of another", 1, "stateflow_staging_e")


def test_a_micro_batch_is_written_once_and_nothing_is_left_beside_it(
    session: SparkSession, database: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    schema = "APP" if "derby" in database["url"] else "PUBLIC"
    writer = JdbcWriter(database, f"{schema}.numbers", name="numbers")
    assert [writer(some_rows(session), batch) for batch in (0, 0, 1)] == [ROWS, 0, ROWS]
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "micro-batch 0 is written already as 'numbers'" in told
    assert "writer(frame, 1)" in told
    assert rows_of(session, database, "numbers") == sorted([(number,) for number in range(ROWS)] * 2)
    assert tables_of(session, database) == ["NUMBERS", "STATEFLOW_BATCHES"]


def test_rows_with_text_take_the_place_of_those_with_the_same_keys(
    session: SparkSession, database: dict[str, str]
) -> None:
    if "derby" in database["url"]:
        database["createTableColumnTypes"] = "word VARCHAR(64)"  # Derby compares no CLOB
    writer = JdbcWriter(database, "newest", name="newest", keys=["WORD"])
    for batch in (0, 1, 1):
        frame = session.range(3).selectExpr(
            f"concat('w', id + {batch}) AS word", f"id + {batch} * 10 AS total"
        )
        writer(frame, batch)
    assert rows_of(session, database, "newest") == [("w0", 0), ("w1", 10), ("w2", 11), ("w3", 12)]


def test_rows_whose_key_is_null_take_the_place_of_each_other(
    session: SparkSession, database: dict[str, str]
) -> None:
    writer = JdbcWriter(database, "newest", name="newest", keys=["kind", "number"])
    for batch in range(3):
        writer(
            session.sql(
                f"VALUES (1, NULL, {batch}), (NULL, 2, {batch}), (1, 2, {batch}) AS t(kind, number, total)"
            ),
            batch,
        )
    found = session.read.format("jdbc").options(**with_driver(database), dbtable="newest").load().collect()
    assert {tuple(row) for row in found} == {(1, None, 2), (None, 2, 2), (1, 2, 2)}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        ("t", ""),
        ("public.t", "public."),
        ('"a.t"', ""),
        ('x."a.t"', "x."),
        ("`a`.`b.c`", "`a`."),
        ("d.s.t", "d.s."),
    ],
)
def test_the_staging_table_is_in_the_schema_of_the_target(table: str, schema: str) -> None:
    assert staging_table(table).rpartition("stateflow_staging_")[0] == schema
    assert staging_table(table) != staging_table(table)


def test_the_class_of_a_known_driver_is_named_unless_the_options_do() -> None:
    postgres = {"url": "jdbc:postgresql://db/shop"}
    assert with_driver(postgres)["driver"] == "org.postgresql.Driver"
    assert with_driver({**postgres, "driver": "own.Driver"})["driver"] == "own.Driver"
    assert "driver" not in with_driver({"url": "jdbc:derby:memory:x"})


def test_columns_of_text_have_a_type_that_the_database_knows() -> None:
    hsqldb = {"url": "jdbc:hsqldb:mem:x"}
    (types,) = with_text(hsqldb, ["word", "a`b"]).keys() - hsqldb.keys()
    assert with_text(hsqldb, ["word", "a`b"])[types] == "`word` VARCHAR(16777216), `a``b` VARCHAR(16777216)"
    assert with_text({**hsqldb, types: "word VARCHAR(8)"}, ["word"])[types] == "word VARCHAR(8)"
    assert with_text({"url": "jdbc:h2:mem:x"}, ["word"]) == {"url": "jdbc:h2:mem:x"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": {}}, "option `url`"),
        ({"name": "two words"}, "the name 'two words' cannot be kept"),
        ({"keys": "number"}, "write keys=['number']"),
        ({"keys": ["word"]}, "no column is called 'word'"),
    ],
)
def test_what_cannot_be_written_is_named(session: SparkSession, change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"options": {"url": "jdbc:h2:mem:x"}, "table": "t", "name": "n", **change}
    with pytest.raises(ConfigError, match=re.escape(said)):
        JdbcWriter(**given)(some_rows(session), 0)
