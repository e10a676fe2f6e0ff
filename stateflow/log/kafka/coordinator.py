"""Whether a group's coordinator answers, asked in the one way that never fails badly.

An administrative request about a group that meets a coordinator which is still loading, as after a broker's return, can
end the process: an assertion of librdkafka fails (its issue 5040). A consumer that asks for committed offsets waits for
the coordinator as it should. So that is done first, and what follows meets a coordinator that answers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import error_of, is_passing

_NOTHING = ClientPartition("stateflow-nothing", 0)
"""What offsets are asked for is of no matter: a topic that does not exist has none."""


class Coordinators:
    """Asks with a consumer that joins nothing; it is kept for the next question about the same group. Thread-safe."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = dict(settings)
        self._lock = threading.Lock()
        self._group = ""
        self._consumer: Consumer | None = None

    def ask(self, group: str, timeout_seconds: float) -> None:
        """Return once the group's coordinator answers; raises the client's error when it does not in time."""
        consumer = self._asking(group)
        try:
            consumer.committed([_NOTHING], timeout=timeout_seconds)
        except KafkaException as raised:
            if is_passing(error_of(raised)):
                raise
            client_log.debug(
                "The coordinator of %s answers: %s", group, raised
            )  # that it will not tell is an answer
        consumer.poll(0)  # what the client has to tell must not pile up

    def _asking(self, group: str) -> Consumer:
        with self._lock:
            if self._consumer is None or self._group != group:
                settings = {**self._settings, "group.id": group, "enable.auto.commit": False}
                self._group, self._consumer = group, Consumer(settings, logger=client_log)
            return self._consumer
