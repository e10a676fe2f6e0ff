"""Looking at transactions from outside, and ending what is left open of them, by Kafka's own requests."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError, StateflowError
from stateflow.log.kafka import transaction_requests as requests
from stateflow.log.kafka.admin import OFFSETS, Admin, met
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.topics import is_led, topics_found
from stateflow.log.kafka.wire import WireConnection
from stateflow.log.together import Together
from stateflow.log.transactions import LastTransaction, LeftOpen, Outcome
from stateflow.record import TopicPartition

T = TypeVar("T")
Address = tuple[str, int]

_OUTCOMES: dict[str, Outcome] = {
    "Empty": "none",
    "Ongoing": "open",
    "PrepareCommit": "committed",
    "CompleteCommit": "committed",
    "PrepareAbort": "aborted",
    "CompleteAbort": "aborted",
    "PrepareEpochFence": "aborted",
    "Dead": "none",
}
_UNKNOWN_ID = 105  # TRANSACTIONAL_ID_NOT_FOUND, which the client library has no name for
_TIMEOUT_MS = 30_000
_CONNECT_SECONDS_MAX = 5.0
_LOOK_SECONDS_MAX = 2.0
_SILENT_SECONDS = 600.0
"""How long brokers are not asked again that answer the client library and do not answer here."""


class KafkaTransactions:
    """Implements :class:`stateflow.log.transactions.Transactions`."""

    def __init__(self, admin: Admin, settings: Settings) -> None:
        self._admin = admin
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: defaultdict[Address, list[WireConnection]] = defaultdict(list)
        self._answering: Address | None = None
        self._turn = 0
        self._led_by: dict[TopicPartition, Address] = {}
        """Partitions of all topics that were asked about, as they were led then."""
        self._silent_until = float("-inf")
        self._open_producers = Together(self._ask_open_producers)
        look = partial(self._ask_open_producers, timeout_seconds=_LOOK_SECONDS_MAX)
        self._looked_at = {
            only_replica: Together(partial(look, leaders_stay=only_replica)) for only_replica in (True, False)
        }

    def last(self, transactional_id: str) -> LastTransaction | None:
        """What the id's newest owner did last; None where nobody can be asked."""
        return self._asked(lambda: self._last(transactional_id))

    def left_open(
        self, transactional_ids: Iterable[str], partitions: Iterable[TopicPartition]
    ) -> LeftOpen | None:
        """Where the ids' ended transactions are still open; None where nobody can be asked."""
        ids, wanted = list(transactional_ids), list(partitions)
        return self._asked(lambda: self._left_open(ids, wanted))

    def producer_of(self, transactional_id: str) -> int | None:
        """What brokers number the id's producer; None where nobody can be asked."""
        return self._asked(lambda: self._described(transactional_id).producer.id)

    def undecided(
        self, producer: int, written: Mapping[TopicPartition, int], *, only_replica: bool = False
    ) -> set[TopicPartition] | None:
        """Where what a producer has written up to an offset is undecided, whatever its coordinator says.

        With ``only_replica`` these partitions have no other, and whoever leads them does so for good. Partitions that
        one may not read are left out. None where nobody can be asked; raises ``BrokerUnreachable`` soon where there is
        no leader.
        """
        if self._admin.clock.monotonic_seconds() < self._silent_until:
            return None
        try:
            found = self._looked_at[only_replica](written)
        except (ConfigError, BrokerRefused) as error:
            self._stay_silent(error)
            return None
        begins = {place: (open_ or {}).get(producer) for place, open_ in found.items()}
        return {place for place, begin in begins.items() if begin is not None and begin <= written[place]}

    def end(
        self, transactional_id: str, partitions: Iterable[TopicPartition], group: str | None, *, commit: bool
    ) -> None:
        """Write a marker of the id into these partitions. Raises ``ProducerFenced`` for one that is fenced itself."""
        doing = f"ending what transactions of {transactional_id!r} have left open"
        producer = self._initialized(transactional_id, doing)
        steps = [(requests.add_partitions(transactional_id, producer, partitions), requests.added_partitions)]
        if group is not None:
            steps.append((requests.add_offsets(transactional_id, producer, group), requests.plain_error))
        steps.append(
            (requests.end_transaction(transactional_id, producer, commit=commit), requests.plain_error)
        )
        for request, error_of in steps:
            self._tell(transactional_id, request, error_of, doing)

    def fence(self, transactional_id: str) -> bool:
        """Fence every writer of the id, without a client of its own; False where nobody can be asked for it.

        On return nothing of it is open any more, and all markers are written, as behind a new producer's start.
        """
        if self._admin.clock.monotonic_seconds() < self._silent_until:
            return False
        try:
            self._initialized(transactional_id, f"taking over {transactional_id!r}")
        except (ConfigError, BrokerRefused) as error:
            self._stay_silent(error)
            return False
        return True

    def close(self) -> None:
        """Close the connections that wait for the next request."""
        with self._lock:
            waiting = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
        for connection in waiting:
            connection.close()

    # --- what is asked ------------------------------------------------------------------------------

    def _initialized(self, transactional_id: str, doing: str) -> requests.Producer:
        """A new epoch of the id: all older ones are fenced, and what was open is aborted."""
        started = requests.init_producer_id(transactional_id, _TIMEOUT_MS)

        def init(left_seconds: float) -> requests.Producer:
            answer = self._to_coordinator(transactional_id, started, left_seconds)
            error, producer = requests.initialized_producer(answer)
            _raise_for(error, doing)
            return producer

        return self._admin.call(doing, init)

    def _last(self, transactional_id: str) -> LastTransaction:
        described = self._described(transactional_id)
        if described.error == _UNKNOWN_ID:
            return LastTransaction("none")
        outcome = _OUTCOMES[described.state]
        if outcome != "open":
            return LastTransaction(outcome)
        return LastTransaction(outcome, described.partitions, self._has_offsets(described))

    def _has_offsets(self, described: requests.Described) -> bool | None:
        """Whether a group's offsets are part of a transaction; a coordinator leaves out what one may not see."""
        if any(partition.topic == OFFSETS for partition in described.partitions):
            return True

        def is_hidden(left_seconds: float) -> bool:
            error = met(self._admin.client, left_seconds).topics[OFFSETS].error
            return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

        return None if self._admin.call(f"looking for {OFFSETS}", is_hidden) else False

    def _described(self, transactional_id: str) -> requests.Described:
        doing = f"asking for the transactions of {transactional_id!r}"

        def request(left_seconds: float) -> requests.Described:
            asked = requests.describe_transactions(transactional_id)
            described = requests.described_transaction(
                self._to_coordinator(transactional_id, asked, left_seconds)
            )
            if described.error != _UNKNOWN_ID:
                _raise_for(described.error, doing)
            return described

        return self._admin.call(doing, request)

    def _left_open(self, transactional_ids: list[str], partitions: list[TopicPartition]) -> LeftOpen:
        owners: dict[int, str] = {}
        for transactional_id in transactional_ids:
            described = self._described(transactional_id)
            # What is open for the coordinator, too, is a newer owner's, which ends it.
            if described.error == 0 and _OUTCOMES[described.state] != "open":
                owners[described.producer.id] = transactional_id
        if not owners:
            return LeftOpen({})
        found = self._open_producers(partitions)
        by_id: defaultdict[str, set[TopicPartition]] = defaultdict(set)
        for partition, producers in found.items():
            for producer in (producers or {}).keys() & owners.keys():
                by_id[owners[producer]].add(partition)
        untold = frozenset(partition for partition, producers in found.items() if producers is None)
        return LeftOpen({name: frozenset(where) for name, where in by_id.items()}, untold)

    def _ask_open_producers(
        self,
        partitions: Collection[TopicPartition],
        timeout_seconds: float | None = None,
        *,
        leaders_stay: bool = False,
    ) -> dict[TopicPartition, dict[int, int] | None]:
        """Who has something open in each partition, and from where on; None where this client may not be told."""
        doing = "asking for the open transactions of partitions"

        def request(left_seconds: float) -> dict[TopicPartition, dict[int, int] | None]:
            known = self._led_by  # commits ask all the time
            if leaders_stay and known.keys() >= set(partitions):
                try:
                    return self._ask_leaders(_by_leader(partitions, known), left_seconds)
                except KafkaException:  # it may have moved to another broker
                    self._led_by = {}
            return self._ask_leaders(self._leaders(partitions, left_seconds), left_seconds)

        return self._admin.call(doing, request, timeout_seconds)

    def _ask_leaders(
        self, leaders: Mapping[Address, list[TopicPartition]], left_seconds: float
    ) -> dict[TopicPartition, dict[int, int] | None]:
        found: dict[TopicPartition, dict[int, int] | None] = {}
        for address, led in leaders.items():
            answer = self._send(address, requests.describe_producers(led), left_seconds)
            for partition, error, producers in requests.described_producers(answer):
                if error == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    found[partition] = None
                    continue
                _raise_for(error, f"asking for the open transactions of {partition}")
                found[partition] = producers
        return found

    def _leaders(
        self, partitions: Collection[TopicPartition], left_seconds: float
    ) -> dict[Address, list[TopicPartition]]:
        led_by = {
            TopicPartition(name, place.id): (str(place.leader.host), int(place.leader.port))
            for name, topic in topics_found(
                self._admin.client, {one.topic for one in partitions}, left_seconds
            ).items()
            for place in topic.partitions
            if is_led(place)
        }
        self._led_by.update(led_by)  # of whole topics, as other tasks ask about their other partitions
        without = [str(partition) for partition in partitions if partition not in led_by]
        if without:
            raise _failed(KafkaError.LEADER_NOT_AVAILABLE, f"looking for the leader of {', '.join(without)}")
        return _by_leader(partitions, led_by)

    # --- how it is asked ----------------------------------------------------------------------------

    def _asked(self, question: Callable[[], T]) -> T | None:
        """The answer; None where these settings or the brokers do not let this client ask, which is said once."""
        if self._admin.clock.monotonic_seconds() < self._silent_until:
            return None
        try:
            return question()
        except (ConfigError, BrokerRefused) as error:
            self._stay_silent(error)
        except BrokerUnreachable as error:
            if not self._admin.is_reachable():
                raise
            self._stay_silent(error)
        return None

    def _stay_silent(self, error: StateflowError) -> None:
        self._silent_until = self._admin.clock.monotonic_seconds() + _SILENT_SECONDS
        client_log.warning(
            "Cannot search for transactions that an outage of brokers has left open (KAFKA-20734): %s",
            error.message,
        )

    def _tell(
        self, transactional_id: str, request: requests.Request, error_of: Callable[[bytes], int], doing: str
    ) -> None:
        """A request of which only the error of its answer matters."""

        def step(left_seconds: float) -> None:
            _raise_for(error_of(self._to_coordinator(transactional_id, request, left_seconds)), doing)

        self._admin.call(doing, step)

    def _to_coordinator(self, transactional_id: str, request: requests.Request, left_seconds: float) -> bytes:
        """The answer of the id's coordinator, which is looked for each time: this is rare, and it may have moved."""
        error, address = requests.found_coordinator(
            self._send(
                self._any_broker(left_seconds), requests.find_coordinator(transactional_id), left_seconds
            )
        )
        _raise_for(error, f"looking for the coordinator of {transactional_id!r}")
        return self._send(address, request, left_seconds)

    def _any_broker(self, left_seconds: float) -> Address:
        """The broker that answered last; after a failure the next one of those that are known."""
        if self._answering is None:
            brokers = met(self._admin.client, left_seconds).brokers
            if not brokers:
                raise _failed(KafkaError.BROKER_NOT_AVAILABLE, "looking for a broker")
            self._turn += 1
            chosen = brokers[sorted(brokers)[self._turn % len(brokers)]]
            return str(chosen.host), int(chosen.port)
        return self._answering

    def _send(self, address: Address, request: requests.Request, left_seconds: float) -> bytes:
        """The answer. A connection that fails is given up; trying again is the caller's."""
        with self._lock:
            idle = self._idle[address]
            connection = idle.pop() if idle else None
        try:
            if connection is None:
                seconds = min(left_seconds, _CONNECT_SECONDS_MAX)
                connection = WireConnection(*address, self._settings, seconds)
            answer = connection.request(
                request.api_key, request.version, request.body, flexible=request.flexible
            )
        except BrokerUnreachable as error:
            if connection is not None:
                connection.close()
            self._answering = None
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, error.message)) from error
        with self._lock:
            self._idle[address].append(connection)
        self._answering = address
        return answer


def _by_leader(
    partitions: Iterable[TopicPartition], led_by: Mapping[TopicPartition, Address]
) -> dict[Address, list[TopicPartition]]:
    found: defaultdict[Address, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        found[led_by[partition]].append(partition)
    return found


def _raise_for(error: int, doing: str) -> None:
    if error:
        raise _failed(error, doing)


def _failed(error: int, doing: str) -> KafkaException:
    """As the client library would raise it; of errors made by hand one has to say which may pass."""
    may_pass = error in (KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.UNKNOWN_TOPIC_OR_PART)
    return KafkaException(KafkaError(error, f"while {doing}", False, may_pass))
