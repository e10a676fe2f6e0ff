"""What must be so when a history has come to rest: nothing lost, nothing twice, no aborted record read, state equal.

State is compared in three places: in the running task, in a restore from the changelog (and images) into an empty
store, and on the disk that the task leaves. Each is read as ``stateflow state`` reads it, through the catalog alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stateflow.changelog.sequences import resolve
from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.restore import Restoration
from stateflow.checkpoint.tails import read_tails
from stateflow.codec.windowed import split_windowed
from stateflow.errors import StateflowError
from stateflow.lab.faults.simulation.applications import CLEAR, TTL_MS, WINDOW_MS
from stateflow.lab.faults.simulation.derived import not_derived
from stateflow.lab.faults.simulation.disks import MemoryDisk
from stateflow.lab.faults.simulation.processes import Process
from stateflow.lab.faults.simulation.rocks_disk import RocksDisk
from stateflow.lab.faults.simulation.sending import Sent
from stateflow.lab.faults.simulation.world import Machine, World
from stateflow.log.reading import read_range
from stateflow.query.local import LocalState
from stateflow.record import Record, TopicPartition
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.state.view import StoreView
from stateflow.store.base import StoreReader
from stateflow.store.rocks import RocksTaskStores

Entry = tuple[str, Any]
"""Key, and the part of it that a row is about."""
Content = dict[str, dict[Entry, Any]]
"""Store → its rows, decoded."""


class Finding(NamedTuple):
    """One broken promise."""

    kind: str
    """``lost``, ``twice`` or ``silent``: wrong without an error."""
    check: str
    message: str


class Expected(NamedTuple):
    """What the operations that were accepted amount to."""

    results: Counter[tuple[str, str]]
    """(key, text) of each output."""
    windows: Counter[tuple[str, int]]
    counts: dict[tuple[str, int], int]
    """Records in each window that is closed."""
    content: Content


def examine(world: World) -> list[Finding]:
    """Every broken promise of a world at rest."""
    findings = [Finding("silent", "progress", problem) for problem in world.problems]
    if findings:
        return findings
    wiring = world.wiring()
    expected = expect(world.producers.accepted, ledger=world.history.application == "ledger")
    findings += _outputs(world, expected)
    if world.history.application == "ledger" and is_exact(world):
        findings += _windows(world, expected)
        world.notes.judged["windows"] += len(expected.windows)
    for machine in world.machines:  # one after another: what one leaves must not be changed by the next
        world.notes.add(f"{machine.name}: {sorted(machine.worker.tasks) if machine.worker else '-'}")
    running: dict[str, dict[Entry, Any]] = defaultdict(dict)
    for task in wiring.tasks():
        if task.changelogs:
            findings += task_findings(world, task, running)
    findings += _content(world, expected.content, running)
    return findings


def expect(accepted: list[Sent], *, ledger: bool) -> Expected:
    """Fold what was accepted, key by key, in the order of the source partition."""
    last_ms = min(newest_ms(accepted).values(), default=0)
    expected = Expected(Counter(), Counter(), {}, defaultdict(dict))
    ids: dict[str, list[int]] = defaultdict(list)
    windows: Counter[tuple[str, int]] = Counter()
    for sent in sorted(accepted, key=lambda row: (row.partition, row.offset)):
        op, when_ms = sent.op, sent.timestamp_ms
        ids[op.key] = [] if op.kind == CLEAR else [*ids[op.key], op.id]
        expected.results[op.key, f"{op.id} {len(ids[op.key])}"] += 1
        windows[op.key, when_ms - when_ms % WINDOW_MS] += 1
        if ledger and op.kind != CLEAR and when_ms + TTL_MS > last_ms:
            expected.content["book-marks"][op.key, str(op.id)] = op.id
    for key, found in ids.items():
        _enter(expected.content, key, found, ledger=ledger)
    for (key, start_ms), count in windows.items() if ledger else ():
        if start_ms + WINDOW_MS <= last_ms:
            expected.windows[key, start_ms] += 1
            expected.counts[key, start_ms] = count
        else:
            expected.content["windows"][key, start_ms] = count
    return expected


def group_ahead(world: World) -> list[Finding]:
    """Inputs whose group offset is further than the newest commit record of their task: whoever trusts it loses input.

    Retention does, and so does whatever asks whether an application is drained.
    """
    if not world.is_prepared():
        return []
    findings = []
    for task in world.wiring().tasks():
        if not task.changelogs:
            continue
        last = resolve(read_tails(world.cluster, task.changelogs, world.clock)).last
        recorded = {} if last is None else last.position.offsets
        for source, position in world.cluster.committed(task.group, task.inputs, stable=False).items():
            state_next = recorded.get(source, 0)
            if position.offset_next > state_next:
                message = f"the group is at {position.offset_next} of {source}, the state of {task.id} at {state_next}"
                findings.append(Finding("lost", "group", message))
    return findings


def newest_ms(accepted: list[Sent]) -> dict[int, int]:
    """Event time of the newest operation of each source partition, ms."""
    newest: dict[int, int] = {}
    for sent in accepted:
        newest[sent.partition] = max(newest.get(sent.partition, 0), sent.timestamp_ms)
    return newest


def _enter(content: Content, key: str, ids: list[int], *, ledger: bool) -> None:
    if not ids:
        return
    if not ledger:
        content["seen"][key, None] = " ".join(map(str, ids))
        return
    content["book-total"][key, None] = len(ids)
    for index, number in enumerate(ids):
        content["book-ids"][key, index] = number


def is_exact(world: World) -> bool:
    """Whether everything must be there exactly once: no life that promised less was cut short."""
    return not world.may_repeat


# --- outputs ------------------------------------------------------------------------------------------------


def _outputs(world: World, expected: Expected) -> list[Finding]:
    """Each operation answered once; more often only where at least once was asked for, or a late EndTxn arrived."""
    found = Counter((r.key.decode(), r.value.decode()) for r in read_topic(world, world.names.outputs[0]))
    findings = []
    ids = Counter(int(text.partition(" ")[0]) for _, text in found.elements())
    wanted = {sent.op.id for sent in world.producers.accepted}
    if lost := sorted(wanted - ids.keys()):
        findings.append(Finding("lost", "outputs", f"operations {lost} were never answered"))
    if aborted := sorted(ids.keys() & world.producers.aborted):
        findings.append(Finding("silent", "aborted", f"aborted operations {aborted} were answered"))
    if unknown := sorted(ids.keys() - wanted - world.producers.aborted):
        findings.append(Finding("silent", "outputs", f"operations {unknown} were never sent"))
    if not is_exact(world):
        return findings
    twice = sorted(number for number, count in ids.items() if count > 1)
    if twice and world.history.profile != "torn":
        findings.append(Finding("twice", "outputs", f"operations {twice} were answered more than once"))
    if wrong := sorted(found.keys() - expected.results.keys()):
        findings.append(Finding("silent", "answers", f"wrong answers: {wrong}"))
    return findings


def twice_only(world: World) -> list[Finding]:
    """What holds even where input or state was destroyed: nothing is answered twice, nothing that was aborted."""
    found = Counter(int(r.value.partition(b" ")[0]) for r in read_topic(world, world.names.outputs[0]))
    findings = []
    if aborted := sorted(found.keys() & world.producers.aborted):
        findings.append(Finding("silent", "aborted", f"aborted operations {aborted} were answered"))
    twice = sorted(number for number, count in found.items() if count > 1)
    if twice and is_exact(world):
        findings.append(Finding("twice", "outputs", f"operations {twice} were answered more than once"))
    return findings


def _windows(world: World, expected: Expected) -> list[Finding]:
    rows = []
    for record in read_topic(world, world.names.outputs[1]):
        key, start_ms = split_windowed(record.key)
        rows.append((key.decode(), start_ms, int.from_bytes(record.value, "big")))
    found = Counter((key, start_ms) for key, start_ms, _ in rows)
    findings = []
    if lost := sorted(expected.windows.keys() - found.keys()):
        findings.append(Finding("lost", "windows", f"windows {lost} were never sent"))
    twice = sorted(window for window, count in found.items() if count > 1)
    if twice and world.history.profile != "torn":
        findings.append(Finding("twice", "windows", f"windows {twice} were sent more than once"))
    wrong = [row for row in rows if expected.counts.get(row[:2]) != row[2]]
    if wrong:
        findings.append(Finding("silent", "windows", f"wrong windows: {wrong}"))
    return findings


def read_topic(world: World, topic: str) -> list[Record]:
    """Everything committed to a topic, by partition and offset."""
    info = world.cluster.describe([topic])[topic]
    sources = [TopicPartition(topic, number) for number in range(info.partitions)]
    ranges = world.cluster.ranges(sources)
    return [
        record
        for source in sources
        for batch in read_range(world.cluster, source, ranges[source])
        for record in batch.records()
    ]


# --- state --------------------------------------------------------------------------------------------------


def task_findings(world: World, task: TaskWiring, running: dict[str, dict[Entry, Any]]) -> list[Finding]:
    """One task: its running state, into ``running``, against its changelog restored from nothing and its disk."""
    machine = next(machine for machine in world.machines if _has(machine, task.id))
    assert machine.worker is not None, "it has the task"
    live = machine.worker.tasks[task.id].context.stores
    everything = {name: dict(store.scan()) for name, store in live.items()}
    raw = {name: everything[name] for name in task.changelogs}  # without indexes, which are derived from them
    findings = [Finding("silent", "derived", wrong) for wrong in not_derived(task.indexes, live)]
    try:
        restored = restored_from_log(world, task)
    except StateflowError as error:  # what was committed must always be there for the next owner
        return [Finding("lost", "restore", f"{task.id} cannot be restored: {error}")]
    if restored != raw:
        findings.append(
            Finding("silent", "restore", f"{task.id}, restored and running: {_apart(restored, raw)}")
        )
    findings += _images(world, task)
    disk = machine.disk.found(task)
    left = {} if disk is None else {name: dict(disk.reader(name).scan()) for name in live}
    if left != everything:
        apart = _apart(left, everything)
        findings.append(Finding("silent", "disk", f"{task.id}, on disk and running: {apart}"))
    decoded = _decoded(task, lambda store: live[store])
    findings += _misrouted(world, task, decoded)
    if isinstance(disk, RocksTaskStores):
        disk.flush()
        aside = _read_aside(world, machine, task)
        if aside != decoded:
            findings.append(
                Finding("silent", "state read", f"{task.id}, read and running: {_apart(aside, decoded)}")
            )
    for name, rows in decoded.items():
        running[name].update(rows)
    return findings


def _misrouted(world: World, task: TaskWiring, decoded: Mapping[str, Mapping[Entry, Any]]) -> list[Finding]:
    """A key's state is where the routing table says: there everyone else looks for it."""
    if not task.is_rekeyed:
        return []
    routing = world.wiring().routing
    keys = sorted({key for rows in decoded.values() for key, _ in rows})
    wrong = [key for key in keys if routing.partitions_of([key.encode()])[0] != task.partition]
    return (
        [Finding("silent", "routing", f"{task.id} keeps {wrong[:6]}, which are not its own")] if wrong else []
    )


