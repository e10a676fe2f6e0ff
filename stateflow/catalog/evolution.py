"""What may become of a store's values from one version of the code to the next.

A schema is what a store's entry says of its values: ``version`` and ``value_codec``. The catalog numbers the schemas
of a store and keeps all of which values may still stand in it, so that every reader knows what it meets. A change is
*compatible* when the new codec reads the old values as they are; any other needs a higher version and a migration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stateflow.catalog.model import SchemaEntry, StoreEntry
from stateflow.codec.compatible import obstacles
from stateflow.codec.details import detail_obstacles

_WRAPPERS = ("timestamped", "expiring", "optional")
_KEY_PARTS = ("map_key", "map_keys", "element")


def split_codec(value_codec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What stands around a store's values (time stamps, codecs of keys beside them), and the codec of the values."""
    around: dict[str, Any] = {name: value_codec[name] for name in _KEY_PARTS if name in value_codec}
    inner = {name: value for name, value in value_codec.items() if name not in _KEY_PARTS}
    wrappers = []
    while inner["codec"] in _WRAPPERS:
        wrappers.append(inner["codec"])
        inner = dict(inner["value"])
    return {"wrappers": wrappers, **around}, inner


def evolved(wanted: StoreEntry, found: StoreEntry) -> StoreEntry:
    """The entry that the catalog holds from now on, for code that ``value_obstacles`` has nothing against.

    A schema that the catalog does not know gets the next number. Code that was built with one of the older schemas
    of this version (a worker of the version before, during a rolling upgrade) leaves the entry as it is.
    """
    known = {schema.number: schema for schema in found.schemas}
    number = number_of(wanted, found)
    if number is None:
        return msgspec.structs.replace(
            wanted, schema_number=max(known) + 1, older=tuple(known[each] for each in sorted(known))
        )
    if number != found.schema_number:
        return found
    return msgspec.structs.replace(wanted, schema_number=number, older=found.older)


def number_of(wanted: StoreEntry, found: StoreEntry) -> int | None:
    """The number that the catalog gave to the schema of ``wanted``; None for a new one."""
    for schema in reversed(found.schemas):
        if schema.version == wanted.version and same_json(schema.value_codec, wanted.value_codec):
            return schema.number
    return None


def value_obstacles(wanted: StoreEntry, found: StoreEntry) -> Iterator[str]:
    """Why the code cannot read, or would destroy, the values that are in the store; as clauses."""
    (around, inner), (around_before, _) = split_codec(wanted.value_codec), split_codec(found.value_codec)
    if not same_json(around, around_before):
        yield from _around_changed(wanted, found, around, around_before)
        return
    if wanted.version < found.version:
        yield (
            f"version is {wanted.version} in the code, {found.version} in the catalog: values were written that only"
            " newer code reads"
        )
        return
    for schema in found.schemas:
        yield from _schema_obstacles(wanted, inner, schema, number_of(wanted, found))
    if wanted.version == found.version:
        for why in detail_obstacles(wanted.value_details, found.value_details):
            yield f"value_codec: {why}"
    yield from _retention_obstacles(wanted, found)


def meaning_obstacles(wanted: StoreEntry, found: StoreEntry) -> Iterator[str]:
    """Why the values that are in the store mean something else to the code, although it can read them; as clauses."""
    now, then = wanted.filled_by or {}, found.filled_by or {}
    for what in sorted(now.keys() & then.keys()):
        if not same_json(now[what], then[what]):
            yield (
                f"its {what} is {_text(now[what])} in the code, {_text(then[what])} in the catalog: what was kept"
                " for the one would be carried on as the other's"
            )


def same_json(one: object, other: object) -> bool:
    """Equal as JSON: the catalog knows lists where the code may have tuples."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def _schema_obstacles(
    wanted: StoreEntry, inner: Mapping[str, Any], schema: SchemaEntry, number: int | None
) -> Iterator[str]:
    before = split_codec(schema.value_codec)[1]
    steps = range(schema.version, wanted.version)
    missing = [step for step in steps if step not in wanted.migrates]
    if steps and not missing:
        return
    why = obstacles(inner, before) if len(missing) == len(steps) else ["some of the migrations are missing"]
    if not why and not wanted.evolves and before["codec"] == "avro" and not same_json(inner, before):
        why = ["an aggregate's Avro values do not say by which schema they were written"]
    if not why or (number is not None and schema.version == wanted.version):
        return
    if steps:
        names = ", ".join(f"{step} → {step + 1}" for step in missing)
        yield f"version {wanted.version} has no migration {names} for values of version {schema.version}: {why[0]}"
    else:
        yield f"value_codec: {'; '.join(why)}"


def _around_changed(
    wanted: StoreEntry, found: StoreEntry, around: Mapping[str, Any], before: Mapping[str, Any]
) -> Iterator[str]:
    said = (
        f"value_codec is {_text(wanted.value_codec)} in the code, {_text(found.value_codec)} in the catalog"
    )
    if around["wrappers"] != before["wrappers"]:
        yield f"{said}: a time to live was added, taken away, or is now declared per write, which changes the format"
    else:
        yield f"{said}: the keys beside the values are written differently"


def _retention_obstacles(wanted: StoreEntry, found: StoreEntry) -> Iterator[str]:
    """A shorter time to live deletes at once, for good, what was to be kept: that should be meant."""
    shorter = (
        wanted.retention_ms is not None
        and found.retention_ms is not None
        and wanted.retention_ms < found.retention_ms
    )
    if shorter and wanted.evolves and wanted.version == found.version:
        yield (
            f"retention_ms is {wanted.retention_ms} in the code, {found.retention_ms} in the catalog: what is older"
            " would be deleted at once; raise version=… if that is meant"
        )


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
