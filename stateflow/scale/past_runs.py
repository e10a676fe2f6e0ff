"""The repartitions that were made from this machine: a line of JSON each, for the next prediction."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from stateflow.connectors.broker.places import user_state_dir
from stateflow.scale.prediction import Run

_LOG = logging.getLogger(__name__)

RUNS_KEPT = 50


def default_path() -> Path:
    """``scale-runs.jsonl`` in the user's state folder."""
    return user_state_dir() / "scale-runs.jsonl"


class PastRuns:
    """A file of runs, oldest first. What cannot be read is warned about and left out: it is only experience."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or default_path()

    def read(self) -> list[Run]:
        """Every run; none when none was made."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        runs = []
        for number, line in enumerate(lines, 1):
            try:
                runs.append(msgspec.json.decode(line, type=Run))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                _LOG.warning("Line %d of %s is left out: %s", number, self._path, error)
        return runs

    def add(self, run: Run) -> None:
        """Write one more run, the file whole or not at all; the oldest beyond ``RUNS_KEPT`` go."""
        kept = [*self.read(), run][-RUNS_KEPT:]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in kept))
        draft.replace(self._path)
