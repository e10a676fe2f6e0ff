"""What the code expects against what the catalog says: what may be added, and what would break state."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.evolution import evolved, meaning_obstacles, value_obstacles
from stateflow.catalog.model import (
    AppEntry,
    Catalog,
    GenerationEntry,
    GenerationState,
    StageEntry,
    StoreEntry,
    TrimEntry,
)
from stateflow.catalog.recreated import refuse_recreated_sources
from stateflow.errors import (
    CatalogIncompatible,
    GenerationUnfinished,
    PartitionCountChanged,
)

_LOG = logging.getLogger(__name__)

STORE_FIELDS_FIXED = ("stage", "kind", "layout", "key_codec", "window_ms")
"""Fields of a store that its bytes depend on. Of the values see ``evolution``; grace and policy may change freely."""
STAGE_FIELDS_FIXED = ("inputs",)
_GENERATION_FIELDS_FIXED = ("routing", "savepoint", "merged_app", "source_generation", "created_ms")
"""The plan of a generation, and when it was made: whoever finds another one there has met another command's."""
_TRANSITIONS: dict[GenerationState, tuple[GenerationState, ...]] = {
    "preparing": ("preparing", "active", "aborted"),
    "active": ("active", "retired"),
    "retired": ("retired",),
    "aborted": ("aborted",),
}


def additions(expected: Catalog, found: Catalog | None) -> list[CatalogItem]:
    """Entries to write so that the catalog holds what the code expects; none when it does already.

    Generations are written only with the first catalog: afterwards they are repartition's. Raises
    ``CatalogIncompatible`` naming every difference that state would not survive, ``TopicRecreated`` for a source
    that is another topic now, or ``PartitionCountChanged``.
    """
    if found is None:
        return [
            expected.app,
            *expected.stages.values(),
            *expected.stores.values(),
            *expected.generations.values(),
        ]
    differences = list(compare(expected, found))
    if differences:
        raise CatalogIncompatible(
            f"the code of {expected.app.app!r} does not fit the state it left: {'; '.join(differences)}.",
            action="go back to the code that fits; or, where only a state's value changed, raise its version=… and"
            " register migrations={old version: function}; or keep the old step in the code and add the new one under"
            " another name, which starts empty; or drop all state of the application with `stateflow reset APP`.",
            app=expected.app.app,
            differences=differences,
        )
    source_ids = {topic: id for stage in expected.stages.values() for topic, id in stage.source_ids.items()}
    refuse_recreated_sources(found.stages.values(), source_ids)
    _check_partition_counts(expected, found)
    changed: list[CatalogItem] = []
    trim = merged_trim(expected.app.trim, found.app.trim)
    app = msgspec.structs.replace(with_ids_of(expected.app, found.app), trim=trim)
    if app != found.app:
        changed.append(app)
    stages = {name: _with_history(stage, found.stages.get(name)) for name, stage in expected.stages.items()}
    changed += [stage for name, stage in stages.items() if stage != found.stages.get(name)]
    for name, store in expected.stores.items():
        present = found.stores.get(name)
        entry = store if present is None else evolved(store, present)
        if present is not None and entry.schema_number != present.schema_number:
            _LOG.info("The values of store %s are now of schema %d.", name, entry.schema_number)
        if entry != present:
            changed.append(entry)
    return changed


def _with_history(stage: StageEntry, found: StageEntry | None) -> StageEntry:
    """The entry, with what is known of positions in its sources and of outputs: that is not the code's to say."""
    if found is None:
        return stage
    outputs = tuple(sorted({*stage.outputs, *found.outputs}))
    return msgspec.structs.replace(stage, begun=found.begun, outputs=outputs)


def with_ids_of(app: AppEntry, found: AppEntry) -> AppEntry:
    """The entry, with what ``found`` knows of ids by which tasks may have been written: it is never forgotten."""
    return msgspec.structs.replace(
        app,
        two_ids=app.two_ids or found.two_ids,
        shared_writers=app.shared_writers or found.shared_writers,
        format=max(app.format, found.format),
    )


