"""How the contents of images are copied: with their hash, no longer than expected, and soon ended."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from stateflow.errors import Interrupted

_CHUNK_BYTES = 1 << 20

Cancelled = Callable[[], bool]
"""Tells a long transfer to end; looked at many times a second."""


def never() -> bool:
    """A transfer that goes on to its end."""
    return False


def sha256_of(path: Path) -> str:
    """Hash of a file."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def check_wanted(cancelled: Cancelled) -> None:
    """Raise ``Interrupted`` once the transfer is to end."""
    if cancelled():
        raise Interrupted("The transfer of an image was stopped.", action="nothing: the next one does it.")


def copy_hashed(
    source: BinaryIO, sink: BinaryIO | None, size_bytes: int, cancelled: Cancelled
) -> tuple[int, str]:
    """Copy at most one byte more than expected, so a grown object is noticed and never fills the disk."""
    digest, copied = hashlib.sha256(), 0
    while copied <= size_bytes and (chunk := source.read(min(_CHUNK_BYTES, size_bytes + 1 - copied))):
        check_wanted(cancelled)
        digest.update(chunk)
        copied += len(chunk)
        if sink is not None:
            sink.write(chunk)
    return copied, digest.hexdigest()
