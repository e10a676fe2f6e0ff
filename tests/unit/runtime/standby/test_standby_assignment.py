"""Who runs and who copies what, as a pure function: balanced, stable, the warmest first."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from stateflow.runtime.standby.assignment import Assignment, Shape, assign
from stateflow.runtime.worker.member_records import CopyReport, CopyState, MemberRecord, Placement

TASKS = [f"s-{number}" for number in range(6)]
SHAPE = Shape({"s": TASKS, "free": ["free-0", "free-1"]}, frozenset(TASKS))


def member(
    name: str, *copies: tuple[str, CopyState, int | None], disk: str | None = None, replicas: int = 1
) -> MemberRecord:
    return MemberRecord(
        name=name,
        member_id=f"id-{name}",
        host="h",
        pid=1,
        disk=disk or name,
        generation=0,
        copies=tuple(CopyReport(task=task, state=state, lag_slots=lag) for task, state, lag in copies),
        standby_replicas=replicas,
        lag_acceptable=100,
    )


def members(*records: MemberRecord) -> dict[str, MemberRecord]:
    return {record.name: record for record in records}


def placed(made: Assignment, records: dict[str, MemberRecord]) -> Placement:
    return Placement(
        number=0,
        generation=0,
        leader="a",
        members={name: record.member_id for name, record in records.items()},
        active=made.active,
        standby=made.standby,
        warmup=made.warmup,
    )


def obeyed(made: Assignment, names: list[str], lag: int = 0) -> dict[str, MemberRecord]:
    """The members after they did what was decided, all copies so far behind."""
    decided = placed(made, {})
    return members(
        *(
            member(
                name,
                *((task, "running", 0) for task in sorted(decided.active_of(name))),
                *((task, "following", lag) for task in sorted(decided.copies_of(name))),
            )
            for name in names
        )
    )


def test_a_cold_fleet_is_balanced_and_copied_elsewhere() -> None:
    made = assign(SHAPE, members(member("a"), member("b"), member("c")), None)
    assert made.active.keys() == SHAPE.tasks
    assert sorted(Counter(made.active[task] for task in TASKS).values()) == [2, 2, 2]
    assert sorted(Counter(name for names in made.standby.values() for name in names).values()) == [2, 2, 2]
    assert all(made.active[task] not in made.standby[task] for task in TASKS)
    assert made.warmup == {}
    assert "free-0" not in made.standby


def test_equal_facts_give_an_equal_decision_again_and_again() -> None:
    records = members(member("a"), member("b"), member("c"))
    made = assign(SHAPE, records, None)
    for lag in (0, 500, 50):
        there = obeyed(made, ["a", "b", "c"], lag)
        assert assign(SHAPE, there, placed(made, there)) == made


def test_the_copy_of_a_lost_member_takes_over() -> None:
    made = assign(SHAPE, members(member("a"), member("b"), member("c")), None)
    there = obeyed(made, ["a", "b", "c"])
    left = {name: there[name] for name in ("b", "c")}
    after = assign(SHAPE, left, placed(made, there))
    for task in TASKS:
        if made.active[task] == "a":
            assert after.active[task] == made.standby[task][0]
        else:
            assert after.active[task] == made.active[task]
    assert after.warmup == {}


def test_a_newcomer_warms_up_first_and_takes_over_when_it_has_caught_up() -> None:
    alone = assign(SHAPE, members(member("a")), None)
    assert alone.standby == {}, "there is no other disk"
    there = {**obeyed(alone, ["a"]), **members(member("b"))}
    warming = assign(SHAPE, there, placed(alone, there))
    assert {warming.active[task] for task in TASKS} == {"a"}
    assert set(warming.warmup.values()) == {"b"}
    assert len(warming.warmup) == 2, "a few at a time"
    assert warming.active["free-0"] != warming.active["free-1"], "what keeps no state moves at once"

    behind = {
        **obeyed(warming, ["a"]),
        **members(member("b", *((task, "following", 101) for task in warming.warmup))),
    }
    assert assign(SHAPE, behind, placed(warming, behind)).active == warming.active
    near = {
        **obeyed(warming, ["a"]),
        **members(member("b", *((task, "following", 100) for task in warming.warmup))),
    }
    moved = assign(SHAPE, near, placed(warming, near))
    assert {task for task in TASKS if moved.active[task] == "b"} == warming.warmup.keys()
    assert moved.warmup.keys().isdisjoint(warming.warmup), "the next one warms up"
    assert moved.standby[next(iter(warming.warmup))] == ("a",), "where it ran the copy is warm"


def test_where_all_are_cold_the_one_with_least_to_read_begins() -> None:
    records = members(member("a", ("s-0", "kept", 900)), member("b", ("s-0", "kept", 5_000)), member("c"))
    made = assign(SHAPE, records, None)
    assert made.active["s-0"] == "a"
    assert made.warmup == {}


def test_a_copy_goes_only_when_its_successor_has_caught_up() -> None:
    made = assign(SHAPE, members(member("a"), member("b")), None)
    there = {**obeyed(made, ["a", "b"]), **members(member("c"))}
    joined = assign(SHAPE, there, placed(made, there))
    for task in TASKS:
        assert made.standby[task][0] in (*joined.standby[task], joined.active[task]), task


def test_copies_of_one_task_are_on_different_disks() -> None:
    records = members(
        member("a", disk="left", replicas=2),
        member("b", disk="left", replicas=2),
        member("c", disk="right", replicas=2),
        member("d", disk="right", replicas=2),
    )
    made = assign(SHAPE, records, None)
    for task in TASKS:
        assert len(made.standby[task]) == 1, "there are two disks"
        assert records[made.active[task]].disk != records[made.standby[task][0]].disk


def test_a_task_that_was_just_given_to_a_member_stays_there_while_it_is_handed_over() -> None:
    records = members(
        member("a", ("s-0", "running", 0), ("s-1", "running", 0)),
        member("b", ("s-0", "following", 0), ("s-1", "following", 0)),
    )
    shape = Shape({"s": ["s-0", "s-1"]}, frozenset(["s-0", "s-1"]))
    first = assign(shape, records, None)
    assert sorted(first.active.values()) == ["a", "b"]
    assert assign(shape, records, placed(first, records)) == first, "though a still runs both"


def test_a_task_is_awaited_from_whoever_may_not_have_heard() -> None:
    decided = msgspec.structs.replace(
        placed(Assignment({"s-0": "c"}), {}), number=7, since={"s-0": 5}, former={"s-0": ("a", "b")}
    )
    holds = member("x", ("s-0", "starting", None))
    heard = msgspec.structs.replace(member("a"), followed=5)
    unheard = msgspec.structs.replace(member("b"), followed=4)
    assert decided.is_awaited("s-0", holds)
    assert not decided.is_awaited("s-0", heard)
    assert decided.is_awaited("s-0", unheard)
    assert not decided.is_awaited("s-0", member("never-had-it"))


def test_a_failed_copy_is_no_copy() -> None:
    records = members(member("a", ("s-0", "failed", 0)), member("b", ("s-0", "kept", 90)), member("c"))
    assert assign(SHAPE, records, None).active["s-0"] == "b"


@pytest.mark.parametrize("seed", range(200))
def test_any_history_of_joins_and_losses_converges_to_balance(seed: int) -> None:
    dice = random.Random(seed)
    names = ["a"]
    made = assign(SHAPE, members(member("a")), None)
    for turn in range(dice.randrange(1, 8)):
        before = obeyed(made, names, lag=dice.choice([0, 1000]))
        if dice.random() < 0.6 or len(names) == 1:
            names = [*names, f"n{turn}"]
        else:
            names = [name for name in names if name != dice.choice(names)] or names[:1]
        there = {name: before.get(name, member(name)) for name in names}
        made = assign(SHAPE, there, placed(made, before))
        assert made.active.keys() == SHAPE.tasks
    for _ in range(12):
        there = obeyed(made, names)
        again = assign(SHAPE, there, placed(made, there))
        if again == made:
            break
        made = again
    assert assign(SHAPE, obeyed(made, names), placed(made, there)) == made, "it never comes to rest"
    assert made.warmup == {}
    load = Counter(made.active[task] for task in TASKS)
    assert max(load.values()) - min(load[name] for name in names) <= 1
    if len(names) > 1:
        assert all(len(made.standby[task]) == 1 for task in TASKS)