def merged_trim(expected: TrimEntry | None, found: TrimEntry | None) -> TrimEntry | None:
    """The policy that the code asks for, with what is known of the changelogs since it was first switched on."""
    if found is None:
        return expected
    if expected is None:
        return msgspec.structs.replace(found, enabled=False)
    return msgspec.structs.replace(
        expected, since_ms=found.since_ms, tombstones_before_ms=found.tombstones_before_ms
    )


def compare(expected: Catalog, found: Catalog) -> Iterator[str]:
    """Every difference that state would not survive, as a clause."""
    for name, stage in found.stages.items():
        present = expected.stages.get(name)
        if present is None:
            yield f"stage {name!r} is in the catalog and not in the code"
        else:
            yield from _stage_differences(present, stage)
    for name, store in found.stores.items():
        wanted = expected.stores.get(name)
        if wanted is None:
            yield f"store {name!r} is in the catalog and not in the code"
        else:
            yield from store_differences(wanted, store)


def check_transition(found: GenerationEntry | None, entry: GenerationEntry) -> None:
    """Raise ``GenerationUnfinished`` unless a generation may go from what it is to ``entry``."""
    allowed = ("preparing", "active") if found is None else _TRANSITIONS[found.state]
    if entry.state not in allowed:
        was = "unknown" if found is None else found.state
        raise GenerationUnfinished(
            f"generation {entry.generation} is {was} by now and cannot become {entry.state}.",
            action="another command changed it meanwhile: look at `stateflow scale status`, and begin again.",
            generation=entry.generation,
        )
    if found is not None and any(
        getattr(found, field) != getattr(entry, field) for field in _GENERATION_FIELDS_FIXED
    ):
        raise GenerationUnfinished(
            f"generation {entry.generation} is {found.state} by another plan than this one.",
            action="another command began it meanwhile: look at `stateflow scale status`, and begin again.",
            generation=entry.generation,
        )


def _stage_differences(wanted: StageEntry, found: StageEntry) -> Iterator[str]:
    for field in STAGE_FIELDS_FIXED:
        yield from _difference(f"stage {found.name!r}", field, getattr(wanted, field), getattr(found, field))


def store_differences(wanted: StoreEntry, found: StoreEntry) -> Iterator[str]:
    """Every difference between two entries of a store that its bytes would not survive."""
    for field in STORE_FIELDS_FIXED:
        yield from _difference(f"store {found.name!r}", field, getattr(wanted, field), getattr(found, field))
    for why in (*value_obstacles(wanted, found), *meaning_obstacles(wanted, found)):
        yield f"store {found.name!r}: {why}"


def _difference(what: str, field: str, wanted: object, found: object) -> Iterator[str]:
    # Compared as JSON: the catalog knows lists where the code may have tuples.
    if _json(wanted) != _json(found):
        yield f"{what}: {field} is {_json(wanted)} in the code, {_json(found)} in the catalog"


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _check_partition_counts(expected: Catalog, found: Catalog) -> None:
    """A source may grow only while no state depends on which partition a key is in."""
    for name, stage in found.stages.items():
        now, then = expected.stages[name].source_partitions, stage.source_partitions
        if now == then:
            continue
        stores = sorted(store.name for store in found.stores.values() if store.stage == name)
        if stores:
            raise PartitionCountChanged(
                f"the sources of stage {name!r} ({', '.join(stage.sources)}) had {then} partitions when the"
                f" state of {', '.join(stores)} was built, and now have {now}: keys are no longer where their"
                " state is.",
                action="put key_by(…) before the stateful steps, so that the application's own topic keeps"
                " keys in place, and begin anew with `stateflow reset`; or go back to the old count.",
                stage=name,
                partitions_before=then,
                partitions_now=now,
            )
        _LOG.warning(
            "The sources of stage %s now have %s partitions instead of %s; it keeps no state, so it goes on.",
            name,
            now,
            then,
        )
