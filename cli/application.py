"""From the name of an application on the command line to something that can run: shared by several nouns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateflow.app import App, load
from stateflow.cli.which_broker import with_running_broker
from stateflow.config import AppOptions
from stateflow.operators.topology.topology import Topology

if TYPE_CHECKING:
    from stateflow.log.kafka import KafkaCluster

target_argument = click.argument("target", metavar="APP")
brokers_override = click.option(
    "--brokers",
    metavar="HOST:PORT",
    help="Bootstrap servers; overrides what the application and its settings say.",
)
state_dir_override = click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Where local state is kept."
)


def configured(target: str, *, brokers: str | None = None, **settings: Any) -> App:
    """The application with the command line's settings; the broker of `stateflow up` where none was chosen."""
    app = load(target)
    app.configure(brokers=brokers, **settings)
    app.refine(with_running_broker)
    return app


@contextmanager
def connected(options: AppOptions) -> Iterator[KafkaCluster]:
    """The application's cluster; raises ``BrokerUnreachable`` naming the address."""
    from stateflow.log.kafka import KafkaOptions, connect

    clients = KafkaOptions.within(options.memory, options.restore_threads, options.commit_interval_seconds)
    cluster = connect(options.brokers, options.client, clients)
    try:
        yield cluster
    finally:
        cluster.close()


def topology_of(target: str) -> Topology:
    """The graph of an application, built anew: what a Spark executor calls."""
    return load(target).topology()
