"""Following the control topic as it grows, for those who must hear of a cut while they work."""

from __future__ import annotations

import logging

from stateflow.catalog.encoding import CUT_KEY, decode_entry
from stateflow.catalog.model import CutEntry
from stateflow.catalog.names import control_topic
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

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
        """Take in what has been written since; never waits. A record that is no cut is passed over, with a warning."""
        for batch in self._reader.read(_READ_RECORDS_MAX, 0):
            for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
                if key == CUT_KEY and value is not None:
                    self._take(value, offset)

    def _take(self, value: bytes, offset: int) -> None:
        try:
            entry = decode_entry(self._app, CUT_KEY, value)
        except ValueError as error:
            _LOG.warning(
                "A record of %s, partition 0, is passed over: %r at offset %d (%s). See `stateflow repair --app %s`.",
                control_topic(self._app),
                CUT_KEY.decode(),
                offset,
                error,
                self._app,
            )
            return
        assert isinstance(entry, CutEntry), "no other entry has this key"
        self.newest = entry

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
