"""Where a study runs, and what it keeps: every finished run is a file, so a study that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.errors import StateCorrupt
from stateflow.log.base import Cluster

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a study runs."""

    cluster: Cluster
    admins: tuple[ClusterAdmin, ClusterAdmin, ClusterAdmin]
    """Three connections: one for each thread of the live loop."""
    folder: Path
    progress: Callable[[str], None]

    @property
    def cleaner(self) -> CleanerSettings:
        """Of the broker."""
        admin = self.admins[0]
        return admin.cleaner_settings(next(iter(admin.broker_addresses())))

    def kept(self, name: str, parameters: object, kind: type[_T], run: Callable[[], _T]) -> _T:
        """The result of an earlier run with the same parameters, else a new one, kept for next time."""
        return kept(self.folder, self.progress, name, parameters, kind, run)


def kept(
    folder: Path,
    progress: Callable[[str], None],
    name: str,
    parameters: object,
    kind: type[_T],
    run: Callable[[], _T],
) -> _T:
    """The result in the folder of an earlier run with the same parameters, else a new one, kept there."""
    text = json.dumps(msgspec.to_builtins(parameters), sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = folder / f"{name.replace('/', '_')}-{digest}.json"
    if path.exists():
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except msgspec.DecodeError as error:
            raise StateCorrupt(f"{path} is no result of a run: {error}.", action="Delete it.") from error
    progress(name)
    result = run()
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(result))
    temporary.replace(path)
    return result
