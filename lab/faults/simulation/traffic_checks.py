"""What must be so when the application about event time has come to rest, by the log alone.

Each operation has a mark: the largest event time seen in its input up to and including it. From marks follow which
operations are late, what each window holds, how long each streak is and which timers have fired, whatever crashed,
however reads were cut into batches, and whoever read them. ``waking`` sees to it that idleness changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stateflow.codec.windowed import split_windowed
from stateflow.lab.faults.simulation.oracle import Entry, Finding, is_exact, read_topic, task_findings
from stateflow.lab.faults.simulation.sending import Sent
from stateflow.lab.faults.simulation.traffic import DUE_MS, GRACE_MS, STREAK_MS, WINDOW_MS, op_id
from stateflow.lab.faults.simulation.world import World

Window = tuple[str, int]
"""Key and start, ms."""


@dataclass(slots=True)
class Expected:
    """What the accepted operations amount to."""

    end_ms: int
    """Event time when everything is processed."""
    answers: dict[int, str] = field(default_factory=dict)
    due: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    windows: dict[Window, str] = field(default_factory=dict)
    """The ids in each window, in order, as text."""

    def is_closed(self, window: Window) -> bool:
        """Whether event time has reached a window's end and grace."""
        return window[1] + WINDOW_MS + GRACE_MS <= self.end_ms

    def of(self, *, closed: bool) -> dict[Window, str]:
        """The windows that are closed, or those that are not."""
        return {window: text for window, text in self.windows.items() if self.is_closed(window) == closed}


def expect(accepted: Iterable[Sent], end_ms: int) -> Expected:
    """Fold what was accepted, input by input, in the order of the log."""
    expected = Expected(end_ms)
    marks: dict[int, int] = defaultdict(lambda: -1)
    ids: dict[Window, list[str]] = defaultdict(list)
    streaks: dict[str, tuple[int, int]] = {}
    for sent in sorted(accepted, key=lambda row: (row.partition, row.offset)):
        number, key, when_ms = sent.op.id, sent.op.key, sent.timestamp_ms
        mark_ms = marks[sent.partition] = max(marks[sent.partition], when_ms)
        start_ms = when_ms - when_ms % WINDOW_MS
        if mark_ms >= start_ms + WINDOW_MS + GRACE_MS:
            expected.late.add(number)
        else:
            ids[key, start_ms].append(str(number))
        length, stamped_ms = streaks.get(key, (0, 0))
        if stamped_ms + STREAK_MS <= mark_ms:
            length, stamped_ms = 0, when_ms
        length += 1
        # A record that comes late does not shorten its life.
        streaks[key] = (length, max(stamped_ms, when_ms))
        expected.answers[number] = f"{number} streak {length}"
        if when_ms + DUE_MS <= end_ms:
            expected.due.add(number)
    expected.windows = {window: " ".join(found) for window, found in ids.items()}
    return expected


def examine_traffic(world: World) -> list[Finding]:
    """Every broken promise of a world at rest."""
    findings = [Finding("silent", "progress", problem) for problem in world.problems]
    if findings:
        return findings
    expected = expect(world.producers.accepted, world.producers.event_ms)
    answers, closed, updated = (read_topic(world, topic) for topic in world.names.outputs[:3])
    texts = [record.value.decode() for record in answers]
    findings += _answers(world, expected, texts)
    findings += _late(world, expected)
    findings += _closed(world, expected, [(_window(row.key), row.value.decode()) for row in closed])
    findings += _updated(world, expected, [(_window(row.key), row.value.decode()) for row in updated])
    running: dict[str, dict[Entry, Any]] = defaultdict(dict)
    for task in world.wiring().tasks():
        if task.changelogs:
            findings += task_findings(world, task, running)
    if is_exact(world):
        findings += _open(expected, running)
    world.notes.judged["late"] += len(expected.late)
    world.notes.judged["windows"] += 2 * len(expected.windows)
    return findings


def _window(key: bytes) -> Window:
    routing_key, start_ms = split_windowed(key)
    return routing_key.decode(), start_ms


