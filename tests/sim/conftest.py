"""What the simulations share: a cluster in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from stateflow.log.memory import MemoryCluster


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """An empty cluster."""
    made = MemoryCluster()
    yield made
    made.close()


@pytest.fixture
def quick_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for this test and for temporary files, in memory where the machine has such a place.

    Simulations write many small databases; what waiting for a disk would prove is proved elsewhere.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)
