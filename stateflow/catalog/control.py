"""The control topic: the catalog read whole, and changed by one writer at a time.

Every change is: fence the writers before us, read what stands there now, decide, write in one transaction.
Whoever comes later fences us in the same way, and then we read and decide again. So two workers that start at
the same moment agree on one catalog, and what is written was decided on what is there.
"""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from stateflow.catalog.compatibility import additions, check_transition
from stateflow.catalog.encoding import CatalogItem, decode_entry, encode_item
from stateflow.catalog.model import Catalog, GenerationEntry
from stateflow.catalog.names import control_topic
from stateflow.catalog.records import Found, History, Stored, sort_records
from stateflow.errors import (
    CatalogIncompatible,
    CatalogMissing,
    GenerationUnfinished,
    PartitionCountChanged,
    ProducerFenced,
    TransactionAborted,
)
from stateflow.log.base import Cluster, Committed, TopicSpec
from stateflow.log.reading import read_to_end
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import OffsetRange, TopicPartition

_LOG = logging.getLogger(__name__)

_ATTEMPTS_MAX = 20
_PAUSE_SECONDS = 0.2
_PAUSE_SECONDS_MAX = 10.0
_STALL_SECONDS_MAX = 30.0

_HISTORY_MAX = 20
"""Records of a key that are remembered, to find one that can be read before those that cannot."""

CONTROL_CONFIG = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}

Decision = Callable[[Catalog | None], Sequence[CatalogItem]]
Offsets = Mapping[TopicPartition, Committed] | Callable[[Catalog | None], Mapping[TopicPartition, Committed]]


