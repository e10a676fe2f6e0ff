"""What it takes to run Apache Kafka here: jars, a Java runtime, and a new cluster's feature levels."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stateflow.connectors.broker.filelock import file_lock
from stateflow.connectors.broker.jars import JarSet, fetch, load_jar_set
from stateflow.connectors.broker.java import Java, find_java
from stateflow.connectors.broker.places import cache_dir
from stateflow.errors import SetupError

KAFKA_JARS: JarSet = load_jar_set(Path(__file__).parent / "kafka-broker.json")
FORMAT_TIMEOUT_SECONDS = 120.0
CHECKPOINT_NAME = "bootstrap.checkpoint"
_FORMAT_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:1
listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1
controller.listener.names=CONTROLLER
log.dirs={log_dir}
"""


@dataclass(frozen=True)
class KafkaDistribution:
    """Kafka, ready to start; `bootstrap_checkpoint` goes into every new log folder."""

    version: str
    java: Java
    classpath: str
    bootstrap_checkpoint: Path


def kafka_distribution() -> KafkaDistribution:
    """Make Kafka ready on this machine, fetching and formatting only what the cache lacks.

    Raises SetupError.
    """
    java = find_java()
    folder = fetch(KAFKA_JARS)
    classpath = os.pathsep.join(str(folder / jar.file_name) for jar in KAFKA_JARS.jars)
    checkpoint = cache_dir() / "format" / f"{KAFKA_JARS.version}-{KAFKA_JARS.digest}.checkpoint"
    if not checkpoint.is_file():
        with file_lock(cache_dir() / "format.lock", timeout_seconds=FORMAT_TIMEOUT_SECONDS):
            if not checkpoint.is_file():
                _format_once(java, classpath, checkpoint)
    return KafkaDistribution(KAFKA_JARS.version, java, classpath, checkpoint)


def _format_once(java: Java, classpath: str, checkpoint: Path) -> None:
    """Let Kafka's own storage tool format a folder, and keep the file that carries the feature levels.

    The file holds the levels of metadata, transactions and groups for this version and no cluster id, so it
    serves every later cluster; without it a broker starts with transaction.version and group.version at 0.
    The tool costs about two seconds, which are so paid once per machine and not once per start.
    """
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as scratch:
        log_dir, settings = Path(scratch) / "log", Path(scratch) / "server.properties"
        settings.write_text(_FORMAT_SETTINGS.format(log_dir=log_dir))
        arguments = ["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", str(settings)]
        done = subprocess.run(
            [
                str(java.executable),
                "-Xmx128m",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                classpath,
                _TOOL,
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FORMAT_TIMEOUT_SECONDS,
            check=False,
        )
        made = log_dir / CHECKPOINT_NAME
        if done.returncode != 0 or not made.is_file():
            raise SetupError(
                f"Kafka's storage tool failed: {(done.stdout + done.stderr).strip()[-500:]}",
                action="Run `stateflow doctor`; if Java and the jars are well, report this text.",
            )
        made.replace(checkpoint)


_TOOL = "kafka.tools.StorageTool"
