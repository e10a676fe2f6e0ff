"""Whose a topic is that stands where one's own are to be: another application's, nobody's, or one's own, forgotten.

Topics are ``<app>-<name>-…``, so ``store`` with a step ``eu-limit`` and ``store-eu`` with a step ``limit`` mean the
same topics. And an application whose control topic is gone looks like one that never ran. A topic that the catalog
does not record is taken only if nobody else's catalog names it, and if it has never held a record: it was made by
hand, or by a start that ended before it wrote down what it had created.

Each application writes its stages down before it looks at the catalogs of others. So of two that start at the same
moment at least one sees the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import CONTROL_SUFFIX, without_generation
from stateflow.catalog.stages import source_stage_inputs
from stateflow.changelog.position import holds_position
from stateflow.errors import CatalogMissing, StateflowError, TopicForeign
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.runtime.worker.own_topics import own_topics

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claims:
    """What the catalogs of other applications say of topics."""

    names: Mapping[str, str]
    """A topic's name without its generation → the application that it belongs to by its stages and stores."""
    ids: Mapping[str, str]
    """Id of a topic → the application that records it."""

    def owner(self, topic: str) -> str | None:
        """The application whose topic this is, of whatever generation."""
        return self.names.get(without_generation(topic))


def claims_of_others(cluster: Cluster, app: str, topics: Iterable[str]) -> Claims:
    """What other applications claim of topics of these names. A catalog that cannot be read is told of, and left out.

    Only applications whose id such a name begins with can have it, so no other catalog is read.
    """
    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    wanted = tuple(topics)
    for control in cluster.list_topics():
        other = control.removesuffix(CONTROL_SUFFIX)
        if other in ("", app, control) or not any(name.startswith(f"{other}-") for name in wanted):
            continue
        catalog = _catalog_of(cluster, other)
        if catalog is None:
            continue
        recorded = recorded_topics(catalog)
        ids.update(dict.fromkeys(recorded.values(), other))
        names.update(dict.fromkeys([without_generation(name) for name in recorded], other))
        if any(entry.state == "active" for entry in catalog.generations.values()):
            names.update(
                dict.fromkeys([without_generation(spec.name) for spec in own_topics(catalog, 1)], other)
            )
    return Claims(names, ids)


def recorded_topics(catalog: Catalog | None) -> dict[str, str]:
    """Topics of all generations that a catalog records, and their ids."""
    entries = () if catalog is None else catalog.generations.values()
    return {name: id for entry in entries for name, id in entry.topic_ids.items()}


def refuse_claimed(cluster: Cluster, planned: Catalog, recorded: Mapping[str, str]) -> None:
    """Raise ``TopicForeign`` where another application has a topic that this one records, or is about to use."""
    app = planned.app.app
    wanted = {spec.name for spec in own_topics(planned, 1)} | recorded.keys()
    claims = claims_of_others(cluster, app, wanted)
    for name in sorted(wanted):
        if name in recorded and (other := claims.ids.get(recorded[name])) is not None:
            raise TopicForeign(
                f"{name} is recorded as a topic of {app!r} and of {other!r}: both have written to it, and each holds"
                " what the other counted.",
                action=f"give one of them another id (App(id=…)), run `stateflow reset` for {app!r} and for {other!r},"
                " and start both: their input is then read again. A reset leaves the topics that both have until"
                " the second.",
                topic=name,
                app=app,
                other=other,
            )
        if name not in recorded and (other := claims.owner(name)) is not None:
            raise TopicForeign(
                f"{name}, which {app!r} needs, is a topic of the application {other!r}.",
                action="give this application another id (App(id=…)), or the step or state another name (name=…), and"
                f" start again; if {other!r} is not needed any more, `stateflow reset` it.",
                topic=name,
                app=app,
                other=other,
            )


