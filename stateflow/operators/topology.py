"""An application's graph cut into stages, ready for any runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stateflow.catalog.model import StoreEntry
from stateflow.operators.context import Pipeline, StageContext
from stateflow.state.evolution import Rewriter
from stateflow.state.index import IndexFor
from stateflow.state.merging import MergeFor


@dataclass(frozen=True, slots=True)
class Stage:
    """The part of the graph between two re-key steps. Its tasks are numbered by partition.

    Exactly one of ``sources`` (topics of other producers; the first leads, the others are co-partitioned) and
    ``repartition`` (the re-key step that it reads) is set.
    """

    name: str
    sources: tuple[str, ...]
    repartition: str | None
    upstream: str | None
    stores: tuple[StoreEntry, ...]
    outputs: tuple[str, ...]
    """Output topics it writes, dead-letter topics included."""
    rekeys: tuple[str, ...]
    """Re-key steps it writes to."""
    build: Callable[[StageContext], Pipeline]
    merges: Mapping[str, MergeFor] = field(default_factory=dict)
    """Store name → what makes one value of two, where two states of one key meet."""
    rewriters: Mapping[str, Callable[[StoreEntry], Rewriter]] = field(default_factory=dict)
    """Store name → what writes its values by the present schema, for stores whose values have one."""
    indexes: Mapping[str, IndexFor] = field(default_factory=dict)
    """Store name → its indexes: derived, beside it on disk and in no changelog."""


@dataclass(frozen=True, slots=True)
class Topology:
    """All stages of an application, upstream first."""

    app: str
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage:
        """The stage of that name; KeyError when there is none."""
        return {stage.name: stage for stage in self.stages}[name]

    @property
    def stores(self) -> tuple[StoreEntry, ...]:
        """Stores of all stages."""
        return tuple(store for stage in self.stages for store in stage.stores)

    @property
    def merges(self) -> dict[str, MergeFor]:
        """Merge functions of all stages by store."""
        return {name: merge for stage in self.stages for name, merge in stage.merges.items()}
