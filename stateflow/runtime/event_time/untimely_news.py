"""What a worker tells others of late records: on the members' topic, where ``stateflow workers`` looks."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from stateflow.catalog.names import control_topic, members_topic
from stateflow.clock import Clock
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster, Writer
from stateflow.runtime.event_time.untimely import Untimely
from stateflow.runtime.standby.records import (
    UntimelyReport,
    create_membership_topic,
    encode_untimely,
    membership_partition,
)

_LOG = logging.getLogger(__name__)

TELL_SECONDS = 5.0
_REPEAT_SECONDS = 600.0
"""The topic forgets after an hour; what a running task has met is said again before."""
_WAIT_SECONDS = 2.0
"""It is said on the poll thread, so it must not wait for long."""


class UntimelyNews:
    """Used by the poll thread. An application without late records writes nothing, and has no such topic for it."""

    def __init__(self, cluster: Cluster, app: str, worker: str, clock: Clock) -> None:
        self._cluster = cluster
        self._app = app
        self._worker = worker
        self._clock = clock
        self._writer: Writer | None = None
        self._told: dict[bytes, tuple[Untimely, float]] = {}
        self._turn_seconds = -TELL_SECONDS

    def turn(self, met: Iterable[Untimely], *, is_last: bool = False) -> None:
        """Tell what is new since it was told last; a cluster that cannot take it is tried again later."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._turn_seconds < TELL_SECONDS and not is_last:
            return
        self._turn_seconds = now_seconds
        news: dict[bytes, tuple[Untimely, bytes]] = {}
        for untimely in met:
            key, value = encode_untimely(self._report(untimely))
            told, told_seconds = self._told.get(key, (None, 0.0))
            if told != untimely or now_seconds - told_seconds >= _REPEAT_SECONDS:
                news[key] = untimely, value
        if not news:
            return
        try:
            self._write({key: value for key, (_, value) in news.items()})
        except StateflowError as error:
            _LOG.warning("Cannot tell others of late records, which are in this log: %s", error)
            self._turn_seconds = now_seconds + _REPEAT_SECONDS
            return
        self._told.update({key: (untimely, now_seconds) for key, (untimely, _) in news.items()})

    def close(self) -> None:
        """Release the connection, if there was anything to tell."""
        if self._writer is not None:
            self._writer.close()

    def _report(self, untimely: Untimely) -> UntimelyReport:
        fields = msgspec.structs.asdict(untimely)
        return UntimelyReport(**fields, worker=self._worker, written_ms=self._clock.now_ms())

    def _write(self, records: dict[bytes, bytes]) -> None:
        topic, partition = membership_partition(self._app)
        if self._writer is None:
            control = control_topic(self._app)
            found = self._cluster.describe([control, members_topic(self._app)])
            if members_topic(self._app) not in found:
                create_membership_topic(self._cluster, self._app, found[control].replication)
            self._writer = self._cluster.writer()
        self._writer.begin()
        for key, value in records.items():
            self._writer.send(topic, key, value, partition=partition)
        self._writer.commit(_WAIT_SECONDS)
