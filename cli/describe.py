"""`stateflow describe`: an application's graph, stages, stores and topics, and what holds its event time back."""

from __future__ import annotations

import click

from stateflow.app import load
from stateflow.cli.application import configured, connected
from stateflow.cli.options import brokers_override, json_option, target_argument
from stateflow.cli.output import emit_json, emit_table
from stateflow.cli.workers import HELD_HEADER, held_facts, held_row


@click.command()
@target_argument
@click.option("--live", is_flag=True, help="Ask the broker, too, which inputs hold event time back.")
@brokers_override
@json_option
def command(target: str, live: bool, brokers: str | None, as_json: bool) -> None:
    """Show the stages of APP with their steps, stores and topics. Needs no broker, but for --live."""
    app = load(target)
    described = app.describe()
    if live:
        with connected(configured(target, brokers=brokers).options) as cluster:
            described["slowest_inputs"] = held_facts(cluster, app.id)
    if as_json:
        emit_json(described)
        return
    click.echo(app.describe_text())
    if not live:
        return
    if described["slowest_inputs"]:
        emit_table(HELD_HEADER, [held_row(row) for row in described["slowest_inputs"]])
    else:
        click.echo("no input holds event time back")
