"""Where a task's state lies on disk, and whose it is: ``<state_dir>/<app>/g<generation>/<task>/``.

``identity.json`` says which application, cluster, generation and task the directory belongs to; it is written
before the database is created and compared at every open. Bytes: ``docs/formats.md``.

State is what users' records say, so directories are for their owner alone (0700), whatever the umask is.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stateflow.errors import (
    ConfigError,
    DiskFull,
    StateCorrupt,
    StateflowError,
    StateForeign,
    TooManyOpenFiles,
    is_disk_full,
)
from stateflow.record import is_topic_name

_LOG = logging.getLogger(__name__)

FORMAT_VERSION = 1
IDENTITY_FILE = "identity.json"
DATABASE_FOLDER = "db"
RANGES_FOLDER = "ranges"
DISK_FILE = "disk"
DAMAGED_FILE = "DAMAGED"
_ASIDE_SUFFIX = ".damaged"
_PRIVATE = 0o700
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a task directory belongs to."""

    app: str
    cluster_id: str
    generation: int
    task: str
    format: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class TaskDirectory:
    """The directory of one task, existing or not."""

    path: Path
    identity: Identity

    @property
    def database(self) -> Path:
        """Where RocksDB's files are."""
        return self.path / DATABASE_FOLDER

    @property
    def ranges(self) -> Path:
        """Where a restore that reads the newest records first keeps what is not part of the database yet."""
        return self.path / RANGES_FOLDER

    def drop_ranges(self) -> None:
        """Delete what such a restore left."""
        if self.ranges.exists():
            shutil.rmtree(self.ranges, ignore_errors=True)

    @property
    def is_damaged(self) -> bool:
        """True when a reader of this store came upon corrupt data."""
        return (self.path / DAMAGED_FILE).exists()

    def claim(self) -> None:
        """Create the directory if needed and make sure that it is this task's.

        The first to write the identity wins. What exists already with wider rights is narrowed to its owner, or warned
        of where this user may not. Raises ``StateForeign`` for anybody else's directory, ``DiskFull``,
        ``TooManyOpenFiles``, and ``ConfigError`` where no directory can be.
        """
        try:
            self._claim()
        except OSError as error:
            raise _unusable(self.path, error) from error

    def _claim(self) -> None:
        make_private(self.path)
        file = self.path / IDENTITY_FILE
        if not file.exists():
            if self.database.exists():
                raise _foreign(self.path, "it holds a database but no identity.json")
            write_once(file, json.dumps(asdict(self.identity), indent=1))
        self.check(read_identity(self.path))
        for directory in self._levels():
            _narrow(directory)

    def _levels(self) -> Iterator[Path]:
        """The task's directory and those above it that hold nothing but the application's state."""
        yield self.path
        generation, app = self.path.parent, self.path.parent.parent
        if (generation.name, app.name) == (f"g{self.identity.generation}", self.identity.app):
            yield from (generation, app)

    def check(self, found: Identity) -> None:
        """Raise ``StateForeign``, naming every field that differs."""
        wanted, present = asdict(self.identity), asdict(found)
        differences = [
            f"{name} is {present[name]!r} instead of {wanted[name]!r}"
            for name in wanted
            if wanted[name] != present[name]
        ]
        if differences:
            raise _foreign(self.path, "; ".join(differences))

    def mark_damaged(self, cause: str) -> None:
        """Remember that the database is damaged, so that the next open sets it aside.

        It is not an error if the directory is gone: the next open begins an empty one.
        """
        with suppress(FileNotFoundError):
            (self.path / DAMAGED_FILE).write_text(cause + "\n")

    def set_aside(self) -> Path:
        """Move the directory out of the way, replacing what was set aside before; returns where it went."""
        aside = self.path.with_name(self.path.name + _ASIDE_SUFFIX)
        if aside.exists():
            shutil.rmtree(aside)
        self.path.rename(aside)
        return aside


