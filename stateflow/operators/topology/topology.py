"""An application's graph split into stages, ready for any runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stateflow.catalog.model import StoreEntry
from stateflow.operators.steps.context import Pipeline, StageContext
from stateflow.operators.topics.lookup_tables import LookupPlace
from stateflow.state.evolution import Rewriter
from stateflow.state.index import IndexFor
from stateflow.state.merging import MergeFor


@dataclass(frozen=True, slots=True)
class Input:
    """A port of a stage: where records enter it."""

    name: str
    """A source topic, or a re-key step whose topic follows from the generation."""
    upstream: str | None = None
    """The stage that writes the re-key step's topic; None for a source topic."""

    @property
    def is_source(self) -> bool:
        """True for a topic of other producers."""
        return self.upstream is None


@dataclass(frozen=True, slots=True)
class Stage:
    """The part of the graph between re-key steps. Its tasks are numbered by partition, and read that of each input.

    The first input's partitions are assigned to workers, the others follow them. Inputs are all source topics, which
    must be co-partitioned, or all re-key steps, which are so by the application's own routing.
    """

    name: str
    inputs: tuple[Input, ...]
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
    hold_back_ms: int = 0
    """How far results may lie behind event time: the stages behind are told of it that much later."""
    shared_inputs: frozenset[str] = frozenset()
    """Inputs whose records go through the stage one by one, since they reach one step in several ways."""
    looks_up: tuple[LookupPlace, ...] = ()
    """Tables that each of its tasks has whole: global ones, of topics, and static ones."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The source topics that it reads; none for a stage behind re-key steps."""
        return tuple(port.name for port in self.inputs if port.is_source)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of others that it reads or writes: sources, outputs, those of global tables."""
        read_whole = [place.topic for place in self.looks_up if place.topic]
        return tuple(dict.fromkeys((*self.sources, *self.outputs, *read_whole)))

    @property
    def is_rekeyed(self) -> bool:
        """True when its partitions are the application's own, and follow the generation."""
        return not self.inputs[0].is_source


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
    def static_tables(self) -> dict[str, str]:
        """Fingerprints of the static tables by name."""
        places = (place for stage in self.stages for place in stage.looks_up)
        return {place.name: place.fingerprint for place in places if place.fingerprint}

    @property
    def merges(self) -> dict[str, MergeFor]:
        """Merge functions of all stages by store."""
        return {name: merge for stage in self.stages for name, merge in stage.merges.items()}
