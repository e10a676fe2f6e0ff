"""`stateflow reset`: forget an application's progress and state, or only move its input positions."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import members_topic
from stateflow.cli.application import (
    brokers_override,
    configured,
    connected,
    state_dir_override,
    target_argument,
)
from stateflow.cli.options import dry_run_option, json_option, yes_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster, Committed
from stateflow.record import TopicPartition
from stateflow.runtime.lag import stage_inputs
from stateflow.scale.generation import await_stopped


@click.command()
@target_argument
@click.option(
    "--to-earliest", is_flag=True, help="Keep the state; only move source positions to the logs' start."
)
@brokers_override
@state_dir_override
@yes_option
@dry_run_option
@json_option
def command(
    target: str,
    to_earliest: bool,
    brokers: str | None,
    state_dir: Path | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Forget everything that APP has computed: its own topics, its positions, its local state here.

    Source and output topics are never touched. Refused while workers run.
    """
    app = configured(target, brokers=brokers, state_dir=state_dir)
    with connected(app.options) as cluster:
        catalog = ControlTopic(cluster, app.id).load()
        await_stopped(cluster, app.id)
        if to_earliest:
            _refuse_state_on_sources(catalog)
        sources = _source_partitions(catalog)
        local = app.options.state_dir / app.id
        topics = [] if to_earliest else _own_topics(cluster, catalog)
        facts = {
            "app": app.id,
            "topics_deleted": topics,
            "positions_reset": [str(source) for source in sources],
            "state_deleted": str(local) if not to_earliest and local.exists() else None,
            "dry_run": dry_run,
        }
        if not dry_run:
            if not yes:
                click.confirm(
                    f"Forget {len(topics)} topics and {len(sources)} positions of {app.id!r}?", abort=True
                )
            _move_to_start(cluster, app.id, sources)
            if to_earliest:
                _accept_sources(cluster, catalog)
            else:
                cluster.delete(topics)
                shutil.rmtree(local, ignore_errors=False) if local.exists() else None
    if as_json:
        emit_json(facts)
    else:
        emit_pairs([(name, ", ".join(v) if isinstance(v, list) else v) for name, v in facts.items()])


def _source_partitions(catalog: Catalog) -> list[TopicPartition]:
    return [
        source
        for stage, entry in catalog.stages.items()
        if entry.sources
        for source in stage_inputs(catalog, stage)
    ]


def _refuse_state_on_sources(catalog: Catalog) -> None:
    """State that follows a source's partitions records the input that it stands for: that record would win."""
    bound = sorted(store.name for store in catalog.stores.values() if not catalog.is_rekeyed(store.stage))
    if bound:
        raise ConfigError(
            f"{', '.join(bound)} of {catalog.app.app!r} keep state by the partitions of their source, and with it the"
            " position of the input that it was made from.",
            action="reset without --to-earliest, which forgets that state too, or put key_by before the stateful step.",
            stores=bound,
        )


def _own_topics(cluster: Cluster, catalog: Catalog) -> list[str]:
    """Topics of every generation, the control topic last: until it is gone, a failed reset can be repeated."""
    recorded = {topic for entry in catalog.generations.values() for topic in entry.topic_ids}
    control = ControlTopic(cluster, catalog.app.app).topic
    return [*sorted(cluster.describe({*recorded, members_topic(catalog.app.app)})), control]


def _move_to_start(cluster: Cluster, app: str, sources: list[TopicPartition]) -> None:
    starts = cluster.ranges(sources)
    cluster.commit(app, {source: Committed(log.offset_first) for source, log in starts.items()})


def _accept_sources(cluster: Cluster, catalog: Catalog) -> None:
    """Note the sources' present ids: that they may have been created anew is known, and wanted."""
    found = cluster.describe(topic for stage in catalog.stages.values() for topic in stage.sources)
    stages = [
        msgspec.structs.replace(stage, source_ids={topic: found[topic].topic_id for topic in stage.sources})
        for stage in catalog.stages.values()
        if stage.sources
    ]
    ControlTopic(cluster, catalog.app.app).write(stages)
