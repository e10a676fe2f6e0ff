"""Tables: upserts, tombstones, what was and what is, and aggregates that follow deletions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.testing import TestDriver

pytestmark = pytest.mark.slow

T0 = 1_704_067_200_000


@dataclass(frozen=True)
class Person:
    town: str
    age: int


Rows = list[tuple[str, Person | None, int]]


def random_rows(rng: random.Random, count: int = 80) -> Rows:
    """Upserts, deletions (of what is not there, too), ties and late records."""
    found: Rows = []
    for number in range(count):
        person = None if rng.random() < 0.25 else Person(rng.choice("abc"), rng.randrange(100))
        found.append((f"p{rng.randrange(8)}", person, T0 + number - rng.choice((0, 0, 1, 30))))
    return found


def play(driver: TestDriver, topic: Any, rows: Rows, rng: random.Random, *, scalable: bool = True) -> None:
    """Send the rows in random batches, with crashes and repartitions between."""
    while rows:
        count = rng.choice((1, 2, 7, 30))
        driver.send_many(topic, rows[:count])
        rows = rows[count:]
        what = rng.random()
        if what < 0.15:
            driver.crash(disk_lost=what < 0.07)
            driver.restore()
        elif what < 0.2 and scalable:
            driver.repartition(rng.randint(1, 4))
        elif what < 0.25:
            driver.compact()


def current(rows: Rows) -> dict[str, Person]:
    found: dict[str, Person] = {}
    for key, person, _ in rows:
        if person is None:
            found.pop(key, None)
        else:
            found[key] = person
    return found


def newest(records: Sequence[Any]) -> dict[Any, Any]:
    """The newest value of each key that has one."""
    found = {record.key: record.value for record in records}
    return {key: value for key, value in found.items() if value is not None}


def people_app() -> tuple[sf.App, sf.Topic[str, Person]]:
    app = sf.App("people")
    return app, app.topic("people", key=str, value=Person)


@pytest.mark.parametrize("co_partitioned", [False, True])
def test_a_table_holds_the_newest_and_tells_what_was_before(co_partitioned: bool) -> None:
    app, people = people_app()
    table = app.table(people, name="people-table", co_partitioned=co_partitioned)
    changes = app.topic("changes", key=str, value=sf.Json)
    table.changes().map(lambda change: [change.old and change.old.age, change.new and change.new.age]).to(
        changes
    )
    values = app.topic("values", key=str, value=Person)
    table.to(values)
    driver = TestDriver(app, partitions=2)
    driver.send_many(
        people,
        [
            ("p", None, T0),
            ("p", Person("a", 1), T0),
            ("p", Person("b", 2), T0 - 5),
            ("q", Person("b", 9), T0),
            ("p", None, T0 + 1),
        ],
    )
    told = [record.value for record in driver.output(changes) if record.key == "p"]
    assert told == [[None, 1], [1, 2], [2, None]]
    shown = [record.value for record in driver.output(values) if record.key == "p"]
    assert shown == [Person("a", 1), Person("b", 2), None]
    assert driver.state("people-table", key="p") is None
    assert driver.state("people-table", key="q") == {"town": "b", "age": 9}


def aggregated_app() -> tuple[sf.App, sf.Topic[str, Person], dict[str, sf.Topic[str, Any]]]:
    app, people = people_app()
    table = app.table(people, name="people-table")
    grouped = table.group_by("town", name="by-town", key=str)
    outputs: dict[str, sf.Topic[str, Any]] = {
        "ages": app.topic("ages", key=str, value=sf.Json),
        "heads": app.topic("heads", key=str, value=int),
        "old": app.topic("old", key=str, value=int),
    }
    grouped.aggregate(initial=list, add=with_age, remove=without_age, name="ages").to(outputs["ages"])
    grouped.count(name="heads").to(outputs["heads"])
    ages = table.filter(lambda person: person.age >= 50).map(age_of)
    ages.group_by(decade, name="by-decade").reduce(int.__add__, int.__sub__, name="years").to(outputs["old"])
    return app, people, outputs


def with_age(ages: list[int], person: Person) -> list[int]:
    ages.append(person.age)
    return ages


def without_age(ages: list[int], person: Person) -> list[int]:
    ages.remove(person.age)
    return ages


def age_of(person: Person) -> int:
    return person.age


def decade(age: int) -> str:
    return f"{age // 10 * 10}s"


@pytest.mark.parametrize("seed", range(8))
def test_aggregates_of_a_table_follow_its_deletions(seed: int) -> None:
    rng = random.Random(f"tables-{seed}")
    app, people, outputs = aggregated_app()
    rows = random_rows(rng)
    driver = TestDriver(app, partitions=rng.randint(1, 3), poll_records=rng.choice((None, 1, 5)))
    play(driver, people, rows, rng)
    alive = current(rows)
    ages: dict[str, list[int]] = {}
    years: dict[str, int] = {}
    for person in alive.values():
        ages.setdefault(person.town, []).append(person.age)
        if person.age >= 50:
            years[decade(person.age)] = years.get(decade(person.age), 0) + person.age
    told = {town: sorted(found) for town, found in newest(driver.output(outputs["ages"])).items() if found}
    assert told == {town: sorted(found) for town, found in ages.items()}
    assert newest(driver.output(outputs["heads"])) == {town: len(found) for town, found in ages.items()}
    total = {key: value for key, value in newest(driver.output(outputs["old"])).items() if value}
    assert total == years
    for key in {key for key, _, _ in rows}:
        found = alive.get(key)
        shown = driver.state("people-table", key=key)
        assert shown == (None if found is None else {"town": found.town, "age": found.age})


@pytest.mark.parametrize("batched", [True, False])
def test_a_filtered_table_deletes_what_fits_no_longer_and_says_nothing_of_the_rest(batched: bool) -> None:
    app, people = people_app()
    out = app.topic("out", key=str, value=int)
    app.table(people, name="t").filter(lambda person: person.age > 10).map(age_of, value=int).to(out)
    driver = TestDriver(app, partitions=1)
    ages = [5, 20, 30, 6, 7, None, 40, None]
    rows = [("p", None if age is None else Person("a", age), T0) for age in ages]
    for some in [rows] if batched else [[row] for row in rows]:
        driver.send_many(people, some)
    assert [record.value for record in driver.output(out)] == [20, 30, None, 40, None]


def test_the_deletion_of_what_is_not_there_is_no_change() -> None:
    app = sf.App("x")
    people = app.topic("people", key=str, value=int)
    table = app.table(people, name="people")
    changed, told = app.topic("changed", key=str, value=sf.Json), app.topic("told", key=str, value=int)
    table.changes().map(list, value=sf.Json).to(changed)
    table.to(told)
    driver = TestDriver(app, partitions=2)
    driver.send_many(people, [("a", None, T0), ("a", 1, T0), ("a", None, T0), ("a", None, T0)])
    assert [row.value for row in driver.rows(changed)] == [[None, 1], [1, None]]
    assert [row.value for row in driver.rows(told)] == [1, None]


def test_a_keyed_stream_becomes_a_table_in_its_own_stage() -> None:
    app, people = people_app()
    out = app.topic("out", key=str, value=int)
    oldest = app.stream(people).key_by("town", name="by-town", key=str).map(age_of).max(name="oldest")
    oldest.to_table(name="kept").to(out)
    assert [stage.name for stage in app.topology().stages] == ["people", "by-town"]
    driver = TestDriver(app, partitions=2)
    driver.send(people, Person("a", 3), Person("b", 9), Person("a", 8), Person("a", 5), key="x")
    assert newest(driver.output(out)) == {"a": 8, "b": 9}
    assert driver.state("kept", key="a") == 8


def test_a_savepoint_brings_a_table_and_its_aggregates_back() -> None:
    app, people, outputs = aggregated_app()
    driver = TestDriver(app, partitions=2)
    driver.send(people, Person("a", 60), key="p")
    driver.savepoint("before")
    driver.send(people, Person("b", 70), key="p")
    assert newest(driver.output(outputs["heads"])) == {"b": 1}
    driver.restore_savepoint("before")
    assert newest(driver.output(outputs["heads"])) == {"b": 1}
    assert driver.state("heads", key="a") is None


def test_functions_that_fail_follow_the_policy() -> None:
    app, people = people_app()
    out = app.topic("out", key=str, value=float)
    table = app.table(people, name="t")
    table.map(lambda person: 10 / person.age, value=float, on_error=sf.Skip()).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(people, [("p", Person("a", age), T0) for age in (2, 0, 5, 10)])
    # 0, which the function fails for, is left out as by a filter
    assert [record.value for record in driver.output(out)] == [5.0, None, 2.0, 1.0]
    strict, stopping = people_app()
    strict.table(stopping, name="t").map(lambda person: 10 / person.age, value=float).to(
        strict.topic("out", key=str, value=float)
    )
    with pytest.raises(ProcessingError, match="ZeroDivisionError"):
        TestDriver(strict, partitions=1).send(stopping, Person("a", 0), key="p")


@pytest.mark.parametrize("fails_in", ["map", "group"])
@pytest.mark.parametrize("policy", [sf.Skip(), sf.Retry(1, then=sf.DeadLetter("dead"))])
def test_a_value_that_fails_is_in_no_group_and_leaves_nothing_behind(fails_in: str, policy: Any) -> None:
    app, people = people_app()
    out = app.topic("out", key=int, value=int)

    def tens(age: int) -> int:
        assert age != 13
        return age // 10

    ages = app.table(people, name="t").map(lambda person: person.age, value=int)
    if fails_in == "map":
        groups = ages.map(tens, value=int, on_error=policy).group_by(int, name="by-tens", key=int)
    else:
        groups = ages.group_by(tens, name="by-tens", key=int, on_error=policy)
    groups.count(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    told = []
    for key, age in (("p", 21), ("q", 22), ("p", 13), ("p", 13), ("p", 31), ("q", 13), ("q", 23)):
        driver.send(people, Person("a", age), key=key)
        told.append(newest(driver.output(out)))
    assert told == [{2: 1}, {2: 2}, {2: 1}, {2: 1}, {2: 1, 3: 1}, {3: 1}, {2: 1, 3: 1}]
    if policy != sf.Skip():
        assert len(driver.output(app.topic("dead"))) == 3, "one for each value that failed"


def test_names_are_taken_once() -> None:
    app, people = people_app()
    app.table(people, name="t")
    with pytest.raises(GraphError, match="used by two stores"):
        app.table(people, name="t")
