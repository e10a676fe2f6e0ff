"""Applications are merged: the state of *theirs* is taken into the next generation of *ours*.

Where both hold a key, the two states are merged as their type says (``stateflow.state.merging``). It is a step of a
repartition that keeps the routing: after our own partitions were moved, one job per store and new partition reads
both old sides, which no longer change, and writes what both together are. A job that dies is simply run again:
what it writes depends on the fixed ranges alone. The audit computes the same anew and compares it with what the
new topics hold.

Their application is left as it was. It must be at rest and at the end of what it re-keyed; where it stood in its
sources is committed for ours, so that ours can go on reading them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from stateflow.catalog.evolution import meaning_obstacles, split_codec
from stateflow.catalog.model import Catalog, RoutingEntry, StoreEntry
from stateflow.catalog.names import changelog_topic
from stateflow.errors import (
    CatalogIncompatible,
    ConfigError,
    MergeUndefined,
    OldGenerationWritten,
    StillRunning,
)
from stateflow.log.base import Cluster, Writer
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.progress.lag import application_lag
from stateflow.scale.audit import HASH_MODULUS, AuditResult, Tally, entry_hash
from stateflow.scale.committed_chunks import committed_chunks
from stateflow.scale.fencing import fence_tasks
from stateflow.scale.generation import load_catalog, preparing, refuse_while_running
from stateflow.scale.keyed import Sources, paired_states
from stateflow.scale.last_commits import read_last_commits
from stateflow.scale.progress_group import progress_group
from stateflow.scale.unread import MoveResult
from stateflow.state.merging import Entries, MergeFor, StateMerge

CHUNK_KEYS = 10_000
"""Routing keys per transaction."""
_BYTES_DEPEND_ON = ("kind", "layout", "key_codec", "value_codec", "window_ms", "schemas")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeJob:
    """One store in one new partition."""

    app: str
    generation: int
    """The new generation."""
    store: StoreEntry
    target: TopicPartition
    ours: Sources
    theirs: Sources
    routing: RoutingEntry
    merge: MergeFor | None
    keys_max: int

    def pairs(self, cluster: Cluster) -> Iterator[tuple[bytes, Entries, Entries]]:
        """Routing keys of the new partition, each with our entries and theirs."""
        return paired_states(cluster, self)


@dataclass(frozen=True, slots=True)
class StoreOverlap:
    """What one store of both applications has in common."""

    store: str
    keys_theirs: int
    """Routing keys that they hold."""
    keys_both: int
    """Of these, keys whose states must be merged."""
    is_defined: bool
    """Whether the store's type says how."""

    def __add__(self, other: StoreOverlap) -> StoreOverlap:
        """Both partitions of one store together."""
        keys_theirs, keys_both = self.keys_theirs + other.keys_theirs, self.keys_both + other.keys_both
        return StoreOverlap(self.store, keys_theirs, keys_both, self.is_defined)


def count_overlap(cluster: Cluster, job: MergeJob) -> StoreOverlap:
    """Read both sides of one partition and count."""
    merge, theirs_total, both = StateMerge(job.store, job.merge), 0, 0
    for _, ours, theirs in job.pairs(cluster):
        theirs_total += bool(theirs)
        both += merge.meets(ours, theirs)
    return StoreOverlap(job.store.name, theirs_total, both, merge.is_defined)


def merge_partition(cluster: Cluster, job: MergeJob) -> MoveResult:
    """Write what both sides of one partition are together, where they hold anything; harmless to repeat.

    Raises ``MergeUndefined``, ``StateBoundExceeded``, ``ProducerFenced`` when a newer attempt has taken over.
    """
    group = progress_group(job.app, job.generation)
    transactional_id = f"{group}-merge-{job.target.topic}-{job.target.partition}"
    merged = _merged_chunks(cluster, job)
    unwritten: list[_Merged] = []

    def write(writer: Writer) -> Iterator[_Merged]:
        while True:
            if not unwritten:
                unwritten.extend(islice(merged, 1))
            if not unwritten:
                return
            rows = unwritten[0].rows
            writer.begin()
            writer.send_many(
                job.target.topic, list(rows), list(rows.values()), partitions=job.target.partition
            )
            writer.commit()
            yield unwritten.pop()

    read = written = chunks = 0
    for chunk in committed_chunks(cluster, transactional_id, write):
        read, written, chunks = read + chunk.records_read, written + len(chunk.rows), chunks + 1
    return MoveResult(job.target, read, written, chunks, 0.0)


@dataclass(frozen=True, slots=True)
class _Merged:
    """What one transaction writes: newest values, and None for keys that are no more."""

    rows: dict[bytes, bytes | None]
    records_read: int


