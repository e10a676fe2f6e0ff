"""Whether a client's last commit has reached every partition, asked before the client may abort what it has open.

A broker may answer a commit at once without a marker of it where there is no leader (KAFKA-20734), a broker that stops
in order above all. The next marker of the same producer decides there. An abort by the client would be that marker; and
whatever it ends, the coordinator forgets how the commit before had ended. So a client that is in doubt aborts nothing:
the transaction is left as by a process that died. The next writer of the id asks the coordinator first, and then
fences, which aborts it (``runtime.opening.hanging_transactions``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.errors import StateflowError, TransactionAborted
from stateflow.log.base import Appended
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.offsets import Offsets
from stateflow.record import TopicPartition

_ARRIVAL_SECONDS_MAX = 2.0
"""How long markers that may be on their way are waited for."""
_LOOK_SECONDS = 0.02


class LastCommit:
    """What one transactional client committed last. To be used by one thread at a time."""

    def __init__(self, admin: Admin, transactional_id: str | None) -> None:
        self._admin = admin
        self._offsets = Offsets(admin)
        self._transactional_id = transactional_id
        self._appended: Mapping[TopicPartition, Appended] = {}
        self._held: Mapping[str, Sequence[ClientPartition]] = {}
        self._adding: dict[str, Sequence[ClientPartition]] = {}
        self._was_left = False

    def added_offsets(self, group: str, places: Sequence[ClientPartition]) -> None:
        """The open transaction has offsets of a group."""
        self._adding[group] = places

    def committed(self, appended: Mapping[TopicPartition, Appended]) -> None:
        """The open transaction was committed, with these records."""
        self._appended, self._held, self._adding = appended, self._adding, {}

    def leaves_abort(self) -> bool:
        """Whether the open transaction, which is given up, has to be left to the next writer of the id."""
        if self._has_arrived():
            return False
        client_log.warning(
            "It is not certain that the last commit of %s has reached every partition; what was begun since is not"
            " aborted here: whoever opens its task next does so.",
            self._transactional_id,
        )
        self._was_left = True
        return True

    def check(self) -> None:
        """Raise ``TransactionAborted`` if a transaction was left open: another cannot be begun by this client."""
        if self._was_left:
            raise TransactionAborted(
                "The last transaction was left to the next writer of its id, as brokers may have been away.",
                action="open the task again; a new owner looks after it.",
                transactional_id=self._transactional_id,
                passing=True,
            )

    def _has_arrived(self) -> bool:
        try:
            return self._records_have_arrived() and self._offsets_have_arrived()
        except (StateflowError, KafkaException) as error:
            client_log.info("Whether a commit has reached every partition cannot be seen: %s", error)
            return False

    def _records_have_arrived(self) -> bool:
        deadline = self._admin.clock.monotonic_seconds() + _ARRIVAL_SECONDS_MAX
        wanted = {partition: appended.offset for partition, appended in self._appended.items()}
        while wanted := self._undecided(wanted):
            if self._admin.clock.monotonic_seconds() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _undecided(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        stable = self._offsets.ends(wanted, timeout_seconds=_ARRIVAL_SECONDS_MAX)
        return {partition: offset for partition, offset in wanted.items() if stable[partition] <= offset}

    def _offsets_have_arrived(self) -> bool:
        """Offsets of the open transaction are held as well, and could not be told from those of the one before."""
        if self._held and self._adding:
            return False
        for group, places in self._held.items():
            self._admin.coordinators.committed(group, places, _ARRIVAL_SECONDS_MAX, stable=True)
        return True
