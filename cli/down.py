"""`stateflow down`: the end of the broker that `stateflow up` started."""

from __future__ import annotations

import click

from stateflow.cli.options import broker_name_option, dry_run_option, json_option
from stateflow.cli.output import emit_json
from stateflow.connectors.broker.running import all_running, load_running, meant_name
from stateflow.connectors.broker.service import take_down


@click.command()
@broker_name_option
@dry_run_option
@json_option
def command(name: str | None, dry_run: bool, as_json: bool) -> None:
    """End the broker that `up` started. Its data stay, unless it was started with --ephemeral.

    It is not an error when none runs.
    """
    running = load_running(meant_name(name))
    if running is not None and not dry_run:
        take_down(running)
    bootstrap = running.bootstrap if running is not None else None
    if as_json:
        emit_json({"stopped": bootstrap, "dry_run": dry_run})
    elif running is None:
        others = [broker.name for broker in all_running()]
        click.echo(
            f"no broker {meant_name(name)} runs" + (f"; --name {' or '.join(others)}" if others else "")
        )
    else:
        fate = "removed" if running.ephemeral else "kept"
        click.echo(f"{'would stop' if dry_run else 'stopped'} {bootstrap}; {running.data_dir} is {fate}")
