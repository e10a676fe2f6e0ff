"""Codecs of stores whose values were written by several schemas: for the application, and for tools without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stateflow.catalog.evolution import number_of, same_json, split_codec
from stateflow.catalog.model import SchemaEntry, StoreEntry
from stateflow.codec.avro import AvroCodec
from stateflow.codec.avro_resolution import ResolvingAvro
from stateflow.codec.base import Codec
from stateflow.codec.evolving import FIRST_NUMBER, EvolvingCodec, ValueReader, opened
from stateflow.codec.faithful import unchecked
from stateflow.codec.optional import OptionalCodec
from stateflow.codec.table import from_description
from stateflow.codec.timed import TIME_BYTES, TIMES_BYTES, ExpiringCodec, TimedCodec
from stateflow.errors import DecodeError
from stateflow.state.layout import split_prefixed

Migration = Callable[[Any], Any]
"""Turns a value of one version into one of the next. Values of older versions come as plain data: dict, list, …"""

Rewriter = Callable[[bytes, bytes], bytes | None]
"""Key and bytes of an entry → its bytes by the present schema, None where they are already."""

_WRAP: dict[str, Callable[[Codec[Any]], Codec[Any]]] = {
    "timestamped": TimedCodec,
    "expiring": ExpiringCodec,
    "optional": OptionalCodec,
}


class MigratingReader:
    """Reads a value of an older version, and hands it through the migrations up to the present one."""

    def __init__(
        self, codec: Codec[Any], version: int, steps: Sequence[Migration], present: Codec[Any]
    ) -> None:
        self._codec = codec
        self._version = version
        self._steps = steps
        self._present = present

    def decode(self, data: bytes) -> Any:
        """The value of now. Raises ``DecodeError`` where a migration fails or gives what the codec refuses."""
        value = self._codec.decode(data)
        try:
            for step in self._steps:
                value = step(value)
            return self._present.decode(self._present.encode(value))
        except Exception as cause:
            raise DecodeError(
                f"A value of version {self._version} cannot be migrated: {type(cause).__name__}: {cause}.",
                action="Correct the migration function; state is as it was.",
                beginning=data[:64].hex(),
            ) from cause


def application_codec(
    codec: Codec[Any], wanted: StoreEntry, found: StoreEntry, migrations: Mapping[int, Migration]
) -> Codec[Any]:
    """The codec that a handle works with: writes the code's schema, reads all that it can.

    ``wanted`` is the store as the code declares it, ``found`` as the catalog has it.
    """
    own = number_of(wanted, found)
    assert own is not None, "the catalog was brought up to the code before tasks run"
    is_avro = codec.describe()["codec"] == "avro"
    readers: dict[int, ValueReader] = {}
    for schema in found.schemas:
        reader = _reader(codec, wanted.version, schema, migrations)
        if reader is not None:
            readers[schema.number] = reader
    # All schemas of a version read each other's values as they are, so the first of them stands for all: workers
    # that know only that one go on reading during a rolling upgrade. Avro needs the very schema of the writer.
    same = [schema.number for schema in found.schemas if schema.version == wanted.version]
    number = own if is_avro else min(same)
    return EvolvingCodec(codec, number, readers, is_bare=number == FIRST_NUMBER)


def _reader(
    codec: Codec[Any], version: int, schema: SchemaEntry, migrations: Mapping[int, Migration]
) -> ValueReader | None:
    described = split_codec(schema.value_codec)[1]
    if schema.version > version:
        return None
    steps = [migrations[step] for step in range(schema.version, version) if step in migrations]
    if steps:
        return MigratingReader(from_description(described), schema.version, steps, unchecked(codec))
    if isinstance(codec, AvroCodec) and not same_json(described, codec.describe()):
        return ResolvingAvro(codec, described["schema"])
    return codec


def tool_codec(value_codec: Mapping[str, Any], schemas: Sequence[SchemaEntry] = ()) -> Codec[Any]:
    """The codec by which a tool reads a store's values, each as it was written: plain data, nothing migrated.

    ``schemas`` are those of a store that evolves. Raises ``ConfigError`` for a codec that only the application has.
    """
    around, inner = split_codec(value_codec)
    codec = from_description(inner)
    if schemas:
        readers: dict[int, ValueReader] = {
            schema.number: from_description(split_codec(schema.value_codec)[1]) for schema in schemas
        }
        codec = EvolvingCodec(codec, max(readers), readers, is_bare=max(readers) == FIRST_NUMBER)
    for wrapper in reversed(around["wrappers"]):
        codec = _WRAP[wrapper](codec)
    return codec


def values_start(entry: StoreEntry, store_key: bytes, stored: bytes) -> int | None:
    """Where the value begins behind its stamps; None for what is no value: a list's ends, a version that clears."""
    if entry.kind == "list" and not split_prefixed(store_key)[1]:
        return None
    start = 0
    for wrapper in split_codec(entry.value_codec)[0]["wrappers"]:
        if wrapper == "optional":
            if not stored[start]:
                return None
            start += 1
        else:
            start += TIMES_BYTES if wrapper == "expiring" else TIME_BYTES
    return start


def schema_number_of(entry: StoreEntry, store_key: bytes, stored: bytes) -> int | None:
    """By which schema an entry's value was written; None for an entry without one."""
    start = values_start(entry, store_key, stored)
    return None if start is None else opened(stored[start:])[0]


def rewriter(entry: StoreEntry, codec: Codec[Any]) -> Rewriter:
    """Entry → its value written by the present schema; None where it is already.

    ``codec`` is the store's ``application_codec``.
    """

    def rewritten(store_key: bytes, stored: bytes) -> bytes | None:
        start = values_start(entry, store_key, stored)
        if start is None:
            return None
        body = stored[start:]
        renewed = codec.encode(codec.decode(body))
        return None if opened(renewed)[0] == opened(body)[0] else stored[:start] + renewed

    return rewritten


def present_number(entry: StoreEntry) -> int:
    """The number that values are written with: the first of the version's schemas, for Avro the newest."""
    if split_codec(entry.value_codec)[1]["codec"] == "avro":
        return entry.schema_number
    return min(schema.number for schema in entry.schemas if schema.version == entry.version)


def without_migrated(entry: StoreEntry) -> StoreEntry:
    """The entry once every value is written by the present schema."""
    number = present_number(entry)
    kept = tuple(schema for schema in entry.older if schema.number >= number)
    return msgspec.structs.replace(entry, older=kept)


def schemas_of(entry: StoreEntry) -> tuple[SchemaEntry, ...]:
    """The schemas that a reader of the store must tell apart; none where values never stand in an envelope."""
    return entry.schemas if entry.evolves else ()