def _apart(one: Mapping[str, Mapping[Any, Any]], other: Mapping[str, Mapping[Any, Any]]) -> str:
    """The first rows in which two contents differ."""
    rows = [
        f"{store} {key!r}: {one.get(store, {}).get(key)!r} and {other.get(store, {}).get(key)!r}"
        for store in sorted(one.keys() | other.keys())
        for key in sorted(one.get(store, {}).keys() | other.get(store, {}).keys(), key=str)
        if one.get(store, {}).get(key) != other.get(store, {}).get(key)
    ]
    return "; ".join(rows[:4])


def _has(machine: Machine, task: str) -> bool:
    return machine.worker is not None and task in machine.worker.tasks


def restored_from_log(world: World, task: TaskWiring) -> dict[str, dict[bytes, bytes]]:
    """What a machine that has nothing would restore."""
    disk = MemoryDisk(world.clock, world.notes, world.image_store)
    disk.open(world.cluster, Process("restorer", world.notes), task, lambda: False)
    stores = disk.found(task)
    assert stores is not None, "it was just opened"
    ends = resolve(read_tails(world.cluster, task.changelogs, world.clock)).restore_next
    plan = plan_task(
        world.cluster,
        task.id,
        task.changelogs,
        task.topic_ids,
        stores,
        world.clock,
        ends=ends,
        log_policy=task.log_policy,
    )
    Restoration(world.cluster, plan, stores, world.clock).run()
    return {name: dict(stores.reader(name).scan()) for name in task.changelogs}


