"""Whether a request that ended an earlier transaction may still be on its way.

librdkafka sends an EndTxn again when its connection breaks, and tells nobody. The copy that was on its way can
arrive later and end whatever this producer has open by then: half of the next transaction. The one sign of it is
the number of EndTxn requests in the client's statistics, so after each end of a transaction the next one waits
for statistics that are newer. (A protocol that gives each transaction its own epoch, KIP-890 part 2, would make
this needless; librdkafka does not speak it.)
"""

from __future__ import annotations

import re

STATISTICS_INTERVAL_MS = 50
_OF_A_COMMIT_INTERVAL = 5
_INTERVAL_MS_UNASKED_MAX = 200
_WRITERS_AT_FULL_RATE = 8
_INTERVAL_MS_MAX = 2_000
_ENDED = re.compile(r'"EndTxn":\s*(\d+)')
"""How many of these requests were sent to a broker."""


def interval_within(commit_interval_seconds: float) -> int:
    """Milliseconds between two statistics that make nobody wait who commits so often: two come well within."""
    wanted_ms = int(commit_interval_seconds * 1000) // _OF_A_COMMIT_INTERVAL
    return min(_INTERVAL_MS_UNASKED_MAX, max(STATISTICS_INTERVAL_MS, wanted_ms))


def interval_beside(interval_ms: int, writers: int) -> int:
    """The same for a client that is opened beside so many others.

    Statistics name every partition of the topics that a client writes to: 0.4 ms of CPU and 51 kB each with 64
    partitions, 1.4 ms and 197 kB with 256, and as many clients tell them, idle ones too. Where there are many, a round
    of their commits takes seconds anyway, so that waiting longer costs little.
    """
    slower = max(1.0, writers / _WRITERS_AT_FULL_RATE) ** 2
    return max(interval_ms, min(_INTERVAL_MS_MAX, int(interval_ms * slower)))


class EndWatch:
    """Fed with the client's statistics, as they come; told of each end of a transaction."""

    def __init__(self) -> None:
        self._taken_total = 0
        self._needed_total = 0
        self._requests_total = 0
        self.is_settled = True
        """True when it is known how often the last transaction was ended."""
        self.is_suspect = False
        """True for ever once one was ended more than once: this producer must not send anything any more."""

    def take(self, statistics: str) -> None:
        """The client's statistics; its callback. Nothing of them is kept: they may be 200 kB."""
        self._taken_total += 1
        if not self.is_settled and self._taken_total >= self._needed_total:
            self._settle(statistics)

    def ended(self) -> None:
        """A transaction was ended, and the broker has answered."""
        # The statistics that come next may have been drawn up before the answer came; those after them are newer.
        self._needed_total = self._taken_total + 2
        self.is_settled = False

    def _settle(self, statistics: str) -> None:
        # Only what is told of brokers, and not decoded: topics come behind, with all their partitions.
        brokers, _, _ = statistics.partition('"topics":')
        requests_total = sum(map(int, _ENDED.findall(brokers)))
        self.is_suspect = self.is_suspect or requests_total - self._requests_total > 1
        self._requests_total = requests_total
        self.is_settled = True
