"""`stateflow study`: repeat a study and its figures. One study per file, `cli/study_<name>.py`, as `command`."""

from __future__ import annotations

import importlib
import importlib.util

import click

STUDIES: dict[str, str] = {
    "compaction": "Restore time against log compaction: the DRSS'19 grid, and our tuner beside it.",
    "states": "State types against what is done with them.",
    "time": "Random logs against an oracle and Kafka Streams: do results depend on anything but the log?",
    "faults": "Crashes, hangs, exceptions and a spoilt network: is anything lost, or counted twice?",
}


class Studies(click.Group):
    """A group whose commands are files, imported when first used; a study without a file is not shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The studies whose file exists, in the order of the table."""
        return [
            name for name in STUDIES if importlib.util.find_spec(f"stateflow.cli.study_{name}") is not None
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one study; None for a name that is not in the table or has no file."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"stateflow.cli.study_{cmd_name}").command
        assert isinstance(command, click.Command), f"cli/study_{cmd_name}.py must define a click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the studies from the table, without importing any."""
        with formatter.section("Studies"):
            formatter.write_dl([(name, STUDIES[name]) for name in self.list_commands(ctx)])


@click.group(cls=Studies)
def command() -> None:
    """Repeat a study and its figures."""
