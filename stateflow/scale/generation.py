"""The life of a generation: preparing → active → retired, or aborted. Nothing here moves a record.

Each step leaves the control topic in a state from which the next command can go on: workers refuse to start
while a generation is *preparing*, a second ``start`` with the same partition count resumes it, ``abort``
undoes it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from stateflow.catalog.control import ControlTopic, refuse_unfinished
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import Catalog, GenerationEntry, RangeAudit, RoutingEntry
from stateflow.catalog.names import presence_group
from stateflow.clock import Clock
from stateflow.errors import (
    ConfigError,
    GenerationUnfinished,
    StillRunning,
)
from stateflow.log.base import Cluster
from stateflow.routing import RoutingTable
from stateflow.scale.generation_topics import check_topics, create_topics, topic_specs
from stateflow.scale.progress_group import writer_ids
from stateflow.scale.scope import moved_topics, rekeyed_topics

FENCE_LANES = 8

STOPPED_WITHIN_SECONDS = 15.0
"""Longer than a session, so that whoever was stopped just now does not count as running."""
_PAUSE_SECONDS = 0.2


def load_catalog(cluster: Cluster, app: str) -> Catalog:
    """The application's catalog; raises ``CatalogMissing`` when it never ran on this cluster."""
    return ControlTopic(cluster, app).load()


def refuse_while_running(cluster: Cluster, app: str) -> None:
    """Raise ``StillRunning`` when workers of the application, or a Spark query that runs it, are members of
    its groups.
    """
    members = cluster.group_members(app)
    queries = cluster.group_members(presence_group(app))
    if members or queries:
        raise StillRunning(
            f"{len(members)} worker(s) and {len(queries)} Spark query(s) of {app!r} are running.",
            action="stop them first; one that was killed, or had a name of its own, leaves the group when its"
            " session times out (10 s by default).",
            app=app,
            members=[*members, *queries],
        )


def refuse_beside_query(cluster: Cluster, app: str) -> None:
    """Raise ``StillRunning`` when a Spark query runs the application: it and local workers would fence each other."""
    queries = cluster.group_members(presence_group(app))
    if queries:
        raise StillRunning(
            f"{len(queries)} Spark query(s) of {app!r} are running.",
            action="stop the query first; its state and positions are the local workers' too.",
            app=app,
            members=queries,
        )


def await_stopped(
    cluster: Cluster,
    app: str,
    timeout_seconds: float = STOPPED_WITHIN_SECONDS,
    refuse: Callable[[Cluster, str], None] = refuse_while_running,
) -> None:
    """Return once no member is left; a member with a name of its own is known to the broker a while after it
    left.

    Raises ``StillRunning`` when none has left for ``timeout_seconds``, not counting the time in which the broker did
    not answer: it ends no session then. Of members that ended amid a rebalance one may be given another session when
    the first one's is over, which ends that rebalance. ``refuse`` says who counts.
    """
    looks = left = round(timeout_seconds / _PAUSE_SECONDS)
    fewest = math.inf
    while True:
        try:
            refuse(cluster, app)
            return
        except StillRunning as error:
            members_total = _members_total(error)
            if members_total < fewest:
                fewest, left = members_total, looks
            if left <= 0:
                raise
        left -= 1
        time.sleep(_PAUSE_SECONDS)


def _members_total(error: StillRunning) -> int:
    members = error.fields.get("members")
    return len(members) if isinstance(members, list) else 0


def preparing(catalog: Catalog) -> GenerationEntry | None:
    """The generation that was begun and not finished, if any."""
    return next((entry for entry in catalog.generations.values() if entry.state == "preparing"), None)


def unfinished(catalog: Catalog) -> GenerationEntry:
    """The generation that was begun and not finished; raises ``ConfigError`` when there is none."""
    entry = preparing(catalog)
    if entry is None:
        raise ConfigError(
            f"{catalog.app.app!r} has no unfinished change of its partitions.",
            action=f"nothing to do: generation {catalog.active.generation} is active.",
        )
    if entry.savepoint is not None:
        refuse_unfinished(catalog)
    return entry


