"""Who runs and who copies what: balanced, stable, and the warmest copy first. Pure functions, in four steps.

1. *Target*: tasks of each stage are spread evenly. Who runs a task keeps it within its share; the rest goes to
   members that have a copy within the acceptable lag, then to whoever has least.
2. *Active*: a task runs at its target if that has a warm copy, or nobody has any. Otherwise it stays where it runs, or
   begins where the least is to be read.
3. *Warm-up*: meanwhile the target copies it, a few at a time, and takes over when it has caught up.
4. *Standby*: each task with state is copied on other disks, evenly. A copy goes only when its successor has caught up.

The idea of steps 2 and 3 is that of Kafka Streams' KIP-441: never make a task wait for a restore that another member
need not do. Equal input gives equal output, whatever the order in which it comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stateflow.runtime.worker.member_records import MemberRecord, Placement

WARMUPS_MAX = 2
"""Warm-up copies in an application at the same time, as in Kafka Streams."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What there is to place: the tasks of each stage, and which of them keep state."""

    stages: Mapping[str, Sequence[str]]
    stateful: frozenset[str]

    @property
    def tasks(self) -> frozenset[str]:
        """All tasks."""
        return frozenset(task for tasks in self.stages.values() for task in tasks)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A decision, without the facts about when and by whom."""

    active: dict[str, str] = field(default_factory=dict)
    standby: dict[str, tuple[str, ...]] = field(default_factory=dict)
    warmup: dict[str, str] = field(default_factory=dict)


def assign(
    shape: Shape,
    members: Mapping[str, MemberRecord],
    before: Placement | None,
    warmups_max: int = WARMUPS_MAX,
) -> Assignment:
    """The assignment to ``members``, at least one, that follows ``before``."""
    world = _World(shape, members, before)
    target = world.targets()
    made = Assignment()
    for task in sorted(shape.tasks):
        made.active[task] = world.runner(task, target[task])
    warmups = [task for task, name in made.active.items() if name != target[task]]
    warmups.sort(key=lambda task: (world.warming(task) != target[task], task))  # what was begun goes on
    made.warmup.update({task: target[task] for task in warmups[:warmups_max]})
    made.standby.update(world.standby(made.active))
    return made


class _World:
    """The facts, turned so that the steps can ask."""

    def __init__(self, shape: Shape, members: Mapping[str, MemberRecord], before: Placement | None) -> None:
        assert members, "somebody must be there"
        self._shape = shape
        self._members = members
        self._names = sorted(members)
        self._before = before
        self._replicas = max(member.standby_replicas for member in members.values())
        self._acceptable = max(member.lag_acceptable for member in members.values())
        self._lags = _lags_by_disk(members)

    # --- facts --------------------------------------------------------------------------------------

    def lag(self, name: str, task: str) -> int | None:
        """How far the copy on this member's disk is behind; None without one."""
        return self._lags.get((self._members[name].disk, task))

    def is_warm(self, name: str, task: str) -> bool:
        """True when a task could run here almost at once; without state it can anywhere."""
        lag = self.lag(name, task)
        return task not in self._shape.stateful or (lag is not None and lag <= self._acceptable)

    def holder(self, task: str) -> str | None:
        """Who was told to run it, of those who are there; else who runs it."""
        told = self._before.active.get(task) if self._before else None
        if told in self._members:
            return told
        return next((name for name in self._names if task in self._members[name].held), None)

    def warming(self, task: str) -> str | None:
        """Who was told to warm up for it, of those who are there."""
        name = self._before.warmup.get(task) if self._before else None
        return name if name in self._members else None

    # --- step 1 -------------------------------------------------------------------------------------

    def targets(self) -> dict[str, str]:
        """Task → the member that it belongs to when everybody is warm."""
        total: Counter[str] = Counter()
        target: dict[str, str] = {}
        total_max = -(-len(self._shape.tasks) // len(self._names))
        for stage in sorted(self._shape.stages, key=self._heaviest_first):
            share = _Share(self._names, len(self._shape.stages[stage]), total, total_max)
            left = []
            for task in sorted(self._shape.stages[stage], key=self._easily_moved):
                holder = self.holder(task)
                if holder is not None and share.may_keep(holder):
                    target[task] = share.give(holder)
                else:
                    left.append(task)
            for task in sorted(left, key=self._choices):
                target[task] = share.give(
                    min(share.with_room(), key=lambda name: self._rank(name, task, share))
                )
        return target

    def _heaviest_first(self, stage: str) -> tuple[bool, str]:
        """Stages with state are spread first, and those without fill up what is uneven."""
        return self._shape.stateful.isdisjoint(self._shape.stages[stage]), stage

    def _easily_moved(self, task: str) -> tuple[bool, bool, str]:
        """What others warm up for, or have warm, is moved first; so it comes last when shares are filled."""
        holder = self.holder(task)
        warm_elsewhere = task in self._shape.stateful and any(
            self.is_warm(name, task) for name in self._names if name != holder
        )
        return self.warming(task) is not None, warm_elsewhere, task

    def _choices(self, task: str) -> tuple[int, str]:
        """Tasks that few have warm choose first."""
        return sum(self.is_warm(name, task) for name in self._names) or len(self._names) + 1, task

    def _rank(self, name: str, task: str, share: _Share) -> tuple[object, ...]:
        """Among warm ones the one with least to do; among cold ones the one with least to read."""
        lag, load = self.lag(name, task), share.load(name)
        nearness = (lag is None, lag or 0, self._members[name].copy(task) is None)
        is_cold = not self.is_warm(name, task)
        return (
            is_cold,
            self.warming(task) != name,
            *((nearness, load) if is_cold else (load, nearness)),
            name,
        )

    # --- step 2 -------------------------------------------------------------------------------------

    def runner(self, task: str, target: str) -> str:
        """Who runs it now."""
        holder = self.holder(task)
        if target == holder or self.is_warm(target, task):
            return target
        if holder is not None and self._serves(holder, task):
            return holder
        known = [(lag, name) for name in self._names if (lag := self.lag(name, task)) is not None]
        if not known:
            return holder or target
        least = min(known)[0]
        nearest = [name for lag, name in known if lag == least]
        return next((name for name in (target, holder) if name in nearest), nearest[0])

    def _serves(self, holder: str, task: str) -> bool:
        """It is warm there, which what runs is, or nobody else is."""
        if self.is_warm(holder, task):
            return True
        return not any(self.is_warm(name, task) for name in self._names if name != holder)

    # --- step 4 -------------------------------------------------------------------------------------

    def standby(self, active: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Task → who copies it, sorted; tasks without a copy are left out."""
        tasks = sorted(self._shape.stateful)
        loads = _CopyLoads(active, -(-self._replicas * len(tasks) // len(self._names)))
        chosen: dict[str, list[str]] = {task: [] for task in tasks}
        for _ in range(self._replicas):
            for task in tasks:
                free = self._free(active[task], chosen[task])
                if free:
                    chosen[task].append(min(free, key=lambda name: self._copy_rank(name, task, loads)))
                    loads.add(task, chosen[task][-1])
        for task in tasks:
            chosen[task] += self._not_yet_replaced(task, active[task], chosen[task])
        return {task: tuple(sorted(names)) for task, names in chosen.items() if names}

    def _copy_rank(self, name: str, task: str, loads: _CopyLoads) -> tuple[object, ...]:
        """Within its share: who has a copy already, then who has least to do."""
        return (
            loads.is_full(name),
            name not in self._copied(task),
            not self.is_warm(name, task),
            *loads.load(task, name),
            name,
        )

    def _copied(self, task: str) -> tuple[str, ...]:
        return self._before.standby.get(task, ()) if self._before else ()

    def _free(self, active: str, chosen: Iterable[str]) -> list[str]:
        """Members on disks that have no copy of the task yet."""
        taken = {self._members[name].disk for name in (active, *chosen)}
        return [name for name in self._names if self._members[name].disk not in taken]

    def _not_yet_replaced(self, task: str, active: str, chosen: Sequence[str]) -> list[str]:
        """Copies that are good, as many as successors that are not."""
        cold = sum(not self.is_warm(name, task) for name in chosen)
        good = [
            name
            for name in self._copied(task)
            if name in self._free(active, chosen) and self.is_warm(name, task)
        ]
        return sorted(good)[:cold]


class _CopyLoads:
    """How many copies each member was given, and whose tasks they are copies of.

    Copies of one member's tasks go to different members: when it is lost, all the others take a part of its work.
    """

    def __init__(self, active: Mapping[str, str], share_max: int) -> None:
        self._active = active
        self._share_max = share_max
        self._running = Counter(active.values())
        self._copies: Counter[str] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()

    def is_full(self, name: str) -> bool:
        """True when a member has its share of copies."""
        return self._copies[name] >= self._share_max

    def load(self, task: str, name: str) -> tuple[int, int, int]:
        """Copies of the same member's tasks, copies in all, tasks that run there."""
        return self._pairs[self._active[task], name], self._copies[name], self._running[name]

    def add(self, task: str, name: str) -> None:
        """Give a copy to a member."""
        self._copies[name] += 1
        self._pairs[self._active[task], name] += 1


class _Share:
    """An even share of one stage for each member: some may have one more than others."""

    def __init__(self, names: Sequence[str], tasks_total: int, total: Counter[str], total_max: int) -> None:
        self._names = names
        self._base, self._extra = divmod(tasks_total, len(names))
        self._given: Counter[str] = Counter()
        self._total = total
        self._total_max = total_max

    def may_keep(self, name: str) -> bool:
        """True when a member that has a task may keep it: it has room, or nobody who has room has less in all."""
        if not self.has_room(name):
            return False
        least = min(self._total[other] for other in self.with_room())
        return self._total[name] < self._total_max or self._total[name] <= least

    def has_room(self, name: str) -> bool:
        """True when this member may have another task of the stage."""
        given = self._given[name]
        return given < self._base or (given == self._base and self._extra > 0)

    def with_room(self) -> list[str]:
        """Members that may have another; there are some as long as tasks are left."""
        return [name for name in self._names if self.has_room(name)]

    def load(self, name: str) -> tuple[int, int]:
        """Tasks of this stage, tasks of all stages so far."""
        return self._given[name], self._total[name]

    def give(self, name: str) -> str:
        """Give one to a member; returns its name."""
        if self._given[name] == self._base:
            self._extra -= 1
        self._given[name] += 1
        self._total[name] += 1
        return name


def _lags_by_disk(members: Mapping[str, MemberRecord]) -> dict[tuple[str, str], int]:
    """Disk and task → the smallest lag of a copy there. What runs is not behind."""
    lags: dict[tuple[str, str], int] = {}
    for member in members.values():
        for copy in member.copies:
            lag = 0 if copy.state == "running" else copy.lag_slots
            if lag is not None and copy.state != "failed":
                place = (member.disk, copy.task)
                lags[place] = min(lag, lags.get(place, lag))
    return lags
