"""The option that names a file of Kafka client settings, for commands that take no application."""

from __future__ import annotations

from pathlib import Path

import click

client_config_option = click.option(
    "--client-config",
    "client_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="STATEFLOW_CLIENT_CONFIG",
    help="Properties of the Kafka client (security.protocol, sasl.username …), one a line.",
)
