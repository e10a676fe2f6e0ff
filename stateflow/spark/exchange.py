"""An exchange between two rounds of jobs (``stateflow.scale.exchange``) by Spark's shuffle.

Every job is a Spark task. What a sender sends goes to its finder's partition of the shuffle together with its own
number, so the finder puts all pieces in order however they arrive. Each sender ends with a word to every finder: one
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
from stateflow.scale.exchange import Inbox, OnDone, PieceFile, Pieces, Place, Sending
from stateflow.spark.failure import WORTH_ANOTHER_ATTEMPT, Failure, result_or_failure
from stateflow.spark.kept_connection import kept_cluster
from stateflow.spark.reports import Reports, reports

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from stateflow.spark.connection import Connection

Letter = tuple[int, int, bytes | None, Any]
"""Number of the sender, of the piece, the piece; or with None, as its last word, the sender's result."""


@dataclass(frozen=True, slots=True)
class SendTask:
    """What an executor runs of the first round."""

    connection: Connection
    send: Callable[[Cluster, Any], Sending[Any]]
    finders: int
    reports: Reports | None

    def __call__(self, jobs: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Letter]]:
        """Letters with the number of the finder; the number behind the last is the driver's."""
        for sender, job in jobs:
            last: Any
            letters = 0
            try:
                pieces = Pieces(self.send(kept_cluster(self.connection), job))
                for finder, piece in pieces:
                    yield finder, (sender, letters, piece, None)
                    letters += 1
                last = pieces.result
                if self.reports is not None:
                    self.reports.add(last)
            except WORTH_ANOTHER_ATTEMPT:
                raise
            except StateflowError as error:
                last = Failure.of(error)
            for finder in range(self.finders + 1):
                yield finder, (sender, letters, None, last)


@dataclass(frozen=True, slots=True)
class FindTask:
    """What an executor runs of the second round."""

    connection: Connection
    find: Callable[[Cluster, Any, Inbox], Any]
    finders: tuple[Any, ...]
    senders: int
    reports: Reports | None

    def __call__(self, number: int, letters: Iterable[tuple[int, Letter]]) -> Iterator[tuple[int, Any]]:
        """The results of this partition, numbered: those of a finder, or of all senders for the driver."""
        with TemporaryDirectory(prefix="stateflow-exchange-") as folder:
            words, inbox = _sorted_letters(letters, Path(folder))
            assert words.keys() == set(range(self.senders)), "every sender's last word is there"
            failed = [word for word in words.values() if isinstance(word, Failure)]
            if number == len(self.finders):
                yield from ((number + sender, words[sender]) for sender in sorted(words))
            elif failed:
                yield number, failed[0]
            else:
                yield number, result_or_failure(partial(self._found, self.finders[number], inbox))

    def _found(self, job: Any, inbox: Inbox) -> Any:
        result = self.find(kept_cluster(self.connection), job, inbox)
        if self.reports is not None:
            self.reports.add(result)
        return result


def exchange_on_spark(
    context: SparkContext,
    connection: Connection,
    send: Callable[[Cluster, Any], Sending[Any]],
    senders: Sequence[Any],
    find: Callable[[Cluster, Any, Inbox], Any],
    finders: Sequence[Any],
    on_done: OnDone | None,
) -> list[Any]:
    """The finders' results in their order, then the senders' in theirs; failures among them as ``Failure``."""
    told = reports(context, on_done)
    sending = SendTask(connection, send, len(finders), told)
    finding = FindTask(connection, find, tuple(finders), len(senders), told)
    letters: RDD[Any] = context.parallelize(list(enumerate(senders)), len(senders)).mapPartitions(sending)
    placed = letters.partitionBy(len(finders) + 1, _as_it_is)
    results: list[tuple[int, Any]] = placed.mapPartitionsWithIndex(finding).collect()
    return [result for _, result in sorted(results, key=lambda row: row[0])]


def _as_it_is(number: int) -> int:
    return number


def _sorted_letters(letters: Iterable[tuple[int, Letter]], folder: Path) -> tuple[dict[int, Any], Inbox]:
    """The senders' last words, and the pieces, on disk, in the order in which they were sent."""
    words: dict[int, Any] = {}
    places: list[tuple[int, int, Place]] = []
    file = PieceFile(folder)
    try:
        for _, (sender, number, piece, word) in letters:
            if piece is None:
                words[sender] = word
            else:
                places.append((sender, number, file.add(piece)))
    finally:
        file.close()
    places.sort(key=lambda row: row[:2])
    return words, Inbox([place for _, _, place in places])
