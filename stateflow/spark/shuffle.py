"""What two rounds of jobs hand on (``stateflow.scale.shuffle``), by Spark's own shuffle.

Every job is a Spark task. What a sender sends goes to its receiver's partition of the shuffle together with its
own number, so the receiver orders all pieces however they arrive. Each sender ends with a word to every receiver: one
that misses a word, or finds that a sender failed for good, writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.scale.shuffle import Inbox, OnDone, PieceFile, Pieces, Place, Sending
from stateflow.spark.failure import WORTH_ANOTHER_ATTEMPT, Failure, result_or_failure
from stateflow.spark.kept_connection import kept_cluster
from stateflow.spark.reports import Reports, reports

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from stateflow.spark.connection import Connection

Message = tuple[int, int, bytes | None, Any]
"""Number of the sender, of the piece, the piece; or with None, as its last word, the sender's result."""


@dataclass(frozen=True, slots=True)
class SendTask:
    """What an executor runs of the first round."""

    connection: Connection
    send: Callable[[Cluster, Any], Sending[Any]]
    receivers: int
    reports: Reports | None

    def __call__(self, jobs: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Message]]:
        """Messages with the number of the receiver; the number behind the last is the driver's."""
        for sender, job in jobs:
            last: Any
            messages = 0
            try:
                pieces = Pieces(self.send(kept_cluster(self.connection), job))
                for receiver, piece in pieces:
                    yield receiver, (sender, messages, piece, None)
                    messages += 1
                last = pieces.result
                if self.reports is not None:
                    self.reports.add(last)
            except WORTH_ANOTHER_ATTEMPT:
                raise
            except StateflowError as error:
                last = Failure.of(error)
            for receiver in range(self.receivers + 1):
                yield receiver, (sender, messages, None, last)


@dataclass(frozen=True, slots=True)
class ReceiveTask:
    """What an executor runs of the second round."""

    connection: Connection
    receive: Callable[[Cluster, Any, Inbox], Any]
    receivers: tuple[Any, ...]
    senders: int
    reports: Reports | None

    def __call__(self, number: int, messages: Iterable[tuple[int, Message]]) -> Iterator[tuple[int, Any]]:
        """The results of this partition, numbered: those of a receiver, or of all senders for the driver."""
        with TemporaryDirectory(prefix="stateflow-shuffle-") as folder:
            words, inbox = _sorted_messages(messages, Path(folder))
            assert words.keys() == set(range(self.senders)), "every sender's last word is there"
            failed = [word for word in words.values() if isinstance(word, Failure)]
            if number == len(self.receivers):
                yield from ((number + sender, words[sender]) for sender in sorted(words))
            elif failed:
                yield number, failed[0]
            else:
                yield number, result_or_failure(partial(self._found, self.receivers[number], inbox))

    def _found(self, job: Any, inbox: Inbox) -> Any:
        result = self.receive(kept_cluster(self.connection), job, inbox)
        if self.reports is not None:
            self.reports.add(result)
        return result


def shuffle_on_spark(
    context: SparkContext,
    connection: Connection,
    send: Callable[[Cluster, Any], Sending[Any]],
    senders: Sequence[Any],
    receive: Callable[[Cluster, Any, Inbox], Any],
    receivers: Sequence[Any],
    on_done: OnDone | None,
) -> list[Any]:
    """The receivers' results in their order, then the senders' in theirs; failures among them as ``Failure``."""
    told = reports(context, on_done)
    sending = SendTask(connection, send, len(receivers), told)
    receiving = ReceiveTask(connection, receive, tuple(receivers), len(senders), told)
    messages: RDD[Any] = context.parallelize(list(enumerate(senders)), len(senders)).mapPartitions(sending)
    placed = messages.partitionBy(len(receivers) + 1, _as_it_is)
    results: list[tuple[int, Any]] = placed.mapPartitionsWithIndex(receiving).collect()
    return [result for _, result in sorted(results, key=lambda row: row[0])]


def _as_it_is(number: int) -> int:
    return number


def _sorted_messages(messages: Iterable[tuple[int, Message]], folder: Path) -> tuple[dict[int, Any], Inbox]:
    """The senders' last words, and the pieces, on disk, in the order in which they were sent."""
    words: dict[int, Any] = {}
    places: list[tuple[int, int, Place]] = []
    file = PieceFile(folder)
    try:
        for _, (sender, number, piece, word) in messages:
            if piece is None:
                words[sender] = word
            else:
                places.append((sender, number, file.add(piece)))
    finally:
        file.close()
    places.sort(key=lambda row: row[:2])
    return words, Inbox([place for _, _, place in places])
