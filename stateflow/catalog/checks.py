"""What an entry of the catalog must keep to, apart from its form: names that are names, numbers that are possible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from stateflow.catalog.model import (
    AppEntry,
    BarrierEntry,
    CatalogEntry,
    GenerationEntry,
    RoutingEntry,
    SavepointEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.names import SAVEPOINT_NAME, is_own_topic
from stateflow.partitioner import HASH_MAX
from stateflow.record import is_topic_name
from stateflow.setting_bounds import PARTITIONS_MAX

_LOCATION_CHARACTERS_MAX = 4_096
_NUMBER_MAX = 1 << 62


def check_entry(app: str, entry: CatalogEntry) -> None:
    """Raise ``ValueError``, saying why, for an entry that no honest writer wrote into the catalog of ``app``."""
    problem = next(_problems(app, entry), None)
    if problem is not None:
        raise ValueError(problem)


def _problems(app: str, entry: CatalogEntry) -> Iterator[str]:
    match entry:
        case AppEntry():
            if entry.app != app:
                yield f"it is of the application {entry.app!r}"
            if entry.trim is not None:
                yield from _bad_location(entry.trim.images)
        case StageEntry():
            yield from _bad_names(entry.name, *(port.name for port in entry.inputs))
            yield from _bad_names(*(port.upstream for port in entry.inputs if port.upstream is not None))
            yield from _bad_names(*entry.outputs)
            yield from _bad_inputs(entry)
        case StoreEntry():
            yield from _bad_names(entry.name, entry.stage)
        case GenerationEntry():
            yield from _bad_generation(app, entry)
        case BarrierEntry() | SavepointEntry():
            yield from _bad_savepoint(entry)


def check_routing(entry: RoutingEntry) -> None:
    """Raise ``ValueError``, saying why, for a routing table that no generation has."""
    problem = next(_bad_routing(entry), None)
    if problem is not None:
        raise ValueError(problem)


def routing_problem(entry: RoutingEntry) -> tuple[str, str] | None:
    """What is wrong with a routing table, and what to do about it; None for one that routes every key."""
    if problem := count_problem(entry.partitions):
        return problem
    bounds, owners = entry.bounds, entry.owners
    if entry.kind == "modulo":
        if bounds or owners:
            return "a modulo table with ranges", "Leave bounds and owners out, or use the kind ranges."
        return None
    rising = all(low < high for low, high in pairwise(bounds))
    if not bounds or bounds[0] != 0 or not rising or bounds[-1] > HASH_MAX or len(bounds) != len(owners):
        return (
            "a table whose ranges do not cover the hash space",
            "Bounds must rise from 0 and stay below 2^31, with one owner each.",
        )
    if set(owners) != set(range(entry.partitions)):
        return (
            f"owners that are not exactly the partitions 0 … {entry.partitions - 1}",
            "Give every partition a range.",
        )
    return None


def count_problem(partitions: int) -> tuple[str, str] | None:
    """The same of the number of partitions alone."""
    if 1 <= partitions <= PARTITIONS_MAX:
        return None
    return f"a table of {partitions} partitions", f"Ask for 1 to {PARTITIONS_MAX:,} partitions."


def _bad_routing(entry: RoutingEntry) -> Iterator[str]:
    yield from _bad_count(entry.partitions)  # before the table is compared with as many
    if problem := routing_problem(entry):
        yield f"its routing is {problem[0]}"


def _bad_inputs(entry: StageEntry) -> Iterator[str]:
    if not entry.inputs:
        yield "it is a stage that reads nothing"
    elif entry.sources and entry.rekeys:
        yield "it is a stage that reads both sources and re-key steps"
    elif entry.sources and entry.source_partitions is None:
        yield "it does not say how many partitions its sources have"
    elif entry.sources and entry.source_partitions is not None:
        yield from _bad_count(entry.source_partitions)


def _bad_generation(app: str, entry: GenerationEntry) -> Iterator[str]:
    if not 0 <= entry.generation <= _NUMBER_MAX or not 0 <= entry.source_generation <= _NUMBER_MAX:
        yield f"it has the number {entry.generation}"
    yield from _bad_routing(entry.routing)
    # Commands delete the topics that are named here: only what can be the application's own may be.
    others = [topic for topic in entry.topic_ids if not is_own_topic(app, topic)]
    if others:
        yield f"it names a topic {others[0]!r}, which is none of {app!r}"
    if entry.merged_app is not None:
        yield from _bad_names(entry.merged_app)


def _bad_savepoint(entry: BarrierEntry | SavepointEntry) -> Iterator[str]:
    name = entry.savepoint if isinstance(entry, BarrierEntry) else entry.name
    if not SAVEPOINT_NAME.fullmatch(name):
        yield f"{name!r} cannot be the name of a savepoint"
    number = entry.barrier_id if isinstance(entry, BarrierEntry) else entry.number
    if not 0 < number <= _NUMBER_MAX:
        yield f"it has the number {number}"
    yield from _bad_location(entry.location)


def _bad_names(*names: str) -> Iterator[str]:
    yield from (f"{name!r} is not a name" for name in names if not is_topic_name(name))


def _bad_count(partitions: int) -> Iterator[str]:
    if count_problem(partitions):
        yield f"it has {partitions} partitions"


def _bad_location(location: str) -> Iterator[str]:
    if not location or len(location) > _LOCATION_CHARACTERS_MAX or not location.isprintable():
        yield "its location is not one"
