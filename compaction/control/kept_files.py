"""Where this user's journals of settings and calibrated costs are kept, and where they were kept before."""

from __future__ import annotations

import os
from pathlib import Path

from stateflow.connectors.broker.places import user_state_dir


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
