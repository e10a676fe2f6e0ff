"""The claims log: which writers, shared by several tasks, may have written for a task and were not let go of.

A compacted topic of one partition, ``docs/formats.md``. Whoever opens a task with a shared writer appends a claim
before anything is written for it; whoever opens it later reads the log, and fences every writer that claimed it before
(``docs/decisions/0024``). A claim is removed by a tombstone: of its owner, after the last transaction that has anything
of the task, or of somebody who has fenced it. Keys are unique, so that neither a late tombstone nor the cleaner ever
removes another claim than the one that it was meant for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import msgspec

from stateflow.catalog.names import claims_topic, control_topic
from stateflow.clock import Clock
from stateflow.errors import CatalogIncompatible, TopicMissing
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, TopicSpec, Writer
from stateflow.log.reading import read_to_end
from stateflow.log.together import Together
from stateflow.log.transactions import LastTransaction, Outcome
from stateflow.record import OffsetRange, TopicPartition

CLAIMS_CONFIG = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
_CLAIM = "claim"
_OUTCOME = "outcome"
_WRITERS_KEPT = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """A task named by a writer."""

    key: bytes
    task: str
    writer: str
    """Its transactional id."""
    offset: int
    """Where it stands in the log; of one that was just made and not read, no further than there."""


class _Claiming(NamedTuple):
    task: str
    writer: str


@dataclass(frozen=True, slots=True)
class Claims:
    """The log as it was at one moment."""

    offset_next: int = 0
    by_key: Mapping[bytes, Claim] = field(default_factory=dict)
    outcomes: Mapping[str, LastTransaction] = field(default_factory=dict)
    """Transactional id → what its coordinator said before somebody fenced it."""

    def of(self, task: str) -> list[Claim]:
        """The claims of a task, the oldest first."""
        return sorted((claim for claim in self.by_key.values() if claim.task == task), key=_offset)

    @property
    def writers(self) -> list[str]:
        """Every transactional id that claims anything, in the order of their oldest claims."""
        return list(dict.fromkeys(claim.writer for claim in sorted(self.by_key.values(), key=_offset)))

    def outdated_outcomes(self, gone: Iterable[bytes]) -> list[bytes]:
        """Keys of outcomes that nobody will ask for any more, once the claims ``gone`` are."""
        removed = set(gone)
        claiming = {claim.writer for key, claim in self.by_key.items() if key not in removed}
        return [_outcome_key(writer) for writer in self.outcomes if writer not in claiming]


class _Outcome(msgspec.Struct, frozen=True):
    outcome: Outcome
    partitions: tuple[tuple[str, int], ...] = ()
    has_offsets: bool | None = None


@dataclass(slots=True)
class ClaimsLog:
    """Appends to the log, and reads it. Thread-safe.

    With ``is_shared`` threads that claim, or read, at the same time do it together; without, no lock is held while a
    broker is asked.
    """

    cluster: Cluster
    app: str
    clock: Clock
    is_shared: bool = False
    _seen: Claims = field(default_factory=Claims)
    _writers: list[Writer] = field(default_factory=list)
    """Made, and in no call."""
    _numbers: count[int] = field(default_factory=count)
    _claiming: Callable[[Collection[_Claiming]], Mapping[_Claiming, Claim]] = field(init=False)
    _reading: Callable[[Collection[str]], Mapping[str, Claims]] = field(init=False)

    def __post_init__(self) -> None:
        self._claiming = Together(self._claim_all) if self.is_shared else self._claim_all
        self._reading = Together(self._read_new) if self.is_shared else self._read_new

    @property
    def partition(self) -> TopicPartition:
        """Where the log is."""
        return TopicPartition(claims_topic(self.app), 0)

    def create(self, beside: Iterable[str]) -> None:
        """Create the topic if it is not there, replicated like the best of the topics ``beside``, or the catalog."""
        topic = self.partition.topic
        if topic in self.cluster.describe([topic]):
            return
        found = self.cluster.describe([*beside, control_topic(self.app)])
        replication = max((info.replication for info in found.values()), default=1)
        self.cluster.create([TopicSpec(topic, 1, replication, CLAIMS_CONFIG)])

    def claim(self, task: str, writer: str) -> Claim:
        """Claim a task for a writer; on return everybody who looks finds it. Raises what sending raises."""
        reach("claim.before")
        wanted = _Claiming(task, writer)
        claim = self._claiming([wanted])[wanted]
        reach("claim.after")
        return claim

    def _claim_all(self, wanted: Collection[_Claiming]) -> dict[_Claiming, Claim]:
        value = msgspec.json.encode({"at_ms": self.clock.now_ms()})
        keys = [msgspec.json.encode([_CLAIM, *each, next(self._numbers)]) for each in wanted]
        offset = self._append([(key, value) for key in keys])
        return {each: Claim(key, *each, offset) for each, key in zip(wanted, keys, strict=True)}

    def note_outcome(self, writer: str, last: LastTransaction) -> None:
        """Say what the coordinator knows of a writer that is about to be fenced, and will know no more afterwards."""
        places = tuple((place.topic, place.partition) for place in sorted(last.partitions))
        self._append(
            [(_outcome_key(writer), msgspec.json.encode(_Outcome(last.outcome, places, last.has_offsets)))]
        )

    def fence(self, writer: str) -> LastTransaction | None:
        """Fence a shared writer; what was known of its last transaction before.

        The coordinator forgets it then, and whoever opens another task of that writer asks later: so it is noted
        before, and looked up where the coordinator knows nothing.
        """
        last = self.cluster.transactions.last(writer)
        if last is not None and last.outcome != "none":
            self.note_outcome(writer, last)
        elif last is not None:
            last = self.read().outcomes.get(writer, last)
        reach("fence.each")
        self.cluster.fence(writer)
        return last

    def remove(self, keys: Sequence[bytes]) -> None:
        """Take records out of the log for good."""
        if keys:
            self._append([(key, None) for key in keys])

    def read(self) -> Claims:
        """The log up to its end as it is now. Raises ``CatalogIncompatible`` for a record that is not understood."""
        return self._reading([self.app])[self.app]

    def _read_new(self, apps: Collection[str]) -> dict[str, Claims]:
        return dict.fromkeys(apps, self._read_to_end())

    def _read_to_end(self) -> Claims:
        seen, topic = self._seen, self.partition.topic
        if topic not in self.cluster.describe([topic]):
            raise TopicMissing(
                f"{topic} is missing: it says which writers must be fenced before a task is opened.",
                action="restore it, or begin anew with `stateflow reset APP`; if it is certain that no worker of the"
                " application runs anywhere, create it empty, compacted, with one partition.",
                topic=topic,
            )
        end = self.cluster.ranges([self.partition])[self.partition]
        if end.offset_next <= seen.offset_next:
            return seen
        claims, outcomes = dict(seen.by_key), dict(seen.outcomes)
        new = {self.partition: OffsetRange(max(seen.offset_next, end.offset_first), end.offset_next)}
        for batch in read_to_end(self.cluster, new):
            for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
                self._take(claims, outcomes, offset, key, value)
        self._seen = Claims(new[self.partition].offset_next, claims, outcomes)
        return self._seen

    def close(self) -> None:
        """Release the connections."""
        while self._writers:
            self._writers.pop().close()

    def _take(
        self,
        claims: dict[bytes, Claim],
        outcomes: dict[str, LastTransaction],
        offset: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        try:
            parts = msgspec.json.decode(key or b"", type=list[str | int])
            match parts:
                case ["claim", str(task), str(writer), int()] if key is not None:
                    claims.pop(key, None)
                    if value is not None:
                        claims[key] = Claim(key, task, writer, offset)
                case ["outcome", str(writer)]:
                    outcomes.pop(writer, None)
                    if value is not None:
                        outcomes[writer] = _decoded(value)
                case _:
                    raise ValueError("no version of stateflow wrote it")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CatalogIncompatible(
                f"the record at offset {offset} of {self.partition.topic} cannot be read: {error}.",
                action="upgrade stateflow on this machine to the version that the application's workers run; if none"
                " of them wrote it, stop all workers and remove it by a record with its key and no value.",
                topic=self.partition.topic,
                offset=offset,
            ) from error

    def _append(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append records; the offset of the last, once all are acknowledged."""
        writer = self._writer()
        try:
            writer.begin()
            keys, values = [key for key, _ in records], [value for _, value in records]
            writer.send_many(self.partition.topic, keys, values, partitions=0)
            appended = writer.commit()
        except BaseException:
            writer.close()
            raise
        if len(self._writers) < _WRITERS_KEPT:
            self._writers.append(writer)
        else:
            writer.close()
        return appended[self.partition].offset

    def _writer(self) -> Writer:
        try:
            return self._writers.pop()
        except IndexError:  # all are in calls of other threads
            return self.cluster.writer()


@contextmanager
def fenced_claims(
    cluster: Cluster, app: str, clock: Clock
) -> Iterator[Mapping[str, Mapping[str, LastTransaction | None]]]:
    """Fence every shared writer that may have written for an application of which no worker runs.

    Gives, by task, those that claimed it, and what their coordinators said before. The claims are removed at the end.
    """
    with closing(ClaimsLog(cluster, app, clock)) as log:
        if log.partition.topic not in cluster.describe([log.partition.topic]):
            yield {}
            return
        found = log.read()
        last = {writer: log.fence(writer) for writer in found.writers}
        yield {
            task: {claim.writer: last[claim.writer] for claim in found.of(task)}
            for task in {claim.task for claim in found.by_key.values()}
        }
        gone = list(found.by_key)
        log.remove([*gone, *log.read().outdated_outcomes(gone)])


def _offset(claim: Claim) -> int:
    return claim.offset


def _outcome_key(writer: str) -> bytes:
    return msgspec.json.encode([_OUTCOME, writer])


def _decoded(value: bytes) -> LastTransaction:
    found = msgspec.json.decode(value, type=_Outcome)
    places = frozenset(TopicPartition(*place) for place in found.partitions)
    return LastTransaction(found.outcome, places, found.has_offsets)
