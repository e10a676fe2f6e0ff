"""An application on a standalone cluster of processes: a master, two workers, executors elsewhere on the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import stateflow as sf
from stateflow.errors import CatalogMissing
from stateflow.lab.applications.words import Words
from stateflow.lab.spark_faults.standalone import Standalone, cluster_environment, executors, standalone
from stateflow.log.kafka import KafkaCluster
from stateflow.testing.broker import TestBroker
from tests.class_archive import SHORT_LIVED_JVM, archive_arguments, spark_program
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

APP = """
import stateflow as sf

app = sf.App("{app}", partitions=3)
lines = app.topic("{app}-in", value=str)
counts = app.topic("{app}-out", key=str, value=int)

(app.stream(lines)
    .flat_map(str.split)
    .key_by(str, name="by-word", key=str)
    .count(name="counts")
    .to(counts))
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers of one core each."""
    with standalone(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.mark.timeout(300)
def test_an_application_on_a_cluster_survives_the_loss_of_an_executor(
    spark: Standalone, broker: TestBroker, tmp_path: Path
) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    words = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "app.py").write_text(APP.format(app=words.app))
    client = tmp_path / "stateflow.toml"
    client.write_text('[client]\n"client.id" = "of-the-driver"\n')
    command = [
        sys.executable,
        "-m",
        "stateflow.cli",
        "run",
        "app.py:app",
        "--runner",
        "spark",
        "--master",
        spark.url,
    ]
    command += ["--workers", "2", "--brokers", broker.bootstrap, "--state-dir", str(tmp_path / "state"), "-v"]
    command += ["--conf", "spark.executor.memory=500m", "--conf", "spark.executor.cores=1"]
    quick_java = f"{SHORT_LIVED_JVM} {archive_arguments(spark_program().archive)}"
    command += ["--conf", f"spark.executor.extraJavaOptions={quick_java}"]
    log = (tmp_path / "driver.log").open("w")
    settings = {**cluster_environment(), "STATEFLOW_CONFIG": str(client)}
    words.feed(100)
    driver = subprocess.Popen(command, env=settings, cwd=shop, stdout=log, stderr=log, start_new_session=True)

    def is_running() -> None:
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-3000:]

    def counted() -> bool:
        try:
            table = sf.read_state(words.app, "counts", brokers=broker.bootstrap)
        except CatalogMissing:
            return False
        rows = {row["key"].encode(): row["value"] for row in table.to_pylist()}
        return rows == words.expected

    try:
        wait_until(counted, "the first counts", is_running, seconds=120, every_seconds=2)
        assert len(executors()) == 2
        (shop / "app.py").unlink()  # an executor that starts from here on has what was shipped
        os.kill(executors()[0], signal.SIGKILL)
        words.feed(100, seed=2)
        wait_until(counted, "the counts after the loss", is_running, seconds=120, every_seconds=2)
        wait_until(lambda: len(executors()) == 2, "another executor", is_running)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(90) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        if driver.poll() is None:
            driver.kill()
        log.close()
    assert counted()
    cluster.close()
