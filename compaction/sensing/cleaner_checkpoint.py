"""How far the cleaner of a broker on this machine has come, from the file in which it keeps that itself.

``cleaner-offset-checkpoint`` lies in every log directory: a version, a count, then ``topic partition offset``,
the first offset that no pass has cleaned yet. It is replaced atomically after every pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stateflow.record import TopicPartition

FILE_NAME = "cleaner-offset-checkpoint"
_VERSION = "0"


def cleaned_offsets(directories: Iterable[str]) -> dict[TopicPartition, int] | None:
    """The first offset not yet cleaned of every partition ever cleaned; None when no file can be read here."""
    found: dict[TopicPartition, int] = {}
    readable = False
    for directory in directories:
        try:
            text = (Path(directory) / FILE_NAME).read_text()
        except OSError:
            continue  # another machine's directory or another user's: the caller falls back to sizes
        version, _, *rows = text.splitlines() or ("", "")
        if version != _VERSION:
            continue
        readable = True
        for row in rows:
            topic, partition, offset = row.split(" ")
            found[TopicPartition(topic, int(partition))] = int(offset)
    return found if readable else None
