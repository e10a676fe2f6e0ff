"""What is known beside a benchmark's figures: the command, when it ran, and on what machine."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stateflow.compaction.calibration.pace import loop_seconds
from stateflow.connectors.broker.distribution import KAFKA_JARS

_NOT_OF_THE_WORK = frozenset({"as_json", "save", "brokers", "band"})
_HERE = frozenset({"before"})
"""Options that name a place of this machine."""
_PACE_TRIES = 20


def described(body: dict[str, Any], context: click.Context, machine: dict[str, Any]) -> dict[str, Any]:
    """A benchmark's result with the command that was given, the date, and the machine as it was before."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return {"command": command_of(context), "date": date, "machine": machine, **body}


def command_of(context: click.Context) -> str:
    """The command as it was written, without what only says where to look and how to print."""
    arguments, options = [], []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Argument):
            arguments.append(str(value))
        elif given and name not in _NOT_OF_THE_WORK:
            shown = "…" if name in _HERE else str(value)
            options.append(parameter.opts[0] if value is True else f"{parameter.opts[0]} {shown}")
    return " ".join(["stateflow bench", *arguments, *options])


def write_result(body: dict[str, Any], path: Path) -> None:
    """Keep a result as a file that people can read, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1, default=str, ensure_ascii=False) + "\n", encoding="utf-8")


def least_pace_seconds() -> float:
    """CPU seconds of a loop that is always the same, when nothing disturbs it: how fast this machine is now."""
    return min(loop_seconds() for _ in range(_PACE_TRIES))


def machine_now() -> dict[str, Any]:
    """This machine, and how busy it is with other work: to be asked before a benchmark."""
    return {
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "pace_microseconds": round(least_pace_seconds() * 1e6),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "kafka": KAFKA_JARS.version,
    }
