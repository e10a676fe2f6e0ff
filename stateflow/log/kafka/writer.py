"""Producing to a Kafka cluster, in transactions or without.

Of every record it is asked what became of it (``deliveries.py``): in no other way does one learn where it landed, or,
without a transaction, that it failed.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException

from stateflow.errors import BrokerUnreachable, ProducerFenced, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Appended, Committed, GroupMetadata
from stateflow.log.kafka import failures
from stateflow.log.kafka.admin import Admin, met
from stateflow.log.kafka.call_threads import TransactionCalls
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.deliveries import Deliveries, Report, Row, rows_of
from stateflow.log.kafka.last_commit import LastCommit
from stateflow.log.kafka.offsets import client_offsets
from stateflow.log.kafka.places import Places
from stateflow.log.kafka.sends import made_producer
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.topics import Topics
from stateflow.log.outgoing import Outgoing, Sender
from stateflow.partitioner import partitions_of
from stateflow.record import TopicPartition

_QUEUE_FULL_SECONDS = 0.05
_SERVE_EVERY = 10_000  # records between two looks at the delivery reports
_CHOSEN = -1
_ABORT_SECONDS_MAX = 5.0
"""An abort that gets no answer by then is left to the next producer of the id, which begins with it."""


class KafkaWriter(Sender):
    """Implements :class:`stateflow.log.base.Writer`.

    The client ends with the last reference to it, and this object has the only one that outlasts a call. Calls of the
    client are therefore handed on as calls of this object, and never as its bound methods: a failure that somebody
    keeps has a traceback, whose frames would keep the client too. Its statistics would go on to come, into a queue
    that nobody serves any more, sorted by priority: each would take longer than the one before it.
    """

    def __init__(
        self,
        settings: Settings,
        admin: Admin,
        topics: Topics,
        outsider_metadata: Callable[[str], object],
        statistics: Callable[[str], None] | None = None,
        last_commit: LastCommit | None = None,
    ) -> None:
        self._admin = admin
        self._outsider_metadata = functools.cache(outsider_metadata)
        self._transactional_id = settings.get("transactional.id")
        self._places_known = Places(topics, admin)
        self._ready: dict[tuple[str, int], Report] = {}
        self._fatal: KafkaError | None = None
        self._in_transaction = False
        self._last_commit = last_commit
        self._calls = TransactionCalls(admin.call_threads, admin.bootstrap)
        self._closed = False
        self._unserved = 0
        self.end_seconds = float("inf")
        """How long the client took for the last commit, all acknowledged before; infinite if it was asked twice."""
        own: Settings = {"error_cb": self._broker_event}
        if statistics is not None:
            own["stats_cb"] = statistics
        self._sends, self._producer = made_producer({**settings, **own})
        self._deliveries = Deliveries(self._sends)
        try:
            self._connect()
        except BaseException:
            self._let_client_go()  # whoever is told keeps this writer, in the traceback, but cannot close it
            raise

    def _connect(self) -> None:
        # Without metadata at hand, the first transaction request waits half a second for it.
        self._admin.call("connecting a writer", lambda left: met(self._producer, left))
        if self._transactional_id is not None:
            self._admin.call(
                f"taking over {self._transactional_id!r}",
                lambda left: self._calls.make(lambda limit: self._producer.init_transactions(limit), left),
            )

    def begin(self) -> None:
        """Begin a transaction."""
        assert not self._closed, "the writer is closed"
        assert not self._in_transaction, "commit or abort the open transaction first"
        self._forget()
        self._places_known.forget_old()
        if self._last_commit is None:
            return
        self._calls.check()
        self._last_commit.check()
        try:
            self._producer.begin_transaction()
        except KafkaException as raised:
            raise self._writer_error(failures.error_of(raised), "beginning a transaction") from raised
        self._in_transaction = True

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order; see the protocol."""
        places = self._places(records)
        reports = self._reports_of(records.topic, places)
        if self._sends is None or not self._sends.takes(records, reports):
            self._append_rows(rows_of(records, places, reports), len(records))
            return
        done, total = 0, len(records)
        while done < total:
            some = min(total - done, _SERVE_EVERY - self._unserved)
            try:
                taken = self._sends.send(records, places, done, some)
            except TypeError:  # something else than bytes, and none of these was sent: the client may take it
                self._append_rows(islice(rows_of(records, places, reports), done, None), total - done)
                return
            if taken < some:
                self._produce(*next(islice(rows_of(records, places, reports), done + taken, None)))
                taken += 1
            done += taken
            self._sent(taken)

    def _append_rows(self, rows: Iterator[Row], left: int) -> None:
        produce = self._producer.produce
        try:
            while left:
                some = min(left, _SERVE_EVERY - self._unserved)
                for row in islice(rows, some):
                    try:
                        produce(*row)
                    except (BufferError, KafkaException):
                        self._produce(*row)
                left -= some
                self._sent(some)
        finally:
            del produce  # see the class: this frame may be kept

    def _sent(self, count: int) -> None:
        """So many records more were sent: now and then reports are served."""
        self._unserved += count
        if self._unserved >= _SERVE_EVERY:
            self._unserved = 0
            self._serve_reports(self._poll, 0)

    def _places(self, records: Outgoing) -> Sequence[int] | int:
        """The partition of each record. Chosen here as the client would choose it: a report of a place runs no code."""
        if records.partitions != _CHOSEN or None in records.keys:  # without a key any partition will do
            return records.partitions
        self._report_for(records.topic, _CHOSEN)
        partitions = self._places_known.partitions[records.topic]
        return partitions_of(cast(Sequence[bytes], records.keys), partitions)

    def _reports_of(self, topic: str, places: Sequence[int] | int) -> Mapping[int, Report]:
        """What is told of each of these partitions."""
        return {
            place: self._report_for(topic, place)
            for place in ((places,) if isinstance(places, int) else set(places))
        }

    def _report_for(self, topic: str, partition: int) -> Report:
        """What the delivery of a record there is reported to; checks first that it can go there."""
        return self._ready.get((topic, partition)) or self._get_ready(topic, partition)

    def _produce(self, topic: str, *record: Any) -> None:
        """Hand one record to the client library, waiting while its queue is full."""
        deadline: float | None = None
        while True:
            try:
                self._producer.produce(topic, *record)
                return
            except BufferError as full:
                now_seconds = self._admin.clock.monotonic_seconds()
                deadline = deadline or now_seconds + self._admin.timeout_seconds
                if now_seconds >= deadline:
                    raise failures.no_answer(self._admin.bootstrap, f"producing to {topic!r}") from full
                self._serve_reports(self._deliver, _QUEUE_FULL_SECONDS)  # sends what lingers, too
            except KafkaException as raised:
                raise self._writer_error(failures.error_of(raised), f"producing to {topic!r}") from raised

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction. A stale ``member`` aborts it: ``TransactionAborted``."""
        assert self._in_transaction, "begin a transaction first"
        if not offsets:
            return
        proof = self._outsider_metadata(group) if member is None else member
        self._transact(
            f"adding offsets of group {group!r} to the transaction",
            lambda left: self._producer.send_offsets_to_transaction(client_offsets(offsets), proof, left),
            self._admin.timeout_seconds,
        )
        if self._last_commit is not None:
            self._last_commit.added_offsets(group)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything sent so far is acknowledged. A refused record aborts the transaction."""
        self._check_open()
        waiting = self._serve_reports(self._deliver, timeout_seconds)
        topic, refused = next(self._deliveries.failures(), ("", None))
        if refused is not None and self._transactional_id is not None and not failures.is_fenced(refused):
            self.abort()
            raise failures.aborted(refused, f"records for {topic!r} were to be taken", self._transactional_id)
        self._check_reports()
        if waiting:
            raise failures.no_answer(self._admin.bootstrap, f"producing ({waiting} records not acknowledged)")

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit, or flush. After ``BrokerUnreachable`` the outcome is open: close this writer, make another."""
        self._check_open()
        deadline = self._admin.clock.monotonic_seconds() + timeout_seconds
        waiting = self._serve_reports(self._deliver, timeout_seconds)
        if self._transactional_id is not None:
            left_seconds = deadline - self._admin.clock.monotonic_seconds()
            reach("commit.before_end_txn")
            self.end_seconds = self._transact(
                "committing a transaction", lambda left: self._producer.commit_transaction(left), left_seconds
            )
            self._in_transaction = False
            reach("commit.after_end_txn")
        else:
            self._check_reports()
            if waiting:
                raise failures.no_answer(
                    self._admin.bootstrap, f"producing ({waiting} records not acknowledged)"
                )
        appended = self._deliveries.appended()
        self._forget()
        if self._last_commit is not None:
            self._last_commit.committed(appended)
        return appended

    def abort(self) -> None:
        """Abort the open transaction, if any. Raises ``ProducerFenced``.

        A late EndTxn may have committed it: nothing is left to abort then, and whoever opens the task next repairs
        what it made visible. Where the last commit may lack a marker it is left open (``last_commit.py``). This writer
        cannot go on afterwards; its next use raises ``TransactionAborted``.
        """
        was_open, self._in_transaction = self._in_transaction, False
        if not was_open or self._calls.is_stuck:
            return
        if self._last_commit is not None and self._last_commit.leaves_abort():
            self._forget()
            return
        try:
            self._admin.call(
                "aborting a transaction",
                lambda left: self._calls.make(lambda limit: self._producer.abort_transaction(limit), left),
                _ABORT_SECONDS_MAX,
            )
        except BrokerUnreachable:
            raise
        except StateflowError as failure:
            ended = failures.ended_elsewhere(failure)
            if ended is not None:
                self._fatal = ended
                client_log.warning(
                    "A transaction of %s had been ended before it was aborted.", self._transactional_id
                )
                return
            raise self._fenced() if self._fatal is not None else failure from failure
        finally:
            self._forget()

    def close(self) -> None:
        """Abort what is open; without transactions, flush. Then release the connection."""
        if self._closed:
            return
        self._closed = True
        try:
            self.abort()
        except ProducerFenced:
            client_log.info("%s was fenced before it was closed.", self._transactional_id)
        finally:
            self._end_client()

    def _end_client(self) -> None:
        try:
            if self._transactional_id is None:
                self._serve_reports(self._deliver, self._admin.timeout_seconds)
        finally:
            self._let_client_go()

    def _let_client_go(self) -> None:
        self._forget()
        if not self._calls.is_stuck:
            self._producer.purge()  # what could not be delivered by now must not hold up the end
        if self._sends is not None:
            self._sends.close()
        del self._producer  # ends the client; its close() would try the transaction of a fenced one once more

    def serve(self, timeout_seconds: float) -> None:
        """Run what the client library has to tell: delivery reports, statistics, events; nothing from a broken one."""
        if self._fatal is None and not self._calls.is_stuck:
            self._serve_reports(self._poll, timeout_seconds)

    @property
    def queued_total(self) -> int:
        """Records and events that wait in the client library, to be sent or to be served."""
        return len(self._producer)

    def _transact(self, doing: str, request: Callable[[float], object], timeout_seconds: float) -> float:
        """A request of the transaction, repeated while that may help. How long it took; infinite if it was repeated."""
        deadline = self._admin.clock.monotonic_seconds() + timeout_seconds
        began_seconds = time.monotonic()  # of the clock that the client's own pauses go by
        for calls in count(1):
            left_seconds = max(0.1, deadline - self._admin.clock.monotonic_seconds())
            try:
                self._calls.make(request, left_seconds)
            except KafkaException as raised:
                error = failures.error_of(raised)
                late = self._admin.clock.monotonic_seconds() >= deadline
                if error.retriable() and not error.txn_requires_abort() and not late:
                    continue
                raise self._writer_error(error, doing) from raised
            took_seconds = time.monotonic() - began_seconds
            if self._last_commit is not None:
                self._last_commit.answered_after(took_seconds)
            return took_seconds if calls == 1 else float("inf")
        raise AssertionError("it is asked until it answers or fails")

    def _writer_error(self, error: KafkaError, doing: str) -> StateflowError:
        """The typed error; when the transaction cannot go on, it is aborted here."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = self._fatal or error
        if self._fatal is not None or failures.is_fenced(error):
            self._in_transaction = False
            return self._fenced(error)
        if self._in_transaction and (error.txn_requires_abort() or error.code() == KafkaError._STATE):
            self.abort()
            return failures.aborted(error, doing, self._transactional_id)
        return failures.typed(error, doing, self._admin.bootstrap)

    def _fenced(self, error: KafkaError | None = None) -> StateflowError:
        cause = self._fatal or error
        assert cause is not None, "only a failure fences"
        if self._transactional_id is None:
            return failures.typed(cause, "producing", self._admin.bootstrap)
        return failures.cannot_go_on(cause, self._transactional_id)

    def _get_ready(self, topic: str, partition: int) -> Report:
        """Check once per transaction that a record can go there; returns what its delivery is reported to."""
        self._check_open()
        self._places_known.check(topic, partition)
        self._ready[topic, partition] = self._deliveries.report(topic, partition)
        return self._ready[topic, partition]

    def _check_reports(self) -> None:
        for _, error in self._deliveries.failures():
            self._forget()
            raise self._writer_error(error, "producing")

    def _broker_event(self, error: KafkaError) -> None:
        client_log.warning("The Kafka client reports %s: %s.", error.name(), error.str())
        if error.fatal():
            self._fatal = self._fatal or error

    def _poll(self, seconds: float) -> int:
        return int(self._producer.poll(seconds))

    def _deliver(self, seconds: float) -> int:
        """Records that are not acknowledged by then."""
        if not len(self._producer):  # a flush would wake all threads of the client; a commit has four
            self._producer.poll(0)
            return 0
        return int(self._producer.flush(seconds))

    def _serve_reports(self, serve: Callable[[float], int], seconds: float) -> int:
        """Run delivery reports. The client library raises a fatal error out of here, through a report if any."""
        try:
            return serve(seconds)
        except KafkaException as raised:
            raise self._writer_error(failures.error_of(raised), "producing") from raised
        except SystemError as broken:
            if not isinstance(broken.__cause__, KafkaException):
                raise
            raise self._writer_error(failures.error_of(broken.__cause__), "producing") from broken
        except:  # noqa: E722 - what comes then is no exception at all, and only this takes it
            met: object = sys.exc_info()[1]
            if not isinstance(met, KafkaError):
                raise
        # Not within the handler: what is raised there is given a context, which must be an exception.
        raise self._writer_error(met, "producing")

    def _check_open(self) -> None:
        assert not self._closed, "the writer is closed"
        assert self._in_transaction or self._transactional_id is None, "begin a transaction first"

    def _forget(self) -> None:
        self._ready.clear()
        self._deliveries.forget()
