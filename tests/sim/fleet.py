"""Several placed workers with disks of their own on one memory log: they join, hang, die and come back.

One thread decides all order, and time moves by hand. A disk keeps what was flushed, and one process at a time may have
a task's stores open, as RocksDB's lock has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stateflow.catalog.model import Guarantee
from stateflow.checkpoint.planner import TaskPlan, plan_task
from stateflow.checkpoint.progress import Progress
from stateflow.clock import ManualClock
from stateflow.errors import StateLocked
from stateflow.failpoints import handled
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.standby.copies import StandbyCopies
from stateflow.runtime.standby.placing import Place, Placing
from stateflow.runtime.standby.unassigned_stores import KeptState
from stateflow.runtime.standby.worker import PlacedWorker
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.member_records import Placement, create_membership_topic
from stateflow.runtime.worker.prepare import prepare
from stateflow.store.base import Change, StorePosition
from stateflow.store.memory import MemoryReader, MemoryTaskStores
from tests.sim.counting import APP, OUTPUT, SOURCE, STORE, number_of, topology
from tests.sim.crashing import Crash

SESSION_MS = 10_000
STEP_MS = 50
LOOK_TURNS = 25


class Disk:
    """A disk: the stores of each task on it, and who has them open."""

    def __init__(self, name: str, clock: ManualClock) -> None:
        self.name = name
        self.tasks: dict[str, MemoryTaskStores] = {}
        self.open: dict[str, object] = {}
        self._clock = clock

    def opened(self, wiring: TaskWiring, owner: object) -> OpenStores:
        """A task's stores, locked."""
        if wiring.id in self.open:
            raise StateLocked(f"{wiring.id} on {self.name} is open.", action="wait.", task=wiring.id)
        self.open[wiring.id] = owner
        names = [store.name for store in wiring.stage.stores]
        return OpenStores(
            self, wiring.id, self.tasks.setdefault(wiring.id, MemoryTaskStores(names, self._clock))
        )

    def process_died(self, owner: object, *, power_cut: bool) -> None:
        """Locks of a dead process are gone; without power what was not flushed is, too."""
        for task in [task for task, holder in self.open.items() if holder is owner]:
            del self.open[task]
            if power_cut:
                self.tasks[task].crash()

    def content(self, task: str) -> dict[bytes, int]:
        """What the stores of a task hold."""
        return {key: number_of(value) for key, value in self.tasks[task].reader(STORE).scan()}


class OpenStores:
    """Stores of one task as long as a process has them open."""

    def __init__(self, disk: Disk, task: str, real: MemoryTaskStores) -> None:
        self._disk = disk
        self._task = task
        self._real = real

    def reader(self, store: str) -> MemoryReader:
        return self._real.reader(store)

    def position(self, store: str) -> StorePosition | None:
        return self._real.position(store)

    def has_content(self, store: str) -> bool:
        return self._real.has_content(store)

    def apply(self, epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition]) -> None:
        assert self._task in self._disk.open, "written after it was closed"
        self._real.apply(epoch, positions)

    def load(self, store: str, changes: Sequence[Change], position: StorePosition) -> None:
        self._real.load(store, changes, position)

    def flush(self) -> None:
        self._real.flush()

    def checkpoint(self, directory: Path) -> dict[str, StorePosition]:
        return self._real.checkpoint(directory)

    def clear(self, store: str) -> None:
        self._real.clear(store)

    def derive(self, family: str) -> None:
        self._real.derive(family)

    def close(self) -> None:
        self._real.flush()
        self._disk.open.pop(self._task, None)


class Node:
    """One worker process on one disk."""

    def __init__(self, fleet: Fleet, name: str, disk: Disk) -> None:
        self.fleet = fleet
        self.name = name
        self.disk = disk
        self.restored: dict[str, Progress] = {}
        self.alive = True
        self.copies: StandbyCopies[OpenStores] = StandbyCopies(
            fleet.cluster, lambda wiring, _: disk.opened(wiring, self), fleet.settings(name), fleet.clock
        )
        stateful = {task.id: task for task in fleet.wiring.tasks() if task.changelogs}
        self.placing = Placing(
            fleet.cluster,
            fleet.wiring,
            fleet.settings(name),
            Place(name, 1, disk.name, native=name != "plain"),
            self.copies,
            KeptState(fleet.cluster, stateful, self._look),
            fleet.clock,
        )
        self.worker = PlacedWorker(
            fleet.cluster,
            fleet.wiring,
            self.copies.opener(),
            fleet.settings(name),
            fleet.clock,
            self.placing,
            self,
        )

    def _look(self, wiring: TaskWiring) -> TaskPlan | None:
        if wiring.id not in self.disk.tasks or wiring.id in self.disk.open:
            return None
        return plan_task(
            self.fleet.cluster,
            wiring.id,
            wiring.changelogs,
            wiring.topic_ids,
            self.disk.tasks[wiring.id],
            self.fleet.clock,
        )

    def step(self) -> None:
        """One turn of each of the process's threads."""
        self.placing.turn(0)
        self.worker.step()
        self.copies.turn()

    def kill(self, *, power_cut: bool = True) -> None:
        """SIGKILL: no goodbye."""
        self.alive = False
        self.worker._group.kill()  # type: ignore[attr-defined]  # only the memory log's members can
        self.disk.process_died(self, power_cut=power_cut)

    def stop(self) -> None:
        """A clean end."""
        self.alive = False
        self.worker.stop()
        self.worker.run()
        self.copies.close()
        self.placing.close()

    @property
    def running(self) -> set[str]:
        """Ids of the tasks that it runs."""
        return set(self.worker.tasks)

    def on_restore(self, task: str, progress: Progress) -> None:
        self.restored[task] = progress

    def on_restore_stopped(self, task: str) -> None: ...

    def on_running(self, task: str) -> None:
        self.fleet.started.append((task, self.name))

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None: ...

    def on_released(self, task: str) -> None: ...


