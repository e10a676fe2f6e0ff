"""The record of the broker that `stateflow up` started: written there, read by every other command."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from stateflow.connectors.broker.places import user_state_dir
from stateflow.connectors.broker.processes import command_line


@dataclass(frozen=True, kw_only=True)
class RunningBroker:
    """A cluster started by `stateflow up`: where it answers, its processes, where its data lies.

    `owner_pid` is the `stateflow up` in whose foreground it runs, None when it runs on its own; the data of
    an `ephemeral` cluster are removed when it is taken down.
    """

    bootstrap: str
    version: str
    pids: tuple[int, ...]
    owner_pid: int | None
    data_dir: str
    ephemeral: bool

    @property
    def live_pids(self) -> tuple[int, ...]:
        """Those of its processes that run. A process id that now means another program is not one of them."""
        return tuple(pid for pid in self.pids if self.data_dir in (command_line(pid) or ""))

    @property
    def is_alive(self) -> bool:
        """Whether all its processes run."""
        return len(self.live_pids) == len(self.pids)


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