def _images(world: World, task: TaskWiring) -> list[Finding]:
    """Every image that was published is whole, whatever happened to whoever published it."""
    if world.image_store is None:
        return []
    images = world.image_store.images(task)
    problems = {name: images.verify(images.load(name)) for name in images.names()}
    broken = [f"{name}: {', '.join(wrong)}" for name, wrong in problems.items() if wrong]
    return [Finding("silent", "image", f"{task.id}: {'; '.join(broken)}")] if broken else []


def _read_aside(world: World, machine: Machine, task: TaskWiring) -> dict[str, dict[Entry, Any]]:
    """A task's real databases as ``stateflow state`` reads them, beside the worker that has them open."""
    disk, rows = machine.disk, dict[str, dict[Entry, Any]]()
    assert isinstance(disk, RocksDisk), "only these are on a disk"
    local = LocalState(disk.state_dir, world.wiring().catalog)
    for name in task.changelogs:
        rows[name] = {}
        for found in local.scan(name, [task.partition]):
            row = found.row
            parts = (row.window_start_ms, row.index, row.map_key, row.version_ms)
            part = next((each for each in parts if each is not None), None)
            rows[name][row.key, part] = row.value
    return rows


def _decoded(task: TaskWiring, reader: Callable[[str], StoreReader]) -> dict[str, dict[Entry, Any]]:
    entries = {store.name: store for store in task.stage.stores}
    return {
        name: {(key, part): value for key, part, value in StoreView(entry, reader(name)).scan()}
        for name, entry in entries.items()
    }


