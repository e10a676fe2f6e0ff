"""What must hold once a case is over: outputs, changelogs, local stores and reads against the oracle.

1. Outputs: every operation once, with the count that it led to, in order.
2. A restore from nothing, by commit records: what the oracle says.
3. Every local store, also one left behind by a former owner: what its changelog says at its position, nothing else.
4. The store that is at the end of its changelog: read as `stateflow state` reads, what the oracle says.

Under at-least-once an operation may be there twice; then only what holds nevertheless is demanded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import stage_and_partition
from stateflow.changelog.format import is_reserved
from stateflow.changelog.sequences import resolve
from stateflow.checkpoint.jobs import RestoreJob, has_database, jobs_of
from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.recovery import run_job
from stateflow.checkpoint.restore import Restoration
from stateflow.checkpoint.tails import read_tails
from stateflow.lab.faults.matrix.operations import Operation, Oracle, Tally
from stateflow.lab.faults.matrix.site import IMAGES
from stateflow.log.base import Cluster
from stateflow.log.reading import read_ranges
from stateflow.log.stable_ranges import stable_ranges
from stateflow.query.local import LocalState, opened_beside
from stateflow.record import TopicPartition
from stateflow.state.decoding import StoreDecoder
from stateflow.store.base import StoreReader, TaskStores
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.resources import RocksResources

_SHOWN_MAX = 4
_SETTLE_SECONDS = 20.0

State = dict[Any, Any]
"""Key, or key and producer → value, decoded."""
Row = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""
Logs = dict[TopicPartition, list[Row]]


@dataclass
class Findings:
    """What is wrong after a case."""

    lost: int = 0
    """Operations of which no output, or no trace in the state, is left."""
    twice: int = 0
    """Outputs of operations that have been there before."""
    silent: int = 0
    """Places whose content differs from the oracle's and of which nothing else told."""
    problems: list[str] = field(default_factory=list)

    def differ(self, where: str, found: object, wanted: object) -> None:
        """Note a silent difference."""
        self.silent += 1
        self.problems.append(f"{where}: found {_short(found)} instead of {_short(wanted)}")


def check(
    cluster: Cluster, catalog: Catalog, oracle: Oracle, disks: Sequence[Path], outputs: str, place: Path
) -> Findings:
    """Compare everything with the oracle; nobody may be writing any more. ``place`` is the folder of the case."""
    findings = Findings()
    exact = catalog.app.guarantee == "exactly-once"
    jobs = jobs_of(catalog, cluster.cluster_id, place / "restored", images=str(place / IMAGES))
    logs = _read(
        cluster, [outputs, *sorted({place.topic for job in jobs for place in job.changelogs.values()})]
    )
    _check_outputs(_by_key(logs, outputs), oracle, findings, exact=exact)
    restored = [_restored(cluster, job) for job in jobs]
    _check_state("a fresh restore", _decoded(catalog, restored), oracle, findings, exact=exact)
    finals = [_check_disks(cluster, catalog, job, logs, disks, findings) for job in jobs]
    if len([final for final in finals if final]) == len(jobs):
        _check_state("the local stores", _read_state(catalog, jobs, finals), oracle, findings, exact=exact)
    return findings


def _read(cluster: Cluster, topics: Sequence[str]) -> Logs:
    """All records of some topics, of committed transactions only, once none is open any more."""
    found = cluster.describe(topics)
    places = [TopicPartition(topic, p) for topic in topics for p in range(found[topic].partitions)]
    logs: Logs = {place: [] for place in places}
    ranges = stable_ranges(cluster, places, _SETTLE_SECONDS)
    with closing(cluster.reader()) as reader:
        for batch in read_ranges(reader, ranges):
            logs[batch.source] += zip(batch.offsets, batch.keys, batch.values, strict=True)
    return logs


# --- outputs ----------------------------------------------------------------------------------------------


def _by_key(logs: Logs, outputs: str) -> dict[str, list[str]]:
    """Key → its outputs in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for place, rows in logs.items():
        for _, _, value in rows if place.topic == outputs else ():
            text = (value or b"").decode()
            found[Operation.parse(text.rpartition(" ")[0]).key].append(text)
    return found


def _check_outputs(
    found: Mapping[str, list[str]], oracle: Oracle, findings: Findings, *, exact: bool
) -> None:
    for key, operations in oracle.sent.items():
        seen = Counter(text.rpartition(" ")[0] for text in found.get(key, []))
        lost = [operation for operation in operations if not seen[str(operation)]]
        findings.lost += len(lost)
        twice = seen.total() - len(seen)
        findings.twice += twice
        if lost or (twice and exact):
            findings.problems.append(f"outputs of {key}: {len(lost)} lost {_short(lost)}, {twice} twice")
        wanted = [f"{operation} {count}" for count, operation in enumerate(operations, 1)]
        if exact and not lost and not twice and found.get(key, []) != wanted:
            findings.differ(f"outputs of {key}", found.get(key), wanted)
    for key in found.keys() - oracle.sent.keys():
        findings.differ(f"outputs of {key}", found[key], [])


# --- state --------------------------------------------------------------------------------------------------


def _restored(cluster: Cluster, job: RestoreJob) -> TaskStores:
    """A task's stores, rebuilt from nothing as the next owner would rebuild them."""
    if any(log.offset_first for log in cluster.ranges(job.changelogs.values()).values()):
        return _restored_from_image(cluster, job)
    ends = resolve(read_tails(cluster, job.changelogs)).restore_next
    stores = MemoryTaskStores(job.changelogs)
    plan = plan_task(cluster, job.task, job.changelogs, job.topic_ids, stores, ends=ends)
    Restoration(cluster, plan, stores).run()
    return stores