class ControlTopic:
    """The catalog of one application on one cluster. Thread-safe; keeps no connection between calls.

    What was read last is kept, and read again, whole, when anything was written since. Not its tail alone: a deletion
    is cleaned away some time after it was written, and whoever never saw it would keep what it deleted.
    """

    def __init__(
        self, cluster: Cluster, app: str, replication: int = 1, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._cluster = cluster
        self._app = app
        self._partition = TopicPartition(control_topic(app), 0)
        self._replication = replication
        self._pause = pause
        self._warned: set[int] = set()
        """Offsets of bad records that were told of."""
        self._last: tuple[str, OffsetRange, Found] | None = None
        """What was read last: the topic's id, its offsets then, and what was there."""

    @property
    def topic(self) -> str:
        """``<app>-control``."""
        return self._partition.topic

    def read(self) -> Catalog | None:
        """The catalog as it stands; None when there is no control topic or no catalog on it.

        Bad records of what the application can do without are passed over, with a warning. Raises
        ``CatalogIncompatible`` for a newer format, or where an entry that is needed cannot be read.
        """
        return self.find().whole()

    def load(self) -> Catalog:
        """The catalog as it stands; raises ``CatalogMissing`` when there is none."""
        return self._required(self.read())

    def load_topics(self) -> Catalog:
        """The catalog, perhaps without stages and stores that cannot be read: the topics of all generations are in it.

        For those who need no more. Raises ``CatalogMissing``, and ``CatalogIncompatible`` when even these are unknown.
        """
        return self._required(self.find().without_details())

    def find(self, *, warn: bool = True) -> Found:
        """What is on the topic, bad and unknown records included. Raises ``CatalogIncompatible`` for a newer format."""
        info = self._cluster.describe([self.topic]).get(self.topic)
        if info is None:
            return Found(self._app, None)
        found = self._found(info.topic_id)
        for bad in found.bad:
            if warn and not bad.is_needed and bad.offset not in self._warned:
                self._warned.add(bad.offset)
                _LOG.warning(
                    "A record of %s, partition 0, is passed over: %s. See `stateflow repair --app %s`.",
                    self.topic,
                    bad,
                    self._app,
                )
        return found

    def put(self, decide: Callable[[Found], Mapping[bytes, bytes | None]]) -> None:
        """Write records as they are, all or none, made of what is there: for repairs alone."""
        writer = self._cluster.writer(self.topic)
        try:
            records = decide(
                self.find(warn=False)
            )  # after the fence: nobody before us can change it any more
            if records:
                writer.begin()
                for key, value in records.items():
                    writer.send(self.topic, key, value, partition=0)
                writer.commit()
        finally:
            writer.close()
        stable_ranges(self._cluster, [self._partition])

    def ensure(self, expected: Catalog) -> Catalog:
        """Compare the code's expectation with the catalog, add what is new, and return the whole.

        Raises ``CatalogIncompatible`` or ``PartitionCountChanged`` naming every difference, and
        ``GenerationUnfinished`` while a repartition is under way; nothing has been written then.
        """
        found = self.read()
        if found is not None and not additions(expected, found):
            return refuse_unfinished(found)

        def decide(current: Catalog | None) -> Sequence[CatalogItem]:
            return additions(expected, None if current is None else refuse_unfinished(current))

        return self._change(decide)

    def write(self, entries: Sequence[CatalogItem]) -> Catalog:
        """Write entries as they are, all or none; returns the catalog after it."""
        return self._change(lambda _: entries, looks_first=not entries)

    def change(self, decide: Decision, offsets: Offsets | None = None) -> Catalog:
        """Write what ``decide`` makes of the catalog as it is then; none of it when that is nothing.

        ``decide`` may be called several times, and may raise. ``offsets`` become the application's input positions
        in the same transaction: both are so afterwards, or neither. A function is asked for them as ``decide`` is.
        """
        return self._change(decide, offsets or {})

    def write_generations(self, entries: Sequence[GenerationEntry]) -> Catalog:
        """Move generations on, all or none. Raises ``GenerationUnfinished`` where that no longer fits."""

        def decide(current: Catalog | None) -> Sequence[CatalogItem]:
            catalog = self._required(current)
            for entry in entries:
                check_transition(catalog.generations.get(entry.generation), entry)
            return entries

        return self._change(decide, looks_first=not entries)

    def record_topics(self, generation: int, topic_ids: Mapping[str, str]) -> Catalog:
        """Add topics and their ids to a generation. One that is recorded already keeps its id."""

        def decide(current: Catalog | None) -> Sequence[CatalogItem]:
            entry = self._required(current).generations[generation]
            merged = {**topic_ids, **entry.topic_ids}
            return [] if merged == entry.topic_ids else [msgspec.structs.replace(entry, topic_ids=merged)]

        return self._change(decide)

    # --- inside ---------------------------------------------------------------------------------------

    def _change(
        self,
        decide: Decision,
        offsets: Offsets | None = None,
        *,
        looks_first: bool = True,
    ) -> Catalog:
        """``looks_first``: whether nothing may be left to write, which is then found without fencing anybody."""
        self._create()
        for attempt in range(_ATTEMPTS_MAX):
            try:
                return self._try_change(decide, offsets or {}, looks_first=looks_first)
            except (ProducerFenced, TransactionAborted) as error:
                _LOG.info(
                    "Another process changed %s at the same time (%d): %s", self.topic, attempt + 1, error
                )
            # Those who fence each other would do so for ever if all came back at once.
            self._pause(random.uniform(0, min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS * 2**attempt)))  # noqa: S311
        raise TransactionAborted(
            f"{_ATTEMPTS_MAX} attempts to change {self.topic} were overtaken by other processes.",
            action="start again; if it lasts, look for a process that starts and fails in a loop.",
            topic=self.topic,
        )

    def _try_change(self, decide: Decision, offsets: Offsets, *, looks_first: bool) -> Catalog:
        found = self.read() if looks_first else None
        if found is not None and not decide(found):
            return found
        writer = self._cluster.writer(self.topic)
        try:
            current = self.read()  # after the fence: nobody before us can change it any more
            records = [self._encoded(entry) for entry in decide(current)]
            positions = offsets(current) if callable(offsets) else offsets
            if records:
                writer.begin()
                for key, value in records:
                    writer.send(self.topic, key, value, partition=0)
                if positions:
                    writer.send_offsets(positions, self._app, None)
                writer.commit()
        finally:
            writer.close()
        stable_ranges(self._cluster, [self._partition])  # so that we read what we have just written
        return self._required(self.read())

    def _encoded(self, entry: CatalogItem) -> tuple[bytes, bytes | None]:
        key, value = encode_item(entry)
        try:
            if value is not None:
                decode_entry(self._app, key, value)
        except ValueError as error:
            raise CatalogIncompatible(
                f"the catalog entry {key.decode()!r} of {self._app!r} would not be read: {error}.",
                action="nothing was written; correct the name, number or location that it holds.",
                app=self._app,
                key=key,
            ) from error
        return key, value

    def _create(self) -> None:
        info = self._cluster.describe([self.topic]).get(self.topic)
        if info is None:
            spec = TopicSpec(self.topic, 1, self._replication, CONTROL_CONFIG)
            info = self._cluster.create([spec])[self.topic]
        if info.partitions != 1:
            raise PartitionCountChanged(
                f"{self.topic} has {info.partitions} partitions and must have one.",
                action=f"something else made this topic: delete it, or give the application another id than"
                f" {self._app!r}.",
                topic=self.topic,
                partitions=info.partitions,
            )

    def _found(self, topic_id: str) -> Found:
        """What is there up to the end as it is now."""
        logs = self._cluster.ranges([self._partition])
        last = self._last  # which another thread may replace, by something older, too: its offsets tell
        if last is None or last[:2] != (topic_id, logs[self._partition]):
            found = sort_records(self._app, self._read_history(logs))
            self._last = last = topic_id, logs[self._partition], found
        return last[2]

    def _read_history(self, logs: dict[TopicPartition, OffsetRange]) -> History:
        """The newest records of every key in ``logs``, and in what came meanwhile; ``logs`` grows."""
        found: defaultdict[bytes, deque[Stored]] = defaultdict(lambda: deque(maxlen=_HISTORY_MAX))
        for batch in read_to_end(self._cluster, logs, stall_seconds_max=_STALL_SECONDS_MAX):
            for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
                found[key].append(Stored(offset, value))
        return {key: list(stored) for key, stored in found.items()}

    def _required(self, catalog: Catalog | None) -> Catalog:
        if catalog is None:
            raise CatalogMissing(
                f"there is no catalog of an application {self._app!r} on this cluster.",
                action="check the application's id and the brokers; a worker writes the catalog when it"
                " first starts.",
                app=self._app,
            )
        return catalog


