"""A YARN cluster as processes of this machine: Hadoop's own resource manager and node manager, and a local folder.

Their classes are in one archive from Maven Central (``yarn-cluster.json``); what that needs besides comes with pyspark.
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from xml.sax.saxutils import escape

from stateflow.connectors.broker.jars import fetch, load_jar_set
from stateflow.errors import SetupError
from stateflow.lab.network.guarded_broker import free_ports
from stateflow.lab.spark_faults.standalone import QUICK_JVM, cluster_environment, running_tree
from stateflow.spark.programs import spark_java_home
from stateflow.spark.submit import spark_submit

_LOCK_FILE = Path(__file__).with_name("yarn-cluster.json")
_START_SECONDS_MAX = 180.0
_PAUSE_SECONDS = 0.25
_ANSWER_SECONDS = 10.0
_SERVER = "org.apache.hadoop.yarn.server"
_DAEMONS = {"resourcemanager": "ResourceManager", "nodemanager": "NodeManager"}
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Yarn:
    """A running cluster."""

    conf_dir: Path
    """What HADOOP_CONF_DIR names."""
    logs: Path
    """A folder for each application, with one for each of its containers."""
    address: str
    """Of the resource manager's pages."""

    def environment(self) -> dict[str, str]:
        """For spark-submit."""
        return {**cluster_environment(), "HADOOP_CONF_DIR": str(self.conf_dir)}

    def applications(self) -> list[dict[str, Any]]:
        """All that were ever submitted."""
        found = self._answer("apps")["apps"] or {}
        return list(found.get("app", []))

    def attempts(self, application: str) -> int:
        """How often its master was started."""
        return len(self._answer(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"])

    def end(self, application: str) -> None:
        """What `yarn application -kill` does: its processes get a SIGTERM, and a SIGKILL soon after."""
        body = json.dumps({"state": "KILLED"}).encode()
        place = f"http://{self.address}/ws/v1/cluster/apps/{application}/state?user.name={getpass.getuser()}"
        headers = {"Content-Type": "application/json"}
        wanted = urllib.request.Request(place, body, headers, method="PUT")
        with urllib.request.urlopen(wanted, timeout=_ANSWER_SECONDS):  # noqa: S310
            pass

    def nodes(self) -> int:
        """Node managers that are ready."""
        return int(self._answer("metrics")["clusterMetrics"]["activeNodes"])

    def _answer(self, what: str) -> dict[str, Any]:
        place = f"http://{self.address}/ws/v1/cluster/{what}"
        with urllib.request.urlopen(place, timeout=_ANSWER_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@contextmanager
def yarn_cluster(folder: Path, *, memory_mb: int = 6144) -> Iterator[Yarn]:
    """A resource manager and one node manager on free ports; ended with all that they started.

    The first time some 65 MB are fetched. Raises ``SetupError`` when they cannot be had, or do not come up.
    """
    jars = load_jar_set(_LOCK_FILE)
    own = fetch(jars)
    conf_dir = folder / "conf"
    conf_dir.mkdir()
    yarn = Yarn(conf_dir, folder / "logs", f"127.0.0.1:{_configure(conf_dir, folder, memory_mb)}")
    pyspark_jars = spark_submit().parents[1] / "jars"
    classpath = [str(conf_dir), *(str(own / jar.file_name) for jar in jars.jars), f"{pyspark_jars}/*"]
    java = str(Path(spark_java_home()) / "bin" / "java")
    options = ["-Xmx256m", *QUICK_JVM.split(), "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                _daemon(
                    [java, *options, "-cp", os.pathsep.join(classpath), f"{_SERVER}.{package}.{name}"],
                    yarn,
                    folder / f"{package}.log",
                )
            )
            for package, name in _DAEMONS.items()
        ]
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not _is_up(yarn):
            if any(daemon.poll() is not None for daemon in started) or time.monotonic() > deadline:
                raise SetupError(
                    "The YARN cluster did not start.", action=f"see what it says: {_said(folder)}"
                )
            time.sleep(_PAUSE_SECONDS)
        yield yarn


@contextmanager
def _daemon(command: list[str], yarn: Yarn, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as out, running_tree(command, yarn.environment(), log.parent, out.fileno()) as process:
        yield process


def _said(folder: Path) -> str:
    """The first errors in the daemons' logs."""
    lines = [line for log in sorted(folder.glob("*.log")) for line in log.read_text().splitlines()]
    return " | ".join([line for line in lines if "ERROR" in line or "Error:" in line][:4]) or "nothing."


def _is_up(yarn: Yarn) -> bool:
    try:
        return yarn.nodes() > 0
    except URLError:
        return False


def _configure(conf_dir: Path, folder: Path, memory_mb: int) -> int:
    """Write the settings; returns the port of the resource manager's pages."""
    scheduler, tracker, clients, admin, pages = free_ports(5)
    manager, node = "yarn.resourcemanager", "yarn.nodemanager"
    (conf_dir / "log4j2.properties").write_text(_LOG4J)
    _write(conf_dir / "core-site.xml", {"fs.defaultFS": "file:///"})
    _write(
        conf_dir / "capacity-scheduler.xml",
        {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "0.8",
        },
    )
    _write(
        conf_dir / "yarn-site.xml",
        {
            f"{manager}.hostname": "127.0.0.1",
            f"{manager}.scheduler.address": f"127.0.0.1:{scheduler}",
            f"{manager}.resource-tracker.address": f"127.0.0.1:{tracker}",
            f"{manager}.address": f"127.0.0.1:{clients}",
            f"{manager}.admin.address": f"127.0.0.1:{admin}",
            f"{manager}.webapp.address": f"127.0.0.1:{pages}",
            f"{manager}.am.max-attempts": "100",
            "yarn.scheduler.minimum-allocation-mb": "128",
            f"{node}.hostname": "127.0.0.1",
            f"{node}.address": "127.0.0.1:0",
            f"{node}.localizer.address": "127.0.0.1:0",
            f"{node}.webapp.address": "127.0.0.1:0",
            f"{node}.resource.memory-mb": str(memory_mb),
            f"{node}.resource.cpu-vcores": "8",
            f"{node}.local-dirs": str(folder / "local"),
            f"{node}.log-dirs": str(folder / "logs"),
            f"{node}.vmem-check-enabled": "false",
            f"{node}.disk-health-checker.enable": "false",  # a disk that is nearly full is no matter here
        },
    )
    return pages


def _write(file: Path, settings: Mapping[str, str]) -> None:
    rows = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>{rows}</configuration>")
