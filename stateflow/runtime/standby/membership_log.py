"""Reading and writing what members tell each other: one short topic, tailed by everybody."""

from __future__ import annotations

import logging
from itertools import count

from stateflow.errors import OffsetOutOfRange, TopicMissing
from stateflow.log.base import Cluster, Reader, Writer
from stateflow.runtime.worker.member_records import MembershipTopic, membership_partition

_LOG = logging.getLogger(__name__)

_READ_RECORDS_MAX = 10_000
_READ_SECONDS = 0.2


class MembershipLog:
    """The members' topic of one application. Used by one thread; the topic must exist.

    One that ``follows`` it for long asks brokers less often, and learns up to half a second later that it has read all.
    """

    def __init__(self, cluster: Cluster, app: str, *, follows: bool = False) -> None:
        self.membership = MembershipTopic()
        self._cluster = cluster
        self._follows = follows
        self._partition = membership_partition(app)
        self._reader: Reader | None = None
        self._writer: Writer | None = None

    @property
    def offset_next(self) -> int:
        """Everything before this offset was read."""
        return 0 if self._reader is None else self._reader.position(self._partition)

    def read(self, timeout_seconds: float) -> bool:
        """Take in what is new; True when something was. Raises ``TopicMissing``, naming the topic."""
        try:
            if self._reader is None:
                self._reader = self._made_reader()
            return self._read(self._reader, timeout_seconds)
        except TopicMissing as error:
            raise self._gone() from error

    def _read(self, reader: Reader, timeout_seconds: float) -> bool:
        try:
            batches = reader.read(_READ_RECORDS_MAX, timeout_seconds)
        except OffsetOutOfRange as error:
            _LOG.info("Old records of members were dropped before they were read: %s", error)
            self._read_from_the_start(reader)
            return False
        for batch in batches:
            for key, value in zip(batch.keys, batch.values, strict=True):
                self.membership.take(key, value)
        return bool(batches)

    def read_to(self, end: int, reads_max: int | None = None) -> None:
        """Take in all before this offset of the log, or what so many reads of 0.2 s bring."""
        for _ in count() if reads_max is None else range(reads_max):
            if self.offset_next >= end:
                return
            self.read(_READ_SECONDS)

    def write(self, key: bytes, value: bytes | None) -> None:
        """Write a record of one's own, acknowledged on return."""
        if self._writer is None:
            self._writer = self._cluster.writer()
        try:
            self._writer.begin()
            self._writer.send(self._partition.topic, key, value, partition=self._partition.partition)
            self._writer.commit()
        except TopicMissing as error:
            raise self._gone() from error

    def _gone(self) -> TopicMissing:
        return TopicMissing(
            f"the topic {self._partition.topic}, by which workers with standby copies tell each other what they have,"
            " was deleted while they ran.",
            action="start them again: that creates it, and no state was in it.",
            topic=self._partition.topic,
        )

    def close(self) -> None:
        """Release both connections."""
        if self._reader is not None:
            self._reader.close()
        if self._writer is not None:
            self._writer.close()

    def _made_reader(self) -> Reader:
        reader = self._cluster.reader(follows=self._follows)
        try:
            self._read_from_the_start(reader)
        except BaseException:
            reader.close()
            raise
        return reader

    def _read_from_the_start(self, reader: Reader) -> None:
        log = self._cluster.ranges([self._partition])[self._partition]
        reader.assign({self._partition: log.offset_first})
