"""From the name of an application on the command line to something that can run: shared by several nouns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stateflow.app import App, load
from stateflow.cli.which_broker import with_running_broker
from stateflow.config import AppOptions
from stateflow.operators.topology.topology import Topology

if TYPE_CHECKING:
    from stateflow.log.kafka import KafkaCluster


def configured(target: str, *, brokers: str | None = None, **settings: Any) -> App:
    """The application with the command line's settings; the broker of `stateflow up` where none was chosen."""
    app = load(target)
    app.configure(brokers=brokers, **settings)
    app.refine(with_running_broker)
    return app


def connector(options: AppOptions) -> Callable[[], KafkaCluster]:
    """Connects to the application's cluster, with clients within ``memory_bytes``; other processes can take it, too."""
    from stateflow.log.kafka import KafkaOptions, connect

    clients = KafkaOptions.within(options.memory, options.restore_threads, options.commit_interval_seconds)
    return functools.partial(connect, options.brokers, options.client, clients)


@contextmanager
def connected(options: AppOptions) -> Iterator[KafkaCluster]:
    """The application's cluster; raises ``BrokerUnreachable`` naming the address."""
    cluster = connector(options)()
    try:
        yield cluster
    finally:
        cluster.close()


def topology_of(target: str) -> Topology:
    """The graph of an application, built anew: what a Spark executor calls."""
    return load(target).topology()
