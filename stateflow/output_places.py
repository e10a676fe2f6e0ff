"""Files and folders that a command is to write: that they can be is seen before long work, and told where not."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stateflow.errors import ConfigError, DiskFull, is_disk_full

_IS_FILE = (errno.ENOTDIR, errno.EEXIST)


def require_file(path: Path, said: str, *, makes_folder: bool = False) -> None:
    """Raise as ``writing`` unless a file can be written at ``path``; its folder must be there unless that is made."""
    if makes_folder and not path.parent.exists():
        require_folder(path.parent, said)
        return
    with writing(path, said):
        if not path.parent.is_dir():
            code = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
            raise OSError(code, os.strerror(code), str(path.parent))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if path.is_file():
            with path.open("ab"):
                pass
        elif not path.exists():  # a pipe or a device is not touched
            tempfile.TemporaryFile(prefix=".stateflow-", dir=path.parent).close()


def require_folder(path: Path, said: str) -> None:
    """Raise as ``writing`` unless a folder is at ``path``, or can be made there, and files can be written in it."""
    with writing(path, said):
        existing = next(found for found in (path, *path.absolute().parents) if found.exists())
        with tempfile.TemporaryDirectory(prefix=".stateflow-", dir=existing):
            pass


@contextmanager
def writing(path: Path, said: str) -> Iterator[None]:
    """What keeps a file or folder from being written, as an error that names it as ``said``: ``--out``, for example.

    Raises ``DiskFull``, and ``ConfigError`` for all else.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if is_disk_full(error):
            raise DiskFull(
                f"No space left for {path} ({why}).",
                action=f"free space, or give {said} on another disk; then do it again.",
                path=str(path),
            ) from error
        raise ConfigError(
            f"{said}: {path} cannot be written ({_sentence(path, error) or why}).",
            action=f"{_what_to_do(error)}; then do it again.",
            path=str(path),
        ) from error


def _sentence(path: Path, error: OSError) -> str | None:
    """A part of the path that is missing or no folder, by its name; None where the system's words say enough."""
    blocking = next((part for part in path.parents if part.exists()), None)
    if error.errno in _IS_FILE and blocking is not None and not blocking.is_dir():
        return f"{blocking} is a file"
    if error.errno == errno.ENOENT and not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return None


def _what_to_do(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "make the folder first, or name a place in one that is there"
    return "name a place that this user may write"