def target_routing(
    catalog: Catalog,
    *,
    partitions: int | None = None,
    split: int | None = None,
    merge: tuple[int, int] | None = None,
    ranges: bool = False,
) -> RoutingEntry:
    """The routing after a change to ``partitions``, a split of one partition or a merge of two; exactly one
    is given.

    A count spreads all keys evenly anew, over a table of the same kind or, with ``ranges``, of hash ranges;
    a split or merge moves only the keys of the partitions named. A *modulo* table cannot be split:
    ``ConfigError``.
    """
    table = RoutingTable.from_entry(catalog.active.routing)
    if sum(given is not None for given in (partitions, split, merge)) != 1:
        raise ConfigError(
            "the change is not clear.", action="give one of --partitions M, --split P, or --merge P Q."
        )
    if split is not None:
        return table.split(split).entry()
    if merge is not None:
        return table.merge(*merge).entry()
    assert partitions is not None, "one of the three was given"
    even = RoutingTable.even_ranges if ranges or table.kind == "ranges" else RoutingTable.modulo
    return even(partitions).entry()


def check_change(
    catalog: Catalog, routing: RoutingEntry, merged_app: str | None = None
) -> GenerationEntry | None:
    """Whether a change to ``routing`` may begin; returns the unfinished one that it would resume, if any.

    ``merged_app`` names an application whose state is merged in on the way. Raises ``GenerationUnfinished`` when the
    unfinished one is another change, ``ConfigError`` when nothing would change, ``GraphError`` when the
    application has nothing to repartition.
    """
    moved_topics(catalog)
    entry = preparing(catalog)
    if entry is not None and entry.savepoint is not None:
        refuse_unfinished(catalog)
    if entry is not None and entry.merged_app != merged_app:
        other = f"merging {entry.merged_app!r}" if entry.merged_app else "a change of the partitions"
        raise GenerationUnfinished(
            f"{other} (generation {entry.generation}) was begun and not finished.",
            action="finish it with the command that began it, or undo it with `stateflow scale abort`.",
            generation=entry.generation,
        )
    if entry is not None and entry.routing != routing:
        raise GenerationUnfinished(
            f"a change to {entry.partitions} partitions (generation {entry.generation}) was begun and not"
            " finished.",
            action=f"finish it with `stateflow scale start --partitions {entry.partitions}`, or undo it with"
            " `stateflow scale abort`.",
            generation=entry.generation,
            partitions=entry.partitions,
        )
    if entry is None and merged_app is None and routing == catalog.active.routing:
        raise ConfigError(
            f"the application already has {routing.partitions} partitions.",
            action="name another number.",
            partitions=routing.partitions,
        )
    return entry


def check_possible(cluster: Cluster, catalog: Catalog, routing: RoutingEntry) -> None:
    """What ``begin`` checks, and nothing is changed; raises the same."""
    if check_change(catalog, routing) is None:
        check_topics(cluster, topic_specs(cluster, catalog, _next_entry(catalog, routing)))


def _next_entry(
    catalog: Catalog, routing: RoutingEntry, merged_app: str | None = None, created_ms: int = 0
) -> GenerationEntry:
    return GenerationEntry(
        generation=max(catalog.generations) + 1,
        state="preparing",
        routing=routing,
        merged_app=merged_app,
        created_ms=created_ms,
        source_generation=catalog.active.source_generation,
    )


def begin(
    cluster: Cluster, catalog: Catalog, routing: RoutingEntry, clock: Clock, merged_app: str | None = None
) -> tuple[Catalog, GenerationEntry]:
    """Publish the next generation as *preparing*, or find the one that an earlier attempt left; create its
    topics.

    It is decided on the catalog as it is then, not on ``catalog``, of which the plan was made: another command may
    have changed it since. Raises ``GenerationUnfinished`` where that has begun or finished another change,
    ``ConfigError`` when nothing would change, ``BrokerRefused`` for topics that the brokers would not create,
    ``TopicForeign`` and ``PartitionCountChanged`` for topics that are in the way. A crash in here is repaired by
    calling it again.
    """
    control = ControlTopic(cluster, catalog.app.app)
    created_ms = clock.now_ms()

    def decide(now: Catalog | None) -> Sequence[CatalogItem]:
        assert now is not None, "a change begins with a catalog that was read"
        if check_change(now, routing, merged_app) is not None:
            return []
        if now.active.generation != catalog.active.generation:
            raise GenerationUnfinished(
                f"generation {now.active.generation} became active after this change was planned.",
                action="another command changed it meanwhile: look at `stateflow scale status`, and begin again.",
                generation=now.active.generation,
            )
        entry = _next_entry(now, routing, merged_app, created_ms)
        check_topics(cluster, topic_specs(cluster, now, entry))
        return [entry]

    catalog = control.change(decide)
    entry = preparing(catalog)
    assert entry is not None, "it was published a moment ago"
    topic_ids = create_topics(cluster, catalog, entry)
    if topic_ids != entry.topic_ids:
        catalog = control.write_generations([msgspec.structs.replace(entry, topic_ids=topic_ids)])
    return catalog, catalog.generations[entry.generation]


