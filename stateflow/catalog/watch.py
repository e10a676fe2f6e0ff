"""Following the control topic as it grows: barriers, new steps, and stages that grow, heard of by those who work."""

from __future__ import annotations

import logging

from stateflow.catalog.encoding import BARRIER_KEY, STAGE_PREFIX, decode_entry
from stateflow.catalog.model import BarrierEntry, StageEntry
from stateflow.catalog.names import control_topic
from stateflow.catalog.written import Written, refuse_older
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

_READ_RECORDS_MAX = 1_000


class ControlWatch:
    """The newest savepoint barrier and stages of an application, as far as the control topic was read.

    Used by one thread.
    """

    def __init__(self, cluster: Cluster, app: str, written: Written | None = None) -> None:
        """``written`` is what the code writes: what it does not is then refused as soon as the catalog has it."""
        self._written = written
        self.newest: BarrierEntry | None = None
        self._app = app
        self._control = TopicPartition(control_topic(app), 0)
        self._stages: dict[str, StageEntry] = {}
        self._reader = cluster.reader(follows=True)
        log = cluster.ranges([self._control])[self._control]
        self._end_then = log.offset_next
        self._reader.assign({self._control: log.offset_first})

    @property
    def open(self) -> BarrierEntry | None:
        """The barrier whose savepoint is being made: tasks are to commit their points; None when there is none."""
        return self.newest if self.newest is not None and self.newest.state == "open" else None

    def is_over(self, barrier_id: int) -> bool:
        """True when a barrier is known to be complete or aborted. One that was not heard of yet has not."""
        newest = self.newest
        return newest is not None and (
            barrier_id < newest.barrier_id or (barrier_id == newest.barrier_id and newest.state != "open")
        )

    def poll(self) -> None:
        """Take in what was written since; never waits. A record that is no entry is passed over, with a warning.

        Raises ``CatalogIncompatible`` when the catalog has got what the code would have to write, and does not know.
        """
        for batch in self._reader.read(_READ_RECORDS_MAX, 0):
            for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
                if key is not None and value is not None:
                    self._take(key, value, offset)

    def stages(self) -> list[StageEntry]:
        """The stages as they are by now; none before all was read that was there at the beginning."""
        is_whole = self._reader.position(self._control) >= self._end_then
        return list(self._stages.values()) if is_whole else []

    def _take(self, key: bytes, value: bytes, offset: int) -> None:
        try:
            entry = decode_entry(self._app, key, value)
        except ValueError as error:
            if key != BARRIER_KEY and not key.startswith(STAGE_PREFIX):
                return  # whoever reads the catalog tells of it
            _LOG.warning(
                "A record of %s, partition 0, is passed over: %r at offset %d (%s). See `stateflow repair --app %s`.",
                control_topic(self._app),
                key.decode(errors="replace"),
                offset,
                error,
                self._app,
            )
            return
        if isinstance(entry, StageEntry):
            self._stages[entry.name] = entry
        elif isinstance(entry, BarrierEntry):
            self.newest = entry
        if self._written is not None and entry is not None:
            refuse_older(self._app, self._written.lacks(entry))

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
