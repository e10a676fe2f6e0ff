"""The generation that a restore prepares: published, with its topics, and undone when the restore is given up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from stateflow.catalog.control import ControlTopic, refuse_unfinished
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.evolution import evolved
from stateflow.catalog.model import Catalog, GenerationEntry
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.checkpoint.savepoints import Savepoint
from stateflow.clock import Clock
from stateflow.errors import ConfigError, SavepointUnfit, TopicRecreated
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, TopicInfo
from stateflow.record import TopicPartition
from stateflow.runtime.worker.own_topics import own_topics
from stateflow.savepoint.fill import FillTarget
from stateflow.scale.generation import FENCE_LANES, delete_topics, preparing
from stateflow.scale.generation_topics import check_topics, copy_all_settings, refuse_other_counts


def source_of(savepoint: Savepoint) -> str:
    """What a generation notes of the savepoint that it is filled from."""
    return f"{savepoint.app}/{savepoint.id}"


def resumable(catalog: Catalog | None, savepoint: Savepoint) -> GenerationEntry | None:
    """The generation that an earlier attempt with this savepoint left; raises when another change is unfinished."""
    entry = None if catalog is None else preparing(catalog)
    if catalog is None or entry is None:
        return None
    if entry.savepoint != source_of(savepoint):
        refuse_unfinished(catalog)
    return entry


def found_attempt(
    catalog: Catalog | None, savepoint: Savepoint, app: str, *, as_new: bool
) -> GenerationEntry | None:
    """The same; with ``as_new`` it raises ``ConfigError`` for an application that is more than such an attempt."""
    entry = resumable(catalog, savepoint)
    if as_new and catalog is not None and (entry is None or len(catalog.generations) > 1):
        raise ConfigError(
            f"there is an application {app!r} already, whose state a restore under its id would replace.",
            action="choose an id that is free; or, to give up that state, restore the savepoint without `--as`, with"
            " the application's own code.",
            app=app,
        )
    return entry


def next_generation(catalog: Catalog | None) -> int:
    """The number of the next generation."""
    return max(catalog.generations, default=-1) + 1 if catalog is not None else 0


def planned_catalog(expected: Catalog, savepoint: Savepoint, generation: int) -> Catalog:
    """The catalog as it is to be: the expected one, with one generation, which is the restored one.

    Its stores know the schemas by which the savepoint's values were written, under the savepoint's numbers.
    """
    saved = {store.name: store for store in savepoint.stores}
    stores = {
        name: evolved(store, saved[name]) if name in saved else store
        for name, store in expected.stores.items()
    }
    entry = GenerationEntry(
        generation=generation,
        state="active",
        routing=savepoint.routing,
        savepoint=source_of(savepoint),
        source_generation=generation,
    )
    return msgspec.structs.replace(expected, stores=stores, generations={generation: entry})


def begin(
    cluster: Cluster,
    savepoint: Savepoint,
    expected: Catalog,
    clock: Clock,
    replication: int,
    *,
    as_new: bool = False,
) -> tuple[Catalog, GenerationEntry]:
    """Publish the generation as *preparing*, or find the one that an earlier attempt left; create its topics.

    It is decided on the catalog as it is then: ``as_new`` refuses an application that has come to be meanwhile.
    """
    control = ControlTopic(cluster, expected.app.app, replication)

    def decide(current: Catalog | None) -> list[CatalogItem]:
        if found_attempt(current, savepoint, expected.app.app, as_new=as_new) is not None:
            return []
        planned = planned_catalog(expected, savepoint, next_generation(current))
        check_topics(cluster, own_topics(planned, replication))
        (fresh,) = planned.generations.values()
        entry = msgspec.structs.replace(fresh, state="preparing", created_ms=clock.now_ms())
        if current is not None:
            return [entry]
        return [expected.app, *expected.stages.values(), *expected.stores.values(), entry]

    catalog = control.change(decide)
    reach("refill.after_generation")
    entry = preparing(catalog)
    assert entry is not None, "it was published a moment ago"
    planned = planned_catalog(expected, savepoint, entry.generation)
    specs = own_topics(planned, replication)
    found = cluster.describe({spec.name for spec in specs} | entry.topic_ids.keys())
    _check_found(cluster, entry, found)
    refuse_other_counts(specs, found)
    created = cluster.create(specs)
    refuse_other_counts(specs, created)  # again: somebody may have been quicker
    if any(generation.state == "active" for generation in catalog.generations.values()):
        _keep_settings(cluster, catalog, planned)
    catalog = control.record_topics(entry.generation, {name: info.topic_id for name, info in created.items()})
    return catalog, catalog.generations[entry.generation]


def _check_found(cluster: Cluster, entry: GenerationEntry, found: dict[str, TopicInfo]) -> None:
    """Topics that are there already are an earlier attempt's, or are empty."""
    for name, info in found.items():
        recorded = entry.topic_ids.get(name)
        if recorded is not None and recorded != info.topic_id:
            raise TopicRecreated(
                f"{name} was deleted and created again while the restore was unfinished.",
                action="run `stateflow savepoint abort`, then restore again.",
                topic=name,
            )
        ranges = cluster.ranges([TopicPartition(name, partition) for partition in range(info.partitions)])
        if recorded is None and any(log.offset_next for log in ranges.values()):
            raise SavepointUnfit(
                f"there is a topic {name} already, and it is not empty.",
                action="choose another application id with --as, or delete the topic if nobody needs it.",
                topic=name,
            )


