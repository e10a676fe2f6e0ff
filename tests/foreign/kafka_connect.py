"""A distributed worker of Kafka Connect, whose verifiable source writes numbers and keeps the last as its offset."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stateflow.connectors.broker.jars import JarSet, load_jar_set
from tests.foreign.java_process import JavaProcess

CONNECT_JARS: JarSet = load_jar_set(Path(__file__).parent / "kafka-connect.json")

_SOURCE = "org.apache.kafka.connect.tools.VerifiableSourceConnector"
_CONVERTERS = "org.apache.kafka.connect.converters"
_SERVING_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_REQUEST_SECONDS = 30.0
OFFSET_FLUSH_MS = 50


class ConnectWorker:
    """One worker of a Connect cluster, whose three compacted topics are its only memory.

    Every task of a source writes records (its number, 1 2 3 …), and every 50 ms the offset it has come to.
    """

    def __init__(self, bootstrap: str, group: str, folder: Path) -> None:
        self.offsets_topic, self.configs_topic, self.status_topic = (
            f"{group}-{kind}" for kind in ("offsets", "configs", "status")
        )
        self._java = JavaProcess(folder, CONNECT_JARS)
        try:
            self._worker = self._start(bootstrap, group)
            self._url = self._worker.rest().serverUrl().toString().rstrip("/")
        except BaseException:
            self._java.close()
            raise

    def _start(self, bootstrap: str, group: str) -> Any:
        settings = self._java.classes.java.util.HashMap()
        for name, value in {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": "http://127.0.0.1:0",
            "plugin.discovery": "service_load",
            "key.converter": f"{_CONVERTERS}.IntegerConverter",
            "value.converter": f"{_CONVERTERS}.LongConverter",
            "offset.flush.interval.ms": str(OFFSET_FLUSH_MS),
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.storage.topic": self.offsets_topic,
            "offset.storage.partitions": "1",
            "config.storage.topic": self.configs_topic,
            "status.storage.topic": self.status_topic,
            "status.storage.partitions": "1",
            **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")},
        }.items():
            settings.put(name, value)
        no_arguments = self._java.gateway.new_array(self._java.classes.java.lang.String, 0)
        return self._java.classes.org.apache.kafka.connect.cli.ConnectDistributed(no_arguments).startConnect(
            settings
        )

    def add_source(self, name: str, topic: str, tasks: int, records_per_second: int) -> None:
        """Have `tasks` tasks write to the topic: key int32 (task), value int64 (number), big-endian."""
        config = {
            "connector.class": _SOURCE,
            "topic": topic,
            "tasks.max": str(tasks),
            "throughput": str(records_per_second),
        }
        self._ask("PUT", f"/connectors/{name}/config", config)

    def await_running(self, name: str, tasks: int) -> None:
        """Wait until so many tasks run. Raises ``TimeoutError``."""
        until = time.monotonic() + _SERVING_SECONDS
        while (found := self._task_states(name)) != ["RUNNING"] * tasks:
            if time.monotonic() > until or "FAILED" in found:
                raise TimeoutError(f"tasks of {name}: {found}")
            time.sleep(_LOOK_SECONDS)

    def _task_states(self, name: str) -> list[str]:
        try:
            return [task["state"] for task in self._ask("GET", f"/connectors/{name}/status")["tasks"]]
        except urllib.error.HTTPError as error:
            if error.code != 404:  # 404: the status topic has not been heard yet
                raise
            return []

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=_REQUEST_SECONDS
        ) as answer:
            return json.load(answer)

    def close(self) -> None:
        """Stop it in order, its offsets written, and its Java process."""
        try:
            self._worker.stop()
            self._worker.awaitStop()
        finally:
            self._java.close()
