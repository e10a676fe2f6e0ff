"""`stateflow config`: every setting of an application, and where its value comes from."""

from __future__ import annotations

import click

from stateflow.cli.application import configured
from stateflow.cli.options import json_array_option, target_argument
from stateflow.cli.output import emit_json, emit_table


@click.group()
def command() -> None:
    """Show every setting and where it comes from."""


@command.command()
@target_argument
@click.option("--origin/--no-origin", default=True, help="Say where each value comes from.")
@json_array_option
def show(target: str, origin: bool, as_json: bool) -> None:
    """Show the settings that APP would run with; secrets are starred out."""
    shown = configured(target).settings.shown()
    if as_json:
        emit_json([{"name": s.name, "value": s.value, "origin": s.origin} for s in shown])
    elif origin:
        emit_table(["setting", "value", "from"], [[s.name, s.value, s.origin] for s in shown])
    else:
        emit_table(["setting", "value"], [[s.name, s.value] for s in shown])
