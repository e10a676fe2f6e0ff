"""Taking the former id of a dynamic member out of its group.

A client of librdkafka that has had no answer from its coordinator for a session forgets its member id, and joins as a
new member. A coordinator that was away as long knows the former id from disk, and gives it another session: until that
is over it lets the group wait for a member that nobody is any more. So the id is told to leave. (Kafka's own clients
keep their id, and a static member is known again by its name.)
"""

from __future__ import annotations

import threading
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException

from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError
from stateflow.log.kafka.admin import Admin, met
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import is_passing
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.transaction_requests import Request, found_coordinator, plain_error
from stateflow.log.kafka.wire import WireConnection
from stateflow.log.kafka.wire_types import kafka_string

_PAUSE_SECONDS = 0.5
"""Between two attempts, while brokers are away: whoever is back is asked soon."""
_ANSWER_SECONDS = 5.0
_OF_GROUPS = b"\x00"
_GONE = (0, KafkaError.UNKNOWN_MEMBER_ID)


class FormerIds:
    """What one member was called before. Does nothing for a static one. Used by the member's thread alone."""

    def __init__(self, admin: Admin, settings: Settings) -> None:
        self._admin = admin
        self._settings = settings
        self._group = str(settings["group.id"])
        self._is_static = "group.instance.id" in settings
        self._current = ""
        self._turn = 0
        self._ended = threading.Event()
        self._leaving: threading.Thread | None = None

    def note(self, member_id: str) -> None:
        """What the coordinator calls the member now."""
        self._current = member_id or self._current

    def lost(self, member_id: str) -> None:
        """The member's partitions are lost, and this is what it is called now: empty if it has forgotten its id."""
        former, self._current = self._current, member_id
        if former and former != member_id and not self._is_static:
            name = f"leave-{self._group}"
            self._leaving = threading.Thread(target=self._remove, args=(former,), name=name, daemon=True)
            self._leaving.start()

    def close(self) -> None:
        """Try no more: the coordinator drops the id in time. Waits for a request that is under way."""
        self._ended.set()
        if self._leaving is not None:
            self._leaving.join(_ANSWER_SECONDS)

    def _remove(self, member_id: str) -> None:
        """Tell the coordinator until it has heard it."""
        while not self._ended.is_set():
            try:
                error = self._leave(member_id)
            except (ConfigError, BrokerRefused) as refused:
                client_log.info("A former member of group %s stays for a session: %s", self._group, refused)
                return
            except (BrokerUnreachable, KafkaException):
                self._ended.wait(_PAUSE_SECONDS)
                continue
            if error in _GONE:
                return
            if not is_passing(KafkaError(error)):
                client_log.info("A former member of group %s stays for a session: %s", self._group, error)
                return
            self._ended.wait(_PAUSE_SECONDS)

    def _leave(self, member_id: str) -> int:
        """The coordinator's error, or that of whoever does not know it; 0 when the id is no member any more."""
        brokers = list(met(self._admin.client, _ANSWER_SECONDS).brokers.values())
        if not brokers:
            raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE))
        self._turn += 1  # one that is named may be away
        broker = brokers[self._turn % len(brokers)]
        find = Request(10, 1, kafka_string(self._group) + _OF_GROUPS)
        error, coordinator = found_coordinator(self._ask((str(broker.host), int(broker.port)), find))
        if error:
            return error
        leave = Request(13, 1, kafka_string(self._group) + kafka_string(member_id))
        return plain_error(self._ask(coordinator, leave))

    def _ask(self, address: tuple[str, int], request: Request) -> bytes:
        with closing(WireConnection(*address, self._settings, _ANSWER_SECONDS)) as connection:
            return connection.request(request.api_key, request.version, request.body)
