"""Whether a request that ended an earlier transaction may still be on its way.

librdkafka sends an EndTxn again when its connection breaks, and tells nobody. The copy that was on its way can
arrive later and end whatever this producer has open by then: half of the next transaction. The one sign of it is
the number of EndTxn requests in the client's statistics, so after each end of a transaction the next one waits
for statistics that are newer. (A protocol that gives each transaction its own epoch, KIP-890 part 2, would make
this needless; librdkafka does not speak it.)
"""

from __future__ import annotations

import json

STATISTICS_INTERVAL_MS = 50


class EndWatch:
    """Fed with the client's statistics, as they come; told of each end of a transaction."""

    def __init__(self) -> None:
        self._newest = ""
        self._taken_total = 0
        self._needed_total = 0
        self._requests_total = 0
        self.is_settled = True
        """True when it is known how often the last transaction was ended."""
        self.is_suspect = False
        """True for ever once one was ended more than once: this producer must not send anything any more."""

    def take(self, statistics: str) -> None:
        """The client's statistics; its callback."""
        self._newest = statistics
        self._taken_total += 1
        if not self.is_settled and self._taken_total >= self._needed_total:
            self._settle()

    def ended(self) -> None:
        """A transaction was ended, and the broker has answered."""
        # The statistics that come next may have been drawn up before the answer came; those after them are newer.
        self._needed_total = self._taken_total + 2
        self.is_settled = False

    def _settle(self) -> None:
        nodes = json.loads(self._newest)["brokers"].values()
        requests_total = sum(node["req"].get("EndTxn", 0) for node in nodes)
        self.is_suspect = self.is_suspect or requests_total - self._requests_total > 1
        self._requests_total = requests_total
        self.is_settled = True
