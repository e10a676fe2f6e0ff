"""The scheduler of pytest-xdist that deals tests out as `tests/dealing.py` says."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.dealing import unit_of
from tests.prepared import Preparation


class Lanes(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Deals out the units in the order in which the processes collect them, when all is ready."""

    def __init__(self, config: pytest.Config, log: Producer, preparation: Preparation) -> None:
        super().__init__(config, log)
        self._preparation = preparation

    def schedule(self) -> None:
        """Begin to deal out, once all processes have collected the tests, or go on after one was lost."""
        self._preparation.wait()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
