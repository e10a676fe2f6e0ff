"""Where this user's journals of settings and calibrated costs are kept, and where they were kept before."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stateflow.connectors.broker.places import user_state_dir
from stateflow.errors import ConfigError, DiskFull, is_disk_full
from stateflow.store.directory import make_private


def default_folder() -> Path:
    """``compaction`` in this user's state folder: of ``$STATEFLOW_HOME``, or of the platform's place."""
    return user_state_dir() / "compaction"


def costs_path(cluster_id: str) -> Path:
    """Where the calibrated costs of a cluster's brokers are kept."""
    return default_folder() / f"costs-{cluster_id}.json"


def found_at(path: Path) -> Path:
    """Where to read a file of ``default_folder()``: there, or where it was kept before, if it is there alone.

    The folder did not follow ``STATEFLOW_HOME``. What was written then can still be undone; what is written goes to
    the new place.
    """
    if path.exists() or not path.is_relative_to(default_folder()):
        return path
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    former = Path(home) / "stateflow" / "compaction" / path.relative_to(default_folder())
    return former if former.exists() else path


@contextmanager
def written_to(path: Path, otherwise: str) -> Iterator[None]:
    """What keeps a file from being written, as an error that goes on with ``otherwise``: what that means.

    Raises ``DiskFull``, and ``ConfigError`` for a place where this user cannot write.
    """
    try:
        yield
    except OSError as error:
        # A part of the path that is a file: said by making a folder there as by opening a file below.
        why = os.strerror(errno.ENOTDIR) if error.errno == errno.EEXIST else error.strerror or str(error)
        if is_disk_full(error):
            raise DiskFull(
                f"No space left for {path} ({why}). {otherwise}",
                action="Free space, or set STATEFLOW_HOME to a directory on another disk; then do it again.",
                path=str(path),
            ) from error
        raise ConfigError(
            f"{path} cannot be written ({why}). {otherwise}",
            action="Set STATEFLOW_HOME to a directory that this user may write, then do it again.",
            path=str(path),
        ) from error


def require_writable(path: Path, otherwise: str) -> None:
    """Raise as ``written_to`` unless a file can be written at ``path``; asked before anything long begins."""
    with written_to(path.parent, otherwise):
        make_private(path.parent)
        probe = path.with_name(f"{path.name}.{os.getpid()}.probe")
        try:
            probe.write_bytes(b"stateflow")
        finally:
            probe.unlink(missing_ok=True)
