"""Where this user's caches and running-service records live."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """Folder of what can be fetched or made again: `STATEFLOW_CACHE`, else the platform's."""
    if override := os.environ.get("STATEFLOW_CACHE"):
        return Path(override)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "stateflow"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stateflow"


def user_state_dir() -> Path:
    """Folder of what must outlast a shell: which broker runs, and its data unless told otherwise."""
    if override := os.environ.get("STATEFLOW_HOME"):
        return Path(override)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "stateflow"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "stateflow"
