"""Kafka Streams' own answers: its TopologyTestDriver in one Java process, asked over stdin and stdout.

The Java program is compiled when it is first needed, by the compiler that is among the jars: a Java runtime without
one will do. Stores are in memory, so nothing native is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.jars import JarSet, load_jar_set
from stateflow.connectors.broker.java import find_java
from stateflow.errors import SetupError
from stateflow.lab.java import class_path, compiled
from stateflow.lab.time.logs import Row
from stateflow.lab.time.oracle import Computation, Place, Sequences

TEST_DRIVER_JARS: JarSet = load_jar_set(Path(__file__).parent / "topology-test-driver.json")
WINDOW_ORACLE = Path(__file__).parent / "WindowOracle.java"
_JVM_ARGUMENTS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
_STOP_SECONDS = 20.0


def prepare(program: Path = WINDOW_ORACLE) -> list[str]:
    """The command that runs a program, for as long as this process lives; fetches the jars that are not in the cache.

    Raises SetupError.
    """
    java = find_java()
    classpath = class_path(TEST_DRIVER_JARS, KAFKA_JARS)
    command = [str(java.executable), *_JVM_ARGUMENTS, "-cp"]
    folder = compiled(java, classpath, program)
    return [*command, os.pathsep.join((str(folder), classpath)), program.stem]


class KafkaStreams:
    """The running program. It ends with ``close``, and with the process that started it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said = TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes to it
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )

    def results(self, wanted: Computation, rows: Sequence[Row]) -> Sequences:
        """Every result of a log in one source partition, in the order in which it came, by its place."""
        records = [(row.key, row.value, row.timestamp_ms) for row in rows]
        found = Sequences()
        for key, start_ms, end_ms, value in self.ask({**wanted._asdict(), "records": records}):
            results = found.setdefault(Place(key, start_ms, end_ms), [])
            if results and results[-1] is None:
                results.pop()  # a session that stays as it is, is withdrawn and told again
            results.append(value)
        return found

    def ask(self, question: Mapping[str, Any]) -> Any:
        """What the program answers, as JSON. Raises SetupError where it has ended."""
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed() from None
        answer = self._process.stdout.readline()
        if not answer:
            raise self._failed()
        return json.loads(answer)

    def close(self) -> None:
        """End it, and wait until it has ended."""
        try:
            self._process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        finally:
            self._said.close()

    def _failed(self) -> SetupError:
        self._process.wait(_STOP_SECONDS)
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()
        return SetupError(
            f"Kafka Streams' test driver ended with code {self._process.returncode}: {said[-500:]}",
            action="Run `stateflow doctor`; if Java is well, report this text.",
        )
