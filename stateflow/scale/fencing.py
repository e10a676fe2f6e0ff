"""Fencing an application that stands still, as whoever opens a task does it with those who had the task before.

What coordinators know of the last transactions is asked before the fence: with it they forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import compress

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import control_topic
from stateflow.clock import SystemClock
from stateflow.errors import OffsetsPending
from stateflow.log.base import Cluster
from stateflow.log.together import AskingTogether
from stateflow.log.transactions import LastTransaction
from stateflow.record import TopicPartition
from stateflow.runtime.opening.claims import fenced_claims
from stateflow.runtime.opening.hanging_transactions import (
    AWAIT_SHARED_SECONDS,
    HangingTransactions,
    TaskWrites,
)
from stateflow.runtime.task.rotating_producer import second_id
from stateflow.scale.generation import FENCE_LANES

_Shared = Mapping[str, LastTransaction | None]
"""Writers that have claimed a task, and what was known of their last transactions."""


def fence_tasks(cluster: Cluster, catalog: Catalog) -> None:
    """Take the transactional ids of all tasks of the active generation, and of all writers that tasks have shared.

    Afterwards no worker that was believed dead can write any more. What it left open is aborted, and what brokers have
    left open of commits (KAFKA-20734) is committed, so the last stable offsets of the application's own topics are
    their ends. Raises ``OffsetsPending`` where another producer's transaction is open in a changelog.
    """
    tasks = [
        TaskWrites.of_catalog(catalog, stage, partition)
        for stage in catalog.stages
        for partition in range(catalog.partitions(stage))
    ]
    with ThreadPoolExecutor(FENCE_LANES, thread_name_prefix="fence") as pool:
        left_open = list(pool.map(partial(HangingTransactions, AskingTogether(cluster)), tasks))
        _all(pool.map(partial(_fence, cluster), tasks))
        with _fenced_claims(cluster, catalog) as by_task:
            shared = [by_task.get(task.task, {}) for task in tasks]
            _all(pool.map(_end, tasks, left_open, shared))
            _end_offsets(cluster, catalog, tasks, left_open, pool)


def _fenced_claims(cluster: Cluster, catalog: Catalog) -> AbstractContextManager[Mapping[str, _Shared]]:
    if catalog.app.shared_writers:
        return fenced_claims(cluster, catalog.app.app, SystemClock())
    return nullcontext({})


def _all(calls: Iterable[None]) -> None:
    """Wait for all of them, and raise what the first raised."""
    for _ in calls:
        pass


def _fence(cluster: Cluster, task: TaskWrites) -> None:
    """Fence both ids of a task: whether its workers were paranoid is not known here."""
    cluster.fence(task.transactional_id)
    cluster.fence(second_id(task.transactional_id))


def _end(task: TaskWrites, left_open: HangingTransactions, shared: _Shared) -> None:
    """Write the markers that are missing of a task's transactions."""
    if not task.is_transactional:
        return
    for writer, last in shared.items():
        left_open.know(writer, last)
        left_open.await_stable_seconds = AWAIT_SHARED_SECONDS
    if left_open.end([task.transactional_id, second_id(task.transactional_id), *shared]):
        left_open.check_changelogs()


def _end_offsets(
    cluster: Cluster,
    catalog: Catalog,
    tasks: Sequence[TaskWrites],
    left_open: Sequence[HangingTransactions],
    pool: ThreadPoolExecutor,
) -> None:
    """Write the markers that are missing for the group's offsets."""
    app, inputs = catalog.app.app, [at for task in tasks for at in task.inputs]
    seconds = max((of_task.await_offsets_seconds for of_task in left_open), default=0.0)
    are_held = partial(_are_held, cluster, app, seconds)
    if not are_held(inputs):
        return
    # Side by side: the answer for offsets that are held takes seconds.
    held = list(pool.map(are_held, [task.inputs for task in tasks]))
    for of_task in compress(left_open, held):
        of_task.end_offsets()
    if are_held(inputs):  # by whoever died while it wrote first positions
        cluster.fence(control_topic(app))
        if are_held(inputs):
            left_open[0].end_first_positions(catalog)


def _are_held(cluster: Cluster, app: str, seconds: float, inputs: Sequence[TopicPartition]) -> bool:
    """Whether a transaction holds the group's offsets of these partitions."""
    try:
        cluster.committed(app, inputs, pending_seconds=seconds)
    except OffsetsPending:
        return True
    return False
