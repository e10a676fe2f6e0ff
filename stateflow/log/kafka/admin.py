"""Administrative calls, each bounded in time and repeated while the cluster is only busy."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.kafka.call_threads import CallThreads
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.connection_errors import ConnectionErrors
from stateflow.log.kafka.coordinator import Coordinators
from stateflow.log.kafka.failures import error_of, is_passing, refused_settings, typed
from stateflow.log.kafka.settings import Settings

T = TypeVar("T")
OFFSETS = "__consumer_offsets"
_PAUSE_SECONDS = 0.05
_STALE = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)
"""What a client answers for minutes that does not look again who leads, as after a broker's restart."""
_ANSWER_SECONDS = 3.0
_REPLACE_SECONDS = 10.0
"""A client is not replaced sooner than this after it was made."""
_MOMENTS_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""What a request is given at first, and again each time when a broker answers; then it is given all that is left."""


class Admin:
    """The connection that topics and offsets are administered through. Thread-safe."""

    def __init__(self, bootstrap: str, settings: Settings, clock: Clock, timeout_seconds: float) -> None:
        self.bootstrap = bootstrap
        self.clock = clock
        self.timeout_seconds = timeout_seconds
        self._settings = settings
        self._lock = threading.Lock()
        self.call_threads = CallThreads()
        self.coordinators = Coordinators(settings)
        """To be asked before any request about a group."""
        self._replaced: deque[tuple[float, AdminClient]] = deque()
        self._connection_errors = ConnectionErrors()
        self.client = self._made()
        self._made_seconds = clock.monotonic_seconds()

    def _made(self) -> AdminClient:
        try:
            settings: Settings = {**self._settings, "error_cb": self._connection_errors.heard}
            return AdminClient(settings, logger=client_log)
        except KafkaException as raised:
            raise refused_settings(error_of(raised), self._settings) from raised

    def _replace(self) -> None:
        """Use another client from here on: one that has lost all brokers may know what was so before, for ever.

        librdkafka 2.16 then asks for coordinators through a connection that it has given up, or leaders of an epoch
        that is over. The old client is kept until no request can be on its way in it any more, as those would be left
        without an answer. The consumers that ask coordinators may be in the same state, and go with it.
        """
        now_seconds = self.clock.monotonic_seconds()
        with self._lock:
            if now_seconds - self._made_seconds < _REPLACE_SECONDS:
                return
            self._replaced.append((now_seconds, self.client))
            while self._replaced[0][0] < now_seconds - 2 * self.timeout_seconds:
                self._replaced.popleft()
            self.client, self._made_seconds = self._made(), now_seconds
        self.coordinators.replace()

    def is_reachable(self) -> bool:
        """Whether a client without a past reaches a broker. Takes up to seconds."""
        return answers(self._made())

    def call(self, doing: str, request: Callable[[float], T], timeout_seconds: float | None = None) -> T:
        """The result of a request, which is given the seconds left. Failures come out typed."""
        limit_seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic_seconds() + limit_seconds
        self.client.poll(0)  # which hands over what its connections failed of so far
        self._connection_errors.forget()
        while True:
            left_seconds = max(0.1, deadline - self.clock.monotonic_seconds())
            try:
                return request(left_seconds)
            except KafkaException as raised:
                error = error_of(raised)
                self.client.poll(0)
                is_late = self.clock.monotonic_seconds() >= deadline
                if error.code() in _STALE or (is_late and is_passing(error)):
                    self._replace()
                if is_late or not is_passing(error):
                    raise typed(error, doing, self.bootstrap, self._connection_errors.known) from raised
            time.sleep(_PAUSE_SECONDS)

    def ask(self, doing: str, request: Callable[[float], T], timeout_seconds: float | None = None) -> T:
        """As ``call``, for what may be asked twice: waits for brokers that are away at rest.

        A request that waits for the connection to a broker, as to a leader, goes to and fro between two threads of
        librdkafka 2.16 without a pause, which takes a whole core until its time is up. So it is given a moment, and
        more once a broker answers. What that tells of the cluster may be early: of brokers that have just started none
        may be the controller yet, and a request that waits for it does not look again by itself. So it is not given
        all the time at once.
        """

        def at_rest(left_seconds: float) -> T:
            deadline = self.clock.monotonic_seconds() + left_seconds
            for moment_seconds in _MOMENTS_SECONDS:
                try:
                    return request(min(left_seconds, moment_seconds))
                except KafkaException as raised:
                    left_seconds = deadline - self.clock.monotonic_seconds()
                    if error_of(raised).code() != KafkaError._TIMED_OUT or left_seconds <= 0:
                        raise
                met(self.client, left_seconds)
                left_seconds = max(0.1, deadline - self.clock.monotonic_seconds())
            return request(left_seconds)

        return self.call(doing, at_rest, timeout_seconds)

    def wait_until(
        self,
        doing: str,
        condition: Callable[[], bool],
        failure: Callable[[], StateflowError] | None = None,
    ) -> None:
        """Ask until the condition holds. After the request timeout raises ``failure``, or that it took too long."""
        deadline = self.clock.monotonic_seconds() + self.timeout_seconds
        while not condition():
            if self.clock.monotonic_seconds() >= deadline:
                if failure is not None:
                    raise failure()
                raise BrokerUnreachable(
                    f"Kafka at {self.bootstrap} did not finish {doing} within {self.timeout_seconds:g} s.",
                    action="look at the broker's log; then try again.",
                    bootstrap=self.bootstrap,
                )
            time.sleep(_PAUSE_SECONDS)


def met(client: Any, timeout_seconds: float) -> Any:
    """Metadata of the cluster, its brokers and its id, as any client reads it from the first broker that answers.

    With one topic, which is every cluster's own: a client that asks for all of them is told all of their partitions,
    and one that writes has a broker create the topic that it names. Raises ``KafkaException``.
    """
    return client.list_topics(OFFSETS, timeout=timeout_seconds)


def answers(client: Any) -> bool:
    """Whether any broker answers this client now."""
    try:
        met(client, _ANSWER_SECONDS)
    except KafkaException:
        return False
    return True
