"""What becomes of workers from outside: rebalances, placement, crashes, and news of them that come late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateflow.lab.protocol.shared_world import Shared, Worker
from stateflow.lab.protocol.world import EndTxn

if TYPE_CHECKING:
    from stateflow.lab.protocol.shared import SharedModel

Step = tuple[str, Shared]


def group_steps(model: SharedModel, world: Shared) -> Iterator[Step]:
    """Every crash and start, every loss of membership, every hand-over."""
    for worker in world.workers:
        if not worker.is_alive:
            started = Worker(worker.name, worker.life + 1, worker.epoch, disks=worker.disks)
            yield f"{worker.name} is started again", _joined(model.renewed(world, started), worker.name)
            continue
        if world.left.crashes:
            yield from _crash(model, world.spend("crashes"), worker)
        if worker.generation is None:
            yield f"{worker.name} joins again", _joined(world, worker.name)
        elif worker.name not in world.members:
            yield from _notice(model, world, worker)
        if worker.name in world.members and world.left.throws:
            yield f"{worker.name} is thrown out of the group", _thrown_out(world.spend("throws"), worker.name)
        if world.left.moves:
            yield from _hand_over(model, world.spend("moves"), worker)


def _crash(model: SharedModel, world: Shared, worker: Worker) -> Iterator[Step]:
    gone = Worker(worker.name, worker.life, worker.epoch, is_alive=False, disks=worker.disks)
    yield f"{worker.name} crashes", world.with_worker(gone)
    if worker.todo and worker.todo[0].kind == "end":
        ending = EndTxn(worker.epoch, commits=True, writer=model.writer(worker))
        late = world.with_worker(gone)._replace(late=world.late | {ending})
        yield f"{worker.name} crashes with its EndTxn under way", late


def _notice(model: SharedModel, world: Shared, worker: Worker) -> Iterator[Step]:
    if model.protocol.gives_up_when_lost:
        outside = worker._replace(generation=None)
        yield f"{worker.name} learns that it was thrown out", model.reset(world, outside)
    else:
        yield f"{worker.name} joins again as if nothing were", _joined(world, worker.name)


def _hand_over(model: SharedModel, world: Shared, worker: Worker) -> Iterator[Step]:
    is_well = worker.generation == world.generation and worker.name in world.members
    is_between = not worker.todo and worker.opening is None
    heirs = [w for w in world.workers if w.is_alive and w.name in world.members and w.name != worker.name]
    if not is_well or not heirs or not (is_between or not model.protocol.commits_before_moving):
        return
    # Whether the heir has the news of the group is its own affair: placement names no generation.
    writer = model.writer(worker)
    for task in (running.task for running in worker.running):
        if any(act.task == task for act in worker.todo) and worker.inputs == 0:
            continue  # a repair is one piece
        rest = worker.let_go(task)._replace(
            todo=tuple(act for act in worker.todo if act.task != task),
            batch=tuple(other for other in worker.batch if other != task),
        )
        owners = tuple((t, heirs[0].name if t == task else owner) for t, owner in world.owners)
        claims = tuple(claim for claim in world.claims if claim != (task, writer))
        moved = world.with_worker(rest)._replace(owners=owners, claims=claims)
        yield f"{worker.name} hands {task} over, by placement", moved
        yield f"{worker.name} hands {task} over, by a rebalance", _next_generation(moved)


def _joined(world: Shared, name: str) -> Shared:
    members = world.members | {name}
    owners = tuple((task, owner if owner in members else name) for task, owner in world.owners)
    worker = next(w for w in world.workers if w.name == name)
    joined = world.with_worker(worker._replace(generation=world.generation))
    return _next_generation(joined._replace(members=members, owners=owners))


def _thrown_out(world: Shared, name: str) -> Shared:
    members = world.members - {name}
    heirs = sorted(members)
    owners = tuple((t, heirs[0] if owner == name and heirs else owner) for t, owner in world.owners)
    return _next_generation(world._replace(members=members, owners=owners))


def _next_generation(world: Shared) -> Shared:
    """All members take part in a rebalance, so all of them know the new generation; others do not."""
    generation = world.generation + 1
    for worker in world.workers:
        if worker.is_alive and worker.name in world.members and worker.generation is not None:
            world = world.with_worker(worker._replace(generation=generation))
    return world._replace(generation=generation)
