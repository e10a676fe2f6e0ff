"""What a member of a group does before its client is closed, so that nothing is left for the library to tell it then.

A library that is closed with a rebalance untold tells of that one and of the end: the first answer ends the group, the
second is never taken (librdkafka issue 4884). It waits for ever, in a call that keeps the interpreter's lock, so that
the whole process stands still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException

from stateflow.clock import Clock
from stateflow.log.kafka.client_log import client_log

_SETTLE_SECONDS_MAX = 5.0
_LOOK_SECONDS = 0.02
_CLOSE_SECONDS_MAX = 15.0


def leave(consumer: Consumer, has_partitions: Callable[[], bool], clock: Clock) -> None:
    """As a dynamic member: give up the group, and serve its callbacks until partitions and membership are gone."""
    try:
        consumer.unsubscribe()
        deadline = clock.monotonic_seconds() + _SETTLE_SECONDS_MAX
        while (has_partitions() or consumer.memberid()) and clock.monotonic_seconds() < deadline:
            consumer.poll(_LOOK_SECONDS)
    except KafkaException as error:
        client_log.info("A group is left without its agreement: %s", error)


def hear_out(consumer: Consumer, clock: Clock) -> None:
    """As a static member, which would lose its place by leaving: serve what has happened so far."""
    deadline = clock.monotonic_seconds() + _SETTLE_SECONDS_MAX
    try:
        while clock.monotonic_seconds() < deadline:
            unread = consumer.poll(0)  # callbacks are served before and between records
            if unread is None or _is_fatal(unread.error()):
                break
    except KafkaException as error:
        client_log.info("A group has more to tell, but cannot: %s", error)


def part(consumer: Consumer, whose: str, *, before: Callable[[], None] | None = None) -> threading.Thread:
    """Close a client that nothing depends on any more; should the library not come to an end, nobody waits for it."""

    def close() -> None:
        if before is not None:
            before()
        consumer.close()

    closing = threading.Thread(target=close, name=f"close-{whose}", daemon=True)
    closing.start()
    return closing


def close_in_time(consumer: Consumer, group: str) -> None:
    """Close the client of a member that holds nothing any more."""
    closing = part(consumer, group)
    closing.join(_CLOSE_SECONDS_MAX)
    if closing.is_alive():
        client_log.warning("The client does not leave group %s; its session ends by itself.", group)


def _is_fatal(error: KafkaError | None) -> bool:
    return error is not None and error.fatal()
