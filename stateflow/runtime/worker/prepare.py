"""Before the first record: topics that must exist, the catalog compared or written, topics of our own created."""

from __future__ import annotations

import logging
import time
from collections.abc import Set

from msgspec import structs

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import (
    AppEntry,
    Catalog,
    GenerationEntry,
    Guarantee,
    InputEntry,
    RoutingEntry,
    StageEntry,
)
from stateflow.catalog.names import presence_group
from stateflow.catalog.recreated import refuse_recreated_own
from stateflow.catalog.written import Written
from stateflow.clock import Clock, SystemClock
from stateflow.errors import PartitionCountChanged, StillRunning, TopicMissing
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, TopicInfo, TopicSpec
from stateflow.operators.topology.topology import Stage, Topology
from stateflow.runtime.snapshots.trim_policy import expected_trim, hold_trim_policy
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.own_topics import judged_topics, own_topics, refuse_unfit_settings
from stateflow.runtime.worker.topic_ownership import (
    recorded_topics,
    refuse_claimed,
    refuse_lost_catalog,
    refuse_unrecorded,
)

_LOG = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.2


def prepare(
    cluster: Cluster,
    topology: Topology,
    guarantee: Guarantee,
    partitions: int,
    clock: Clock,
    replication: int = 1,
    *,
    trim_to: str | None = None,
    older_leave_seconds: float = 0.0,
) -> Wiring:
    """Check and create what the application needs on the cluster; safe to run from several workers at once.

    ``partitions`` is the count of generation 0; once a catalog exists, the active generation's count stands.
    ``trim_to`` is where the images are that changelogs are deleted before, if that is the policy.
    ``older_leave_seconds`` is how long workers are waited for that run and would have to feed what the code adds.
    Raises ``StillRunning`` when they stay, ``TopicMissing``, ``PartitionCountChanged``, ``TopicRecreated``,
    ``TopicForeign``, ``CatalogMissing``, ``CatalogIncompatible`` or ``GenerationUnfinished``; nothing has been changed
    then, except that topics may have been created.
    """
    sources = _check_topics(cluster, topology)
    control = ControlTopic(cluster, topology.app)
    expected = _expected(topology, guarantee, partitions, sources, clock)
    present = control.read()
    if trim_to is not None:
        trim = expected_trim(cluster, present, trim_to)
        expected = structs.replace(expected, app=structs.replace(expected.app, trim=trim))
    if topology.static_tables:
        _tell_static_changes(present, topology)
    if present is None:
        refuse_lost_catalog(cluster, control, expected)
    _refuse_claimed(cluster, expected, present)  # before anything is written
    _await_older(cluster, expected, present, older_leave_seconds)
    reach("startup.before_catalog")
    catalog = control.ensure(expected)
    _refuse_claimed(cluster, expected, catalog)  # again: now others see this catalog, or it sees theirs
    if catalog.active.partitions != partitions:
        _LOG.info(
            "The application asks for %d partitions, generation %d has %d: the generation stands.",
            partitions,
            catalog.active.generation,
            catalog.active.partitions,
        )
    catalog = _with_topics(cluster, control, catalog, replication)
    return Wiring(topology, hold_trim_policy(cluster, control, catalog, clock))


def _refuse_claimed(cluster: Cluster, expected: Catalog, found: Catalog | None) -> None:
    """Look for other applications with the topics of this one, or with those that it will have.

    One whose topics are all recorded has nothing to look for but topics that both record.
    """
    planned = expected
    if found is not None:
        stages, stores = {**found.stages, **expected.stages}, {**found.stores, **expected.stores}
        planned = structs.replace(found, stages=stages, stores=stores)
    refuse_claimed(cluster, planned, recorded_topics(found))


def _await_older(cluster: Cluster, expected: Catalog, found: Catalog | None, leave_seconds: float) -> None:
    """Raise ``StillRunning`` while those run who commit input without feeding what the code adds to their stages.

    One that joins after this look is refused when it opens a task, or stops when it hears of the new entries.
    """
    added = [] if found is None else Written.of_catalog(found).lacking(expected)
    deadline = time.monotonic() + leave_seconds
    app = expected.app.app
    while added and (members := [*cluster.group_members(app), *cluster.group_members(presence_group(app))]):
        if time.monotonic() >= deadline:
            raise StillRunning(
                f"the code adds {', '.join(added)}, and {len(members)} worker(s) or Spark query(s) of {app!r} run that"
                " do not know of it: what they process meanwhile would be missing there.",
                action="stop them all, then start the new version; one that was killed, or had a name of its own,"
                " leaves the group when its session times out (10 s by default).",
                app=app,
                members=members,
                added=added,
            )
        time.sleep(_PAUSE_SECONDS)


def _tell_static_changes(found: Catalog | None, topology: Topology) -> None:
    known = {} if found is None else found.app.static_tables
    for name, fingerprint in topology.static_tables.items():
        if known.get(name, fingerprint) != fingerprint:
            _LOG.warning(
                "The static table %r is not the one that was used before (%s, now %s): what was joined with it is not"
                " joined anew. Bring the same data to all workers.",
                name,
                known[name][:8],
                fingerprint[:8],
            )


