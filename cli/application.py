"""From the name of an application on the command line to something that can run: shared by several nouns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from stateflow.app import App, load
from stateflow.config import AppOptions
from stateflow.connectors.broker.running import running_bootstrap
from stateflow.log.base import Cluster
from stateflow.operators.topology import Topology
from stateflow.runtime.settings import WorkerSettings

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
    if app.settings.origins["brokers"] == "default":
        app.configure(brokers=running_bootstrap())
    return app


@contextmanager
def connected(options: AppOptions) -> Iterator[Cluster]:
    """The application's cluster; raises ``BrokerUnreachable`` naming the address."""
    from stateflow.log.kafka import connect

    cluster = connect(options.brokers, options.client)
    try:
        yield cluster
    finally:
        cluster.close()


def worker_settings(options: AppOptions, member: str | None = None) -> WorkerSettings:
    """The part of an application's options that concerns one worker."""
    return WorkerSettings(
        state_dir=options.state_dir,
        commit_interval_seconds=options.commit_interval_seconds,
        dirty_bytes_max=options.dirty_bytes_max,
        poll_records_max=options.poll_records_max,
        restore_threads=options.restore_threads,
        idle_seconds=options.idle_seconds,
        flush_interval_seconds=options.flush_interval_seconds,
        purge_interval_seconds=options.purge_interval_seconds,
        read_cache_bytes=options.read_cache_bytes,
        revoke_timeout_seconds=options.revoke_timeout_seconds,
        images=options.images,
        image_interval_seconds=options.image_interval_seconds,
        images_kept=options.images_kept,
        start_from=options.start_from,
        member=member or options.member,
    )


def topology_of(target: str) -> Topology:
    """The graph of an application, built anew: what a Spark executor calls."""
    return load(target).topology()
