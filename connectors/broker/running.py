"""The records of the brokers that `stateflow up` started: written there, read by every other command."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from stateflow.connectors.broker.places import user_state_dir
from stateflow.connectors.broker.processes import command_line
from stateflow.errors import ConfigError

DEFAULT_NAME = "default"
NAME_VARIABLE = "STATEFLOW_UP"
"""Names the broker that commands of this shell mean."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_RECORD = "broker.json"


@dataclass(frozen=True, kw_only=True)
class RunningBroker:
    """A cluster started by `stateflow up`: where it answers, its processes, where its data lies.

    `owner_pid` is the `stateflow up` in whose foreground it runs, None when it runs on its own; the data of
    an `ephemeral` cluster are removed when it is taken down.
    """

    name: str = DEFAULT_NAME
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


def meant_name(name: str | None = None) -> str:
    """The broker's name as given, else as `STATEFLOW_UP` has it, else the default. Raises ConfigError for no name."""
    found = name or os.environ.get(NAME_VARIABLE) or DEFAULT_NAME
    if _NAME.fullmatch(found) is None:
        raise ConfigError(
            f"{found!r} is no name of a broker.",
            action="Use lower-case letters, digits, - and _, 40 at most.",
        )
    return found


def home_of(name: str) -> Path:
    """The folder of a broker: its record, and its data unless told otherwise."""
    return user_state_dir() if name == DEFAULT_NAME else user_state_dir() / "brokers" / name


def save_running(broker: RunningBroker) -> None:
    """Write the record, whole or not at all."""
    path = home_of(broker.name) / _RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(asdict(broker)))
    draft.replace(path)


def load_running(name: str = DEFAULT_NAME) -> RunningBroker | None:
    """A record, or None when no such broker was started or it was taken down. It may name dead processes."""
    try:
        body = json.loads((home_of(name) / _RECORD).read_text())
    except (FileNotFoundError, NotADirectoryError):  # the latter where the home that is set is a file
        return None
    return RunningBroker(**{**body, "pids": tuple(body["pids"])})


def all_running() -> list[RunningBroker]:
    """Every record, that of the default broker first, then by name."""
    named = sorted(path.parent.name for path in user_state_dir().glob(f"brokers/*/{_RECORD}"))
    found = [load_running(name) for name in (DEFAULT_NAME, *named)]
    return [broker for broker in found if broker is not None]


def forget_running(name: str = DEFAULT_NAME) -> None:
    """Remove a record."""
    (home_of(name) / _RECORD).unlink(missing_ok=True)


def found_broker() -> RunningBroker | None:
    """The running broker that commands use which are told of none; None when none runs.

    That is the one that `STATEFLOW_UP` names, else the default one, else the only one. Raises ConfigError when the one
    named does not run, and when several run and none is the default.
    """
    if os.environ.get(NAME_VARIABLE):
        name = meant_name()
        named = load_running(name)
        if named is None or not named.is_alive:
            raise ConfigError(
                f"{NAME_VARIABLE} names the broker {name!r}, which does not run.",
                action=f"Start it with `stateflow up --name {name}`, or unset {NAME_VARIABLE}.",
            )
        return named
    alive = [broker for broker in all_running() if broker.is_alive]
    if len(alive) > 1 and alive[0].name != DEFAULT_NAME:
        shown = ", ".join(f"{broker.name} at {broker.bootstrap}" for broker in alive)
        raise ConfigError(
            f"Several brokers of `stateflow up` run, and none is the default: {shown}.",
            action=f"Say which is meant: {NAME_VARIABLE}=NAME, or --brokers.",
        )
    return alive[0] if alive else None
