"""A simulated cluster with machines on which workers live and die: the real worker, task, restore and repartition."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog, RoutingEntry
from stateflow.clock import ManualClock
from stateflow.errors import StateflowError
from stateflow.lab.faults.simulation.applications import NAMES, topology_of
from stateflow.lab.faults.simulation.disks import MemoryDisk
from stateflow.lab.faults.simulation.drifting import DriftingProducers
from stateflow.lab.faults.simulation.history import WORKERS, History
from stateflow.lab.faults.simulation.memory_images import MemoryImageStore
from stateflow.lab.faults.simulation.parked import ParkedExecutor, ParkedThread
from stateflow.lab.faults.simulation.processes import Killed, Notes, Process, WatchedCluster, struck_at
from stateflow.lab.faults.simulation.rocks_disk import RocksDisk
from stateflow.lab.faults.simulation.sending import Producers
from stateflow.lab.faults.simulation.tearing import torn
from stateflow.lab.faults.simulation.traffic import GRACE_MS
from stateflow.lab.faults.simulation.verbs import PlayedVerb, VerbProducers
from stateflow.lab.faults.simulation.waking import NO_CAP_MS, Waking
from stateflow.log.base import TopicSpec
from stateflow.log.memory import DelayedWriter, MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.background import Executors
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.scale.engine import InProcess
from stateflow.scale.settings import ScaleSettings
from stateflow.scale.start import start

_START_MS = 1_700_000_000_000
_TURN_MS = 5
_PLACES_PER_TURN = 6
_POLLED_AT_THE_END = 500
_OUTPUT_PARTITIONS = 2


@dataclass(slots=True)
class Machine:
    """A place where one worker at a time runs, and its disk."""

    number: int
    disk: MemoryDisk | RocksDisk
    process: Process | None = None
    worker: Worker | None = None
    stopping: bool = False
    """Its worker was asked to stop, and hangs while it does."""

    @property
    def name(self) -> str:
        """``m0``, ``m1`` …"""
        return f"m{self.number}"

    @property
    def is_frozen(self) -> bool:
        """True while its worker hangs."""
        return self.process is not None and self.process.frozen


class World:
    """Everything that one history happens to."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.notes = Notes()
        self.problems: list[str] = []
        """What went wrong on the way, apart from what the oracle finds at the end."""
        self.running: Process | None = None
        """The process that is doing something now."""
        self.unfinished: int | None = None
        """Partitions of a repartition that was begun and not finished."""
        self.places_per_turn = _PLACES_PER_TURN
        """How far tasks that open slowly get in one turn."""
        self.is_ending = False
        """Whether all that is left to do is to process what has come: with nothing that takes its time any more."""
        self.clock = ManualClock(_START_MS)
        self.cluster = MemoryCluster(clock=self.clock, delays_seed=history.seed if history.delays else None)
        self.played = PlayedVerb.of(history.verb) if history.verb else None
        """What runs in a history of a verb."""
        if self.played is None:
            self.names = NAMES[history.application]
            self.topology = topology_of(history.application, self._take_time)
        else:
            self.names, self.topology = self.played.names, self.played.topology
        self.inputs = [
            TopicPartition(topic, n) for topic in self.names.sources for n in range(history.sources)
        ]
        """Every partition that operations are sent to."""
        specs = [TopicSpec(topic, _OUTPUT_PARTITIONS) for topic in self.names.outputs]
        self.cluster.create([*(TopicSpec(topic, history.sources) for topic in self.names.sources), *specs])
        self.waking = self._waking()
        self.producers = self._producers()
        self.guarantee = history.guarantee
        """What workers that begin now promise."""
        self.paranoid = history.paranoid
        """The commit mode of workers that begin now."""
        self.may_repeat = history.guarantee == "at-least-once" and history.profile != "switch"
        """Whether a life that promised no more than at least once may have been cut short."""
        self.on_torn: Callable[[World], object] = lambda _: None
        """Called when a late EndTxn has just arrived: whatever must hold at every moment must hold now."""
        self._lives_total = 0
        self._durations = random.Random(f"durations-{history.seed}")  # noqa: S311 - it must be repeatable
        self.image_store = MemoryImageStore(self.clock) if self.history.profile == "image" else None
        self.machines = [Machine(number, self._disk()) for number in range(WORKERS)]

    def _waking(self) -> Waking:
        grace_ms = GRACE_MS if self.history.application == "traffic" else 0
        if self.history.application == "numbers":  # has no windows
            grace_ms = NO_CAP_MS
        return Waking(self.cluster, self.names.app, self.inputs, self.clock, self.history.idle_ms, grace_ms)

    def _producers(self) -> Producers:
        history = self.history
        if self.played is not None:
            return VerbProducers(self.cluster, self.inputs, self.waking, self.played.verb, history.seed)
        if history.application == "traffic":
            silent = range(history.sources, len(self.inputs)) if history.is_silent else ()
            return DriftingProducers(
                self.cluster, self.inputs, self.waking, history.keys, silent, history.seed
            )
        clears = history.guarantee == "exactly-once" and history.profile != "switch"
        return Producers(self.cluster, self.inputs, self.waking, history.keys, clears)

    def _disk(self) -> MemoryDisk | RocksDisk:
        if self.history.profile == "disk":
            return RocksDisk(self.clock, self.notes)
        return MemoryDisk(self.clock, self.notes, self.image_store)

    def _take_time(self) -> None:
        """What the application does with one operation."""
        if not self.is_ending:
            self.clock.advance(ms=self.history.pace_ms)

    # --- processes ------------------------------------------------------------------------------------

    def at(self, point: str) -> None:
        """A failpoint of the code is reached, by whichever process runs."""
        self.notes.reached[point] += 1
        if point == "process.after_operators" and not self.is_ending:
            self.clock.advance(ms=self._durations.randint(0, self.history.slice_ms))
        if self.running is not None:
            self.running.at(point, lambda: struck_at(point))

    def guard(self, process: Process, call: Callable[[], object]) -> str:
        """Let a process do something; ``done``, ``frozen``, ``killed`` or ``failed``.

        An error that is not one of ours is a problem: nobody could act on it.
        """
        before, self.running = self.running, process
        struck_before = sum(self.notes.injected.values())
        try:
            return self._call(process, call)
        except Killed:
            return "killed"
        except StateflowError as error:
            self.notes.add(f"{process.name}: ends with {type(error).__name__}")
            self.notes.errors[type(error).__name__] += 1
            return "failed"
        except Exception as error:  # noqa: BLE001 - a finding, told with the seed
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.problems.append(
                f"{process.name}: untyped {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            )
            return "failed"
        finally:
            self.running = before
            was_struck = sum(self.notes.injected.values()) > struck_before
            self.may_repeat = self.may_repeat or (process.repeats and was_struck)

    def _call(self, process: Process, call: Callable[[], object]) -> str:
        if process.main is None and (process.strike is None or process.strike.fault != "freeze"):
            call()
            return "done"
        if process.main is None:
            process.main = ParkedThread(call)
        thread = process.main
        try:
            is_done = thread.run()
        finally:
            if thread.done:
                process.main = None
        return "done" if is_done else "frozen"

    # --- workers --------------------------------------------------------------------------------------

    def turn(self, machine: Machine, turns: int = 1) -> None:
        """Let a machine's worker turn its loop, beginning one where there is none."""
        for _ in range(turns):
            if machine.is_frozen:
                return
            if machine.worker is None:
                self.begin(machine)
            elif machine.process is not None:
                self.settle(machine, self.guard(machine.process, lambda: self._step(machine)))
                self._let_arrive(machine)
            self.clock.advance(ms=_TURN_MS)

    def _let_arrive(self, machine: Machine) -> None:
        """What a worker has sent goes on its way between its calls, too; not while it hangs."""
        process = machine.process
        if process is None or machine.is_frozen:
            return

        def arrive() -> None:
            for writer in process.writers:
                if isinstance(writer, DelayedWriter):
                    writer.let_arrive()

        self.settle(machine, self.guard(process, arrive))

    def begin(self, machine: Machine) -> None:
        """Start a worker, as ``stateflow run`` does. A strike that waits on the machine is for it."""
        history = self.history
        parked = ParkedExecutor() if history.opens_slowly or history.commits_slowly else None
        process = Process(machine.name, self.notes, parked)
        process.tears = self.history.profile == "torn"
        process.on_torn = lambda: self.on_torn(self)
        if machine.process is not None:  # armed before it began
            process.strike, process.tear = machine.process.strike, machine.process.tear
        machine.process = process
        self._lives_total += 1
        process.repeats = self.guarantee == "at-least-once"
        cluster = self.seen_by(process)

        def born() -> None:
            wiring = prepare(
                cluster,
                self.topology,
                self.guarantee,
                self.history.partitions,
                self.clock,
                trim_to=None if self.image_store is None else "memory://images",
            )
            machine.worker = Worker(
                cluster,
                wiring,
                lambda task, cancelled: machine.disk.open(cluster, process, task, cancelled),
                self._settings(machine),
                self.clock,
                executors=Executors(
                    openings=parked if history.opens_slowly else None,
                    commits=parked if history.commits_slowly else None,
                    requests=parked if history.commits_slowly else None,
                ),
            )

        self.settle(machine, self.guard(process, born))

    def _step(self, machine: Machine) -> None:
        assert machine.worker is not None, "it was begun"
        assert machine.process is not None, "it was begun"
        if machine.process.openings is not None:
            machine.process.openings.drive(self.places_per_turn)
        machine.worker.step()

    def settle(self, machine: Machine, outcome: str) -> None:
        """What becomes of a worker after its call."""
        process, worker = machine.process, machine.worker
        assert process is not None, "it did something"
        if outcome == "failed" and worker is not None:
            outcome = self.guard(process, worker.close)  # as Worker.run does when an error leaves it
            outcome = "killed" if outcome == "killed" else "failed"
        if outcome == "killed":
            self.bury(machine)
        elif outcome == "failed":
            self._forget(machine)

    def bury(self, machine: Machine, *, keeps_all: bool | None = None) -> None:
        """The worker of a machine was killed: what it left is what a kill leaves."""
        process = machine.process
        assert process is not None, "it was alive"
        self.may_repeat = self.may_repeat or process.repeats
        process.bury()
        if process.main is not None:
            self.guard(process, lambda: None)  # the thread wakes up dead, and unwinds
        kept = self.clock.now_ms() % 2 == 0 if keeps_all is None else keeps_all
        machine.disk.crash(keeps_all=kept)
        self._forget(machine)

    def stop(self, machine: Machine) -> None:
        """Ask a worker to commit and close."""
        worker, process = machine.worker, machine.process
        if worker is None or process is None or machine.is_frozen:
            return
        worker.stop()
        outcome = self.guard(process, worker.run)
        if outcome == "frozen":
            machine.stopping = True
        elif outcome == "killed":
            self.bury(machine)
        else:
            self._forget(machine)

    def thaw(self, machine: Machine) -> None:
        """Let a worker that hung go on; what it does not know is what happened meanwhile."""
        process = machine.process
        if process is None or not process.frozen:
            return
        self.notes.add(f"{machine.name}: goes on")
        outcome = self.guard(process, lambda: None)
        if outcome == "done" and machine.stopping:
            self._forget(machine)
        else:
            self.settle(machine, outcome)

    def _forget(self, machine: Machine) -> None:
        if machine.process is not None and machine.process.openings is not None:
            machine.process.openings.finish()
        machine.worker = machine.process = None
        machine.stopping = False

    def _settings(self, machine: Machine) -> WorkerSettings:
        history = self.history
        return WorkerSettings(
            commit_interval_seconds=history.commit_ms / 1000,
            commit_interval_min_seconds=history.commit_min_ms / 1000,
            poll_records_max=history.polls[self._lives_total % len(history.polls)],
            poll_timeout_seconds=0,
            slice_records_first=1 + self._lives_total % 3,
            slice_records_max=history.slices[self._lives_total % len(history.slices)],
            restore_threads=0,
            restore_records_per_step=3,
            idle_seconds=history.idle_ms / 1000,
            flush_interval_seconds=history.flush_ms / 1000,
            purge_interval_seconds=history.flush_ms / 1000,
            shared_writers=history.writers[self._lives_total % len(history.writers)],
            commit_mode="paranoid" if self.paranoid else "standard",
            member=machine.name if history.static_members else None,
        )

    def seen_by(self, process: Process) -> Any:
        """The cluster as a process sees it."""
        stage = self.names.stage
        return WatchedCluster(
            self.cluster,
            process,
            lambda real, name: torn(real, process, name, stage),
            lambda: _POLLED_AT_THE_END if self.is_ending else 1,
        )

    # --- a new partition count -----------------------------------------------------------------------

    def repartition(self, partitions: int, process: Process) -> str:
        """Change the partition count as ``stateflow scale start`` does; no worker may be running."""
        wanted = self.unfinished or partitions
        process.home = threading.get_ident()
        cluster = self.seen_by(process)

        def scale() -> None:
            self.unfinished = wanted
            start(
                cluster,
                self.names.app,
                RoutingEntry(kind="modulo", partitions=wanted),
                InProcess(cluster),
                self.clock,
                settings=ScaleSettings(chunk_records_max=4, audit_keys_max=3),
            )
            self.unfinished = None

        outcome = self.guard(process, scale)
        if outcome == "killed":
            process.bury()
        return outcome

    def wiring(self) -> Wiring:
        """The tasks as the catalog has them now."""
        catalog = ControlTopic(self.cluster, self.names.app).load()
        return Wiring(self.topology, catalog)

    def is_prepared(self) -> bool:
        """True once the application has a catalog, and no repartition is under way."""
        if f"{self.names.app}-control" not in self.cluster.list_topics():
            return False
        catalog = ControlTopic(self.cluster, self.names.app).read()
        return catalog is not None and not has_begun(catalog)

    def close(self) -> None:
        """End what still runs, so that no thread and no file stays behind."""
        for machine in self.machines:
            if machine.process is not None:
                self.bury(machine)
            machine.disk.remove()


def has_begun(catalog: Catalog) -> bool:
    """True while a repartition is neither finished nor aborted."""
    return any(entry.state == "preparing" for entry in catalog.generations.values())