def _restored_from_image(cluster: Cluster, job: RestoreJob) -> TaskStores:
    """The same where changelogs are deleted before images: `stateflow restore` begins with one."""
    run_job(cluster, job, RocksResources(), lambda _: None, lambda: False)
    held = MemoryTaskStores(job.changelogs)
    with opened_beside(job.directory) as stores:
        for store in job.changelogs:
            held.apply({store: list(stores.reader(store).scan())}, {})
    return held


def _decoded(catalog: Catalog, tasks: Sequence[TaskStores]) -> State:
    return {
        place: value
        for entry in catalog.stores.values()
        for stores in tasks
        for place, value in _rows(StoreDecoder(entry), stores.reader(entry.name)).items()
    }


def _rows(decoder: StoreDecoder, reader: StoreReader) -> State:
    return {_place(row.key, row.map_key): row.value for row in decoder.rows(reader)}


def _place(key: Any, producer: Any) -> Any:
    return key if producer is None else (key, producer)


def _read_state(catalog: Catalog, jobs: Sequence[RestoreJob], disks: Sequence[Path | None]) -> State:
    """What `stateflow state scan` shows of each task, on the disk of its last owner."""
    found: State = {}
    for job, disk in zip(jobs, disks, strict=True):
        assert disk is not None, "every task has a last owner"
        for store in job.changelogs:
            partition = stage_and_partition(job.task)[1]
            for shown in LocalState(disk, catalog).scan(store, [partition]):
                if shown.task == job.task:
                    found[_place(shown.row.key, shown.row.map_key)] = shown.row.value
    return found


def _check_state(where: str, found: State, oracle: Oracle, findings: Findings, *, exact: bool) -> None:
    for key, due in oracle.tallies().items():
        tally = Tally(*found.get(key, (0, 0)))
        if tally.total < due.total:
            findings.lost += due.total - tally.total
            findings.problems.append(f"{where}, {key}: {tally.total} of {due.total} operations")
        elif exact and tally.total > due.total:
            findings.twice += tally.total - due.total
            findings.problems.append(f"{where}, {key}: {tally.total} instead of {due.total} operations")
        elif exact and tally != due:
            findings.differ(f"{where}, {key}", tally, due)
    lasts = {place: value for place, value in found.items() if isinstance(place, tuple)}
    wanted = oracle.last_numbers()
    if not exact:  # what is repeated may come late: any operation that was sent may be the last to be seen
        wanted = {
            place: lasts.get(place, -1) if lasts.get(place) in oracle.numbers(*place) else last
            for place, last in wanted.items()
        }
    if lasts != wanted:
        findings.differ(f"{where}, last numbers", lasts, wanted)


# --- local stores against their changelogs --------------------------------------------------------------------


def _check_disks(
    cluster: Cluster,
    catalog: Catalog,
    job: RestoreJob,
    logs: Logs,
    disks: Sequence[Path],
    findings: Findings,
) -> Path | None:
    """Compare each disk's store of a task with its changelog; returns the disk that is at the end of it."""
    final = None
    for disk in disks:
        (here,) = [one for one in jobs_of(catalog, cluster.cluster_id, disk) if one.task == job.task]
        if here.directory.is_damaged or not has_database(here):
            continue
        with opened_beside(here.directory) as stores:
            is_final = True
            for store, changelog in job.changelogs.items():
                rows = logs[changelog]
                end = rows[-1][0] + 1 if rows else 0
                at = stores.position(store) if store in stores.stores else None
                is_final = is_final and (at.offset_next if at else 0) >= end
                if (
                    at is not None
                ):  # without a position it stands for nothing, and is cleared before it is used
                    held = dict(stores.reader(store).scan())
                    wrong = _wrong_keys(held, rows, at.offset_next, whole=not rows or rows[0][0] == 0)
                    if wrong:
                        where = f"{disk.name}, {store} of {job.task} at {at.offset_next}"
                        findings.differ(
                            where, {key: held.get(key) for key in wrong}, "what its changelog says"
                        )
        final = disk if is_final else final
    if final is None:
        findings.problems.append(f"no disk is at the end of the changelogs of {job.task}")
        findings.silent += 1
    return final


def _wrong_keys(
    held: Mapping[bytes, bytes], rows: Sequence[Row], offset_next: int, *, whole: bool = True
) -> list[bytes]:
    """Keys whose value is neither what the changelog says at that position nor any that it says later.

    Later ones are there where a crash came between the flush of the content and that of the position. Of a changelog
    that is no longer ``whole`` nobody knows what it said of keys that it says nothing of any more.
    """
    newest: dict[bytes, bytes | None] = {}
    later: dict[bytes, set[bytes | None]] = defaultdict(set)
    for offset, key, value in rows:
        if key is None or is_reserved(key):
            continue
        if offset < offset_next:
            newest[key] = value
        else:
            later[key].add(value)
    return sorted(
        key
        for key in (newest.keys() | held.keys() if whole else newest.keys())
        if held.get(key) != newest.get(key) and held.get(key) not in later[key]
    )


def _short(value: object) -> str:
    if isinstance(value, dict):
        value = sorted(value.items(), key=repr)
    if isinstance(value, list) and len(value) > _SHOWN_MAX:
        return f"{value[:_SHOWN_MAX]} … ({len(value)} in all)"
    return str(value)
