"""Waiting until a partition's last stable offset is its end: no transaction over it is open any more.

A commit returns when the coordinator has decided, before the markers stand in the partitions. Whoever must see
what was just committed, or must know that nothing more is coming, waits here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from stateflow.errors import OffsetsPending
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition

_PAUSE_SECONDS = 0.02


def stable_ranges(
    cluster: Cluster, partitions: Iterable[TopicPartition], timeout_seconds: float = 90.0
) -> dict[TopicPartition, OffsetRange]:
    """Log start and end of each partition, once no transaction over it is open.

    Writers of these partitions must have stopped or been fenced, otherwise this may never be so; raises
    ``OffsetsPending`` when a transaction outlasts the timeout (by default longer than a transaction may last).
    """
    wanted = list(partitions)
    deadline = time.monotonic() + timeout_seconds
    while True:
        ends = cluster.ends(wanted, stable=False)
        stable = cluster.ranges(wanted)
        pending = [p for p in wanted if stable[p].offset_next < ends[p]]
        if not pending:
            return stable
        if time.monotonic() > deadline:
            raise OffsetsPending(
                f"a transaction over {pending[0]} has been open for more than {timeout_seconds:.0f} s.",
                action="stop whoever writes there, or wait for its transaction timeout, and try again.",
                partitions=[str(p) for p in pending],
            )
        time.sleep(_PAUSE_SECONDS)
