"""`stateflow study`: repeat a study and its figures. The studies are the laboratory's, which only a checkout has."""

from __future__ import annotations

import importlib
import importlib.util

import click

from stateflow.errors import ConfigError

STUDIES: dict[str, str] = {
    "compaction": "Restore time against log compaction: the DRSS'19 grid, and our tuner beside it.",
    "states": "State types against what is done with them.",
    "time": "Random logs against an oracle and Kafka Streams: do results depend on anything but the log?",
    "endurance": "Slow code, hot keys, many windows and tasks, an absent broker: do workers stay?",
    "faults": "Crashes, hangs, exceptions and a spoilt network: is anything lost, or counted twice?",
}


class Studies(click.Group):
    """A group whose commands are the files `lab/commands/<name>.py`, imported when first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every study, in the order of the table."""
        return list(STUDIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one study; None for a name that is not in the table.

        Raises:
            ConfigError: this installation has no laboratory; the error says where it is.
        """
        if cmd_name not in STUDIES:
            return None
        if not has_laboratory():
            raise ConfigError(
                f"`stateflow study {cmd_name}` needs the laboratory, which packages leave out.",
                action=f"Clone the project and run `python3 dev.py exec stateflow study {cmd_name}` there.",
            )
        command = importlib.import_module(f"stateflow.lab.commands.{cmd_name}").command
        assert isinstance(command, click.Command), f"lab/commands/{cmd_name}.py must define a click command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the studies from the table, without importing any."""
        with formatter.section("Studies"):
            formatter.write_dl([(name, STUDIES[name]) for name in self.list_commands(ctx)])


def has_laboratory() -> bool:
    """Whether this is a checkout: the wheel leaves `lab/` out."""
    return importlib.util.find_spec("stateflow.lab") is not None


@click.group(cls=Studies)
def command() -> None:
    """Repeat a study and its figures. Needs a checkout of the project: packages leave the laboratory out."""
