"""Following the control topic as it grows, for those who must hear of a cut while they work."""

from __future__ import annotations

from stateflow.catalog.encoding import CUT_KEY, decode_cut
from stateflow.catalog.model import CutEntry
from stateflow.catalog.names import control_topic
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

_READ_RECORDS_MAX = 1_000


class CutWatch:
    """The newest cut of an application, as far as the control topic was read. Used by one thread."""

    def __init__(self, cluster: Cluster, app: str) -> None:
        self.newest: CutEntry | None = None
        self._app = app
        control = TopicPartition(control_topic(app), 0)
        self._reader = cluster.reader()
        self._reader.assign({control: cluster.ranges([control])[control].offset_first})

    @property
    def open(self) -> CutEntry | None:
        """The cut that tasks are to take their places in; None when there is none."""
        return self.newest if self.newest is not None and self.newest.state == "open" else None

    def is_over(self, number: int) -> bool:
        """True when a cut is known to have ended, one way or the other. One that was not heard of yet has not."""
        newest = self.newest
        return newest is not None and (
            number < newest.number or (number == newest.number and newest.state != "open")
        )

    def poll(self) -> None:
        """Take in what has been written since; never waits. Raises ``CatalogIncompatible``."""
        for batch in self._reader.read(_READ_RECORDS_MAX, 0):
            for key, value in zip(batch.keys, batch.values, strict=True):
                if key == CUT_KEY and value is not None:
                    self.newest = decode_cut(self._app, value)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
