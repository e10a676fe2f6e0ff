"""Reading static tables: a dict, a data frame, or a file of rows; and the fingerprint by which a change is told."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stateflow.errors import GraphError, install_command
from stateflow.operators.topics.lookup_tables import StaticTable

FINGERPRINT_BYTES = 16


def static_table(data: Any, name: str, key: str | None) -> StaticTable[Any, Any]:
    """The table of a mapping, or of rows whose column ``key`` is their key. Raises ``GraphError``."""
    if isinstance(data, Mapping):
        if key is not None:
            raise _wrong(name, "is a mapping and names a column", "Leave key=… out.")
        rows = dict(data)
    else:
        if key is None:
            raise _wrong(name, "does not say by which column rows are found", "Give key='column'.")
        rows = _by_key(_rows_of(data, name), name, key)
    return StaticTable(name, rows, _fingerprint(rows, name))


def _rows_of(data: Any, name: str) -> Sequence[Any]:
    if isinstance(data, (str, Path)):
        return _read(Path(data), name)
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # a pandas frame, without importing pandas
        return _as_rows(data.to_dict(orient="records"), name)
    raise _wrong(name, f"is made of a {type(data).__name__}", "Give a dict, a path, or a pandas data frame.")


def _read(path: Path, name: str) -> Sequence[Any]:
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file, strict=True))
        if path.suffix == ".json":
            return _as_rows(msgspec.json.decode(path.read_bytes()), name)
        if path.suffix == ".parquet":
            return _as_rows(_parquet(name).read_table(path).to_pylist(), name)
    except (OSError, ValueError, csv.Error) as cause:
        raise _wrong(
            name, f"cannot be read from {path}: {cause}", "Correct the path, or the file."
        ) from cause
    raise _wrong(
        name, f"is a file of an unknown kind: {path}", "Give a .csv, .json or .parquet file, or a dict."
    )


def _parquet(name: str) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as cause:
        raise _wrong(name, "is a Parquet file, which needs pyarrow", install_command("spark")) from cause


def _as_rows(found: Any, name: str) -> Sequence[Any]:
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise _wrong(name, "does not hold rows", "Give a list of objects, one for each row.")
    return found


def _by_key(rows: Sequence[dict[str, Any]], name: str, key: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for number, row in enumerate(rows, 1):
        if key not in row:
            raise _wrong(name, f"has no column {key!r} in row {number}", "Correct key=…, or the data.")
        try:
            is_there = row[key] in found
        except TypeError as cause:
            what = f"has a key in row {number} that is a {type(row[key]).__name__}"
            raise _wrong(name, what, "Give a column of plain values.") from cause
        if is_there:
            raise _wrong(name, f"has two rows of the key {row[key]!r}", "Leave one of them out.")
        found[row[key]] = row
    return found


def _fingerprint(rows: Mapping[Any, Any], name: str) -> str:
    """Of the entries, whatever their order: each as MessagePack, hashed, the hashes sorted."""
    import hashlib  # slow to load, and needed here alone

    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    try:
        entries = sorted(hashlib.blake2b(encode([key, value])).digest() for key, value in rows.items())
    except (TypeError, ValueError, OverflowError) as cause:
        what = f"holds what cannot be written as MessagePack: {cause}"
        raise _wrong(name, what, "Give plain values, dataclasses or Structs.") from cause
    return hashlib.blake2b(b"".join(entries), digest_size=FINGERPRINT_BYTES).hexdigest()


def _wrong(name: str, what: str, action: str) -> GraphError:
    return GraphError(f"The static table {name!r} {what}.", action=action)
