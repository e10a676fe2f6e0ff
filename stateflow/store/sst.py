"""Sorted table files: an epoch written as one file that RocksDB takes in whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocksdict import IngestExternalFileOptions, Options, Rdict, SstFileWriter

from stateflow.store.base import Change


def write_sst(path: Path, changes: Sequence[Change], options: Options) -> None:
    """Write changes, sorted by key and at least one, as a table file; deletions become tombstones.

    On return the file is complete and synced. A failure leaves a partial file, which must not be ingested.
    """
    writer = SstFileWriter(options)
    writer.open(str(path))
    for key, value in changes:
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()


def ingest(family: Rdict, path: Path) -> None:
    """Make a table file part of a column family, newer than what is in it; the file is moved, not copied."""
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    family.ingest_external_file([str(path)], options)