def _merged_chunks(cluster: Cluster, job: MergeJob) -> Iterator[_Merged]:
    merge = StateMerge(job.store, job.merge)
    pairs = (pair for pair in job.pairs(cluster) if pair[2])
    while chunk := list(islice(pairs, CHUNK_KEYS)):
        rows: dict[bytes, bytes | None] = {}
        read = 0
        for key, ours, theirs in chunk:
            found = merge.merge(key, ours, theirs)
            rows |= dict.fromkeys(ours.keys() - found.keys())
            rows |= found
            read += len(ours) + len(theirs)
        yield _Merged(rows, read)


def expected_tally(cluster: Cluster, job: MergeJob) -> AuditResult:
    """What the new partition must hold, computed from the old topics of both applications."""
    merge = StateMerge(job.store, job.merge)
    keys = total = 0
    for key, ours, theirs in job.pairs(cluster):
        merged = merge.merge(key, ours, theirs) if theirs else ours
        keys += len(merged)
        total += sum(entry_hash(name, value) for name, value in merged.items())
    tallies = [Tally()] * job.routing.partitions
    tallies[job.target.partition] = Tally(keys, total % HASH_MODULUS)
    return AuditResult(job.store.name, job.target, tuple(tallies))


@dataclass(frozen=True, slots=True)
class ApplicationMerge:
    """Another application to merge, and our application's merge functions by store."""

    other: str
    merges: Mapping[str, MergeFor] = field(default_factory=dict)
    keys_max: int = 1_000_000
    """Store keys of both sides that one job holds in memory, about; more are read in several passes."""

    def check(self, cluster: Cluster, catalog: Catalog) -> Catalog:
        """Their catalog, when they can be merged; changes nothing.

        Raises ``StillRunning``, ``CommitTorn``, ``ConfigError`` or ``CatalogIncompatible``.
        """
        ours = catalog.app.app
        if self.other == ours:
            raise ConfigError(f"{ours!r} cannot be merged with itself.", action="name the other application.")
        theirs = load_catalog(cluster, self.other)
        done = [g for g in catalog.generations.values() if g.merged_app == self.other]
        if any(entry.state in ("active", "retired") for entry in done):
            raise ConfigError(
                f"{self.other!r} was merged into {ours!r} already, in generation {done[-1].generation}.",
                action="nothing to do: a second time its state would count twice.",
            )
        if preparing(theirs) is not None:
            raise ConfigError(
                f"{self.other!r} is in the middle of a repartition.",
                action="finish it with `stateflow scale start`, or undo it with `stateflow scale abort`.",
            )
        refuse_while_running(cluster, self.other)
        read_last_commits(cluster, theirs, stable=False).refuse_torn()
        _check_sources(catalog, theirs)
        _check_stores(catalog, theirs)
        _check_drained(cluster, theirs)
        return theirs

    def fence(self, cluster: Cluster, theirs: Catalog) -> None:
        """Take the transactional ids of their tasks: from here on, none of them can write."""
        fence_tasks(cluster, theirs)
        read_last_commits(cluster, theirs, stable=False).refuse_torn()

    def jobs(
        self,
        cluster: Cluster,
        catalog: Catalog,
        theirs: Catalog,
        generation: int,
        ranges: Mapping[TopicPartition, OffsetRange],
    ) -> list[MergeJob]:
        """One job per store of theirs and partition of ours. The routing stays, so partition p comes from p.

        ``ranges`` says what is read of our changelogs of the active generation.
        """
        found = []
        for entry in theirs.stores.values():
            sources = their_sources(cluster, theirs, entry)
            for partition in range(catalog.active.partitions):
                own = TopicPartition(
                    changelog_topic(catalog.app.app, entry.name, catalog.active.generation), partition
                )
                found.append(
                    MergeJob(
                        app=catalog.app.app,
                        generation=generation,
                        store=catalog.stores[entry.name],
                        target=TopicPartition(
                            changelog_topic(catalog.app.app, entry.name, generation), partition
                        ),
                        ours=((own, ranges[own]),),
                        theirs=sources,
                        routing=catalog.active.routing,
                        merge=self.merges.get(entry.name),
                        keys_max=self.keys_max,
                    )
                )
        return found

    def commit_sources(self, cluster: Cluster, ours: str, theirs: Catalog) -> None:
        """Ours goes on in their sources where they stopped; a position that ours has already stays."""
        sources = [
            TopicPartition(topic, partition)
            for stage in theirs.stages.values()
            for topic in stage.sources
            for partition in range(stage.source_partitions or 0)
        ]
        known = cluster.committed(ours, sources)
        positions = cluster.committed(self.other, sources)
        missing = {source: at for source, at in positions.items() if source not in known}
        if missing:
            cluster.commit(ours, missing)


def their_sources(cluster: Cluster, theirs: Catalog, entry: StoreEntry) -> Sources:
    """All partitions of one of their changelogs, to their last stable ends."""
    generation = theirs.active.generation if theirs.is_rekeyed(entry.stage) else 0
    topic = changelog_topic(theirs.app.app, entry.name, generation)
    partitions = [TopicPartition(topic, number) for number in range(theirs.partitions(entry.stage))]
    return tuple(stable_ranges(cluster, partitions).items())


