"""What an image is: the files of one RocksDB checkpoint, and exactly which moment of which log they stand for."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

from stateflow.errors import StateCorrupt

FORMAT_VERSION = 1

UploadMode = Literal["full", "delta"]
"""``delta``: files that the image before has are not sent again. ``full``: every image has all its files for itself."""
FILES_MAX = 100_000
FILE_BYTES_MAX = 64 << 30
MANIFEST_BYTES_MAX = 32 << 20
"""``FILES_MAX`` files take 20 MB. What is larger is refused unread: a reader must not fill its memory with it."""
# What a RocksDB checkpoint consists of. Nothing else is ever written to disk from an image.
FILE_NAME = re.compile(
    r"CURRENT|IDENTITY|MANIFEST-\d{1,20}|OPTIONS-\d{1,20}|\d{1,20}\.(sst|blob)|rocksdict-config\.json"
)


class ImageFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an image; its content is stored under its hash."""

    name: str
    size_bytes: int
    sha256: str


class ImageStore(msgspec.Struct, frozen=True, kw_only=True):
    """How far one store of the image reaches into its changelog partition."""

    changelog: str
    topic_id: str
    offset_next: int
    applied_ms: int
    """Wall-clock time at which the content was all that the log said: how old the image is for its log."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One image of one task."""

    app: str
    generation: int
    task: str
    created_ms: int
    stores: dict[str, ImageStore]
    inputs: dict[str, int]
    """Input ``topic[partition]`` → ``offset_next`` committed when the manifest was made: to be read by people."""
    files: tuple[ImageFile, ...]
    mode: UploadMode = "delta"
    format: int = FORMAT_VERSION

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def sha256(self) -> str:
        """Hash of the encoded manifest, by which others refer to it."""
        return hashlib.sha256(self.encode()).hexdigest()

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """Read and check a manifest. Raises ``StateCorrupt`` for anything an honest writer would not have written."""
        if len(data) > MANIFEST_BYTES_MAX:
            raise _refused(where, f"it is larger than {MANIFEST_BYTES_MAX} bytes")
        try:
            _check_format(msgspec.json.decode(data, type=_Formatted).format, where)
            manifest = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _refused(where, f"it cannot be read ({error})") from error
        if len(manifest.files) > FILES_MAX:
            raise _refused(where, f"it names {len(manifest.files)} files, more than {FILES_MAX}")
        if any(store.offset_next < 0 for store in manifest.stores.values()):
            raise _refused(where, "it has a negative offset")
        names = [file.name for file in manifest.files]
        if len(set(names)) != len(names):
            raise _refused(where, "it names a file twice")
        for file in manifest.files:
            if not FILE_NAME.fullmatch(file.name):
                raise _refused(where, f"it names a file {file.name!r}, which no checkpoint contains")
            if not 0 <= file.size_bytes <= FILE_BYTES_MAX or not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
                raise _refused(where, f"size or hash of {file.name} are not valid")
        return manifest


class _Formatted(msgspec.Struct):
    """What the manifests of all versions have."""

    format: int = FORMAT_VERSION


def is_of_another_version(error: StateCorrupt) -> bool:
    """Whether an image was refused because another version of stateflow has written it: it may be whole."""
    return "format" in error.fields


def _check_format(number: int, where: str) -> None:
    if number != FORMAT_VERSION:
        raise StateCorrupt(
            f"the image manifest {where} is refused: its format is {number}, this version reads {FORMAT_VERSION}.",
            action="use the version of stateflow that wrote it, or restore without it.",
            manifest=where,
            format=number,
        )


def _refused(where: str, why: str) -> StateCorrupt:
    return StateCorrupt(
        f"the image manifest {where} is refused: {why}.",
        action="remove it with `stateflow checkpoint gc --damaged` (of a savepoint: `stateflow savepoint delete`), or"
        " restore without it: the changelog has everything unless it was trimmed.",
        manifest=where,
    )