def _content(world: World, expected: Content, running: Mapping[str, dict[Entry, Any]]) -> list[Finding]:
    findings = []
    for store in world.names.stores:
        wanted, found = expected.get(store, {}), running.get(store, {})
        if is_exact(world):
            findings += _equal(store, wanted, found)
        else:
            findings += _covers(store, wanted, found)
    return findings


def _equal(store: str, wanted: dict[Entry, Any], found: dict[Entry, Any]) -> list[Finding]:
    if wanted == found:
        return []
    differ = sorted(
        (key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)), key=str
    )
    shown = "; ".join(f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in differ[:4])
    return [Finding(_blame(wanted, found), "state", f"{store}: {shown}")]


def _blame(wanted: dict[Entry, Any], found: dict[Entry, Any]) -> str:
    """Whether what is wrong is that something is missing, or is there twice, or neither can be said."""
    have, want = (_tokens(side) for side in (found, wanted))
    if any(count > want[token] and token in want for token, count in have.items()):
        return "twice"
    return "lost" if want - have and not have - want else "silent"


def _tokens(rows: dict[Entry, Any]) -> Counter[tuple[str, str]]:
    return Counter((key, token) for (key, _), value in rows.items() for token in str(value).split(" "))


def _covers(store: str, wanted: dict[Entry, Any], found: dict[Entry, Any]) -> list[Finding]:
    """At least once: every operation since the last *clear* is in the state, perhaps more than once."""
    if store == "seen":
        missing = _tokens(wanted).keys() - _tokens(found).keys()
    elif store == "book-ids":
        missing = {(k, v) for (k, _), v in wanted.items()} - {(k, v) for (k, _), v in found.items()}
    else:
        return []
    return [Finding("lost", "state", f"{store}: {sorted(missing)} are missing")] if missing else []
