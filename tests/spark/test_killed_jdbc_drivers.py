"""`JdbcWriter` whose driver is killed amid micro-batches: each row is in each database once, and nothing beside it.

H2 and HSQLDB, as servers that outlive the driver, and inside it, where the kill is the database's, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stateflow.lab.network.guarded_broker import free_ports
from tests.class_archive import SHORT_LIVED_JVM, archive_arguments, spark_program
from tests.foreign.java_process import JavaProcess
from tests.spark.jdbc_databases import JDBC_JARS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
FILES, ROWS_EACH = 3, 20
DRIVER_SECONDS_MAX = 240
KILLS = (
    ("jdbc.after_claim", 2),  # in the second database; the first one has the micro-batch
    ("jdbc.after_staging", 2),  # in the third
    ("jdbc.before_commit", 2),  # in the fourth
    ("jdbc.after_commit", 2),  # in the first, of the next micro-batch
    ("jdbc.after_commit", 2),  # in the third
)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProcess]:
    process = JavaProcess(tmp_path_factory.mktemp("java"), JDBC_JARS)
    yield process
    process.close()


@pytest.fixture
def databases(java: JavaProcess, tmp_path: Path) -> Iterator[dict[str, str]]:
    """URLs by name: two servers in a process of their own, then two in the process that opens them."""
    arguments = java.gateway.new_array(java.classes.java.lang.String, 5)
    for at, word in enumerate(["-tcpPort", "0", "-baseDir", str(tmp_path / "h2"), "-ifNotExists"]):
        arguments[at] = word
    h2 = java.classes.org.h2.tools.Server.createTcpServer(arguments).start()
    hsqldb = java.classes.org.hsqldb.server.Server()
    hsqldb.setSilent(True)
    hsqldb.setDatabaseName(0, "rows")
    hsqldb.setDatabasePath(0, f"file:{tmp_path / 'hsqldb' / 'rows'};hsqldb.write_delay=false")
    (port,) = free_ports(1)  # it does not tell of one that it has chosen itself
    hsqldb.setPort(port)
    hsqldb.start()
    yield {
        "1-h2-server": f"jdbc:h2:tcp://localhost:{h2.getPort()}/./rows",
        "2-hsqldb-server": f"jdbc:hsqldb:hsql://localhost:{hsqldb.getPort()}/rows",
        "3-h2-file": f"jdbc:h2:file:{tmp_path / 'h2-file' / 'rows'};WRITE_DELAY=0",
        "4-hsqldb-file": f"jdbc:hsqldb:file:{tmp_path / 'hsqldb-file' / 'rows'};hsqldb.write_delay=false",
    }
    h2.stop()
    hsqldb.stop()


def test_each_row_is_written_once_whenever_the_driver_is_killed(
    java: JavaProcess, databases: dict[str, str], tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for number in range(FILES):
        lines = [f'{{"number": {number * ROWS_EACH + row}}}\n' for row in range(ROWS_EACH)]
        (rows / f"{number}.json").write_text("".join(lines))
    asked = {"rows": str(rows), "checkpoint": str(tmp_path / "query"), "databases": databases}
    for point, hit in KILLS:
        assert drive({**asked, "point": point, "hit": hit}, tmp_path) == -signal.SIGKILL, point
    assert drive({**asked, "point": None, "hit": 0}, tmp_path) == 0, (tmp_path / "log").read_text()[-3000:]
    for name, url in databases.items():
        assert answers(java, url, 'SELECT "number" FROM numbers') == list(range(FILES * ROWS_EACH)), name
        assert answers(java, url, "SELECT next_batch FROM stateflow_batches") == [FILES], name
        left = "FROM information_schema.tables WHERE LOWER(table_name) LIKE 'stateflow_staging%'"
        assert answers(java, url, f"SELECT COUNT(*) {left}") == [0], name


def drive(asked: Mapping[str, Any], folder: Path) -> int:
    """Run a driver to its end, whichever that is; returns its exit code."""
    quick_java = f"{SHORT_LIVED_JVM} {archive_arguments(spark_program().archive)}"
    with (folder / "log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.jdbc_driver", json.dumps(asked)],
            cwd=ROOT,
            env={**os.environ, "SPARK_SUBMIT_OPTS": quick_java},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=DRIVER_SECONDS_MAX,
            check=False,
        )
    return done.returncode


def answers(java: JavaProcess, url: str, question: str) -> list[int]:
    """The numbers that a database answers, sorted; without Spark."""
    connection = java.classes.java.sql.DriverManager.getConnection(url)
    try:
        found = connection.createStatement().executeQuery(question)
        numbers = []
        while found.next():
            numbers.append(int(found.getInt(1)))
        return sorted(numbers)
    finally:
        connection.close()
