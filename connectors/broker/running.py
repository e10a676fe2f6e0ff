"""The record of the broker that `stateflow up` started: written there, read by every other command."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from stateflow.connectors.broker.places import user_state_dir


@dataclass(frozen=True)
class RunningBroker:
    """A cluster started by `stateflow up`: where it answers, its processes, where its data lies."""

    bootstrap: str
    pids: tuple[int, ...]
    data_dir: str
    ephemeral: bool
    brokers: int

    @property
    def is_alive(self) -> bool:
        """Whether all its processes live."""
        return all(_is_alive(pid) for pid in self.pids)


def record_path() -> Path:
    """The file that holds the record."""
    return user_state_dir() / "broker.json"


def save_running(broker: RunningBroker) -> None:
    """Write the record, whole or not at all."""
    path = record_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(asdict(broker)))
    draft.replace(path)


def load_running() -> RunningBroker | None:
    """The record, or None when no broker was started or it was taken down. It may name dead processes."""
    try:
        body = json.loads(record_path().read_text())
    except FileNotFoundError:
        return None
    return RunningBroker(**{**body, "pids": tuple(body["pids"])})


def forget_running() -> None:
    """Remove the record."""
    record_path().unlink(missing_ok=True)


def running_bootstrap() -> str | None:
    """Where the running broker answers; None when none runs."""
    broker = load_running()
    return broker.bootstrap if broker is not None and broker.is_alive else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