class Fleet:
    """A cluster and the nodes on it."""

    def __init__(self, guarantee: Guarantee = "exactly-once", partitions: int = 4, **settings: Any) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.cluster = MemoryCluster(clock=self.clock, session_timeout_ms=SESSION_MS)
        self.cluster.create([TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 3)])
        self.wiring = prepare(self.cluster, topology(), guarantee, partitions, self.clock)
        create_membership_topic(self.cluster, APP, 1)
        self.nodes: dict[str, Node] = {}
        self.disks: dict[str, Disk] = {}
        self.fed: list[bytes] = []
        self.started: list[tuple[str, str]] = []
        self._settings = settings

    def settings(self, name: str) -> WorkerSettings:
        """The settings of one node."""
        given: dict[str, Any] = {
            "state_dir": Path("unused"),
            "commit_interval_seconds": 0.1,
            "poll_records_max": 50,
            "poll_timeout_seconds": 0,
            "restore_threads": 0,
            "flush_interval_seconds": 5,
            "standby_replicas": 1,
            "standby_lag_acceptable": 50,
            "member": name if name.startswith("named") else None,
            **self._settings,
        }
        return WorkerSettings(**given)

    def join(self, name: str, disk: str | None = None) -> Node:
        """Start a node; one of a name that was there before finds its disk as it was left."""
        place = disk or name
        self.disks.setdefault(place, Disk(place, self.clock))
        self.nodes[name] = Node(self, name, self.disks[place])
        return self.nodes[name]

    def feed(self, words: list[bytes]) -> None:
        """Write words to the source."""
        writer = self.cluster.writer()
        for index, word in enumerate(words):
            writer.send(SOURCE, None, word, partition=index % 2)
        writer.commit()
        writer.close()
        self.fed += words

    @property
    def alive(self) -> list[Node]:
        """Nodes that run."""
        return [node for node in self.nodes.values() if node.alive]

    def turn(self) -> None:
        """Each node a step, then time passes."""
        for node in self.alive:
            node.step()
        self.clock.advance(ms=STEP_MS)
        running = [task for node in self.alive for task in node.running]
        assert len(running) == len(set(running)), f"a task runs twice: {running}"

    def until(
        self, condition: Callable[[], bool], what: str = "the condition", turns_max: int = 2_000
    ) -> int:
        """Turn until something holds; returns the turns."""
        for turn in range(turns_max):
            if condition():
                return turn
            self.turn()
        raise AssertionError(f"{what} never came to hold: {self.where()}")

    def settle(self) -> None:
        """Until all is processed and copied, and the placement is what it will be."""
        self.until(self.is_settled, "a settled fleet")
        for _ in range(LOOK_TURNS):  # lag is counted from the ends that were looked at last
            self.turn()
        self.until(self.is_settled, "a settled fleet")

    def is_settled(self) -> bool:
        """Everything runs, is drained, and every copy has caught up."""
        placement = self.placement
        return (
            placement is not None
            and not placement.warmup
            and set(placement.active.values()) <= {self._name(node) for node in self.alive}
            and all(node.running == placement.active_of(self._name(node)) for node in self.alive)
            and is_drained(self.cluster, self.wiring.catalog)
            and all(
                report.lag_slots == 0 and report.state == "following"
                for node in self.alive
                for report in node.copies.reports()
            )
            and all(
                placement.copies_of(self._name(node)) == {report.task for report in node.copies.reports()}
                for node in self.alive
            )
        )

    def _name(self, node: Node) -> str:
        return self.settings(node.name).member or node.worker._group.member_id

    @property
    def placement(self) -> Placement | None:
        """What the first living node has read."""
        return self.alive[0].placing._membership_log.membership.placement

    def where(self) -> dict[str, object]:
        """Who runs and copies what, for messages."""
        return {
            node.name: {"runs": sorted(node.running), "copies": node.copies.reports()} for node in self.alive
        }

    def runner(self, task: str) -> Node:
        """The node that runs a task."""
        (node,) = [node for node in self.alive if task in node.running]
        return node

    def copier(self, task: str) -> Node:
        """The node that has the one copy of a task."""
        (node,) = [n for n in self.alive if task in {report.task for report in n.copies.reports()}]
        return node


@contextmanager
def crashing(node: Node, point: str, hit: int) -> Iterator[list[str]]:
    """The node dies when it reaches a point for the ``hit``-th time; yields where it died, once it has.

    Only turns taken through :func:`crashing_turn` know who is executing.
    """
    died: list[str] = []
    reached = 0

    def handler(name: str) -> None:
        nonlocal reached
        if EXECUTING and EXECUTING[-1] is node:
            if died:
                raise Crash(died[0])
            if name == point:
                reached += 1
                if reached == hit:
                    died.append(name)
                    raise Crash(name)

    with handled(handler):
        yield died


EXECUTING: list[Node] = []


def crashing_turn(fleet: Fleet) -> None:
    """A turn in which a node may die of a failpoint."""
    for node in fleet.alive:
        EXECUTING.append(node)
        try:
            node.step()
        except Crash:
            node.kill()
        finally:
            EXECUTING.pop()
    fleet.clock.advance(ms=STEP_MS)