def check_theirs_untouched(cluster: Cluster, jobs: list[MergeJob]) -> None:
    """Raise ``OldGenerationWritten`` when anything was written to their changelogs since the jobs were made."""
    read = {source: offsets for job in jobs for source, offsets in job.theirs}
    for source, now in stable_ranges(cluster, read).items():
        if now.offset_next != read[source].offset_next:
            raise OldGenerationWritten(
                f"{source} was written to while it was being merged.",
                action="stop the application that it belongs to, run `stateflow scale abort`, and start again.",
                topic=source.topic,
                partition=source.partition,
            )


def planned_jobs(
    cluster: Cluster, catalog: Catalog, merge: ApplicationMerge, theirs: Catalog
) -> list[MergeJob]:
    """The jobs as they would be now: for a look at what meets, before anything is changed."""
    active = catalog.active
    own = [
        TopicPartition(changelog_topic(catalog.app.app, name, active.generation), partition)
        for name in theirs.stores
        for partition in range(active.partitions)
    ]
    return merge.jobs(cluster, catalog, theirs, active.generation + 1, stable_ranges(cluster, own))


def preview(cluster: Cluster, catalog: Catalog, merge: ApplicationMerge) -> list[StoreOverlap]:
    """What meets, store by store; reads both sides once and changes nothing. Raises as ``ApplicationMerge.check``."""
    theirs = merge.check(cluster, catalog)
    totals: dict[str, StoreOverlap] = {}
    for job in planned_jobs(cluster, catalog, merge, theirs):
        found, before = count_overlap(cluster, job), totals.get(job.store.name)
        totals[found.store] = found if before is None else before + found
    return list(totals.values())


def refuse_undefined(overlaps: Sequence[StoreOverlap]) -> None:
    """Raise ``MergeUndefined``, naming the stores, where states meet that nothing can merge."""
    undefined = [row for row in overlaps if row.keys_both and not row.is_defined]
    if undefined:
        named = ", ".join(f"{row.store} ({row.keys_both} keys)" for row in undefined)
        raise MergeUndefined(
            f"both applications hold keys of stores that have no merge function: {named}.",
            action="declare sf.state(merge=…), a function of two values, and pass the application's code"
            " (module:attribute); nothing was changed.",
            stores=[row.store for row in undefined],
        )


def _check_sources(catalog: Catalog, theirs: Catalog) -> None:
    shared = _sources(catalog) & _sources(theirs)
    if shared:
        raise ConfigError(
            f"{catalog.app.app!r} and {theirs.app.app!r} both read {', '.join(sorted(shared))}: their states hold"
            " the same records, which would count twice.",
            action="only applications that read different topics can become one.",
        )


def _sources(catalog: Catalog) -> set[str]:
    return {topic for stage in catalog.stages.values() for topic in stage.sources}


def _check_stores(catalog: Catalog, theirs: Catalog) -> None:
    differences = []
    for name, entry in sorted(theirs.stores.items()):
        own = catalog.stores.get(name)
        if own is None:
            differences.append(f"{catalog.app.app!r} has no store {name!r}")
            continue
        if "eventual" in (own.changelog_policy, entry.changelog_policy):
            differences.append(f"the changelog of {name!r} is eventual: its values belong to their input")
        if _may_name_schemas(own) or _may_name_schemas(entry):
            differences.append(f"values of {name!r} name schemas by numbers of their own application")
        differences += [
            f"store {name!r}: {what} is {getattr(own, what)} here and {getattr(entry, what)} there"
            for what in _BYTES_DEPEND_ON
            if getattr(own, what) != getattr(entry, what)
        ]
        differences += [f"store {name!r}: {why}" for why in meaning_obstacles(own, entry)]
    if differences:
        raise CatalogIncompatible(
            f"the stores of {theirs.app.app!r} do not fit {catalog.app.app!r}: {'; '.join(differences)}.",
            action="run code in which the stores of both are alike once, so that the catalogs say so; an eventual"
            " changelog can be repartitioned, but not merged.",
            differences=differences,
        )


def _may_name_schemas(entry: StoreEntry) -> bool:
    """True when values may stand in envelopes: they are then to be read with the catalog that numbered the schemas."""
    inner = split_codec(entry.value_codec)[1]
    return entry.evolves and (entry.version > 1 or (inner["codec"] == "avro" and bool(entry.older)))


def _check_drained(cluster: Cluster, theirs: Catalog) -> None:
    waiting = [
        lag.task
        for lag in application_lag(cluster, theirs)
        if lag.slots and lag.source.topic not in _sources(theirs)
    ]
    if waiting:
        raise StillRunning(
            f"{theirs.app.app!r} has re-keyed records that {', '.join(sorted(waiting))} did not process yet.",
            action="run it once more with `stateflow run … --until-drained`, then start again.",
            tasks=waiting,
        )
