"""A small application on the bare contracts: lines in, a running count per word out.

Runners are tested on it: it needs no graph builder, any executor can build it, and its result is easily
computed otherwise.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from stateflow.catalog.model import StoreEntry
from stateflow.catalog.names import changelog_topic
from stateflow.changelog.format import is_reserved
from stateflow.lab.applications.untimed import UntimedPipeline
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.reading import read_range
from stateflow.log.stable_ranges import stable_ranges
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import RecordBatch, TopicPartition

SOURCE_PARTITIONS = 2
COUNTS = StoreEntry(
    name="counts",
    stage="by-word",
    kind="value",
    layout="plain",
    key_codec={"codec": "string"},
    value_codec={"codec": "integer", "bits": 64},
)


class Split(UntimedPipeline):
    """Words of each line, re-keyed."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def process(self, batch: RecordBatch) -> None:
        """Hand each word on under itself."""
        for line, timestamp_ms in zip(batch.values, batch.timestamps_ms, strict=True):
            words = line.split()
            self._context.rekey_many("by-word", words, words, [timestamp_ms] * len(words))


class Count(UntimedPipeline):
    """A running count per word, each new count sent on."""

    def __init__(self, context: StageContext, output: str) -> None:
        self._context = context
        self._output = output

    def process(self, batch: RecordBatch) -> None:
        """Count."""
        store = self._context.store("counts")
        sent: list[bytes] = []
        for word in batch.keys:
            count = int.from_bytes(store.get(word) or b"", "big") + 1
            store.put(word, count.to_bytes(8, "big"))
            sent.append(b"%d" % count)
        self._context.send_many(self._output, batch.keys, sent, batch.timestamps_ms)


def topology(app: str) -> Topology:
    """Two stages: ``lines`` reads ``<app>-in`` and re-keys, ``by-word`` counts and writes ``<app>-out``."""
    output = f"{app}-out"
    lines = Stage("lines", (Input(f"{app}-in"),), (), (), ("by-word",), Split)
    counts = Stage(
        "by-word",
        (Input("by-word", "lines"),),
        (COUNTS,),
        (output,),
        (),
        lambda context: Count(context, output),
    )
    return Topology(app, (lines, counts))


@dataclass
class Words:
    """The application on a cluster: its input, and what must come of it."""

    cluster: Cluster
    app: str
    expected: Counter[bytes]
    lines_total: int = 0

    @classmethod
    def create(cls, cluster: Cluster, app: str) -> Words:
        """Make the topics of the input and the output."""
        cluster.create([TopicSpec(f"{app}-in", SOURCE_PARTITIONS), TopicSpec(f"{app}-out", 1)])
        return cls(cluster, app, Counter())

    def feed(self, lines: int, *, words: int = 20, seed: int = 1) -> None:
        """Write lines of five words out of a vocabulary of ``words``."""
        rng = random.Random(seed)  # noqa: S311 - test data, not secrets
        writer = self.cluster.writer()
        writer.begin()
        for number in range(lines):
            line = [b"w%d" % rng.randrange(words) for _ in range(5)]
            self.expected.update(line)
            partition = number % SOURCE_PARTITIONS
            writer.send(f"{self.app}-in", None, b" ".join(line), partition=partition, timestamp_ms=number)
        writer.commit()
        writer.close()
        self.lines_total += lines

    def counted(self, generation: int = 0) -> dict[int, Counter[bytes]]:
        """Partition → what its changelog says."""
        topic = changelog_topic(self.app, "counts", generation)
        sources = [TopicPartition(topic, p) for p in range(self.cluster.describe([topic])[topic].partitions)]
        found: dict[int, Counter[bytes]] = {}
        for source, log in stable_ranges(self.cluster, sources).items():
            state: Counter[bytes] = Counter()
            for batch in read_range(self.cluster, source, log):
                for key, value in zip(batch.keys, batch.values, strict=True):
                    if not is_reserved(key):
                        state[key] = int.from_bytes(value, "big")
            found[source.partition] = state
        return found

    def sent(self) -> list[tuple[bytes, bytes]]:
        """Word and count of each output record."""
        ((source, log),) = stable_ranges(self.cluster, [TopicPartition(f"{self.app}-out", 0)]).items()
        batches = read_range(self.cluster, source, log)
        return [(record.key, record.value) for batch in batches for record in batch.records()]

    def assert_counted_once(self, generation: int = 0) -> None:
        """State and outputs say that each word was counted exactly once."""
        states = self.counted(generation).values()
        merged = sum(states, Counter[bytes]())
        assert merged == self.expected, "the state differs from the count of the input"
        every = [(word, b"%d" % n) for word, total in self.expected.items() for n in range(1, total + 1)]
        assert sorted(self.sent()) == sorted(every), "an output is missing or doubled"
