"""The `stateflow` command: finds a noun's file, and turns every failure into a sentence and an exit code.

A noun is a file `cli/<noun>.py` with one click command or group named `command`, and a line in :data:`NOUNS`. It is
imported only when used, so `stateflow --help` stays fast; a noun whose file is not there is not shown. A command
returns nothing, writes results with :mod:`stateflow.cli.output`, takes the options that nouns share from
:mod:`stateflow.cli.options`, and raises :class:`stateflow.errors.StateflowError` on failure: the message, what to
do and the exit code all come from the error. With `--json` the error is one JSON object on stdout.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import sys
import traceback
from collections.abc import Sequence

import click

from stateflow.cli.entry import begin_commands
from stateflow.errors import DISTRIBUTION, DiskFull, StateflowError, is_disk_full
from stateflow.failpoints import arm_from_environment
from stateflow.interrupts import as_ctrl_c, stopped_by_user

NOUNS: dict[str, str] = {
    "up": "Start a Kafka broker on this machine.",
    "down": "Stop the broker that `up` started.",
    "status": "Show the broker that `up` started.",
    "doctor": "Check what this machine has and what is missing.",
    "run": "Run an application's workers.",
    "describe": "Show an application's graph, topics and stores.",
    "topics": "Plan or create the topics of an application.",
    "reset": "Forget an application's progress and state.",
    "repair": "Show what is wrong with an application's control topic, and put it right.",
    "state": "Read an application's state.",
    "workers": "Show who runs which task, and how warm standby copies are.",
    "restore": "Rebuild local state from the changelog.",
    "checkpoint": "Create, list and verify images of local state.",
    "savepoint": "Keep a consistent state of a whole application, and start from it.",
    "scale": "Change the number of partitions, keeping all state.",
    "compaction": "Measure changelogs, and tune how Kafka compacts them.",
    "jobs": "List, show and submit the Spark jobs.",
    "config": "Show every setting and where it comes from.",
    "bench": "Measure speed on this machine.",
    "study": "Repeat a study and its figures.",
}
USAGE_EXIT_CODE = 2


class Nouns(click.Group):
    """A group whose commands are files, imported when first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click names it
        """The nouns whose file exists, in the order of the table."""
        return [noun for noun in NOUNS if importlib.util.find_spec(f"stateflow.cli.{noun}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click names it
        """Import one noun; None for a name that is not in the table or has no file."""
        if cmd_name not in NOUNS or importlib.util.find_spec(f"stateflow.cli.{cmd_name}") is None:
            return None
        command = importlib.import_module(f"stateflow.cli.{cmd_name}").command
        assert isinstance(command, click.Command), (
            f"cli/{cmd_name}.py must define a click command named `command`"
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the nouns from the table, without importing any."""
        rows = [(noun, NOUNS[noun]) for noun in self.list_commands(ctx)]
        assert rows, "an install without any noun"
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def installed_version() -> str:
    """The version of the installed package, or `unknown` in a plain checkout."""
    from importlib.metadata import (
        PackageNotFoundError,
        version,
    )  # brings the mail package: not for every command

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def _show_version(ctx: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(f"stateflow, version {installed_version()}")
        ctx.exit()


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """State for streams on Kafka: run, look at, restore, repartition and tune."""
    begin_commands()  # the noun is imported by now


def report(error: StateflowError, *, as_json: bool, is_verbose: bool = False) -> int:
    """Print one error for a person (stderr) or a program (stdout); returns its exit code.

    What the application raised is shown by its own frames, or by every frame there is.
    """
    if as_json:
        body = {
            "error": type(error).__name__,
            "message": error.message,
            "action": error.action,
            "exit_code": error.exit_code,
            "fields": error.fields,
        }
        click.echo(json.dumps(body, default=str))
        return error.exit_code
    raised = error.fields.get("traceback")
    if raised is not None and is_verbose:
        click.echo("".join(traceback.format_exception(error.__cause__ or error)), err=True)
    click.echo(f"error: {error}", err=True)
    if raised is not None and not is_verbose:
        click.echo(f"Where the application raised it (-v shows every frame):\n{raised}", err=True)
    return error.exit_code


def report_usage(error: click.ClickException, *, as_json: bool) -> int:
    """Print a mistake on the command line and how to get help; returns the exit code."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else "stateflow"
    action = f"Run `{path} --help`."
    if as_json:
        body = {
            "error": "UsageError",
            "message": error.format_message(),
            "action": action,
            "exit_code": USAGE_EXIT_CODE,
        }
        click.echo(json.dumps(body))
    else:
        click.echo(f"error: {error.format_message()} What to do: {action}", err=True)
    return USAGE_EXIT_CODE


def run(arguments: Sequence[str], command: click.Command = cli, name: str = "stateflow") -> int:
    """Run one command line of `command`, which was called by `name`; returns the exit code.

    Anything but a StateflowError is a bug.
    """
    as_json, is_verbose = "--json" in arguments, not {"-v", "--verbose"}.isdisjoint(arguments)
    try:
        with as_ctrl_c():
            result = command.main(args=list(arguments), prog_name=name, standalone_mode=False)
    except StateflowError as error:
        return report(error, as_json=as_json, is_verbose=is_verbose)
    except click.ClickException as error:
        return report_usage(error, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return report(stopped_by_user(), as_json=as_json)
    except OSError as error:
        if not is_disk_full(error):
            raise
        full = DiskFull(
            f"No space left for what the command writes, its output maybe ({error}).",
            action="free space, or write the output elsewhere; then do it again.",
        )
        return report(full, as_json=False)  # stdout may be what is full
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run what was typed, and end with its exit code."""
    arguments = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the encoding lacks is shown as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        arm_from_environment()
    except StateflowError as error:
        sys.exit(report(error, as_json="--json" in arguments))
    sys.exit(run(arguments))
