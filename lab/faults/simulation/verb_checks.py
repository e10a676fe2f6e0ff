"""What must be so when the history of a verb has come to rest: its results are those of the log, its state is whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import stateflow as sf
from stateflow.lab.faults.simulation.oracle import Entry, Finding, read_topic, task_findings
from stateflow.lab.faults.simulation.verbs import VerbProducers
from stateflow.lab.faults.simulation.world import World
from stateflow.lab.operators.verb import Results, pairs
from stateflow.testing.driver import Row as Given

_SHOWN = 3


def examine_verb(world: World) -> list[Finding]:
    """Every broken promise of a world at rest."""
    findings = [Finding("silent", "progress", problem) for problem in world.problems]
    if findings:
        return findings
    played, producers = world.played, world.producers
    assert played is not None, "asked of histories of verbs"
    assert isinstance(producers, VerbProducers), "they have these"
    wanted = played.verb.results(played.verb.expected(producers.rows), played.rule)
    found = played.verb.results(pairs(_given(world, played.output)), played.rule)
    world.notes.judged["results"] += len(wanted)
    if found != wanted:
        findings.append(_difference(wanted, found))
    running: dict[str, dict[Entry, Any]] = defaultdict(dict)
    for task in world.wiring().tasks():
        if task.changelogs:
            findings += task_findings(world, task, running)
    return findings


def _given(world: World, topic: sf.Topic[Any, Any]) -> list[Given[Any, Any]]:
    return [
        Given(
            None if record.key is None else topic.key.decode(record.key),
            None if record.value is None else topic.value.decode(record.value),
            record.timestamp_ms,
            record.partition,
        )
        for record in read_topic(world, topic.name)
    ]


def _difference(wanted: Results, found: Results) -> Finding:
    missing, more = _without(wanted, found), _without(found, wanted)
    kind = "silent"
    if isinstance(wanted, Counter) and not (missing and more):
        kind = "lost" if missing else "twice" if more.keys() <= wanted.keys() else "silent"
    shown = [list(part.items())[:_SHOWN] for part in (missing, more)]
    return Finding(kind, "results", f"missing {shown[0]}, instead {shown[1]}")


def _without(some: Results, others: Results) -> Any:
    if isinstance(some, Counter):
        return some - Counter(others)
    return {key: value for key, value in some.items() if key not in others or others[key] != value}
