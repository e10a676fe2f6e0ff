"""The scheduler of pytest-xdist that deals tests out as `tests/dealing.py` says."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

from tests.dealing import unit_of


class Lanes(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Deals out the units in the order in which the processes collect them."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
