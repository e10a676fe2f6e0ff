"""`stateflow describe`: an application's graph, stages, stores and topics, from its code alone."""

from __future__ import annotations

import click

from stateflow.app import load
from stateflow.cli.application import target_argument
from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json


@click.command()
@target_argument
@json_option
def command(target: str, as_json: bool) -> None:
    """Show the stages of APP with their steps, stores and topics. Needs no broker."""
    app = load(target)
    if as_json:
        emit_json(app.describe())
    else:
        click.echo(app.describe_text())
