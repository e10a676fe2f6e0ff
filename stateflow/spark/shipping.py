"""How an executor gets at the application: by its module's name, or from the file, which is shipped with the job."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stateflow.app import App, load
from stateflow.errors import GraphError
from stateflow.operators.topology.topology import Topology
from stateflow.spark.driver import Pipeline


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file of the driver's."""

    path: str
    sha256: str
    name: str
    """What the copy is called that Spark brings to executors: no other run of the session has one of that name."""

    @classmethod
    def of(cls, path: Path) -> ShippedFile:
        """The file as it is now."""
        return cls(str(path), _sha256(path), f"{uuid.uuid4().hex}.py")

    def found(self) -> Path:
        """The same file on this machine: where the driver has it, with its neighbours, or a copy of what Spark brought.

        Raises ``GraphError`` when neither has the driver's content.
        """
        for candidate in self._candidates():
            if candidate.is_file() and _sha256(candidate) == self.sha256:
                return candidate
        raise GraphError(
            f"an executor has another {Path(self.path).name} than the driver, or none.",
            action="start the job again; if the session is an older one of a notebook, restart that.",
            file=self.path,
        )

    def _candidates(self) -> Iterator[Path]:
        yield Path(self.path)
        from pyspark import SparkFiles

        brought = Path(SparkFiles.get(self.name))
        if brought.is_file():
            own = Path(tempfile.mkdtemp(prefix="stateflow-app-"))  # under its own name, which its module has
            atexit.register(shutil.rmtree, own, ignore_errors=True)
            yield Path(shutil.copyfile(brought, own / Path(self.path).name))


@dataclass(frozen=True, slots=True)
class ShippedTarget:
    """Builds an application's graph on an executor: ``module:attribute``, or an attribute of a shipped file."""

    target: str
    file: ShippedFile | None

    @classmethod
    def of(cls, target: str) -> ShippedTarget:
        """What travels for ``module:attribute`` or ``file.py:attribute``."""
        place = target.rpartition(":")[0]
        return cls(target, ShippedFile.of(Path(place).resolve()) if place.endswith(".py") else None)

    @property
    def files(self) -> dict[str, bytes]:
        """What Spark is to bring to executors, by name."""
        return {} if self.file is None else {self.file.name: Path(self.file.path).read_bytes()}

    def __call__(self) -> Topology:
        """The graph. Raises ``ConfigError``, ``GraphError``."""
        if self.file is None:
            return load(self.target).topology()
        return load(f"{self.file.found()}:{self.target.rpartition(':')[2]}").topology()


def pipeline_of(target: str, app: App) -> Pipeline:
    """What to run, for an application that was loaded from ``target`` and configured."""
    shipped = ShippedTarget.of(target)
    return Pipeline(
        topology=app.topology(),
        guarantee=app.options.guarantee,
        partitions=app.options.partitions,
        load=shipped,
        files=shipped.files,
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
