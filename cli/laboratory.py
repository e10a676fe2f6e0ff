"""Commands of the laboratory: only a checkout of the project has it, packages leave it out."""

from __future__ import annotations

import importlib
import importlib.util

import click

from stateflow.errors import ConfigError


def has_laboratory() -> bool:
    """Whether this is a checkout: the wheel leaves `lab/` out."""
    return importlib.util.find_spec("stateflow.lab") is not None


def laboratory_command(name: str, called: str) -> click.Command:
    """The command in `lab/commands/<name>.py`, imported now; ``called`` is how people call it.

    Raises:
        ConfigError: this installation has no laboratory; the error says where it is.
    """
    if not has_laboratory():
        raise ConfigError(
            f"`stateflow {called}` needs the laboratory, which packages leave out.",
            action=f"Clone the project and run `python3 dev.py exec stateflow {called}` there.",
        )
    command = importlib.import_module(f"stateflow.lab.commands.{name}").command
    assert isinstance(command, click.Command), f"lab/commands/{name}.py must define a click command"
    return command
