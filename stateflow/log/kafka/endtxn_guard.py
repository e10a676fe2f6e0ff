"""A transactional writer that sends nothing while the end of its last transaction may still be on its way.

A commit that was answered soon was asked for once (``end_watch.py``), and nothing waits. One that took longer is in
doubt until the client's next statistics; what is sent meanwhile is kept here. When they show that the last EndTxn was
sent more than once, the first copy may still arrive and end whatever is open by then. So nothing is ever sent again:
the transaction fails, and its owner opens a new writer, which gets a new producer epoch. The same where a client tells
no statistics. ``docs/exactly-once.md`` tells what would happen otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from stateflow.clock import Clock
from stateflow.errors import StateflowError, TransactionAborted
from stateflow.log.base import Appended, Committed, GroupMetadata
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.kafka.end_watch import EndWatch
from stateflow.log.kafka.housekeeping import Housekeeping
from stateflow.log.kafka.writer import KafkaWriter
from stateflow.log.outgoing import Outgoing
from stateflow.record import TopicPartition

_SERVE_SECONDS = 0.05
_OUTCOME_SECONDS_MAX = 10.0


class EndTxnGuard(ForwardingWriter):
    """Implements :class:`stateflow.log.base.Writer` on a transactional ``KafkaWriter``.

    ``watch`` must be fed with the statistics of that writer's client. Between the owner's calls ``housekeeping`` serves
    that client, so that statistics do not pile up; one of the two is in it at a time, as if there were no other thread.
    """

    def __init__(
        self,
        writer: KafkaWriter,
        watch: EndWatch,
        clock: Clock,
        housekeeping: Housekeeping,
        sent_once_seconds: float,
    ) -> None:
        super().__init__(writer)
        self._sent_once_seconds = sent_once_seconds
        self._has_content = False
        """Something of the open transaction was sent. An empty one ends without a request."""
        self._client = writer
        self._watch = watch
        self._clock = clock
        self._waiting: list[Outgoing] = []
        self._turn = threading.RLock()
        self._failure: StateflowError | None = None
        """What was met between the owner's calls: the next one raises it."""
        self._closed = False
        self._housekeeping = housekeeping
        housekeeping.add(self)

    def serve_idle(self) -> None:
        """Take out what the client has to tell, unless the owner is within a call, which does so itself."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self._closed:
                self._client.serve(0)
        except StateflowError as error:
            self._failure = error
        finally:
            self._turn.release()

    @property
    def queued_total(self) -> int:
        """Records and events that wait in the client library, to be sent or to be served."""
        with self._turn:
            return self._client.queued_total

    def begin(self) -> None:
        """Begin a transaction."""
        with self._turn:
            self._raise_failure()
            self._has_content = False
            super().begin()

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order."""
        with self._turn:
            self._raise_failure()
            if not self._watch.is_outcome_known:
                self._client.serve(0)
            if not self._watch.is_outcome_known or self._watch.is_suspect:
                self._waiting.append(records)
                return
            self._send_waiting()
            self._send(records)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction."""
        with self._turn:
            self._await_outcome()
            super().send_offsets(offsets, group, member)
            self._has_content = self._has_content or bool(offsets)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything sent so far is acknowledged."""
        with self._turn:
            self._await_outcome()
            super().flush(timeout_seconds)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit the transaction."""
        with self._turn:
            self._await_outcome()
            sent_once = False
            self._watch.ending()
            try:
                appended = super().commit(timeout_seconds)
                sent_once = self._has_content and self._client.end_seconds < self._sent_once_seconds
            finally:  # a failure may have aborted it
                self._ended(sent_once=sent_once)
            return appended

    def abort(self) -> None:
        """Abort the open transaction, if any."""
        with self._turn:
            self._waiting.clear()
            self._failure = None  # it concerned what is given up here; a client that is broken says so again
            self._watch.ending()
            try:
                super().abort()
            finally:
                self._ended()

    def close(self) -> None:
        """Abort what is open and release the connection."""
        self._housekeeping.remove(self)
        with self._turn:
            self._closed = True
            self._waiting.clear()
            super().close()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _ended(self, *, sent_once: bool = False) -> None:
        try:
            self._client.serve(0)  # statistics that were drawn up meanwhile are old
        finally:
            self._watch.ended(sent_once=sent_once)

    def _send(self, records: Outgoing) -> None:
        super().append(records)
        self._has_content = self._has_content or len(records) > 0

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for records in waiting:
            self._send(records)

    def _await_outcome(self) -> None:
        self._raise_failure()
        deadline = self._clock.monotonic_seconds() + _OUTCOME_SECONDS_MAX
        while not self._watch.is_outcome_known and self._clock.monotonic_seconds() < deadline:
            if not self._watch.has_statistics:
                break
            self._client.serve(_SERVE_SECONDS)
        if self._watch.is_outcome_known and not self._watch.is_suspect:
            self._send_waiting()
            return
        self.abort()
        raise TransactionAborted(
            "The transaction was aborted before anything of it was sent: the end of the one before had to be"
            " sent again, or may have been, and its first copy might still arrive and end this one.",
            action="open the task again; a new writer makes the late request harmless.",
        )
