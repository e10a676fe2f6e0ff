"""Topics that were deleted and created again: their offsets no longer mean what the state says they mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stateflow.catalog.model import StageEntry
from stateflow.errors import TopicRecreated


def refuse_recreated_sources(stages: Iterable[StageEntry], found_ids: Mapping[str, str]) -> None:
    """Raise ``TopicRecreated`` if a source has another id than the catalog's; those not in ``found_ids`` pass.

    Such a source has lost its place: the state holds what the old topic said.
    """
    for stage in stages:
        for topic, then in stage.source_ids.items():
            now = found_ids.get(topic, then)
            if now != then:
                raise TopicRecreated(
                    f"the source {topic} was deleted and created again (topic id {now}, the catalog says {then}).",
                    action="if its content continues the old one's, keep the state and read it from its start with"
                    " `stateflow reset APP --to-earliest`, which leaves other sources where they are; to begin anew"
                    " with empty state, `stateflow reset APP`.",
                    topic=topic,
                    stage=stage.name,
                )


def refuse_recreated_own(recorded_ids: Mapping[str, str], found_ids: Mapping[str, str]) -> None:
    """The same for topics of the application itself, of which the catalog has recorded the ids."""
    for topic, then in recorded_ids.items():
        now = found_ids.get(topic, then)
        if now != then:
            raise TopicRecreated(
                f"{topic} was deleted and created again (topic id {now}, the catalog says {then}):"
                " what it held is gone from the log.",
                action="if that was meant, run `stateflow reset APP` to begin anew; otherwise restore the topic's data"
                " before starting.",
                topic=topic,
            )