def activate(
    cluster: Cluster, catalog: Catalog, entry: GenerationEntry, audit: tuple[RangeAudit, ...], clock: Clock
) -> Catalog:
    """Make the generation active and the one before retired, both or neither.

    Raises ``GenerationUnfinished`` when it was aborted meanwhile.
    """
    activated_ms = clock.now_ms()

    def decide(now: Catalog | None) -> Sequence[CatalogItem]:
        assert now is not None, "a generation is made active in a catalog that was read"
        found = now.generations[entry.generation]
        if found.state != "preparing":
            raise GenerationUnfinished(
                f"generation {entry.generation} is {found.state} and can no longer be made active.",
                action="start the repartition again.",
                generation=entry.generation,
            )
        retired = msgspec.structs.replace(now.active, state="retired")
        return [
            retired,
            msgspec.structs.replace(found, state="active", audit=audit, activated_ms=activated_ms),
        ]

    return ControlTopic(cluster, catalog.app.app).change(decide)


def abort(cluster: Cluster, app: str) -> GenerationEntry:
    """Undo an unfinished change: mark it aborted, stop its jobs, delete its topics. The old generation is
    untouched.

    Raises ``ConfigError`` when there is nothing to abort. Interrupted, it leaves topics behind that
    ``finalize`` deletes.
    """
    catalog = load_catalog(cluster, app)
    entry = unfinished(catalog)
    aborted = msgspec.structs.replace(entry, state="aborted")
    catalog = ControlTopic(cluster, app).write_generations([aborted])
    _fence_moves(cluster, catalog, entry.generation)
    return delete_topics(cluster, catalog, aborted)


def finalize(cluster: Cluster, app: str) -> list[str]:
    """Delete the topics of retired and aborted generations; returns their names.

    Raises ``GenerationUnfinished`` while a change is under way.
    """
    catalog = load_catalog(cluster, app)
    entry = preparing(catalog)
    if entry is not None:
        raise GenerationUnfinished(
            f"generation {entry.generation} is still being prepared from generation"
            f" {catalog.active.generation}.",
            action="finish it with `stateflow scale start`, or undo it with `stateflow scale abort`.",
            generation=entry.generation,
        )
    topics = finalizable(catalog)
    for generation in catalog.generations.values():
        if generation.state in ("retired", "aborted") and generation.topic_ids:
            delete_topics(cluster, catalog, generation)
    return topics


def finalizable(catalog: Catalog) -> list[str]:
    """Topics that ``finalize`` would delete."""
    done = [entry for entry in catalog.generations.values() if entry.state in ("retired", "aborted")]
    return sorted(
        topic for entry in done for topic in entry.topic_ids.keys() - catalog.active.topic_ids.keys()
    )


def _fence_moves(cluster: Cluster, catalog: Catalog, generation: int) -> None:
    with ThreadPoolExecutor(FENCE_LANES, thread_name_prefix="fence") as pool:
        for _ in pool.map(cluster.fence, writer_ids(cluster, catalog, generation)):
            pass


def delete_topics(cluster: Cluster, catalog: Catalog, entry: GenerationEntry) -> GenerationEntry:
    """Delete the topics of a generation that is retired or aborted, and note that they are gone."""
    own = {topic.topic(entry.generation) for topic in rekeyed_topics(catalog)} | entry.topic_ids.keys()
    cluster.delete(sorted(own - catalog.active.topic_ids.keys()))
    gone = msgspec.structs.replace(entry, topic_ids={})
    ControlTopic(cluster, catalog.app.app).write_generations([gone])
    return gone
