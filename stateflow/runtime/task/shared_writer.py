"""One transactional writer for several tasks: its life, and the part of it that each task holds.

A transaction has the epochs of all tasks that have sent anything since the last one. They are committed together; what
fails for one of them fails for all, and ends the life: nothing is ever sent by that transactional id again, and every
task is opened anew with another. Who fences a task fences the life that claims it (``runtime.opening.claims``).

Records are sent, and transactions ended, on the host's own thread. Tasks may be let go of on several at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from stateflow.errors import BrokerUnreachable, ProducerFenced, StateflowError, TransactionAborted
from stateflow.log.base import Appended, Committed, GroupMetadata, Writer
from stateflow.log.outgoing import Outgoing, Sender
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)


class SharedWriter:
    """A life of a writer. ``inner`` is closed when it is over and no task holds a part of it any more."""

    def __init__(self, inner: Writer, transactional_id: str) -> None:
        self.id = transactional_id
        self._inner = inner
        self._lock = threading.Lock()
        """Held for a moment only, never while a broker is asked."""
        self._failure: StateflowError | None = None
        self._parts: set[WriterPart] = set()
        self._sent: set[WriterPart] = set()
        """Parts with something in the open transaction."""
        self._has_begun = False
        self._closed = False

    def part(self, task: str) -> WriterPart | None:
        """A part for one more task; None when the life is over."""
        with self._lock:
            if self._failure is not None or self._closed:
                return None
            made = WriterPart(self, task)
            self._parts.add(made)
            return made

    @property
    def is_over(self) -> bool:
        """True when nothing can be sent any more: every task that has a part must be opened anew."""
        return self._failure is not None

    @property
    def has_sent(self) -> bool:
        """True while the open transaction has something of a task."""
        return bool(self._sent)

    @property
    def is_closed(self) -> bool:
        """True once its connection is released."""
        return self._closed

    def failure_of_others(self) -> StateflowError:
        """Why the life is over, for tasks that are not to blame."""
        failure = self._failure
        assert failure is not None, "it is not over"
        if isinstance(failure, ProducerFenced):
            return ProducerFenced(failure.message, action=failure.action, **failure.fields)
        if isinstance(failure, BrokerUnreachable):
            return BrokerUnreachable(failure.message, action=failure.action, **failure.fields)
        return TransactionAborted(
            f"The writer {self.id!r} of this task and others has come to its end: {failure.message}",
            action="open the task again; another writer takes its place.",
            passing=True,
        )

    # --- the transaction, on the host's thread ----------------------------------------------------------

    def begin(self, part: WriterPart | None = None) -> None:
        """Begin the transaction, unless it is open; ``part`` has something in it from here on."""
        with self.used():
            if not self._has_begun:
                self._inner.begin()
                self._has_begun = True
            if part is not None:
                self._sent.add(part)

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order."""
        with self.used():
            self._inner.append(records)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction."""
        with self.used():
            self._inner.send_offsets(offsets, group, member)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything sent so far is acknowledged."""
        with self.used():
            self._inner.flush(timeout_seconds)

    def commit(self, parts: set[WriterPart], timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit the transaction, in which nobody but ``parts`` may have anything."""
        with self.used():
            left_out = sorted(part.task for part in self._sent - parts)
            assert not left_out, f"{left_out} would be committed by halves"
            appended = self._inner.commit(timeout_seconds)
            self._sent.clear()
            self._has_begun = False
            return appended

    @contextmanager
    def used(self) -> Iterator[None]:
        """A use of the inner writer. Whatever is raised ends the life."""
        if self._failure is not None:
            raise self.failure_of_others()
        try:
            yield
        except StateflowError as error:
            self.end(error)
            raise

    # --- letting go -------------------------------------------------------------------------------------

    def abort(self, part: WriterPart) -> None:
        """Give up what a part has sent: if there is anything the life is over, for all."""
        with self._lock:
            mine = part in self._sent
            if mine:
                self._sent.clear()
                self._has_begun = False
        if mine:
            self.end(
                TransactionAborted(
                    f"Task {part.task} has given up its epoch.", action="open the task again.", passing=True
                )
            )
            self._inner.abort()

    def may_release(self, part: WriterPart) -> bool:
        """Whether the last transaction with anything of the part is over beyond doubt, so that another may go on.

        A writer that would begin no further transaction, as it is in doubt about the last one, is not let go of: it
        must be fenced, and what it left open be looked for. To be asked on the host's thread.
        """
        if self._failure is not None or part in self._sent:
            return False
        try:
            self.begin()
        except StateflowError as error:
            _LOG.warning("Tasks of the writer %s are not released before it is fenced: %s", self.id, error)
        return self._failure is None

    def leave(self, part: WriterPart) -> None:
        """A part is held no more."""
        with self._lock:
            self._parts.discard(part)
            is_last = self._failure is not None and not self._parts and not self._closed
            self._closed = self._closed or is_last
        if is_last:
            self._close_inner()

    def close(self) -> None:
        """Abort what is open and release the connection."""
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            self._close_inner()

    def _close_inner(self) -> None:
        try:
            self._inner.close()
        except StateflowError as error:
            _LOG.warning("The writer %s leaves its transaction to the broker: %s", self.id, error)

    def end(self, error: StateflowError) -> None:
        """The life is over: nothing is sent any more, but what is open may be aborted.

        The error is kept without its traceback, which would keep closed stores open.
        """
        with self._lock:
            if self._failure is None:
                self._failure = type(error)(error.message, action=error.action, **error.fields)


class WriterPart(Sender):
    """What one task has of a shared writer. Implements :class:`stateflow.log.base.Writer`.

    Its ``commit`` is for a transaction in which only this task has anything: whoever calls it sees to that.
    """

    def __init__(self, shared: SharedWriter, task: str) -> None:
        self.shared = shared
        self.task = task

    def begin(self) -> None:
        """Have part in the transaction."""
        self.shared.begin(self)

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order."""
        self.shared.append(records)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction."""
        self.shared.send_offsets(offsets, group, member)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything that any task has sent is acknowledged."""
        self.shared.flush(timeout_seconds)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit the transaction."""
        return self.shared.commit({self}, timeout_seconds)

    def give_up(self, error: StateflowError) -> None:
        """The task has met an error in its epoch, and with it all that share the writer."""
        self.shared.end(error)

    def abort(self) -> None:
        """Give up what this task has sent, and with it the writer."""
        self.shared.abort(self)

    def close(self) -> None:
        """Let go of it; what was sent and not committed is given up."""
        try:
            self.shared.abort(self)
        finally:
            self.shared.leave(self)
