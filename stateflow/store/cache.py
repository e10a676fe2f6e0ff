"""A read cache of bytes over one store, bounded in bytes, that knows absent keys too."""

from __future__ import annotations

from stateflow.store.generations import MISSING as MISSING
from stateflow.store.generations import Generations, bytes_of
from stateflow.store.generations import Missing as Missing

Known = bytes | None | Missing


class ReadCache(Generations[bytes | None]):
    """What disk is known to hold: None for a key known to be absent."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, bytes_of)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Remember what disk holds for a key."""
        self.put_many((key,), (value,))