def refuse_lost_catalog(cluster: Cluster, control: ControlTopic, expected: Catalog) -> None:
    """Raise ``CatalogMissing`` where an application without a catalog has run before.

    To be called when there was no catalog a moment ago; one that has been written meanwhile, by a worker that starts
    at the same time, is looked for again once topics of it are found.
    """
    evidence = left_topics(cluster, expected) or left_positions(cluster, expected)
    if not evidence or control.read() is not None:
        return
    app = expected.app.app
    raise CatalogMissing(
        f"{app!r} has run before and its catalog is gone: {control.topic} is missing or empty, and there are still"
        f" {', '.join(evidence[:_SHOWN_MAX])}{' …' if len(evidence) > _SHOWN_MAX else ''}. A new start would begin"
        " without the state, beside it.",
        action="nothing was written. Without the catalog the state cannot be used: run `stateflow reset APP`, which"
        " deletes what is left and reads the input again from its start; then, if there is a savepoint, begin from it"
        " with `stateflow savepoint restore`. If these topics are another application's, give this one another id.",
        app=app,
        topic=control.topic,
        left=evidence,
    )


def left_topics(cluster: Cluster, expected: Catalog) -> list[str]:
    """Topics of any generation that hold, or held, records of this application, and that no other one claims."""
    names = {spec.name for spec in own_topics(expected, 1)}
    if not names:
        return []
    there = [topic for topic in cluster.list_topics() if without_generation(topic) in names]
    written = written_topics(cluster, there)
    if not written:
        return []
    claims = claims_of_others(cluster, expected.app.app, written)
    return [topic for topic in written if claims.owner(topic) is None]


def left_positions(cluster: Cluster, expected: Catalog) -> list[str]:
    """Committed input positions with what only a worker's commit writes beside them, of an application with topics
    of its own. Positions alone may have been set by hand, to say where to begin; `stateflow reset` leaves such, too.
    """
    if not own_topics(expected, 1):
        return []
    found = cluster.committed(expected.app.app, source_stage_inputs(expected), stable=False)
    return [
        f"a committed position in {at}" for at, to in sorted(found.items()) if holds_position(to.metadata)
    ]


def refuse_unrecorded(cluster: Cluster, control: ControlTopic, names: Collection[str]) -> None:
    """Raise ``TopicForeign`` for topics that hold records, and that the catalog does not record, read again after it.

    Whoever creates topics writes them down before it writes to them.
    """
    written = written_topics(cluster, names)
    if not written:
        return
    catalog = control.load()
    recorded = recorded_topics(catalog)
    unknown = [name for name in written if name not in recorded]
    if not unknown or _has_lost_its_records(cluster, catalog):
        return
    app = catalog.app.app
    raise TopicForeign(
        f"{', '.join(unknown)} hold records, and the catalog of {app!r} does not know them: they are of something else,"
        " or of an application whose catalog was lost.",
        action="nothing was written to them. If nobody needs them, delete them and start again; else give this"
        " application another id (App(id=…)), or the step or state another name (name=…).",
        topics=unknown,
        app=app,
    )


def written_topics(cluster: Cluster, names: Iterable[str]) -> list[str]:
    """Those of the topics that were ever written to, sorted; records that were removed since count, too."""
    infos = cluster.describe(names)
    partitions = [
        TopicPartition(name, number) for name, info in infos.items() for number in range(info.partitions)
    ]
    ends = cluster.ends(partitions, stable=False) if partitions else {}
    return sorted({at.topic for at, offset_next in ends.items() if offset_next})


# --- inside -------------------------------------------------------------------------------------------------

_SHOWN_MAX = 5


def _catalog_of(cluster: Cluster, app: str) -> Catalog | None:
    try:
        return ControlTopic(cluster, app).find(warn=False).catalog
    except StateflowError as error:
        _LOG.warning("Whether topics are those of %r cannot be told: %s", app, error.message)
        return None


def _has_lost_its_records(cluster: Cluster, catalog: Catalog) -> bool:
    """True where the generation records no topic though the application has committed: a repair has put back what
    stood in the catalog before its topics were created.
    """
    if recorded_topics(catalog):
        return False
    return bool(cluster.committed(catalog.app.app, source_stage_inputs(catalog), stable=False))
