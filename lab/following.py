"""Following topics while something else happens: committed records as they come, on a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import closing

from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.record import RecordBatch, TopicPartition

_POLL_SECONDS, _POLL_RECORDS = 0.05, 10_000


class TopicFollower(threading.Thread, ABC):
    """Reads a topic from its beginning, and goes on until ``close``."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(name=f"following {topic}", daemon=True)
        self._cluster = cluster
        self._from = {TopicPartition(topic, number): 0 for number in range(partitions)}
        self._done = threading.Event()
        self._failure: StateflowError | None = None

    @abstractmethod
    def take(self, batch: RecordBatch) -> None:
        """What came of one partition, read a moment ago; called by the thread."""

    def run(self) -> None:
        """Read until it is closed."""
        try:
            with closing(self._cluster.reader()) as reader:
                reader.assign(self._from)
                while not self._done.is_set():
                    for batch in reader.read(_POLL_RECORDS, _POLL_SECONDS):
                        self.take(batch)
        except StateflowError as failure:
            self._failure = failure

    def close(self) -> None:
        """Stop reading; raises what reading failed with."""
        self._done.set()
        self.join()
        if self._failure is not None:
            raise self._failure