def task_directory(
    state_dir: Path | str, app: str, cluster_id: str, generation: int, task: str
) -> TaskDirectory:
    """The directory of a task below ``state_dir``; nothing is created. Raises ``StateCorrupt`` for what is no name."""
    if not (is_topic_name(app) and is_topic_name(task)):  # so that no name leaves ``state_dir``
        raise StateCorrupt(
            f"{app!r} or {task!r} cannot be the name of an application and of a task of it.",
            action="something else wrote to the control topic: see `stateflow repair`.",
        )
    path = Path(state_dir) / app / f"g{generation}" / task
    return TaskDirectory(path, Identity(app, cluster_id, generation, task))


def read_identity(path: Path) -> Identity:
    """The identity written in a task directory; ``StateForeign`` when there is none that can be read."""
    try:
        fields = json.loads((path / IDENTITY_FILE).read_text())
        return Identity(**fields)
    except FileNotFoundError as error:
        raise _foreign(path, "it has no identity.json") from error
    except (ValueError, TypeError) as error:
        raise _foreign(path, f"its identity.json cannot be read ({error})") from error


def find_task_directories(state_dir: Path, app: str | None = None) -> Iterator[TaskDirectory]:
    """Task directories below ``state_dir``, of one application or all, sorted, without what was set aside."""
    for file in sorted(state_dir.glob(f"{app or '*'}/g*/*/{IDENTITY_FILE}")):
        if file.parent.name.endswith(_ASIDE_SUFFIX):
            continue
        try:
            identity = read_identity(file.parent)
        except StateForeign:
            if file.exists():
                raise
            continue  # another worker has deleted it since
        yield TaskDirectory(file.parent, identity)


def disk_id(state_dir: Path, app: str) -> str:
    """What tells one application's state directory from any other; written when it is first asked for.

    Raises ``ConfigError`` where no directory can be, ``DiskFull`` and ``TooManyOpenFiles``.
    """
    file = state_dir / app / DISK_FILE
    try:
        if not file.exists():
            make_private(file.parent)
            write_once(file, uuid.uuid4().hex)
        return file.read_text().strip()
    except OSError as error:
        raise _unusable(file.parent, error) from error


def make_private(directory: Path) -> None:
    """Create a directory, and those above it that are missing, for this user alone; existing ones stay as they are."""
    if not directory.is_dir():
        if directory.parent != directory:
            make_private(directory.parent)
        directory.mkdir(mode=_PRIVATE, exist_ok=True)


def _narrow(directory: Path) -> None:
    """Take the rights of others off a directory that is ours; a warning where that is not allowed."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & ~_PRIVATE == 0:
        return
    try:
        directory.chmod(_PRIVATE)
        _LOG.info("Others than its owner could enter %s (%o): they no longer can.", directory, mode)
    except OSError as error:
        _LOG.warning(
            "Others than its owner may enter %s (%o), which holds state, and this user cannot change that (%s).",
            directory,
            mode,
            error.strerror,
        )


def write_once(file: Path, text: str) -> None:
    """Create a file with its whole content; a file that somebody else created meanwhile stays as it is."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with draft.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(draft, file)
    except FileExistsError:
        pass  # the other process's identity is compared with ours next
    finally:
        draft.unlink()


def _unusable(path: Path, error: OSError) -> StateflowError:
    if is_disk_full(error):
        return DiskFull(
            f"no space left for the state in {path} ({error.strerror}).",
            action="free space or move the state directory, then start again: what was committed is in the"
            " changelog.",
            path=str(path),
        )
    if error.errno in _NO_DESCRIPTORS:
        return too_many_open_files(path, str(error.strerror))
    return ConfigError(
        f"the state directory {path} cannot be used ({error.strerror}).",
        action="choose another --state-dir (or setting state_dir), or make this one a directory that this user may"
        " write.",
        path=str(path),
    )


def too_many_open_files(path: Path, why: str) -> TooManyOpenFiles:
    """The error for a file that could not be opened because too many are."""
    return TooManyOpenFiles(
        f"this process has as many files and connections open as it may: no other one for the state in {path} ({why}).",
        action="raise the limit (ulimit -Hn, LimitNOFILE=), or run more workers with fewer tasks each.",
        path=str(path),
    )


def _foreign(path: Path, why: str) -> StateForeign:
    return StateForeign(
        f"the state directory {path} is not this task's: {why}.",
        action="choose another --state-dir, or delete this directory; the changelog"
        " has everything that was committed.",
        path=str(path),
    )
