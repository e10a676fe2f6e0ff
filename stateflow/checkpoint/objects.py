"""Where images are kept: a handful of operations that a directory, S3 and HDFS all have.

Names are ``/``-separated paths below the store's root, made by us and never by a user. ``put`` is all or nothing:
an object is there whole or not at all, which is what publishing a manifest last relies on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from stateflow.errors import DiskFull, is_disk_full

_CHUNK_BYTES = 1 << 20
_UPLOAD_PREFIX = ".upload-"

UNFINISHED_MS = 24 * 3_600_000
"""What an upload has written, and not added to for so long, is left of one that was killed: a day without a byte is far
above what any upload of one file stands still."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object."""

    name: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """A place for immutable objects."""

    @property
    def location(self) -> str:
        """Where it is, for people: a path or URI without credentials."""
        ...

    def put(self, name: str, source: BinaryIO) -> None:
        """Store an object whole, replacing one of the same name; durable on return. Raises ``DiskFull``."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Read an object from its start. Raises ``FileNotFoundError``."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects below a folder, in no order; none for a folder that does not exist."""
        ...

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """What uploads have written below a folder and that is no object yet, of those that were killed for ever.

        Where a store keeps such things out of sight there are none. ``delete`` takes their names.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove an object; a missing one is not an error."""
        ...


class DirectoryObjects:
    """A directory, perhaps on a network mount, as an object store."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def location(self) -> str:
        """The directory."""
        return str(self._root)

    def put(self, name: str, source: BinaryIO) -> None:
        """Write beside, sync, rename: readers see the old object, the new one, or none."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(prefix=_UPLOAD_PREFIX, dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                sink.flush()
                os.fsync(sink.fileno())
            Path(beside).replace(target)
            sync_directory(target.parent)
        except BaseException as error:
            Path(beside).unlink(missing_ok=True)
            if isinstance(error, OSError) and is_disk_full(error):
                raise DiskFull(
                    f"no space left in {self._root} for {name}.",
                    action="make room, or run `stateflow checkpoint gc`; images and savepoints made before are whole.",
                    directory=str(self._root),
                ) from error
            raise

    def open(self, name: str) -> BinaryIO:
        """The object's file."""
        return (self._root / name).open("rb")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Files below a folder; unfinished uploads are not objects, nor is what is deleted meanwhile."""
        return self._files(prefix, are_uploads=False)

    def unfinished(self, prefix: str) -> Iterator[ObjectInfo]:
        """Files beside those that they are to become."""
        return self._files(prefix, are_uploads=True)

    def _files(self, prefix: str, *, are_uploads: bool) -> Iterator[ObjectInfo]:
        for folder, _, files in os.walk(self._root / prefix):
            for file in files:
                if file.startswith(_UPLOAD_PREFIX) is are_uploads:
                    path = Path(folder) / file
                    try:
                        stat = path.stat()
                    except FileNotFoundError:  # deleted since the folder was read
                        continue
                    name = path.relative_to(self._root).as_posix()
                    yield ObjectInfo(name, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def delete(self, name: str) -> None:
        """Unlink the file."""
        (self._root / name).unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make renames in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_at_most(objects: ObjectStore, name: str, size_bytes: int) -> bytes:
    """An object whole, or somewhat more than ``size_bytes`` of a larger one. Raises ``FileNotFoundError``."""
    with objects.open(name) as source:
        content = bytearray()  # piece by piece: one read of so many bytes would allocate them all at once
        while len(content) <= size_bytes and (chunk := source.read(_CHUNK_BYTES)):
            content += chunk
        return bytes(content)
