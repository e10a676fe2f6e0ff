"""The paranoid writer: every transaction under a producer epoch of its own.

Two transactional ids take turns. While one of them has the running transaction, the other gets a new producer, so
a request that was meant for its last transaction is refused, whoever repeats it, and the wait for it costs nothing.

One id would not do: an owner that hangs between its commit and its new producer would wake up, fence its
successor and go on with old state. Here the producer of the next transaction is always older than that commit, so a
successor, which takes both ids, has fenced it. (It may still take one id from its successor before it finds out;
that one then starts again. Nothing is lost, and only a worker that hung in just that moment can do it.)
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor

from stateflow.log.base import Appended, Cluster, Writer
from stateflow.log.forwarding import ForwardingWriter
from stateflow.record import TopicPartition


def second_id(transactional_id: str) -> str:
    """The other id of a task whose transactions alternate between two."""
    return f"{transactional_id}-second"


class RotatingProducer(ForwardingWriter):
    """Implements :class:`stateflow.log.base.Writer`. Opening it fences every older writer of both ids.

    Whoever opens the task with a writer of one id must fence the second one as well. ``pool`` makes
    producers, and is closed with this writer; a thread of its own does without it.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, pool: Executor | None = None) -> None:
        self._cluster = cluster
        self._id, self._id_next = transactional_id, second_id(transactional_id)
        super().__init__(cluster.writer(self._id))
        self._pool = pool or ThreadPoolExecutor(1, thread_name_prefix="paranoid")
        self._next: Future[Writer] = self._pool.submit(cluster.writer, self._id_next)
        try:
            self._next.result()  # fenced on return, as promised
        except BaseException:
            self.close()
            raise

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit, and take up the other producer; waits for that only when it is not ready yet.

        When it cannot be had the commit stands nevertheless, and the error comes out of the next commit's.
        """
        upcoming = self._next.result()
        appended = self.inner.commit(timeout_seconds)
        done, self.inner = self.inner, upcoming
        self._id, self._id_next = self._id_next, self._id
        self._next = self._pool.submit(self._renewed, done, self._id_next)
        return appended

    def close(self) -> None:
        """Abort what is open and release both connections."""
        try:
            self.inner.close()
        finally:
            self._pool.shutdown(wait=True)
            if self._next.exception() is None:
                self._next.result().close()

    def _renewed(self, done: Writer, transactional_id: str) -> Writer:
        done.close()
        return self._cluster.writer(transactional_id)
