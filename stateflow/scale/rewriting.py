"""Writing all of an application's state by its present schemas, so that the migrations of older ones can go.

Each task is opened as a worker opens it (fenced, restored), its outdated values are written anew and committed in
slices, and it is closed. Stopped anywhere, what is committed stays, and the next run does the rest. At the end the
catalog forgets the schemas of which no value is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from stateflow.catalog.compatibility import additions
from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import StoreEntry
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.whole import find_base, with_base_slot
from stateflow.clock import Clock, SystemClock
from stateflow.log.base import Cluster
from stateflow.log.stable_ranges import stable_ranges
from stateflow.operators.topology.topology import Topology
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import Opener, StoreOpener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.standalone_group import StandaloneGroup
from stateflow.scale.generation import await_stopped
from stateflow.scale.reading import live_state
from stateflow.state.evolution import present_number, schema_number_of, without_migrated

ENTRIES_PER_COMMIT = 50_000
_KEYS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Outdated:
    """How many values of a store were written by which schema."""

    store: str
    present: int
    """Number of the schema that values are written with now."""
    values: Mapping[int, int]
    """Number of a schema → values of it."""

    @property
    def values_total(self) -> int:
        """Values of other schemas than the present one."""
        return sum(count for number, count in self.values.items() if number != self.present)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What has been done so far."""

    tasks_done: int
    tasks_total: int
    entries_total: int
    """Entries looked at."""
    values_total: int
    """Values written anew."""
    seconds: float


def as_it_would_be(cluster: Cluster, topology: Topology) -> Wiring:
    """The application as a start of this code would leave the catalog; changes nothing.

    Raises ``CatalogMissing``, or ``CatalogIncompatible`` where a start would be refused.
    """
    found = ControlTopic(cluster, topology.app).load()
    expected = msgspec.structs.replace(found, stores={store.name: store for store in topology.stores})
    changed = {item.name: item for item in additions(expected, found) if isinstance(item, StoreEntry)}
    return Wiring(topology, msgspec.structs.replace(found, stores={**found.stores, **changed}))


def evolved_stores(wiring: Wiring) -> list[StoreEntry]:
    """The stores of which the catalog knows values of an older schema that the present one does not stand for."""
    entries = wiring.catalog.stores.values()
    return [entry for entry in entries if entry.evolves and without_migrated(entry) != entry]


def outdated(cluster: Cluster, wiring: Wiring) -> Iterator[Outdated]:
    """Count the values by schema, store by store, from the changelogs; changes nothing."""
    for entry in evolved_stores(wiring):
        generation = wiring.catalog.changelog_generation(entry.stage)
        topic = changelog_topic(wiring.topology.app, entry.name, generation)
        partitions = [
            TopicPartition(topic, number) for number in range(wiring.catalog.partitions(entry.stage))
        ]
        counted: Counter[int] = Counter()
        for source, log in stable_ranges(cluster, partitions).items():
            base = find_base(cluster, wiring.catalog, entry.name, source, log, SystemClock())
            offsets = with_base_slot(log, base)
            for state in live_state(cluster, source, offsets, keys_max=_KEYS_MAX, base=base):
                numbers = (schema_number_of(entry, key, stored) for key, stored in state.items())
                counted.update(number for number in numbers if number is not None)
        yield Outdated(entry.name, present_number(entry), counted)


def rewrite(
    cluster: Cluster,
    wiring: Wiring,
    open_stores: StoreOpener,
    settings: WorkerSettings,
    clock: Clock,
    report: Callable[[Rewritten], None] = lambda _: None,
) -> Rewritten:
    """Write every outdated value anew; on return the catalog knows the present schemas only.

    Raises ``StillRunning`` while workers run, ``DecodeError`` where a migration fails (what was committed before
    stays), and what opening a task raises.
    """
    await_stopped(cluster, wiring.topology.app)
    started_seconds = clock.monotonic_seconds()
    stores = {entry.name for entry in evolved_stores(wiring)}
    tasks = [task for task in wiring.tasks() if stores & task.entries.keys()]
    done = Rewritten(0, len(tasks), 0, 0, 0.0)
    opener = Opener(cluster, open_stores, settings, clock)
    for number, task_wiring in enumerate(tasks, 1):
        for entries, values in _rewrite_task(cluster, opener, task_wiring, sorted(stores)):
            done = Rewritten(
                number - 1,
                len(tasks),
                done.entries_total + entries,
                done.values_total + values,
                clock.monotonic_seconds() - started_seconds,
            )
            report(done)
    done = Rewritten(
        len(tasks),
        len(tasks),
        done.entries_total,
        done.values_total,
        clock.monotonic_seconds() - started_seconds,
    )
    report(done)
    changed = [without_migrated(wiring.catalog.stores[name]) for name in sorted(stores)]
    if changed:
        ControlTopic(cluster, wiring.topology.app).write(changed)
    return done


def _rewrite_task(
    cluster: Cluster, opener: Opener, wiring: TaskWiring, stores: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """One task, a commit at a time: entries looked at, values written."""
    task = opener.open(wiring, lambda: False).task
    group = StandaloneGroup(cluster, wiring.group)
    try:
        for name in stores:
            if name in wiring.entries:
                yield from _rewrite_store(task, group, name)
    except BaseException:
        task.abandon()
        raise
    task.close()


def _rewrite_store(task: Task, group: StandaloneGroup, name: str) -> Iterator[tuple[int, int]]:
    store = task.context.stores[name]
    rewritten = task.wiring.stage.rewriters[name](task.wiring.entries[name])
    first = b""
    while entries := list(islice(store.scan(first), ENTRIES_PER_COMMIT)):
        changes = [(key, data) for key, stored in entries if (data := rewritten(key, stored)) is not None]
        store.put_many(changes)
        task.commit(group)
        yield len(entries), len(changes)
        first = entries[-1][0] + b"\0"
