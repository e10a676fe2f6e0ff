"""What a group's coordinator answers, asked in the one way that never fails badly.

An administrative request about a group that meets a coordinator which is still loading, or is one no longer, as after
a broker's return, can end the process: librdkafka then looks for a member's state that an administrative client does
not have (its issue 5040, an assertion; for committed offsets a read from address 0). A consumer has it, and waits for
the coordinator as it should. So committed offsets are asked for by a consumer alone, and what cannot be asked that way
follows such a question, so that it meets a coordinator that answers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import error_of, is_passing

_NOTHING = ClientPartition("stateflow-nothing", 0)
"""What offsets are asked for is of no matter: a topic that does not exist has none, and no transaction holds them."""

_KEPT_MAX = 6
"""A repartition asks about three groups in turn, of some at both levels."""


class Coordinators:
    """Asks with consumers that join nothing, kept for the next question about the same group. Thread-safe."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = dict(settings)
        self._lock = threading.Lock()
        self._asking: dict[tuple[str, str], Consumer] = {}
        """Isolation level and group → the consumer that asks; those asked about last."""

    def committed(
        self, group: str, partitions: Sequence[ClientPartition], timeout_seconds: float, *, stable: bool
    ) -> list[ClientPartition]:
        """Committed offsets, negative where there are none; ``stable`` waits for transactions that hold some.

        Raises the client's error when there is no answer in time.
        """
        consumer = self._consumer(group, "read_committed" if stable else "read_uncommitted")
        try:
            return list(consumer.committed(list(partitions), timeout=timeout_seconds))
        finally:
            consumer.poll(0)  # what the client has to tell must not pile up

    def ask(self, group: str, timeout_seconds: float) -> None:
        """Return once the group's coordinator answers; raises the client's error when it does not in time."""
        try:
            self.committed(group, [_NOTHING], timeout_seconds, stable=True)
        except KafkaException as raised:
            if is_passing(error_of(raised)):
                raise
            client_log.debug(
                "The coordinator of %s answers: %s", group, raised
            )  # that it will not tell is an answer

    def replace(self) -> None:
        """Ask with new consumers from here on: as other clients, one may not find back to the brokers after an outage.

        A question that is on its way in one of them goes on there, and the client ends with it.
        """
        with self._lock:
            self._asking.clear()

    def _consumer(self, group: str, level: str) -> Consumer:
        with self._lock:
            consumer = self._asking.pop((level, group), None)
            if consumer is None:
                settings = {**self._settings, "group.id": group, "enable.auto.commit": False}
                consumer = Consumer({**settings, "isolation.level": level}, logger=client_log)
            self._asking[level, group] = consumer
            while len(self._asking) > _KEPT_MAX:
                del self._asking[next(iter(self._asking))]
            return consumer
