"""What a member of a group does before its client is closed, so that nothing is left for the library to tell it then.

A callback that is served while the library closes may find its group gone: its answer is then never taken (librdkafka
issue 4884), and it waits for ever, in a call that keeps the interpreter's lock, so that the whole process stands still.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from stateflow.clock import Clock
from stateflow.log.kafka.admin import client_log

_SETTLE_SECONDS_MAX = 5.0
_LOOK_SECONDS = 0.02


def leave(consumer: Consumer, has_partitions: Callable[[], bool], clock: Clock) -> None:
    """As a dynamic member: give up the group, and serve its callbacks until partitions and membership are gone."""
    try:
        consumer.unsubscribe()
        _serve_while(lambda: has_partitions() or bool(consumer.memberid()), consumer, clock)
    except KafkaException as error:
        client_log.info("A group is left without its agreement: %s", error)


def hear_out(consumer: Consumer, has_partitions: Callable[[], bool], clock: Clock) -> None:
    """As a static member, which would lose its place by leaving: serve what the end of its session has brought."""
    try:
        _serve_while(lambda: has_partitions() and not consumer.memberid(), consumer, clock)
    except KafkaException as error:
        client_log.info("A group has more to tell, but cannot: %s", error)


def _serve_while(more_to_come: Callable[[], bool], consumer: Consumer, clock: Clock) -> None:
    deadline = clock.monotonic_seconds() + _SETTLE_SECONDS_MAX
    consumer.poll(0)
    while more_to_come() and clock.monotonic_seconds() < deadline:
        consumer.poll(_LOOK_SECONDS)