def _keep_settings(cluster: Cluster, catalog: Catalog, planned: Catalog) -> None:
    """Give the new topics the settings that the active generation's have, tuned ones included."""
    app, generation = planned.app.app, planned.active.generation
    pairs = [
        (
            changelog_topic(app, store.name, catalog.changelog_generation(store.stage)),
            changelog_topic(app, store.name, generation),
        )
        for store in planned.stores.values()
        if store.name in catalog.stores
    ]
    pairs += [
        (
            repartition_topic(app, step.name, catalog.active.generation),
            repartition_topic(app, step.name, generation),
        )
        for stage in planned.stages.values()
        for step in stage.rekeys
    ]
    there = cluster.describe(old for old, _ in pairs)
    copy_all_settings(cluster, [(old, new) for old, new in pairs if old in there])


def abort_restore(cluster: Cluster, app: str) -> GenerationEntry:
    """Undo a restore that was begun and not finished; what was active before was never touched.

    Raises ``ConfigError`` when there is none. Interrupted, it can be repeated; topics that it leaves behind when it is
    not are deleted by ``stateflow scale finalize``.
    """
    control = ControlTopic(cluster, app)
    catalog = control.load()
    entry = unfinished_restore(catalog)
    aborted = msgspec.structs.replace(entry, state="aborted")
    if entry.state == "preparing":
        catalog = control.write_generations([aborted])
    topics = _topics_of(catalog, entry.generation) | entry.topic_ids.keys()
    targets = [
        FillTarget(app, entry.generation, TopicPartition(topic, partition), "", 1)
        for topic, info in cluster.describe(topics).items()
        for partition in range(info.partitions)
    ]
    with ThreadPoolExecutor(FENCE_LANES, thread_name_prefix="fence") as pool:
        for _ in pool.map(lambda target: cluster.writer(target.transactional_id).close(), targets):
            pass
    if any(found.state == "active" for found in catalog.generations.values()):
        return delete_topics(cluster, catalog, aborted)
    cluster.delete(sorted(cluster.describe(topics)))
    cluster.delete([control.topic])  # there was no application before, so there is none now
    return aborted


def unfinished_restore(catalog: Catalog) -> GenerationEntry:
    """The generation that an unfinished restore prepares; raises ``ConfigError`` when there is none."""
    entry = preparing(catalog)
    left = [found for found in catalog.generations.values() if found.state == "aborted" and found.savepoint]
    if entry is None and left and not any(g.state == "active" for g in catalog.generations.values()):
        return left[-1]  # an abort that was interrupted, of the first generation there ever was
    if entry is None or entry.savepoint is None:
        raise ConfigError(
            f"{catalog.app.app!r} has no unfinished restore from a savepoint.",
            action="nothing to do; a change of its partitions is undone with `stateflow scale abort`.",
        )
    return entry


def _topics_of(catalog: Catalog, generation: int) -> set[str]:
    app = catalog.app.app
    names = {changelog_topic(app, store, generation) for store in catalog.stores}
    steps = {step.name for stage in catalog.stages.values() for step in stage.rekeys}
    return names | {repartition_topic(app, step, generation) for step in steps}
