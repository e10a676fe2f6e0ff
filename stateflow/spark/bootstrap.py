"""State written from Spark DataFrames: rows encoded by executors, sent to their task's partition, published there.

Each Spark task of the last round builds one task of the application (``bootstrap.parts``) and publishes its image. An
attempt that is repeated publishes the same again; the driver writes the manifest last, so a run that was killed leaves
no savepoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from stateflow.bootstrap.encoding import Entry, RowEncoder
from stateflow.bootstrap.parts import TaskPart, WrittenTask
from stateflow.bootstrap.plan import BootstrapPlan, TaskOf
from stateflow.bootstrap.write import column_batches, counted_only
from stateflow.clock import Clock, SystemClock
from stateflow.memory import memory_shares
from stateflow.spark.brought_files import brought_files
from stateflow.spark.engine import collected
from stateflow.spark.failure import Failure, result_or_failure
from stateflow.spark.graph_check import CheckedGraph
from stateflow.spark.shipping import ShippedTarget

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame

_HELD_BYTES_MAX = memory_shares().restore_bytes_each(1) // 4
Sent = tuple[int, tuple[str, bytes, bytes] | Failure]
"""Number of the task, and an entry of a store; or what kept a row from being one."""


@dataclass(frozen=True, slots=True)
class ShippedPlan:
    """A plan as it travels: the application's graph is built anew by whoever has it."""

    fields: Mapping[str, Any]
    load: CheckedGraph

    @classmethod
    def of(cls, plan: BootstrapPlan, load: CheckedGraph) -> ShippedPlan:
        """A plan without its graph."""
        names = ("name", "number", "location", "catalog", "positions", "cluster_id", "created_ms")
        return cls({name: getattr(plan, name) for name in names}, load)

    def plan(self) -> BootstrapPlan:
        """The plan with its graph."""
        return BootstrapPlan(topology=self.load(), **self.fields)


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """What an executor does with a part of a DataFrame."""

    shipped: ShippedPlan
    store: str

    def __call__(self, rows: Iterable[Any]) -> Iterator[Sent]:
        """Each row's entry with the number of its task; a bad row ends the part with a failure for the first task."""
        plan = self.shipped.plan()
        stage = plan.catalog.stores[self.store].stage
        numbers = {task.partition: n for n, task in enumerate(plan.tasks()) if task.stage == stage}
        encoder = plan.encoder(self.store)
        for columns in column_batches(row.asDict(recursive=True) for row in rows):
            entries = result_or_failure(partial(_listed, encoder, columns))
            if isinstance(entries, Failure):
                yield 0, entries
                return
            for number, key, value in entries:
                yield numbers[number], (self.store, key, value)


@dataclass(frozen=True, slots=True)
class BuildTask:
    """What an executor does with all that is of one task."""

    shipped: ShippedPlan
    dry_run: bool

    def __call__(self, number: int, sent: Iterable[Sent]) -> Iterator[WrittenTask | Failure]:
        """The part; nothing for a task that has no rows."""
        plan = self.shipped.plan()
        yield from _some(result_or_failure(partial(self._built, plan, plan.tasks()[number], sent)))

    def _built(self, plan: BootstrapPlan, task: TaskOf, sent: Iterable[Sent]) -> WrittenTask | None:
        rows: dict[str, int] = {}
        with TaskPart(plan, task, SystemClock(), held_bytes_max=_HELD_BYTES_MAX) as part:
            for _, entry in sent:
                if isinstance(entry, Failure):
                    raise entry.to_error()
                store, key, value = entry
                rows[store] = rows.get(store, 0) + 1
                if not self.dry_run:
                    part.add(store, ((key, value),))
            if not rows:
                return None
            return counted_only(task, rows) if self.dry_run else part.publish()


def _listed(encoder: RowEncoder, columns: Mapping[str, Sequence[Any]]) -> list[Entry]:
    return list(encoder.entries(columns))


def _some(result: WrittenTask | Failure | None) -> Iterator[WrittenTask | Failure]:
    if result is not None:
        yield result


@dataclass(frozen=True, slots=True)
class SparkWriter:
    """Implements ``bootstrap.write.TablesWriter`` by the session of the DataFrames."""

    target: ShippedTarget

    @classmethod
    def of(cls, app: str) -> SparkWriter:
        """For ``module:attribute`` or ``file.py:attribute``."""
        return cls(ShippedTarget.of(app))

    def __call__(
        self, plan: BootstrapPlan, tables: Mapping[str, DataFrame], clock: Clock, *, dry_run: bool
    ) -> list[WrittenTask]:
        """Write, or only encode and count. Raises the first failure with its own type, ``JobFailed``."""
        del clock
        if not tables:
            return []
        shipped = ShippedPlan.of(plan, CheckedGraph.of(self.target, plan.topology))
        for store, frame in tables.items():
            plan.encoder(store).check_columns(frame.columns)
        context = next(iter(tables.values())).sparkSession.sparkContext
        sent: RDD[Sent] = context.union(
            [frame.rdd.mapPartitions(EncodeTask(shipped, store)) for store, frame in tables.items()]
        )
        placed = sent.partitionBy(len(plan.tasks()), _as_it_is)
        with brought_files(context, self.target.files):
            return collected(placed.mapPartitionsWithIndex(BuildTask(shipped, dry_run)).collect)


def _as_it_is(number: int) -> int:
    return number
