"""Writing in committed chunks by as many writers as it takes.

A writer can become unfit in the midst of a job: once an EndTxn of it was sent twice it refuses whatever comes next, as
the first copy may still arrive (``log/kafka/patient.py``). A new writer of the same id makes that harmless, and goes on
behind the last chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from stateflow.errors import TransactionAborted
from stateflow.log.base import Cluster, Writer

_LOG = logging.getLogger(__name__)

ABORTED_CHUNKS_MAX = 5
"""Transactions in a row that the broker may abort before the job gives up (Spark then starts it again)."""

T = TypeVar("T")


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
