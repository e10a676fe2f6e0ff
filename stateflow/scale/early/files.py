"""Ranges of a changelog that were read, as sorted files in the folder ``ranges`` beside a task's database.

A range counts once its note (``<store>-<first>-<next>.json``) is there: it is written last, by renaming, and names the
files. So a restore that was killed resumes with the ranges that have one; files that no note names are deleted. A
deletion is a tombstone in a range's file, which RocksDB does not show to readers of that file alone, so a second file
lists the deleted keys.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stateflow.changelog.format import RESERVED_KEY_PREFIX
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.log.newest import NewestSink
from stateflow.log.reading import read_range_into
from stateflow.native.newest import newest_values
from stateflow.record import OffsetRange, TopicPartition
from stateflow.store.base import Change
from stateflow.store.directory import make_private
from stateflow.store.runs import write_run


class RunFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The newest value of each key of a range, or of a part of one that was too large for the memory allowed."""

    changes: str
    """A sorted file of values and tombstones."""
    deleted: str | None
    """A sorted file of the keys that are deleted; None when there are none."""


class ReadRange(msgspec.Struct, frozen=True, kw_only=True):
    """One range on disk: its note."""

    store: str
    topic: str
    partition: int
    topic_id: str
    offset_first: int
    offset_next: int
    planned_ms: int
    """When the end of the log was asked for: the range holds what the log said from then on."""
    records_total: int
    bytes_total: int
    runs: tuple[RunFiles, ...]
    """Oldest first."""

    @property
    def offsets(self) -> OffsetRange:
        """The range."""
        return OffsetRange(self.offset_first, self.offset_next)

    @property
    def files(self) -> list[str]:
        """Names of all its files, the note left out."""
        named = [name for run in self.runs for name in (run.changes, run.deleted)]
        return [name for name in named if name is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJob:
    """One range to read, as data that another process can take."""

    folder: Path
    store: str
    source: TopicPartition
    topic_id: str
    offsets: OffsetRange
    planned_ms: int
    bytes_max: int
    """What is read and not written yet may take so much memory: more becomes another run."""


def read_into_files(cluster: Cluster, job: ReadJob) -> ReadRange:
    """Read a range and write its files; on return it survives a crash.

    Raises ``OffsetOutOfRange`` when the log's beginning moved past it, ``BrokerUnreachable``.
    """
    make_private(job.folder)
    newest = newest_values(RESERVED_KEY_PREFIX)
    sink = NewestSink(newest, job.offsets.offset_next)
    stem = f"{job.store}-{job.offsets.offset_first}-{job.offsets.offset_next}"
    runs: list[RunFiles] = []

    def write() -> None:
        changes = newest.ordered()
        if changes:
            runs.append(_written(job.folder, f"{stem}-{uuid.uuid4().hex}", changes))
        newest.clear()

    for _ in read_range_into(cluster, job.source, job.offsets, sink):
        if newest.held_bytes > job.bytes_max:
            write()
    write()
    done = ReadRange(
        store=job.store,
        topic=job.source.topic,
        partition=job.source.partition,
        topic_id=job.topic_id,
        offset_first=job.offsets.offset_first,
        offset_next=job.offsets.offset_next,
        planned_ms=job.planned_ms,
        records_total=sink.records_total,
        bytes_total=sink.bytes_total,
        runs=tuple(runs),
    )
    reach("early.before_note")
    _write_note(job.folder / f"{stem}.json", done)
    reach("early.after_note")
    return done


def ranges_on_disk(folder: Path) -> list[ReadRange]:
    """The ranges that were read completely; files of others are deleted, as are notes whose files are not all there."""
    if not folder.is_dir():
        return []
    found, kept = [], set()
    for note in folder.glob("*.json"):
        read = _noted(note)
        if read is not None and all((folder / name).is_file() for name in read.files):
            found.append(read)
            kept |= {note.name, *read.files}
    for file in folder.iterdir():
        if file.is_file() and file.name not in kept:
            file.unlink()
    return found


def forget(folder: Path, read: ReadRange) -> None:
    """Delete a range, its note first."""
    (folder / f"{read.store}-{read.offset_first}-{read.offset_next}.json").unlink(missing_ok=True)
    for name in read.files:
        (folder / name).unlink(missing_ok=True)


def _written(folder: Path, stem: str, changes: Sequence[Change]) -> RunFiles:
    changed, deleted = f"{stem}.sst", f"{stem}.deleted.sst"
    write_run(folder / changed, changes)
    gone: list[Change] = [(key, b"") for key, value in changes if value is None]
    if not gone:
        return RunFiles(changes=changed, deleted=None)
    write_run(folder / deleted, gone)
    return RunFiles(changes=changed, deleted=deleted)


def _write_note(file: Path, read: ReadRange) -> None:
    draft = file.with_suffix(f".{uuid.uuid4().hex}.draft")
    with draft.open("wb") as out:
        out.write(msgspec.json.encode(read))
        out.flush()
        os.fsync(out.fileno())
    draft.rename(file)


def _noted(note: Path) -> ReadRange | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=ReadRange)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # of another version: the range is read again
