"""Kafka Streams with all it needs, and our program for it: fetched by SHA-256, compiled when it is first needed."""

from __future__ import annotations

import os
from pathlib import Path

from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.jars import JarSet, load_jar_set
from stateflow.connectors.broker.java import find_java
from stateflow.lab.java import class_path, compiled

PEER_JARS: JarSet = load_jar_set(Path(__file__).parent / "kafka-streams-peer.json")
_PROGRAM = ("StreamsPeer", "Clients", "Measured", "Shuffle")
_SOURCE, *_PARTS = (Path(__file__).parent / f"{name}.java" for name in _PROGRAM)
JVM_ARGUMENTS = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
"""All of the compiler's tiers, and the collector that Java chooses for the machine."""


def prepare() -> list[str]:
    """The command that runs the program, whose argument is a workload, while this process lives.

    Raises ``SetupError``.
    """
    java = find_java()
    classpath = class_path(PEER_JARS, KAFKA_JARS)
    folder = compiled(java, classpath, _SOURCE, *_PARTS)
    return [
        str(java.executable),
        *JVM_ARGUMENTS,
        "-cp",
        os.pathsep.join((str(folder), classpath)),
        _SOURCE.stem,
    ]
