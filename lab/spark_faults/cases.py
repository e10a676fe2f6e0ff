"""What is run while processes are killed: each job with its input, and what must have come of it.

State and input are known key by key. After a job every key must stand once where it belongs, and every output of the
application once: what is missing or has another value is *lost*, what is there a second time came *twice*.
"""

from __future__ import annotations

import json
import random
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stateflow.bootstrap.write import column_batches
from stateflow.checkpoint.image_selection import install_best
from stateflow.checkpoint.jobs import jobs_of
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.clock import SystemClock
from stateflow.errors import CatalogMissing, StateflowError
from stateflow.lab.applications.words import Words
from stateflow.lab.applications.written import STORES, WrittenApp
from stateflow.log.base import Cluster
from stateflow.query.read import TableRequest, read_table
from stateflow.query.snapshot import savepoint_snapshot
from stateflow.routing import RoutingTable
from stateflow.savepoint.lookup import expected_without_code, open_at
from stateflow.scale.generation import load_catalog
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_APP = """
import stateflow as sf

app = sf.App("{app}", partitions=3)
lines = app.topic("{app}-in", value=str)
counts = app.topic("{app}-out", key=str, value=int)
words = app.stream(lines).flat_map(str.split).key_by(str, name="by-word", key=str, value=str)


class Count(sf.Operator[str, str, int]):
    total: sf.Counter = sf.state()

    def on_record(self, value: str, ctx: sf.Context[int]) -> None:
        ctx.emit(self.total.add())


words.process(Count, name="counts").to(counts)
"""
_STORE = "counts-total"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What differs from the oracle."""

    lost: int
    twice: int


class Case(ABC):
    """One job on one application of its own."""

    job: str
    ends_by_itself = True

    def __init__(self, cluster: Cluster, where: Sequence[str], folder: Path, size: int) -> None:
        self.cluster = cluster
        self.where = where
        self.folder = folder
        self.size = size
        self.app = f"faults-{self.job}-{uuid.uuid4().hex[:8]}"
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Write what the job reads."""

    @abstractmethod
    def arguments(self, attempt: int) -> list[str]:
        """Of the job's template; ``attempt`` counts the drivers that were killed before."""

    @abstractmethod
    def verdict(self) -> Verdict:
        """Compare with the oracle."""

    def is_complete(self) -> bool:
        """For what does not end by itself: whether all that it should do is done."""
        return True


class Written(Case):
    """Its state is put on the changelogs by hand."""

    partitions = 2

    def prepare(self) -> None:
        """Each key about three times, a tenth of them deleted."""
        self.written = WrittenApp(self.cluster, self.app, RoutingTable.modulo(self.partitions))
        self.written.create()
        rng = random.Random(5)  # noqa: S311 - data to test with
        keys = [b"key-%d" % number for number in range(self.size)]
        for first in range(0, 3 * self.size, 20_000):
            changes = [
                (rng.choice(keys), None if rng.random() < 0.1 else b"%d" % number)
                for number in range(first, min(first + 20_000, 3 * self.size))
            ]
            self.written.write_state("totals", changes)
        self.written.commit_inputs(dict.fromkeys(range(self.partitions), 9))
        self.written.write_unread([(rng.choice(keys), b"%d" % number, 100) for number in range(500)])

    @property
    def expected(self) -> dict[str, str]:
        """Key → value of the store that is compared."""
        return {key.decode(): value.decode() for key, value in self.written.expected["totals"].items()}


class Repartition(Written):
    """Two partitions become five."""

    job = "repartition"

    def arguments(self, attempt: int) -> list[str]:  # noqa: ARG002 - the same again
        """The same again goes on where it was."""
        return ["--app", self.app, "--partitions", "5", *self.where]

    def verdict(self) -> Verdict:
        """Every key once, in its partition; every unread record once."""
        routing, lost, twice = RoutingTable.modulo(5), 0, 0
        for store in STORES:
            found: Counter[tuple[bytes, bytes]] = Counter()
            for partition, state in self.written.found_state(store.name, 1).items():
                found.update(
                    (key, value)
                    for key, value in state.items()
                    if store.layout != "plain" or routing.partition_of(key) == partition
                )
            verdict = compared(self.written.expected[store.name].items(), found.elements())
            lost, twice = lost + verdict.lost, twice + verdict.twice
        unread = [r.value for records in self.written.found_unread(1).values() for r in records if r.key]
        verdict = compared((b"%d" % number for number in range(500)), unread)
        return Verdict(lost + verdict.lost, twice + verdict.twice)


class Recover(Written):
    """The state of both tasks rebuilt as images."""

    job = "recover"

    def arguments(self, attempt: int) -> list[str]:  # noqa: ARG002 - begun anew
        """Begun anew."""
        return ["--app", self.app, *self.where, "--images", str(self.folder / "images")]

    def verdict(self) -> Verdict:
        """The images have the state, and nothing of the killed attempts is left in the place."""
        catalog, images = load_catalog(self.cluster, self.app), str(self.folder / "images")
        found: list[tuple[bytes, bytes]] = []
        for job in jobs_of(catalog, self.cluster.cluster_id, self.folder / "fetched"):
            if install_best(self.cluster, job, images, SystemClock(), lambda: False) is None:
                continue
            stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources())
            try:
                found += stores.reader("totals").scan()
            finally:
                stores.close()
        verdict = compared(self.written.expected["totals"].items(), found)
        left = list((self.folder / "images" / self.app / "recovery").rglob("*.sst"))
        return Verdict(verdict.lost, verdict.twice + len(left))


