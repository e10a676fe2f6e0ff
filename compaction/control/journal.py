"""What was applied to a topic and what stood there before, kept on disk so that it can be undone."""

from __future__ import annotations

import json
import os
import urllib.parse
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from stateflow.compaction.control.kept_files import default_folder, found_at, require_writable
from stateflow.errors import StateCorrupt

ENTRIES_MAX = 50
"""Per topic; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One change of a topic's settings."""

    topic: str
    applied_ms: int
    changes: dict[str, str | None]
    """What was set; None for an override that was removed."""
    before: dict[str, str | None]
    """The topic's own value before; None where it inherited the broker's."""
    rolled_back_ms: int | None = None
    session: str | None = None
    """Changes of one watching session count as one, so that one rollback goes back to before it began."""

    def merged(self, later: JournalEntry) -> JournalEntry:
        """This change followed by a later one of the same session."""
        return replace(
            self,
            changes={**self.changes, **later.changes},
            before={**later.before, **self.before},
            applied_ms=later.applied_ms,
        )


class Journal:
    """The changes made to topics of one cluster from this machine, a small JSON file per topic."""

    def __init__(self, cluster_id: str, folder: Path | None = None) -> None:
        self._folder = (folder or default_folder()) / urllib.parse.quote(cluster_id, safe="")

    def path(self, topic: str) -> Path:
        """The file of one topic."""
        return self._folder / (urllib.parse.quote(topic, safe="") + ".json")

    def require_writable(self, otherwise: str) -> None:
        """Raise ``DiskFull`` or ``ConfigError``, ending with ``otherwise``, where no change can be written down."""
        require_writable(self.path("writable"), otherwise)

    def entries(self, topic: str) -> list[JournalEntry]:
        """All changes known, oldest first. Raises ``StateCorrupt`` for a file that is not a journal."""
        path = found_at(self.path(topic))
        if not path.exists():
            return []
        try:
            return msgspec.json.decode(path.read_bytes(), type=list[JournalEntry])
        except msgspec.DecodeError as error:
            raise StateCorrupt(
                f"{path} is not a journal of settings: {error}.",
                action="Look at the file, set the topic's settings by hand, then delete the file.",
            ) from error

    def last_applied(self, topic: str) -> JournalEntry | None:
        """The newest change that was not rolled back."""
        return next((entry for entry in reversed(self.entries(topic)) if entry.rolled_back_ms is None), None)

    def append(self, entry: JournalEntry) -> None:
        """Add a change, merged with the newest one of the same session; durable on return."""
        entries = self.entries(entry.topic)
        last = entries[-1] if entries else None
        if last is not None and entry.session is not None and last.session == entry.session:
            entries[-1] = last.merged(entry)
        else:
            entries.append(entry)
        self._write(entry.topic, entries)

    def mark_rolled_back(self, entry: JournalEntry, now_ms: int) -> None:
        """Remember that a change was undone; durable on return."""
        entries = self.entries(entry.topic)
        self._write(
            entry.topic, [replace(one, rolled_back_ms=now_ms) if one == entry else one for one in entries]
        )

    def _write(self, topic: str, entries: list[JournalEntry]) -> None:
        path = self.path(topic)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with temporary.open("w") as file:
                json.dump([asdict(entry) for entry in entries[-ENTRIES_MAX:]], file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # half a file, which takes what space is left
            raise
