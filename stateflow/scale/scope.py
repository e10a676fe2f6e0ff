"""What a change of the partition count moves: every topic behind a re-key step, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.catalog.model import Catalog, KeyLayout
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.errors import GraphError
from stateflow.record import TopicPartition


@dataclass(frozen=True, slots=True)
class MovedTopic:
    """One topic kind that moves from generation to generation."""

    app: str
    name: str
    """The store's name, or ``<step>-repartition``."""
    stage: str
    layout: KeyLayout | None
    """None for a repartition topic."""

    def topic(self, generation: int) -> str:
        """Its name on Kafka in a generation."""
        if self.layout is None:
            return repartition_topic(self.app, self.name.removesuffix("-repartition"), generation)
        return changelog_topic(self.app, self.name, generation)

    def partitions(self, catalog: Catalog, generation: int) -> list[TopicPartition]:
        """Its partitions in a generation."""
        count = catalog.generations[generation].partitions
        return [TopicPartition(self.topic(generation), partition) for partition in range(count)]


def moved_topics(catalog: Catalog) -> list[MovedTopic]:
    """Changelogs and repartition topics of all re-keyed stages.

    Raises ``GraphError`` when no stage is re-keyed, or when state sits directly behind a source topic: the
    number of its partitions is the producers' choice.
    """
    _check_scalable(catalog)
    return rekeyed_topics(catalog)


def rekeyed_topics(catalog: Catalog) -> list[MovedTopic]:
    """Changelogs and repartition topics of all re-keyed stages, whatever else there is."""
    app = catalog.app.app
    moved = [
        MovedTopic(app, store.name, store.stage, store.layout)
        for store in catalog.stores.values()
        if catalog.is_rekeyed(store.stage)
    ]
    moved += [
        MovedTopic(app, f"{step.name}-repartition", stage.name, None)
        for stage in catalog.stages.values()
        for step in stage.rekeys
    ]
    return moved


def _check_scalable(catalog: Catalog) -> None:
    bound = sorted(store.name for store in catalog.stores.values() if not catalog.is_rekeyed(store.stage))
    if bound:
        raise GraphError(
            f"the partitions of {', '.join(bound)} follow a source topic, so their number is not the"
            " application's"
            " to change.",
            action="put key_by(…) before these stateful steps: the state then sits behind a topic of the"
            " application's own, which can be repartitioned.",
            stores=bound,
        )
    if not any(catalog.is_rekeyed(stage) for stage in catalog.stages):
        raise GraphError(
            f"the application {catalog.app.app!r} has no re-keyed stage, so there is nothing to repartition.",
            action="its tasks follow the partitions of its source topics; add key_by(…) to have partitions"
            " of its own.",
        )
