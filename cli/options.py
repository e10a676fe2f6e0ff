"""The options that several nouns share, so that they are spelled and documented alike."""

from __future__ import annotations

import click

from stateflow.connectors.broker.running import running_bootstrap

DEFAULT_BROKERS = "localhost:9092"

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def default_brokers() -> str:
    """The broker that `stateflow up` runs, else localhost:9092."""
    return running_bootstrap() or DEFAULT_BROKERS


brokers_option = click.option(
    "--brokers",
    envvar="STATEFLOW_BROKERS",
    default=default_brokers,
    show_default="the broker of `stateflow up`, else localhost:9092",
    help="Bootstrap servers, host:port[,host:port…].",
)
app_id_option = click.option(
    "--app", "app_id", help="Application id, when no code is at hand: the catalog is enough."
)
