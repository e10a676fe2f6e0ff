"""The catalog: what an application's topics hold, written on its control topic so that no tool needs its code.

Values are JSON, described to the byte in ``docs/formats.md``. Keys: ``app``, ``stage/<name>``, ``store/<name>``,
``generation/<number>``, ``cut``, ``savepoint/<name>``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stateflow.errors import GenerationUnfinished

FORMAT_VERSION = 2
"""Format 1, of version 0.1, is read: see ``older.py``."""
FORMAT_SHARED_WRITERS = 3
"""The same, and tasks may write by ids that are found in the claims log: whoever does not look there must keep out."""
FORMAT_NEWEST = FORMAT_SHARED_WRITERS

Guarantee = Literal["at-least-once", "exactly-once"]
KeyLayout = Literal["plain", "window", "prefixed"]
StoreKind = Literal[
    "value",
    "window",
    "session",
    "sliding",
    "count",
    "list",
    "map",
    "counter",
    "set",
    "reducing",
    "nested",
    "versioned",
    "timers",
]
GenerationState = Literal["preparing", "active", "retired", "aborted"]
BarrierState = Literal["open", "complete", "aborted"]


class SchemaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schema by which values of a store were written, and may still stand in it."""

    number: int
    version: int
    value_codec: dict[str, Any]


class StoreEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One store: enough to restore, repartition, query and tune it without the code that fills it."""

    name: str
    stage: str
    kind: StoreKind
    layout: KeyLayout
    key_codec: dict[str, Any]
    """Description of the routing key's codec (``Codec.describe()``)."""
    value_codec: dict[str, Any]
    window_ms: int | None = None
    grace_ms: int | None = None
    retention_ms: int | None = None
    max_length: int | None = None
    """Elements of a list or set, versions of a versioned value: as many as one key may have."""
    changelog_policy: Literal["every-update", "coalesced", "eventual"] = "coalesced"
    version: int = 1
    """Of the value's schema, counted by the application."""
    evolves: bool = False
    """True when values may stand in an envelope that names their schema: those of operator classes."""
    migrates: tuple[int, ...] = ()
    """Versions whose values the code turns into values of the next one."""
    schema_number: int = 1
    """Number of the schema that ``value_codec`` and ``version`` are."""
    older: tuple[SchemaEntry, ...] = ()
    """The schemas before it."""
    value_details: dict[str, tuple[str, ...]] | None = None
    """What ``value_codec`` does not say of the values (:mod:`stateflow.codec.details`). None where that is not known,
    as in an entry that an older version wrote."""
    filled_by: dict[str, Any] | None = None
    """What makes the values: ``aggregate``, its kind (of several by name), and ``window``, where its windows begin.
    What is missing is not known."""

    @property
    def schemas(self) -> tuple[SchemaEntry, ...]:
        """Every schema of which values may be in the store, the newest last."""
        newest = SchemaEntry(number=self.schema_number, version=self.version, value_codec=self.value_codec)
        return (*self.older, newest)


class InputEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a stage: a source topic, or a re-key step (``by-word``), whose topic follows from the generation."""

    name: str
    upstream: str | None = None
    """The stage that writes the re-key step's topic; None for a source topic."""


class StageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: what it reads, and whether its partitions are the application's or the producers'."""

    name: str
    inputs: tuple[InputEntry, ...]
    """All source topics or all re-key steps; the first is the primary input, whose partitions workers are assigned."""
    source_partitions: int | None = None
    """Partition count of the sources when the state was built; None for a re-keyed stage."""
    source_ids: dict[str, str] = {}
    """Source topic → Kafka topic id when it was first read: another topic of that name is not its continuation."""
    begun: dict[str, tuple[int, ...]] = {}
    """Source topic → its partitions in which a position was committed for a task without changelogs; it is not taken
    out again: such a partition without a position has lost it (``runtime.opening.first_positions``)."""
    outputs: tuple[str, ...] = ()
    """Output topics that its tasks write to, or have written to: their transactions may be open there, whatever the
    code is now. Empty in an entry that an older version wrote."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The source topics that it reads; none for a stage behind re-key steps."""
        return tuple(port.name for port in self.inputs if port.upstream is None)

    @property
    def rekeys(self) -> tuple[InputEntry, ...]:
        """The re-key steps that it reads; none for a stage that reads source topics."""
        return tuple(port for port in self.inputs if port.upstream is not None)


class TrimEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The policy *image + trim*: changelogs are deleted before safe images, so the logs alone are not all there is.

    Never taken out again: a log that was trimmed stays so when the policy is switched off.
    """

    enabled: bool
    """Whether workers delete."""
    images: str
    """Where the images are that begin where the logs do."""
    since_ms: int = 0
    """From when on the changelogs keep deletions for good; 0 while they are being set so."""
    tombstones_before_ms: int = 86_400_000
    """How long they kept deletions until then (``delete.retention.ms``)."""


class AppEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The application as a whole."""

    app: str
    guarantee: Guarantee
    trim: TrimEntry | None = None
    two_ids: bool = False
    """True once tasks have had two transactional ids (the commit mode *paranoid*): whoever opens one fences both."""
    shared_writers: bool = False
    """True once tasks have had writers in common: whoever opens one fences those that claimed it before
    (``runtime.opening.claims``). Its format is ``FORMAT_SHARED_WRITERS`` then."""
    static_tables: dict[str, str] = {}
    """Static table → the fingerprint of what it held when the application was started last."""
    format: int = FORMAT_VERSION


class RoutingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A routing table as data: see ``stateflow.routing``."""

    kind: Literal["modulo", "ranges"]
    partitions: int
    bounds: tuple[int, ...] = ()
    """For ``ranges``: the first murmur2 hash (31 bits) of each range, ascending, beginning with 0."""
    owners: tuple[int, ...] = ()
    """For ``ranges``: the partition that owns each range."""


class RangeAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Count and order-independent hash of the live keys of one store that belong to one new partition."""

    store: str
    partition: int
    keys_before: int
    keys_after: int
    hash_before: int
    hash_after: int

    @property
    def equal(self) -> bool:
        """True when both sides hold the same keys with the same values."""
        return self.keys_before == self.keys_after and self.hash_before == self.hash_after


class GenerationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of the re-keyed stages: partition count, routing, topics by id, and how it came about."""

    generation: int
    state: GenerationState
    routing: RoutingEntry
    topic_ids: dict[str, str] = {}
    """Changelog and repartition topics of this generation → Kafka topic id."""
    audit: tuple[RangeAudit, ...] = ()
    merged_app: str | None = msgspec.field(name="absorbs", default=None)
    """The other application whose state was merged into this generation, if one was."""
    created_ms: int = 0
    activated_ms: int | None = None
    savepoint: str | None = None
    """The savepoint that this generation is filled from; None when it follows from the one before."""
    source_generation: int = 0
    """Number in the names of the changelogs of stages that read sources: a repartition leaves those in place."""

    @property
    def partitions(self) -> int:
        """Partition count of every re-keyed stage in this generation."""
        return self.routing.partitions


class BarrierEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The newest savepoint barrier of the running application; there is one at a time. Ids only rise.

    While it is ``open`` the tasks commit their barrier points; whoever ends it, once, says how: the savepoint is
    ``complete``, or ``aborted``. Its key on the topic is ``cut`` (``encoding.BARRIER_KEY``).
    """

    barrier_id: int = msgspec.field(name="number")
    savepoint: str
    """Name of the savepoint that it is for."""
    location: str
    """Where its parts go."""
    generation: int
    state: BarrierState
    requested_ms: int
    deadline_ms: int
    """Wall-clock time after which a worker may abort it: whoever asked for it is gone."""
    reason: str | None = None
    """Why it was aborted."""


class SavepointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One complete savepoint, and where it is kept."""

    name: str
    number: int
    location: str
    generation: int
    created_ms: int
    tasks: int
    size_bytes: int


CatalogEntry = AppEntry | StageEntry | StoreEntry | GenerationEntry | BarrierEntry | SavepointEntry


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on the control topic of one application at one moment."""

    app: AppEntry
    stages: dict[str, StageEntry]
    stores: dict[str, StoreEntry]
    generations: dict[int, GenerationEntry]
    barrier: BarrierEntry | None = None
    savepoints: dict[str, SavepointEntry] = {}

    @property
    def active(self) -> GenerationEntry:
        """The generation that workers run.

        Raises ``GenerationUnfinished`` while there is none, which is only so before a restore from a savepoint has
        completed the first.
        """
        active = [entry for entry in self.generations.values() if entry.state == "active"]
        if not active:
            raise GenerationUnfinished(
                f"a restore of {self.app.app!r} from a savepoint was begun and is not finished.",
                action="finish it with the same `stateflow savepoint restore`, or undo it with `stateflow savepoint"
                " abort`.",
                app=self.app.app,
            )
        return max(active, key=lambda entry: entry.generation)

    def changelog_generation(self, stage: str) -> int:
        """Number in the names of a stage's changelogs now."""
        return self.active.generation if self.is_rekeyed(stage) else self.active.source_generation

    def is_rekeyed(self, stage: str) -> bool:
        """True when the stage's partitions follow the generation, False when they follow the source topic."""
        return bool(self.stages[stage].rekeys)

    def partitions(self, stage: str, generation: int | None = None) -> int:
        """Number of tasks of a stage in a generation (the active one by default)."""
        entry = self.stages[stage]
        if not entry.rekeys:
            assert entry.source_partitions is not None, "a stage reads sources or a repartition topic"
            return entry.source_partitions
        chosen = self.active if generation is None else self.generations[generation]
        return chosen.partitions
