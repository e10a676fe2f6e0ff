"""Writing in committed chunks by as many writers as it takes.

A writer can become unfit in the midst of a job: once an EndTxn of it was sent twice it refuses whatever comes next, as
the first copy may still arrive (``log/kafka/endtxn_guard.py``). A new writer of the same id makes that harmless, and
goes on behind the last chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from stateflow.errors import TransactionAborted
from stateflow.log.base import Cluster, Committed, Writer
from stateflow.record import Headers, TopicPartition

_LOG = logging.getLogger(__name__)

ABORTED_CHUNKS_MAX = 5
"""Transactions in a row that the broker may abort before the job gives up (Spark then starts it again)."""

T = TypeVar("T")


class Rows(Protocol):
    """Records in columns of equal length."""

    @property
    def keys(self) -> list[bytes]:
        """Their keys."""
        ...

    @property
    def values(self) -> list[bytes | None]:
        """Their values."""
        ...

    @property
    def timestamps_ms(self) -> list[int]:
        """Their timestamps."""
        ...

    @property
    def headers(self) -> list[Headers]:
        """Their headers; empty when none has any."""
        ...


def committed_chunks(
    cluster: Cluster, transactional_id: str, write: Callable[[Writer], Iterator[T]]
) -> Iterator[T]:
    """What ``write`` yields, once after each transaction that it has committed.

    When one is aborted ``write`` is called again with a new writer, and must find out itself what is left to do. From
    the first call on no older attempt of the id can write. Raises ``ProducerFenced`` when a newer one has taken over,
    ``TransactionAborted`` after several in a row.
    """
    aborted = 0
    while True:
        writer = cluster.writer(transactional_id)
        try:
            for chunk in write(writer):
                aborted = 0
                yield chunk
            return
        except TransactionAborted as error:
            aborted += 1
            if aborted >= ABORTED_CHUNKS_MAX:
                raise
            _LOG.warning("%s goes on with a new writer: %s", transactional_id, error.message)
        finally:
            writer.close()


def commit_rows(
    writer: Writer,
    topic: str,
    rows: Iterable[tuple[Rows, Sequence[int]]],
    group: str,
    progress: dict[TopicPartition, Committed],
) -> int:
    """Records, with their partitions, and progress in one transaction: all are there afterwards, or nothing is.

    Returns how many records that were.
    """
    writer.begin()
    try:
        records = 0
        for some, partitions in rows:
            writer.send_many(
                topic,
                some.keys,
                some.values,
                partitions=partitions,
                timestamps_ms=some.timestamps_ms,
                headers=some.headers,
            )
            records += len(some.keys)
        writer.send_offsets(progress, group, None)
    except BaseException:
        writer.abort()
        raise
    writer.commit()
    return records
