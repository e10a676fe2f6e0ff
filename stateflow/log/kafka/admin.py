"""Administrative calls, each bounded in time and repeated while the cluster is only busy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.kafka.failures import error_of, is_passing, refused_settings, typed
from stateflow.log.kafka.settings import Settings

T = TypeVar("T")
client_log = logging.getLogger("stateflow.log.kafka.client")
"""Where librdkafka's own lines go."""

_PAUSE_SECONDS = 0.05


class Admin:
    """The connection that topics and offsets are administered through. Thread-safe."""

    def __init__(self, bootstrap: str, settings: Settings, clock: Clock, timeout_seconds: float) -> None:
        self.bootstrap = bootstrap
        self.clock = clock
        self.timeout_seconds = timeout_seconds
        try:
            self.client = AdminClient(settings, logger=client_log)
        except KafkaException as raised:
            raise refused_settings(error_of(raised), settings) from raised

    def call(self, doing: str, request: Callable[[float], T], timeout_seconds: float | None = None) -> T:
        """The result of a request, which is given the seconds left. Failures come out typed."""
        limit_seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic_seconds() + limit_seconds
        while True:
            left_seconds = max(0.1, deadline - self.clock.monotonic_seconds())
            try:
                return request(left_seconds)
            except KafkaException as raised:
                error = error_of(raised)
                if not is_passing(error) or self.clock.monotonic_seconds() >= deadline:
                    raise typed(error, doing, self.bootstrap) from raised
            time.sleep(_PAUSE_SECONDS)

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
