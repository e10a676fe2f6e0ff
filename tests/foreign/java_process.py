"""A Java process with Kafka's archives and some more in it, driven over Py4J."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from stateflow.connectors.broker.distribution import kafka_distribution
from stateflow.connectors.broker.jars import JarSet, fetch

SPARK_JARS = Path(pyspark.__file__).parent / "jars"


class JavaProcess:
    """Runs until it is closed. Its log is a file of the folder."""

    def __init__(self, folder: Path, jars: JarSet, more: Sequence[Path] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        kafka, extra = kafka_distribution(), fetch(jars)
        (py4j,) = SPARK_JARS.glob("py4j-*.jar")
        classpath = [*(str(extra / jar.file_name) for jar in jars.jars), kafka.classpath, *map(str, more)]
        with (folder / f"{jars.name}.log").open("wb") as log:
            port, token, self._process = launch_gateway(
                jarpath=str(py4j),
                classpath=os.pathsep.join(classpath),
                javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
                java_path=str(kafka.java.executable),
                die_on_exit=True,
                redirect_stderr=log,
                enable_auth=True,
                return_proc=True,
            )
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))

    @property
    def classes(self) -> Any:
        """Its packages by name: ``classes.java.util.HashMap``."""
        return self.gateway.jvm

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self.gateway.shutdown()
        self._process.terminate()
        self._process.wait()  # Py4J reads its pipes, and closes them when it has ended
