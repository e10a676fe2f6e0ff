"""What `app.main()` runs: a command line of `stateflow` with the application filled in where the command takes one.

How a command takes it is read off its parameters, so a new command needs nothing here: an argument `[APP]` (or the
first of several words), an option `--target`, or `--app ID` where the catalog is enough. Those that know only the id,
or none, are told the application's broker as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from stateflow.app import App
from stateflow.cli import main
from stateflow.cli.which_broker import with_running_broker

_ID_OPTION = "--app"
_TAKES_TARGET_FIRST = ("target", "words")


@dataclass(frozen=True, slots=True)
class _Place:
    """The command that a line names, and how many of its words do so."""

    command: click.Command
    words: int


def run(app: App, target: str, arguments: Sequence[str]) -> int:
    """Run one command line for ``app``, which ``target`` names; returns the exit code.

    Help and usage errors name the script: that is what was typed.
    """
    script = Path(target.rpartition(":")[0]).name
    return main.run(with_application(arguments, app, target), name=f"python {script}")


def with_application(arguments: Sequence[str], app: App, target: str) -> list[str]:
    """The command line with the application named; as it is when it names one itself, or the command takes none."""
    place = _place(main.cli, arguments)
    names, rest = list(arguments[: place.words]), list(arguments[place.words :])
    parameters = {parameter.name: parameter for parameter in place.command.params}
    if not names or isinstance(place.command, click.Group) or _is_given(rest, _ID_OPTION, "--help", "-h"):
        return [*names, *rest]
    if any(isinstance(parameters.get(name), click.Argument) for name in _TAKES_TARGET_FIRST):
        return [*names, target, *rest]
    if "target" in parameters:
        options = parameters["target"].opts
        return [*names, *rest] if _is_given(rest, *options) else [*names, options[0], target, *rest]
    by_id = [_ID_OPTION, app.id] if "app_id" in parameters else []
    return [*names, *by_id, *_brokers(parameters, rest, app), *rest]


def _place(root: click.Command, arguments: Sequence[str]) -> _Place:
    """Follow the words to a command; options before it, and words that name none, are left to click."""
    command, words = root, 0
    while isinstance(command, click.Group) and words < len(arguments):
        found = command.get_command(click.Context(command), arguments[words])
        if found is None:
            break
        command, words = found, words + 1
    return _Place(command, words)


def _brokers(parameters: dict[str, click.Parameter], rest: Sequence[str], app: App) -> list[str]:
    """The application's broker, for a command that asks for an address and would otherwise look elsewhere."""
    parameter = parameters.get("brokers")
    if parameter is None or isinstance(parameter.type, click.Choice) or _is_given(rest, *parameter.opts):
        return []
    settings = with_running_broker(app.settings)
    return [] if settings.origins["brokers"] == "default" else [parameter.opts[0], settings.options.brokers]


def _is_given(rest: Sequence[str], *options: str) -> bool:
    return any(word.partition("=")[0] in options for word in rest)