def _check_topics(cluster: Cluster, topology: Topology) -> dict[str, TopicInfo]:
    sources = {topic for stage in topology.stages for topic in stage.sources}
    named = {topic for stage in topology.stages for topic in stage.topics}
    found = cluster.describe(named)
    missing = sorted(named - found.keys())
    if missing:
        raise TopicMissing(
            f"the application {topology.app!r} names topics that do not exist: {', '.join(missing)}.",
            action="create them, for example with `stateflow topics apply APP`, or correct their names.",
            topics=missing,
        )
    for stage in topology.stages:
        _check_copartitioned(stage, found)
    return {topic: found[topic] for topic in sources}


def _check_copartitioned(stage: Stage, found: dict[str, TopicInfo]) -> None:
    counts = {topic: found[topic].partitions for topic in stage.sources}
    if len(set(counts.values())) > 1:
        raise PartitionCountChanged(
            f"the sources of stage {stage.name!r} must have equally many partitions and have {counts}.",
            action="put key_by(…) behind the sources, so that the application's own routing joins them.",
            stage=stage.name,
            partitions=counts,
        )


def _expected(
    topology: Topology, guarantee: Guarantee, partitions: int, sources: dict[str, TopicInfo], clock: Clock
) -> Catalog:
    stages = {
        stage.name: StageEntry(
            name=stage.name,
            inputs=tuple(InputEntry(name=port.name, upstream=port.upstream) for port in stage.inputs),
            source_partitions=sources[stage.sources[0]].partitions if stage.sources else None,
            source_ids={topic: sources[topic].topic_id for topic in stage.sources},
            outputs=tuple(sorted(stage.outputs)),
        )
        for stage in topology.stages
    }
    first = GenerationEntry(
        generation=0,
        state="active",
        routing=RoutingEntry(kind="modulo", partitions=partitions),
        created_ms=clock.now_ms(),
        activated_ms=clock.now_ms(),
    )
    return Catalog(
        app=AppEntry(app=topology.app, guarantee=guarantee, static_tables=topology.static_tables),
        stages=stages,
        stores={store.name: store for store in topology.stores},
        generations={0: first},
    )


def expected_catalog(
    cluster: Cluster, topology: Topology, guarantee: Guarantee, partitions: int, clock: Clock
) -> Catalog:
    """What the catalog of a first start would be. Raises ``TopicMissing`` and ``PartitionCountChanged``."""
    return _expected(topology, guarantee, partitions, _check_topics(cluster, topology), clock)


def missing_topics(cluster: Cluster, topology: Topology, partitions: int) -> list[str]:
    """Topics that ``prepare`` would create now; nothing is changed. Raises what ``prepare`` would raise first."""
    sources = _check_topics(cluster, topology)
    control = ControlTopic(cluster, topology.app)
    expected = _expected(topology, "exactly-once", partitions, sources, SystemClock())
    present = control.read()
    if present is None:
        refuse_lost_catalog(cluster, control, expected)
    _refuse_claimed(cluster, expected, present)
    catalog = present or expected
    names = [control.topic, *(spec.name for spec in own_topics(catalog, 1))]
    return sorted(set(names) - cluster.describe(names).keys())


def _with_topics(cluster: Cluster, control: ControlTopic, catalog: Catalog, replication: int) -> Catalog:
    specs = own_topics(catalog, replication)
    recorded = catalog.active.topic_ids
    found = cluster.describe({spec.name for spec in specs} | recorded.keys())
    refuse_recreated_own(recorded, {name: info.topic_id for name, info in found.items()})
    _refuse_gone(recorded.keys() - found.keys())
    reach("startup.before_topics")
    refuse_unrecorded(cluster, control, found.keys() - recorded.keys())
    refuse_unfit_settings(cluster, judged_topics(catalog, [spec for spec in specs if spec.name in found]))
    absent = [spec for spec in specs if spec.name not in found]
    if absent:
        found.update(cluster.create(absent))
    for spec in specs:
        _check_partitions(spec, found[spec.name])
    ids = {**recorded, **{name: info.topic_id for name, info in found.items()}}
    if ids == recorded:
        return catalog
    reach("startup.before_topic_ids")
    return control.record_topics(catalog.active.generation, ids)


def _refuse_gone(topics: Set[str]) -> None:
    if topics:
        raise TopicMissing(
            f"topics of this application were deleted: {', '.join(sorted(topics))}.",
            action="if that was meant, run `stateflow reset APP` to begin anew; otherwise restore them from a backup.",
            topics=sorted(topics),
        )


def _check_partitions(spec: TopicSpec, info: TopicInfo) -> None:
    if info.partitions != spec.partitions:
        raise PartitionCountChanged(
            f"{spec.name} has {info.partitions} partitions, the active generation needs {spec.partitions}.",
            action="never alter this topic's partition count by hand; use `stateflow scale start` and, to begin anew,"
            " `stateflow reset`.",
            topic=spec.name,
            partitions=info.partitions,
        )