def refuse_unfinished(catalog: Catalog) -> Catalog:
    """The catalog; ``GenerationUnfinished`` while one of its generations is being prepared."""
    preparing = [entry for entry in catalog.generations.values() if entry.state == "preparing"]
    if preparing:
        entry = preparing[0]
        if entry.savepoint is not None:
            raise GenerationUnfinished(
                f"a restore of {catalog.app.app!r} from {_named(entry.savepoint)}"
                f" (generation {entry.generation}) was begun and is not finished.",
                action="finish it with the same `stateflow savepoint restore`, or undo it with `stateflow savepoint"
                " abort`.",
                app=catalog.app.app,
                generation=entry.generation,
                savepoint=entry.savepoint,
            )
        raise GenerationUnfinished(
            f"a change of {catalog.app.app!r} to {entry.partitions} partitions (generation"
            f" {entry.generation}) was"
            " begun and is not finished.",
            action=f"finish it with `stateflow scale start --partitions {entry.partitions}`, or undo it with"
            " `stateflow scale abort`.",
            app=catalog.app.app,
            generation=entry.generation,
            partitions=entry.partitions,
        )
    return catalog


def _named(source: str) -> str:
    """A savepoint by its name, as commands take it: a generation notes ``<app>/<name>.<number>``."""
    app, _, found = source.partition("/")
    return f"the savepoint {found.rpartition('.')[0] or found!r} of {app!r}"
