"""What must be so when the application with an eventual changelog has come to rest: no operation lost or counted twice.

What its changelog leaves out must come back from the input. So at the end every disk is lost, and the windows are
looked at again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from stateflow.codec.windowed import split_windowed
from stateflow.lab.faults.simulation.acting import come_to_rest
from stateflow.lab.faults.simulation.applications import WINDOW_MS
from stateflow.lab.faults.simulation.oracle import Finding, is_exact, newest_ms, read_topic
from stateflow.lab.faults.simulation.sending import Sent
from stateflow.lab.faults.simulation.world import World
from stateflow.runtime.task.task import Task
from stateflow.state.view import StoreView

Window = tuple[str, int]
"""Key and start, ms."""


class Expected(NamedTuple):
    """What the accepted operations amount to: the ids in each window, in order, as text."""

    closed: dict[Window, str]
    open: dict[Window, str]


def examine_minutes(world: World) -> list[Finding]:
    """Every broken promise of a world at rest, before and after all its disks are lost."""
    findings = _examine(world)
    if findings:
        return findings
    for machine in world.machines:
        if machine.worker is not None:
            world.bury(machine, keeps_all=True)
        machine.disk.lose()
    world.notes.struck("lose", "every disk", "  every disk, at the end")
    come_to_rest(world)
    return _examine(world)


def expect(accepted: list[Sent]) -> Expected:
    """Fold what was accepted, window by window, in the order of the source partition."""
    last_ms = min(newest_ms(accepted).values(), default=0)
    ids: dict[Window, list[str]] = defaultdict(list)
    for sent in sorted(accepted, key=lambda row: (row.partition, row.offset)):
        ids[sent.op.key, sent.timestamp_ms - sent.timestamp_ms % WINDOW_MS].append(str(sent.op.id))
    texts = {window: " ".join(found) for window, found in ids.items()}
    closed = {window: text for window, text in texts.items() if window[1] + WINDOW_MS <= last_ms}
    return Expected(closed, {window: text for window, text in texts.items() if window not in closed})


def _examine(world: World) -> list[Finding]:
    if world.problems:
        return [Finding("silent", "progress", problem) for problem in world.problems]
    expected = expect(world.producers.accepted)
    sent = [
        (*_window(record.key), record.value.decode()) for record in read_topic(world, world.names.outputs[0])
    ]
    findings = _aborted(world, " ".join(text for *_, text in sent))
    if is_exact(world):
        return findings + _exact(world, expected, sent)
    found: dict[Window, set[str]] = defaultdict(set)
    for key, start_ms, text in sent:
        found[key, start_ms] |= set(text.split(" "))
    found |= {window: set(text.split(" ")) for window, text in _running(world).items()}
    wanted = {**expected.closed, **expected.open}
    lost = sorted(window for window, text in wanted.items() if not set(text.split(" ")) <= found[window])
    return findings + ([Finding("lost", "windows", f"of {lost} something is missing")] if lost else [])


def _exact(world: World, expected: Expected, sent: list[tuple[str, int, str]]) -> list[Finding]:
    findings = []
    times = Counter((key, start_ms) for key, start_ms, _ in sent)
    if lost := sorted(expected.closed.keys() - times.keys()):
        findings.append(Finding("lost", "windows", f"windows {lost} were never sent"))
    twice = sorted(window for window, count in times.items() if count > 1)
    if twice and world.history.profile != "torn":  # a late EndTxn may show an output twice
        findings.append(Finding("twice", "windows", f"windows {twice} were sent more than once"))
    if wrong := [row for row in sent if expected.closed.get(row[:2]) != row[2]]:
        findings.append(Finding("silent", "windows", f"wrong windows: {wrong}"))
    running = _running(world)
    if running != expected.open:
        differ = sorted(
            window
            for window in running.keys() | expected.open.keys()
            if running.get(window) != expected.open.get(window)
        )
        shown = "; ".join(f"{w}: {running.get(w)} instead of {expected.open.get(w)}" for w in differ[:4])
        findings.append(Finding("silent", "state", f"open windows: {shown}"))
    return findings


def _aborted(world: World, sent: str) -> list[Finding]:
    seen = {int(number) for text in (sent, *_running(world).values()) for number in text.split()}
    aborted = sorted(seen & world.producers.aborted)
    return [Finding("silent", "aborted", f"aborted operations {aborted} are in windows")] if aborted else []


def _running(world: World) -> dict[Window, str]:
    """The open windows, as the running tasks have them; a worker that hung may still show tasks it has lost."""
    tasks: dict[str, Task] = {}
    for machine in reversed(world.machines):  # the first ones brought the input to its end
        tasks |= machine.worker.tasks if machine.worker else {}
    return {
        (key, start_ms): text
        for task in tasks.values()
        for entry in task.wiring.stage.stores
        for key, start_ms, text in StoreView(entry, task.context.store(entry.name)).scan()
    }


def _window(key: bytes) -> Window:
    routing_key, start_ms = split_windowed(key)
    return routing_key.decode(), start_ms