def _compared(what: str, wanted: Counter[Any], found: Counter[Any], *, twice_allowed: bool) -> list[Finding]:
    """Each wanted one once, nothing else; more often only where that is allowed."""
    findings = []
    if lost := sorted(wanted - found, key=str):
        findings.append(Finding("lost", what, f"{what} {lost[:6]} are missing"))
    if unknown := sorted(found.keys() - wanted.keys(), key=str):
        findings.append(Finding("silent", what, f"{what} {unknown[:6]} are wrong"))
    twice = sorted((row for row, count in found.items() if count > wanted[row] and row in wanted), key=str)
    if twice and not twice_allowed:
        findings.append(Finding("twice", what, f"{what} {twice[:6]} are there more than once"))
    return findings


def _may_repeat(world: World) -> bool:
    return not is_exact(world) or world.history.profile == "torn"


def _answers(world: World, expected: Expected, texts: list[str]) -> list[Finding]:
    repeats = _may_repeat(world)
    said = [text for text in texts if " streak " in text]
    wanted: Counter[Any] = Counter(expected.answers.values())
    found: Counter[Any] = Counter(said)
    if world.waking.idled or not is_exact(world):  # a streak may have ended early, or have been counted twice
        wanted, found = Counter(expected.answers.keys()), Counter(map(op_id, said))
    findings = _compared("answers", wanted, found, twice_allowed=repeats)
    due: Counter[Any] = Counter(text for text in texts if " due " in text)
    wanted_due: Counter[Any] = Counter(f"{number} due there" for number in expected.due)
    return findings + _compared("timers", wanted_due, due, twice_allowed=repeats)


def _late(world: World, expected: Expected) -> list[Finding]:
    found = Counter(op_id(record.value.decode()) for record in read_topic(world, world.names.outputs[3]))
    if not is_exact(world):  # what is repeated may come when its window, with the first of it, is closed
        found = Counter({number: count for number, count in found.items() if number in expected.late})
    return _compared("late", Counter(expected.late), found, twice_allowed=_may_repeat(world))


def _closed(world: World, expected: Expected, sent: list[tuple[Window, str]]) -> list[Finding]:
    wanted = expected.of(closed=True)
    if is_exact(world):
        rows = Counter(wanted.items())
        return _compared("windows", rows, Counter(sent), twice_allowed=_may_repeat(world))
    return _covered("windows", wanted, sent)


def _updated(world: World, expected: Expected, sent: list[tuple[Window, str]]) -> list[Finding]:
    """The newest result of each window is its whole content, and those before are how it came to be."""
    if not is_exact(world):
        return _covered("updates", expected.windows, sent)
    newest = dict(sent)
    findings = []
    if lost := sorted(expected.windows.keys() - newest.keys()):
        findings.append(Finding("lost", "updates", f"windows {lost[:6]} were never sent"))
    wrong = {window: text for window, text in newest.items() if expected.windows.get(window) != text}
    if wrong:
        shown = "; ".join(
            f"{w}: {text} instead of {expected.windows.get(w)}" for w, text in sorted(wrong.items())[:4]
        )
        findings.append(Finding("silent", "updates", shown))
    early = [row for row in sent if not f"{expected.windows.get(row[0], '')} ".startswith(f"{row[1]} ")]
    if early and not wrong:
        findings.append(Finding("silent", "updates", f"never so on the way: {early[:4]}"))
    return findings


def _covered(what: str, wanted: Mapping[Window, str], sent: list[tuple[Window, str]]) -> list[Finding]:
    found: dict[Window, set[str]] = defaultdict(set)
    for window, text in sent:
        found[window] |= set(text.split(" "))
    lost = sorted(window for window, text in wanted.items() if not set(text.split(" ")) <= found[window])
    return [Finding("lost", what, f"of {lost[:6]} something is missing")] if lost else []


def _open(expected: Expected, running: Mapping[str, dict[Entry, Any]]) -> list[Finding]:
    wanted = expected.of(closed=False)
    findings = []
    for store in ("closed", "updated"):
        found = running.get(store, {})
        differ = sorted(w for w in wanted.keys() | found.keys() if wanted.get(w) != found.get(w))
        if differ:
            shown = "; ".join(f"{w}: {found.get(w)} instead of {wanted.get(w)}" for w in differ[:4])
            findings.append(Finding("silent", "state", f"open windows of {store}: {shown}"))
    return findings
