"""The commit protocol with one writer for all tasks of a worker, as a machine that can be searched whole.

Beside ``model``, which has one task with a transactional id of its own and looks closer at one commit: here are workers
in a group, tasks that move between them by rebalance or by placement, and workers that have lost their tasks and do
not know it. What fences is either the group's generation, proved with the offsets of every transaction (KIP-447), or
the claims log of ``docs/decisions/0024``: who opens a task names the writer that it will use, and fences every writer
that was named before. A worker that hangs is one whose next step comes late; it may come at any time.

Not modelled, because ``model`` does: outputs and changes that arrive apart, several changelogs, the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import InputPosition
from stateflow.changelog.sequences import CommittedEnd, resolve, tail_of
from stateflow.lab.protocol.search import Broken, Outcome, search
from stateflow.lab.protocol.shared_group import Step, group_steps
from stateflow.lab.protocol.shared_rules import SharedFaults, SharedProtocol
from stateflow.lab.protocol.shared_world import (
    Act,
    Left,
    Opening,
    Running,
    Shared,
    Worker,
    append,
    end_transaction,
    fence,
    group_of,
    is_pending,
    is_stable,
)
from stateflow.lab.protocol.truth import SOURCE, processed, read, show
from stateflow.lab.protocol.world import (
    COMMITTED,
    OPEN,
    OUTPUT,
    EndTxn,
    Log,
    State,
    ended,
    folded,
    stable_next,
    visible,
)


def explore_shared(
    protocol: SharedProtocol, faults: SharedFaults, *, outputs_once: bool = True, states_max: int = 1_000_000
) -> Outcome:
    """Search every history of two workers."""
    return search(SharedModel(protocol, faults, outputs_once), states_max)


class SharedModel:
    """The rules: which steps are possible, and what must hold."""

    def __init__(self, protocol: SharedProtocol, faults: SharedFaults, outputs_once: bool) -> None:
        self.protocol = protocol
        self.faults = faults
        self.outputs_once = outputs_once
        self.tasks = tuple(f"t{number}" for number in range(faults.tasks))

    def start(self) -> Shared:
        """Two members, all tasks with the first of them, nothing done."""
        names = [OUTPUT, *(group_of(task) for task in self.tasks)]
        names += [] if self.faults.stateless else self.tasks
        left = Left(*astuple(self.faults)[: len(Left._fields)])
        workers = tuple(Worker(name, generation=0) for name in "AB")
        owners = tuple((task, "A") for task in self.tasks)
        return Shared(
            logs=tuple((name, Log()) for name in names),
            workers=workers,
            owners=owners,
            members=frozenset("AB"),
            generation=0,
            epochs=(),
            ongoing=frozenset(),
            markers=frozenset(),
            late=frozenset(),
            claims=(),
            left=left,
        )

    def writer(self, worker: Worker) -> str:
        """The transactional id of a worker's writer."""
        return f"{worker.name}{worker.life}" if self.protocol.new_ids else worker.name

    # --- steps ----------------------------------------------------------------------------------------

    def steps(self, world: Shared) -> Iterator[Step]:
        """Everything that can happen next."""
        for late in world.late:
            arrived = world._replace(late=world.late - {late})
            yield f"a late EndTxn(commit) of {late.writer} arrives", end_transaction(arrived, late)
        for request, partition in world.markers:
            heard = world._replace(markers=world.markers - {(request, partition)})
            heard = heard.with_log(partition, ended(partition, heard.log(partition), request))
            yield f"a marker of {request.writer} reaches {partition}", heard
        yield from self._timeouts(world)
        yield from group_steps(self, world)
        for worker in world.workers:
            if not worker.is_alive or world.epoch(self.writer(worker)) == worker.epoch:
                yield from self._go_on(world, worker)
            else:
                yield f"{worker.name} finds itself fenced", self.reset(world, worker)

    def _timeouts(self, world: Shared) -> Iterator[Step]:
        for writer in sorted({writer for writer, _ in world.ongoing}):
            is_abandoned = all(self.writer(w) != writer or not w.is_alive for w in world.workers)
            if is_abandoned and self.faults.abandoned_time_out:
                yield f"the transaction of {writer} times out", fence(world, writer)
            elif world.left.timeouts:
                yield f"the transaction of {writer} times out", fence(world.spend("timeouts"), writer)
            if world.left.lost_markers:
                hung = fence(world.spend("lost_markers"), writer, frozenset(self.tasks), are_lost=True)
                yield f"the transaction of {writer} times out, changelogs get no marker", hung

    def _go_on(self, world: Shared, worker: Worker) -> Iterator[Step]:
        if not worker.is_alive:
            return
        if worker.todo:
            yield from self._act(world, worker, worker.todo[0])
            return
        behind = tuple(running.task for running in worker.running if running.position < self.faults.inputs)
        batches = {behind, *((task,) for task in behind if self.faults.apart)} - {()}
        for batch in sorted(batches):
            acts = [Act("data", task) for task in batch] + [Act("record", task) for task in batch]
            todo = (*acts, Act("offsets"), Act("end"))
            begun = worker._replace(batch=batch, inputs=1, todo=todo, added=frozenset())
            yield f"{worker.name} begins a transaction for {', '.join(batch)}", world.with_worker(begun)
        if worker.opening is not None:
            yield from self._open(world, worker, worker.opening)
        elif worker.generation == world.generation and worker.name in world.members:
            known = {running.task for running in worker.running}
            for task in (t for t in self.tasks if world.owner(t) == worker.name and t not in known):
                told = worker._replace(opening=Opening(task, "told"))
                yield f"{worker.name} is told to run {task}", world.with_worker(told)

    def reset(self, world: Shared, worker: Worker) -> Shared:
        """A worker drops everything, aborts what it has open, and goes on with another life of its writer."""
        writer = self.writer(worker)
        world = end_transaction(world, EndTxn(worker.epoch, commits=False, writer=writer))
        life = worker.life + 1 if self.protocol.new_ids else worker.life
        blank = Worker(worker.name, life, worker.epoch, True, worker.generation, disks=worker.disks)
        return self.renewed(world, blank)

    def renewed(self, world: Shared, worker: Worker) -> Shared:
        """The writer of a worker begins its life."""
        if self.protocol.new_ids:
            return world.with_worker(worker._replace(epoch=0))
        world = fence(world, worker.name)
        return world.with_worker(worker._replace(epoch=world.epoch(worker.name)))

    # --- a transaction --------------------------------------------------------------------------------

    def _act(self, world: Shared, worker: Worker, act: Act) -> Iterator[Step]:
        writer, name = self.writer(worker), worker.name
        if world.is_ending(writer):
            return  # the coordinator lets it wait
        rest = worker._replace(todo=worker.todo[1:])
        if act.kind == "end":
            yield from self._commit(world, rest)
        elif act.kind == "offsets":
            is_member = name in world.members and worker.generation == world.generation
            if name in self.protocol.without_offsets:
                yield f"{name} sends no offsets", world.with_worker(rest)
            elif self.protocol.shows_generation and not is_member:
                outside = worker._replace(generation=None)
                yield f"{name} sends offsets: refused, it is not in the group", self.reset(world, outside)
            else:
                for task in worker.batch:
                    offset = bytes([worker.at(task).position + worker.inputs])
                    world = append(world, writer, group_of(task), b"offset", offset, OPEN)
                yield f"{name} sends offsets of {', '.join(worker.batch)}", world.with_worker(rest)
        else:
            sends = self._sends(worker, act)
            partitions = frozenset(partition for partition, _, _ in sends)
            torn = {p for p in partitions & worker.added if (writer, p) not in world.ongoing}
            if (
                torn
            ):  # the leader asks the coordinator, which knows of no such transaction any more (KIP-890/1)
                yield f"{name} sends {act.kind} of {act.task}: refused", self.reset(world, worker)
                return
            for partition, key, value in sends:
                world = append(world, writer, partition, key, value, OPEN)
            rest = rest._replace(added=rest.added | partitions)
            yield f"{name} sends {act.kind} of {act.task}", world.with_worker(rest)

    def _sends(self, worker: Worker, act: Act) -> list[tuple[str, bytes, bytes]]:
        running = worker.at(act.task)
        old, new = (_state(running.position + more) for more in (0, worker.inputs))
        if act.kind == "data":
            sends = [(OUTPUT, f"{act.task}:{running.position}".encode(), b"")]
            changed = [] if self.faults.stateless else [(k, v) for k, v in new if dict(old).get(k) != v]
            return sends + [(act.task, key, value) for key, value in changed]
        if act.kind == "repair":
            return [(act.task, key, dict(old).get(key, b"")) for key in act.keys]
        if self.faults.stateless:
            return []
        position = InputPosition({SOURCE: running.position + worker.inputs})
        record = CommitRecord(running.owner, running.sequence + 1, 0, position)
        return [(act.task, COMMIT_KEY, record.encode())]

    def _commit(self, world: Shared, worker: Worker) -> Iterator[Step]:
        writer, name = self.writer(worker), worker.name
        ending = EndTxn(worker.epoch, commits=True, writer=writer)
        applied = self._applied(end_transaction(world, ending), worker)
        yield f"{name} commits", applied
        if world.left.slow_markers:
            slow = frozenset(p for p in dict(world.logs) if p != OUTPUT)
            pending = end_transaction(world.spend("slow_markers"), ending, slow)
            yield f"{name} commits, the markers are on their way", self._applied(pending, worker)
        late = applied._replace(late=applied.late | {ending})
        if world.left.duplicates:
            yield f"{name} commits, the network repeats it", late.spend("duplicates")
        if world.left.retries:
            again = next(w for w in late.workers if w.name == name)
            retried = self.reset(late, again) if self.protocol.new_life_after_retry else late
            yield f"{name} commits, sent twice: one copy is late", retried.spend("retries")

    def _applied(self, world: Shared, worker: Worker) -> Shared:
        running, disks = [], dict(worker.disks)
        for each in worker.running:
            if each.task in worker.batch:
                each = each._replace(position=each.position + worker.inputs, sequence=each.sequence + 1)
                if not self.faults.stateless:
                    disks[each.task] = (each.position, world.log(each.task).offset_next)
            running.append(each)
        idle = worker._replace(running=tuple(running), batch=(), disks=tuple(sorted(disks.items())))
        return world.with_worker(idle._replace(added=frozenset()))

    # --- opening a task -------------------------------------------------------------------------------

    def _open(self, world: Shared, worker: Worker, opening: Opening) -> Iterator[Step]:
        name, task, writer = worker.name, opening.task, self.writer(worker)

        def on(stage: str, group_position: int = opening.group_position, target: int = 0) -> Shared:
            return world.with_worker(worker._replace(opening=Opening(task, stage, group_position, target)))

        fencing, claiming = ("claimed", "told") if self.protocol.claims_first else ("told", "fenced-first")
        if not self.protocol.claims and opening.stage == "told":
            opening = opening._replace(stage="fenced")
        if opening.stage == claiming:
            stage = "claimed" if self.protocol.claims_first else "fenced"
            yield f"{name} claims {task}", on(stage)._replace(claims=(*world.claims, (task, writer)))
        elif opening.stage == fencing:
            before = world.claims
            if self.protocol.claims_first:
                before = world.claims[: world.claims.index((task, writer))]
            earlier = [other for claimed, other in before if claimed == task]
            if not earlier:
                yield f"{name} has fenced all", on("fenced" if self.protocol.claims_first else "fenced-first")
            elif not world.is_ending(earlier[0]):
                claims = tuple(claim for claim in world.claims if claim != (task, earlier[0]))
                fenced = self._swept(fence(world, earlier[0]), earlier[0], task)
                yield f"{name} fences {earlier[0]}", fenced._replace(claims=claims)
        elif opening.stage == "fenced":
            if not (self.protocol.waits_for_offsets and is_pending(world, task)):
                committed = [e for e in world.log(group_of(task)).entries if e.status == COMMITTED]
                group_position = committed[-1].value[0] if committed else 0
                yield f"{name} reads the offset of {task}", on("offsets", group_position=group_position)
        elif opening.stage == "offsets":
            log = Log() if self.faults.stateless else world.log(task)
            target = log.offset_next if self.protocol.waits_for_end else stable_next(log)
            yield f"{name} fixes the target of {task} at {target}", on("target", target=target)
        elif not self.faults.stateless and not is_stable(world, task, opening.target):
            return
        elif self._verifies(world, worker):
            outside = worker._replace(generation=None)
            yield f"{name} has restored {task}: refused, it is not in the group", self.reset(world, outside)
        else:
            yield from self._run(world, worker, opening)

    def _verifies(self, world: Shared, worker: Worker) -> bool:
        if self.protocol.claims or not self.protocol.verifies_membership:
            return False
        return worker.name not in world.members or worker.generation != world.generation

    def _swept(self, world: Shared, writer: str, task: str) -> Shared:
        """What a lost marker has left open in the changelog is aborted by the abort of the same producer."""
        if not self.protocol.sweeps or self.faults.stateless:
            return world
        abort = EndTxn(0, commits=False, writer=writer)
        return world.with_log(task, ended(task, world.log(task), abort))

    def _run(self, world: Shared, worker: Worker, opening: Opening) -> Iterator[Step]:
        task, position, decided = opening.task, opening.group_position, CommittedEnd(None, {})
        if not self.faults.stateless:
            rows = [e for e in visible(world.log(task)) if e.offset < opening.target]
            decided = resolve({task: tail_of(((e.offset, e.key, e.value) for e in rows), opening.target)})
            position = decided.last.position.offsets[SOURCE] if decided.last else position
            held, first = dict(worker.disks).get(task, (0, 0))
            fresh = [e for e in rows if first <= e.offset < decided.restore_next[task]]
            restored = folded(dict(_state(held)), fresh)
            if restored != _state(position):
                raise Broken(f"{task} goes on at input {position}, but its state is {show((restored,))}")
        if position < opening.group_position:
            raise Broken(f"{task} goes on at input {position}, the group is at {opening.group_position}")
        at = Running(task, position, decided.owner, decided.sequence)
        running = worker._replace(opening=None, running=tuple(sorted((*worker.running, at))))
        must_prove = self.protocol.proves_first and decided.last is None and not self.faults.stateless
        if decided.is_torn or must_prove:
            acts = [Act("record", task)]
            if decided.is_torn:
                acts.insert(0, Act("repair", task, tuple(sorted(decided.orphaned_keys.get(task, ())))))
            todo = (*acts, Act("offsets"), Act("end"))
            running = running._replace(batch=(task,), inputs=0, todo=todo, added=frozenset())
        yield f"{worker.name} runs {task} from input {position}", world.with_worker(running)

    # --- promises -------------------------------------------------------------------------------------

    def check(self, world: Shared) -> None:
        """What must hold in every state."""
        shown = [entry.key.decode() for entry in world.log(OUTPUT).entries if entry.status == COMMITTED]
        if self.outputs_once and len(shown) != len(set(shown)):
            raise Broken(f"outputs are visible twice: {shown}")
        for worker in world.workers:
            for task, position, _, _ in worker.running:
                if {f"{task}:{number}" for number in range(position)} - set(shown):
                    raise Broken(f"{task} is at input {position}, but only {shown} were put out")
        for task in () if self.faults.stateless else self.tasks:
            found = read(world.log(task))
            if found is not None and found[1] != _state(found[0]):
                raise Broken(f"a reader of {task} finds {found[1]} in the state of a commit")

    def check_rest(self, world: Shared) -> None:
        """Where nothing can happen any more every task is done."""
        at = {each.task: each.position for worker in world.workers for each in worker.running}
        for task in self.tasks:
            if at.get(task, 0) < self.faults.inputs:
                raise Broken(f"{task} waits for ever")


def _state(position: int) -> State:
    return processed(position)[0]
