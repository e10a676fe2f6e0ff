"""The verbs of a history, carried out on a world; and bringing it to rest afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.checkpoint.trimming import (
    Trimmable,
    confirm_newest,
    retained_images,
    trim_points,
)
from stateflow.errors import CommitTorn, OldGenerationWritten, StateflowError
from stateflow.lab.faults.simulation.drifting import DriftingProducers
from stateflow.lab.faults.simulation.history import Step
from stateflow.lab.faults.simulation.processes import Process, Strike
from stateflow.lab.faults.simulation.tearing import LATE_END_TXN, Tear
from stateflow.lab.faults.simulation.verbs import VerbProducers
from stateflow.lab.faults.simulation.world import Machine, World, has_begun
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.progress.lag import is_drained, source_ends
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.scale.generation import abort
from stateflow.store.memory import MemoryTaskStores

PROMISED = 1
"""Images that a restore may begin with, see ``stateflow.checkpoint.trimming``."""
_ROUNDS_MAX = 400
_ROUNDS_OF_VERBS = 60
_PLACES_AT_REST = 10_000
_QUIET_MS = 30_000
_IDLE_ROUNDS_MAX = 40
_IDLE_ROUND_MS = 5_000
_ENDING_MACHINES = 2
"""So many workers bring the input to its end."""
_CLOCKED_ROUNDS = 80
"""Ticks of the clock that are waited for in the end: more than a log has records."""
_SCALE_ATTEMPTS_MAX = 6
_UNDONE_AFTER = (CommitTorn, OldGenerationWritten)
"""Errors of a repartition after which it is undone, as they tell an operator to do."""


def act(world: World, step: Step) -> None:
    """Carry out one step."""
    world.notes.add(str(step))
    machine = world.machines[step.worker % len(world.machines)]
    match step.verb:
        case "send":
            _send(world, step)
        case "turn":
            world.turn(machine, step.amount)
        case "strike":
            fault, _, only = step.detail.partition("@")
            _armed(world, machine).strike = Strike(fault, step.amount, only)
        case "tear":
            _armed(world, machine).tear = Tear(step.amount, int(step.detail))
        case "thaw":
            world.thaw(machine)
        case "stop":
            world.stop(machine)
        case "elapse":
            world.clock.advance(ms=step.amount)
        case "era":
            world.producers.new_era()
        case "bulk" | "speak":
            _drift(world, step)
        case "guarantee":
            _change_guarantee(world)
        case "mode":
            world.paranoid = not world.paranoid
        case "compact":
            compact(world)
        case "retain":
            retain(world)
        case "scale":
            _scale(world, step)
        case "image" | "trim" | "collect":
            _IMAGE_VERBS[step.verb](world, machine)
        case _:
            _disk(world, machine, step.verb)


def _send(world: World, step: Step) -> None:
    producers = world.producers
    if isinstance(producers, VerbProducers):
        producers.settle = lambda: _settle(world)
    world.notes.add("  " + producers.send(step.worker, step.amount, step.detail))


def _settle(world: World) -> None:
    """Everything so far is processed, whoever has to be waited for; faults that are armed may still strike."""
    before = world.places_per_turn
    world.places_per_turn = _PLACES_AT_REST  # or none opens before the next rebalance
    _finish_scaling(world)
    _drain(world)
    world.places_per_turn = before


def _armed(world: World, machine: Machine) -> Process:
    """The process that a strike is for: the one that runs, or the next one on the machine."""
    if machine.process is None:
        machine.process = Process(machine.name, world.notes)
    return machine.process


def compact(world: World) -> None:
    """The broker's cleaner passes over every compacted topic.

    Not after a late EndTxn: orphaned records hide true values from the cleaner, as ``docs/exactly-once.md`` tells.
    """
    if world.notes.injected[LATE_END_TXN, "commit"]:
        return
    for topic in world.cluster.list_topics():
        if "compact" in world.cluster.topic_config(topic)["cleanup.policy"]:
            world.cluster.compact(topic)


def retain(world: World) -> None:
    """Retention takes what every task has behind it from the source."""
    sources = world.inputs
    committed = world.cluster.committed(world.names.app, sources, stable=False)
    world.cluster.trim({source: position.offset_next for source, position in committed.items()})


def _drift(world: World, step: Step) -> None:
    producers = world.producers
    assert isinstance(producers, DriftingProducers), "only these have many keys and a silent topic"
    if step.verb == "speak":
        producers.speak()
    else:
        world.notes.add("  " + producers.send_bulk(step.worker, step.amount))


def _change_guarantee(world: World) -> None:
    """Stop every worker that can be stopped; the next ones promise something else."""
    for machine in world.machines:
        world.stop(machine)
    world.cluster.end_sessions(world.names.app)
    world.guarantee = "at-least-once" if world.guarantee == "exactly-once" else "exactly-once"


def _disk(world: World, machine: Machine, verb: str) -> None:
    if verb == "backup":
        machine.disk.back_up()
    elif verb == "ahead":
        machine.disk.run_ahead()
    else:
        if machine.worker is not None:  # nobody can take a disk away from a worker without killing it
            world.bury(machine, keeps_all=True)
        {"lose": machine.disk.lose, "reinstate": machine.disk.reinstate, "corrupt": machine.disk.corrupt}[
            verb
        ]()
        world.notes.struck(verb, "disk", f"  {machine.name}: its disk")


def _scale(world: World, step: Step) -> None:
    for machine in world.machines:
        if machine.worker is not None and not machine.is_frozen:
            world.stop(machine)
    world.cluster.end_sessions(world.names.app)
    process = Process("operator", world.notes)
    if step.detail:
        process.strike = Strike(step.detail, step.worker * 40 + step.amount * 11)
    outcome = world.repartition(step.amount, process)
    if not _has_begun(world):  # refused before anything was done, or killed when everything was
        world.unfinished = None
    world.notes.struck("repartition", outcome, f"  to {step.amount} partitions: {outcome}")


def _has_begun(world: World) -> bool:
    catalog = ControlTopic(world.cluster, world.names.app).read()
    return catalog is not None and has_begun(catalog)


# --- images -------------------------------------------------------------------------------------------------


def _image(world: World, machine: Machine) -> None:
    """A worker makes an image of each of its tasks."""
    worker, process = machine.worker, machine.process
    if worker is None or process is None or machine.is_frozen or world.image_store is None:
        return
    for task in list(worker.tasks.values()):
        stores = machine.disk.found(task.wiring)
        image_store = world.image_store
        if not isinstance(stores, MemoryTaskStores) or not task.wiring.changelogs:
            continue
        outcome = world.guard(process, lambda: image_store.publish(process, task.wiring, stores))  # noqa: B023 - called at once
        world.notes.struck("image", outcome, f"  image of {task.wiring.id}: {outcome}")
        if outcome == "frozen":
            return
        if outcome == "killed":
            world.settle(machine, outcome)
            return


def _trim(world: World, _machine: Machine) -> None:
    """Changelogs are deleted before the newest safe image of each task, as a worker with that policy does."""
    if world.image_store is None or not world.is_prepared():
        return
    for wiring in world.wiring().tasks():
        if not wiring.changelogs:
            continue
        images, task = world.image_store.images(wiring), trimmable(wiring)
        confirm_newest(images, PROMISED, lambda: False)
        for point in trim_points(world.cluster, task, images, PROMISED, world.clock):
            if point.slots:
                trim_to(world.cluster, point.changelog, point.offset_next)
                world.notes.struck("trim", "changelog", f"  {point.changelog} begins at {point.offset_next}")


def trimmable(wiring: TaskWiring) -> Trimmable:
    """The changelogs of a task, as whoever deletes them knows them."""
    return Trimmable(wiring.changelogs, wiring.topic_ids)


def trim_to(cluster: MemoryCluster, changelog: TopicPartition, offset_next: int) -> None:
    """Remove what stands before an offset of a changelog."""
    cluster.trim({changelog: offset_next})


def _collect(world: World, machine: Machine) -> None:
    """A worker removes all images of its tasks but the newest, and those that its changelogs were deleted for."""
    worker, process = machine.worker, machine.process
    if worker is None or process is None or machine.is_frozen or world.image_store is None:
        return
    for task in list(worker.tasks.values()):
        images, seen = world.image_store.images(task.wiring, process), world.seen_by(process)

        def collect() -> None:
            usable = retained_images(seen, trimmable(task.wiring), images, PROMISED)  # noqa: B023 - called at once
            images.collect(keep=1, grace_ms=60_000, protected=usable)  # noqa: B023

        outcome = world.guard(process, collect)
        if outcome != "done":
            if outcome == "killed":
                world.settle(machine, outcome)
            return


_IMAGE_VERBS = {"image": _image, "trim": _trim, "collect": _collect}


# --- coming to rest -----------------------------------------------------------------------------------------


def come_to_rest(world: World) -> None:
    """No more faults: everyone who hangs goes on, what was begun is finished, all input is processed.

    What cannot come to rest is a problem.
    """
    world.is_ending = True
    world.places_per_turn = _PLACES_AT_REST
    for machine in world.machines:
        if machine.process is not None:
            machine.process.strike = machine.process.tear = None
        world.thaw(machine)
    world.producers.close_all()
    _finish_scaling(world)
    _drain(world)
    world.producers.finish()
    _drain(world)
    if world.played is not None:
        _end_input(world, is_clocked=world.played.verb.is_clocked)
    elif world.history.application == "traffic":
        _complete_event_time(world)


def _end_input(world: World, *, is_clocked: bool) -> None:
    """Declare that the input is complete to those who bring it to its end; then let the clock run, where it matters."""
    for machine in world.machines[_ENDING_MACHINES:]:
        world.stop(machine)
    _drain(world)
    if world.problems:
        return
    ends = source_ends(world.cluster, world.wiring().catalog)
    workers = [machine.worker for machine in world.machines if machine.worker is not None]
    for worker in workers:
        worker.end_input(ends)
    for _ in range(_ROUNDS_MAX):
        _turn_each(world)
        _drain(world)
        if all(worker.is_quiet for worker in workers):
            break
    else:
        world.problems.append("the end of the input is not reached")
    for _ in range(_CLOCKED_ROUNDS if is_clocked else 0):
        world.clock.advance(ms=_QUIET_MS)
        _turn_each(world)
        _drain(world)


def _turn_each(world: World) -> None:
    """Let each of those that bring the input to its end hear of what has changed, though all seems to be at rest."""
    for machine in world.machines[:_ENDING_MACHINES]:
        world.turn(machine)


def _finish_scaling(world: World) -> None:
    for _ in range(_SCALE_ATTEMPTS_MAX):
        if world.unfinished is None:
            return
        for machine in world.machines:
            world.stop(machine)
        world.cluster.end_sessions(world.names.app)
        world.clock.advance(ms=_QUIET_MS * 3)
        outcome = world.repartition(world.unfinished, Process("operator", world.notes))
        world.notes.add(f"repartition finished: {outcome}")
        if outcome == "failed" and any(world.notes.errors[error.__name__] for error in _UNDONE_AFTER):
            _abort_scaling(world)
    if world.unfinished is not None:
        world.problems.append("a repartition that was begun cannot be finished")


def _abort_scaling(world: World) -> None:
    if not _has_begun(world):
        world.unfinished = None
        return
    try:
        abort(world.cluster, world.names.app)
        world.unfinished = None
    except StateflowError as error:
        world.problems.append(f"a repartition cannot be undone: {error}")


def _drain(world: World) -> None:
    catalog: Catalog | None = None
    tasks: list[TaskWiring] = []
    per_operation = 4 if world.played is None else _ROUNDS_OF_VERBS  # which have more stages, and loops
    for round_number in range(_ROUNDS_MAX + per_operation * len(world.producers.accepted)):
        machine = world.machines[round_number % _ENDING_MACHINES]
        world.thaw(machine)
        world.turn(machine)
        if catalog is None and world.is_prepared():
            wiring = world.wiring()
            catalog, tasks = wiring.catalog, wiring.tasks()
        if catalog is not None and _is_at_rest(world, tasks, catalog):
            return
        if round_number % 6 == 5:
            world.clock.advance(ms=_QUIET_MS)
    world.problems.append(f"the application has not come to rest after {round_number + 1} turns")


def _complete_event_time(world: World) -> None:
    """Let what is silent be idle, until event time is everywhere where the last operation has brought it."""
    wanted = {task.id for task in world.wiring().tasks() if task.is_rekeyed}
    reached: dict[str, int] = {}
    for _ in range(_IDLE_ROUNDS_MAX):
        tasks = _stateful_tasks(world)
        reached = {task.wiring.id: task.watermark_ms for task in tasks}
        is_complete = all(mark_ms >= world.producers.event_ms for mark_ms in reached.values())
        is_done = not any(task.has_pending_timers or task.is_dirty for task in tasks)
        if is_complete and is_done and reached.keys() == wanted:
            return
        world.clock.advance(ms=max(_IDLE_ROUND_MS, world.history.idle_ms))
        for machine in world.machines:
            # The third, too, if it still has tasks: it may have been left alone for long.
            if machine.worker is not None or machine.number < _ENDING_MACHINES:
                world.turn(machine, 2)
    world.problems.append(f"event time does not reach {world.producers.event_ms}: {reached}")


def _stateful_tasks(world: World) -> list[Task]:
    """The running tasks behind a re-key step."""
    workers = [machine.worker for machine in world.machines if machine.worker is not None]
    return [task for worker in workers for task in worker.tasks.values() if task.wiring.is_rekeyed]


def _is_at_rest(world: World, tasks: Sequence[TaskWiring], catalog: Catalog) -> bool:
    """Everything is processed and committed, every task runs somewhere, and none has timers or windows that are due.

    The catalog is read again only where the one at hand says so: this is asked after every turn of every history.
    """
    running = {
        name: task
        for machine in reversed(
            world.machines
        )  # the first are turned to the end; others may think a task is theirs
        if machine.worker
        for name, task in machine.worker.tasks.items()
    }
    if any(task.id not in running or not running[task.id].is_quiet for task in tasks):
        return False
    return is_drained(world.cluster, catalog) and is_drained(world.cluster, world.wiring().catalog)
