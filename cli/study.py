"""`stateflow study`: repeat a study and its figures. The studies are the laboratory's, which only a checkout has."""

from __future__ import annotations

import click

from stateflow.cli.laboratory import laboratory_command

STUDIES: dict[str, str] = {
    "compaction": "Restore time against log compaction: the DRSS'19 grid, and our tuner beside it.",
    "states": "State types against what is done with them.",
    "time": "Random logs against an oracle and Kafka Streams: do results depend on anything but the log?",
    "operators": "Every verb on random logs, straight, killed and repartitioned, against an oracle.",
    "endurance": "Slow code, hot keys, many windows and tasks, an absent broker: do workers stay?",
    "joins": "Random logs through joins and tables, compared with Kafka Streams.",
    "linear-road": "Tolls of crowded expressways: the load that is answered within 5 seconds.",
    "recovery": "A worker and its disk are lost: how long each way of coming back takes, and is it the same?",
    "spark-faults": "Drivers, executors and Python workers of Spark killed amid jobs and a running application.",
    "chaos": "A whole application killed, frozen, repartitioned, restored on real brokers: is each result there once?",
    "faults": "Crashes, hangs, exceptions and a spoilt network: is anything lost, or counted twice?",
}


class Studies(click.Group):
    """A group whose commands are the files `lab/commands/<name>.py`, imported when first used.

    A dash in a command's name is an underscore in that of its file.
    """

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
        return laboratory_command(cmd_name.replace("-", "_"), f"study {cmd_name}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the studies from the table, without importing any."""
        with formatter.section("Studies"):
            formatter.write_dl([(name, STUDIES[name]) for name in self.list_commands(ctx)])


@click.group(cls=Studies)
def command() -> None:
    """Repeat a study and its figures. Needs a checkout of the project: packages leave the laboratory out."""
