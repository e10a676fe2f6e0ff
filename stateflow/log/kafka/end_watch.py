"""Whether a request that ended an earlier transaction may still be on its way.

librdkafka sends an EndTxn again when its connection breaks, and tells nobody. The copy that was on its way can
arrive later and end whatever this producer has open by then: half of the next transaction. There are two ways to know
that it was sent once:

* *In time.* A request is sent again only out of the client's retry queue, where it stays for ``retry.backoff.ms``
  (at most a fifth less, by lot) after the failure of the first copy. So a commit that was answered sooner than that
  after it was asked for has sent one EndTxn.
* *By number.* The client's statistics count these requests. Any that are newer than the answer tell.

The first costs nothing, and is what happens nearly always; the second is for commits that took longer. (A protocol that
gives each transaction its own epoch, KIP-890 part 2, would make both needless; librdkafka does not speak it.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

STATISTICS_INTERVAL_MS = 50
RETRY_BACKOFF_MS = 500
"""``retry.backoff.ms`` of transactional clients, unless the user says otherwise: the client's default of 100 ms would
leave a commit on a busy machine in doubt, and more would delay what is sent again after a leader has moved."""
_RETRY_BACKOFF_MAX_MS = 1_000
"""The client's default of ``retry.backoff.max.ms``."""
_RETRY_JITTER = 0.2
_OF_A_COMMIT_INTERVAL = 2
_INTERVAL_MS_UNASKED_MAX = 500
_WRITERS_AT_FULL_RATE = 8
_WRITERS_WITH_STATISTICS = 64
_ENDED = re.compile(r'"EndTxn":\s*(\d+)')
"""How many of these requests were sent to a broker."""


def sent_once_seconds(settings: Mapping[str, object]) -> float:
    """A commit that a client with these settings sees through in less has sent its EndTxn once.

    ``rd_kafka_broker_buf_retry`` in librdkafka (2.3 to 2.16): the first pause is ``retry.backoff.ms`` times 0.8 to 1.2,
    at most ``retry.backoff.max.ms``. What is left of a request that a broken connection has sent in part is sent at
    once, but a part of a request ends nothing.
    """
    backoff_ms = float(str(settings["retry.backoff.ms"])) * (1 - _RETRY_JITTER)
    return min(backoff_ms, float(str(settings.get("retry.backoff.max.ms", _RETRY_BACKOFF_MAX_MS)))) / 1000


def interval_within(commit_interval_seconds: float) -> int:
    """Milliseconds between two statistics for whoever commits so often: a commit in doubt waits for two of them."""
    wanted_ms = int(commit_interval_seconds * 1000) // _OF_A_COMMIT_INTERVAL
    return min(_INTERVAL_MS_UNASKED_MAX, max(STATISTICS_INTERVAL_MS, wanted_ms))


def interval_beside(interval_ms: int, writers: int) -> int:
    """The same for a client that is opened beside so many others; 0 for no statistics at all.

    Statistics name every partition of the topics that a client writes to: 0.4 ms of CPU and 51 kB each with 64
    partitions, 1.4 ms and 197 kB with 256, and as many clients tell them, idle ones too. A client without is given up
    when a commit is in doubt, which costs its owner some tenths of a second.
    """
    if writers >= _WRITERS_WITH_STATISTICS:
        return 0
    return max(interval_ms, interval_ms * writers // _WRITERS_AT_FULL_RATE)


class EndWatch:
    """Fed with the client's statistics, as they come; told of each end of a transaction."""

    def __init__(self, *, has_statistics: bool = True) -> None:
        self.has_statistics = has_statistics
        """False for a client that tells none: what is in doubt stays so."""
        self._taken_total = 0
        self._needed_total = 0
        self._requests_max = 0
        """How many requests there are if none was sent twice."""
        self._is_counted = True
        self._is_ending = False
        self.is_outcome_known = True
        """True when it is known how often the last transaction was ended."""
        self.is_suspect = False
        """True for ever once one was ended more than once: this producer must not send anything any more."""

    def take(self, statistics: str) -> None:
        """The client's statistics; its callback. Nothing of them is kept: they may be 200 kB."""
        self._taken_total += 1
        # While one is on its way nobody knows whether it is in the number already.
        if not self._is_ending and not self._is_counted and self._taken_total >= self._needed_total:
            self._count(statistics)

    def ending(self) -> None:
        """The end of a transaction is about to be asked for; ``ended`` follows whatever comes of it."""
        self._is_ending = True

    def ended(self, *, sent_once: bool = False) -> None:
        """No end is on its way any more, as far as is known; ``sent_once`` if it is known that it was asked once.

        What is known by the time that it took is counted nevertheless, when statistics come, and nobody waits for that.
        """
        # The statistics that come next may have been drawn up before the answer came; those after them are newer.
        self._is_ending = False
        self._needed_total = self._taken_total + 2
        self._requests_max += 1
        self._is_counted = False
        self.is_outcome_known = sent_once

    def _count(self, statistics: str) -> None:
        # Only what is told of brokers, and not decoded: topics come behind, with all their partitions.
        brokers, _, _ = statistics.partition('"topics":')
        requests_total = sum(map(int, _ENDED.findall(brokers)))
        self.is_suspect = self.is_suspect or requests_total > self._requests_max
        self._requests_max = requests_total
        self._is_counted = True
        self.is_outcome_known = True