class Snapshot(Written):
    """A store written to Parquet."""

    job = "snapshot"

    def arguments(self, attempt: int) -> list[str]:
        """Once more over what a killed driver left."""
        store = ["--app", self.app, "--store", "totals", *self.where, "--json"]
        return [*store, "--out", str(self.folder / "out"), *(["--overwrite"] if attempt else [])]

    def verdict(self) -> Verdict:
        """Its rows are the state."""
        rows = pq.read_table(self.folder / "out").to_pylist()
        return compared(self.expected.items(), ((row["key"], row["value"]) for row in rows))


class ChangeFeed(Written):
    """All changes there are, to Parquet, in small micro-batches; started again it goes on at its checkpoint."""

    job = "change-feed"

    def arguments(self, attempt: int) -> list[str]:  # noqa: ARG002 - goes on by its checkpoint
        """The same again goes on where it was."""
        store = ["--app", self.app, "--store", "totals", *self.where]
        limits = ["--until-now", "--records-max", str(max(1, self.size // 2))]
        to = ["--out", str(self.folder / "changes"), "--checkpoint-dir", str(self.folder / "query")]
        return [*store, *limits, *to]

    def verdict(self) -> Verdict:
        """No change is there twice, and applied in their order they are the state."""
        rows = []
        for file in committed_files(self.folder / "changes"):
            rows += pq.read_table(file).to_pylist()
        state: dict[str, str] = {}
        for row in sorted(rows, key=lambda row: row["offset"]):  # a key is in one partition
            if row["deleted"]:
                state.pop(row["key"], None)
            else:
                state[row["key"]] = row["value"]
        distinct = {(row["generation"], row["partition"], row["offset"]) for row in rows}
        return Verdict(compared(self.expected.items(), state.items()).lost, len(rows) - len(distinct))


class Bootstrap(Case):
    """Rows become a savepoint."""

    job = "bootstrap"

    def prepare(self) -> None:
        """An application that never ran, and a table."""
        Words.create(self.cluster, self.app)
        (self.folder / "app.py").write_text(_APP.format(app=self.app))
        self.expected = {f"key-{number}": number for number in range(self.size)}
        table = pa.table({"key": list(self.expected), "value": list(self.expected.values())})
        pq.write_table(table, self.folder / "rows.parquet")

    def arguments(self, attempt: int) -> list[str]:  # noqa: ARG002 - another number, the same name
        """Begun anew, under the next number."""
        app = [f"{self.folder / 'app.py'}:app", *self.where, "--sources", "earliest"]
        table = ["--table", f"{_STORE}={self.folder / 'rows.parquet'}"]
        return [*app, *table, "--to", str(self.folder / "savepoints")]

    def verdict(self) -> Verdict:
        """The savepoint, read as a table, has the rows."""
        place = str(self.folder / "savepoints")
        savepoint = open_at(place, self.app, "bootstrap", SystemClock()).load()
        catalog = expected_without_code(self.cluster, savepoint, self.app)
        allowed = AllowedLocations([place])
        snapshot = savepoint_snapshot(catalog, _STORE, "bootstrap", location=place, allowed=allowed)
        found: list[tuple[str, int]] = []
        for partition in snapshot.partitions:
            for columns in column_batches(snapshot.batches(self.cluster, partition)):
                found += zip(columns["key"], columns["value"], strict=True)
        return compared(self.expected.items(), found)


class Pipeline(Case):
    """An application in long-running workers, fed while it runs."""

    job = "pipeline"
    ends_by_itself = False

    def prepare(self) -> None:
        """Its topics, its code, half of its input."""
        self.words = Words.create(self.cluster, self.app)
        (self.folder / "app.py").write_text(_APP.format(app=self.app))
        self.words.feed(self.size // 20, words=50)
        self._fed = 1

    def arguments(self, attempt: int) -> list[str]:
        """The same again; some more input for each driver."""
        if attempt >= self._fed:
            self.words.feed(self.size // 20, words=50, seed=attempt + 1)
            self._fed += 1
        state = ["--state-dir", str(self.folder / "state")]
        return [f"{self.folder / 'app.py'}:app", *self.where, *state, "--workers", "2"]

    def is_complete(self) -> bool:
        """As many outputs as words."""
        return len(self.words.sent()) >= self.words.expected.total()

    def verdict(self) -> Verdict:
        """Every count of every word once, under read_committed; and the state."""
        every = [(word, n) for word, total in self.words.expected.items() for n in range(1, total + 1)]
        sent = [(word, int.from_bytes(count, "big")) for word, count in self.words.sent()]
        outputs = compared(every, sent)
        rows = read_table(self.cluster, TableRequest(app=self.app, store=_STORE)).to_pylist()
        state = compared(self.words.expected.items(), ((row["key"].encode(), row["value"]) for row in rows))
        return Verdict(outputs.lost + state.lost, outputs.twice + state.twice)


CASES: dict[str, type[Case]] = {
    case.job: case for case in (Repartition, Recover, Snapshot, ChangeFeed, Bootstrap, Pipeline)
}


def compared(expected: Iterable[object], found: Iterable[object]) -> Verdict:
    """As multisets."""
    wanted, there = Counter(expected), Counter(found)
    return Verdict((wanted - there).total(), (there - wanted).total())


def committed_files(folder: Path) -> list[Path]:
    """The files that Spark's file sink has committed: what a killed micro-batch left beside them does not count."""
    names: set[str] = set()
    for log in sorted((folder / "_spark_metadata").iterdir()):
        if log.name.startswith("."):
            continue
        for line in log.read_text().splitlines()[1:]:
            names.add(json.loads(line)["path"].rpartition("/")[2])
    return [folder / name for name in sorted(names)]


def is_over(case: Case) -> bool:
    """``is_complete``, False while the application has no topics yet."""
    try:
        return case.is_complete()
    except (CatalogMissing, StateflowError):
        return False
