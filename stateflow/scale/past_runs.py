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
    """A file of runs, oldest first. They are only experience: what cannot be read or written is a warning."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or default_path()

    def read(self) -> list[Run]:
        """Every run that can be read; none when none was made."""
        try:
            return self._read()
        except OSError as error:
            _LOG.warning(
                "The repartitions made on this machine are not considered, they cannot be read: %s.", error
            )
            return []

    def add(self, run: Run) -> None:
        """Write one more run, the file whole or not at all; the oldest beyond ``RUNS_KEPT`` go."""
        draft = self._path.with_suffix(f".{os.getpid()}")
        try:
            kept = [*self._read(), run][-RUNS_KEPT:]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in kept))
                draft.replace(self._path)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
        except OSError as error:
            _LOG.warning("This repartition is not noted for the prediction of later ones: %s.", error)

    def _read(self) -> list[Run]:
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
