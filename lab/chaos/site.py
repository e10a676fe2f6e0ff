"""Where a study happens: brokers of its own, the application's topics, what is sent to it and what has come of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import StateflowError
from stateflow.lab.chaos.oracle import EXACT, STORES, Row
from stateflow.lab.chaos.plan import PARTITIONS_FIRST
from stateflow.lab.chaos.report import Report
from stateflow.lab.chaos.running import GaveUp, Processes, wait_until
from stateflow.lab.chaos.shop import ORDER_PARTITIONS, PAYMENT_PARTITIONS, Order, Payment, Timed
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.log.reading import read_range, read_topic
from stateflow.query.local import LocalState, as_fields
from stateflow.record import TopicPartition
from stateflow.runtime.progress.lag import application_lag, is_drained
from stateflow.store.directory import find_task_directories

APP = "chaos"
SAVEPOINTS = "savepoints"
FED_SECONDS, SETTLED_SECONDS = 60.0, 240.0
_BROKER = {
    "log.retention.ms": -1,  # the records are of 2023
    "log.message.timestamp.before.max.ms": 9_223_372_036_854_775_807,
    "broker.session.timeout.ms": 9_000,  # Kafka's own: a busy machine keeps a broker from its heartbeats for 3 s
}
_OUTPUTS = (*EXACT, "shops")


class Site:
    """The application, and everything around it."""

    def __init__(self, kafka: EmbeddedKafka, cluster: Cluster, place: Path, report: Report) -> None:
        self.kafka = kafka
        self.cluster = cluster
        self.place = place
        self.report = report
        replication = len(kafka.nodes)
        self.processes = Processes(
            {
                "CHAOS_APP": APP,
                "STATEFLOW_BROKERS": kafka.bootstrap,
                "STATEFLOW_PARTITIONS": str(PARTITIONS_FIRST),
                "STATEFLOW_REPLICATION": str(replication),
                "STATEFLOW_IMAGES": str(place / "images"),
                "STATEFLOW_SAVEPOINTS": str(place / SAVEPOINTS),
                "STATEFLOW_HOME": str(
                    place / "home"
                ),  # what commands note of this cluster is of no use later
            },
            place,
            report,
        )
        topics = {"orders": ORDER_PARTITIONS, "payments": PAYMENT_PARTITIONS} | dict.fromkeys(_OUTPUTS, 2)
        cluster.create([TopicSpec(f"{APP}-{name}", count, replication) for name, count in topics.items()])

    def catalog(self) -> Catalog:
        """The application's catalog, once it has one and brokers tell it."""
        found: list[Catalog] = []

        def is_told() -> bool:
            try:
                found.append(ControlTopic(self.cluster, APP).load())
            except StateflowError as failure:
                if not failure.is_retriable:
                    raise
            return bool(found)

        if not wait_until(is_told, FED_SECONDS):
            raise GaveUp("The catalog cannot be read.", action="Look what the brokers do.")
        return found[0]

    def feed(self, records: Sequence[Timed]) -> None:
        """Send records, each partition's in order; again as a whole where brokers do not take them at once.

        What the log has is what the oracle goes by, so records that come twice for that do no harm.
        """

        def is_sent() -> bool:
            try:
                with closing(self.cluster.writer()) as writer:
                    for kind, topic in ((Order, "orders"), (Payment, "payments")):
                        own = [record for record in records if isinstance(record.value, kind)]
                        writer.send_many(
                            f"{APP}-{topic}",
                            [None] * len(own),
                            [json.dumps(asdict(record.value)).encode() for record in own],
                            partitions=[record.partition for record in own],
                            timestamps_ms=[record.at_ms for record in own],
                        )
                    writer.flush()
            except StateflowError:
                return False
            return True

        if not wait_until(is_sent, FED_SECONDS):
            self.report.note_stuck(f"brokers took no input for {FED_SECONDS:.0f} s")

    def settle(self) -> None:
        """Wait until the application has processed everything."""

        def is_done() -> bool:
            self.processes.check()
            try:
                return is_drained(self.cluster, self.catalog())
            except StateflowError as failure:  # a broker may have just been started
                if not failure.is_retriable:
                    raise
                return False

        if not wait_until(is_done, SETTLED_SECONDS):
            lags = [lag for lag in application_lag(self.cluster, self.catalog()) if lag.slots]
            where = ", ".join(f"{lag.source} from {lag.offset_next} to {lag.log.offset_next}" for lag in lags)
            self.report.note_stuck(f"input was left unprocessed for {SETTLED_SECONDS:.0f} s: {where}")
            raise GaveUp("The application does not go on.", action="Read its log.")

    # --- what there is ----------------------------------------------------------------------------------

    def sent(self) -> list[list[Timed]]:
        """Each partition of the input, as its log has it."""
        found = []
        for topic, kind, count in (
            ("orders", Order, ORDER_PARTITIONS),
            ("payments", Payment, PAYMENT_PARTITIONS),
        ):
            for number in range(count):
                part = TopicPartition(f"{APP}-{topic}", number)
                log = self.cluster.ranges([part])[part]
                found.append(
                    [
                        Timed(at_ms, kind(**json.loads(value or b"")))
                        for batch in read_range(self.cluster, part, log)
                        for value, at_ms in zip(batch.values, batch.timestamps_ms, strict=True)
                    ]
                )
        return found

    def rows(self) -> Counter[Row]:
        """Every record of the output topics that are foretold."""
        return Counter(row for topic in EXACT for row in self._told(topic))

    def totals(self) -> dict[str, list[int]]:
        """Shop → its totals in the order in which they were told."""
        found = defaultdict(list)
        for row in self._told("shops"):
            found[row.key].append(int(row.text))
        return dict(found)

    def state(self) -> dict[str, dict[str, int]]:
        """What the local stores hold, while nothing runs, as `stateflow state scan` reads it."""
        local = LocalState(self.processes.state_dir, self.catalog())
        return {
            store: {row["key"]: row["value"] for row in map(as_fields, local.scan(store))} for store in STORES
        }

    def has_state(self) -> bool:
        """Whether the disk holds any state of the active generation."""
        generation = self.catalog().active.generation
        return any(
            directory.identity.generation == generation and (directory.database / "CURRENT").exists()
            for directory in find_task_directories(self.processes.state_dir, APP)
        )

    def _told(self, topic: str) -> Iterator[Row]:
        for batch in read_topic(self.cluster, f"{APP}-{topic}"):
            for key, value, at_ms in zip(batch.keys, batch.values, batch.timestamps_ms, strict=True):
                yield Row(topic, (key or b"").decode(), at_ms, (value or b"").decode())


@contextmanager
def open_site(brokers: int, place: Path, report: Report) -> Iterator[Site]:
    """Brokers, and the application that does not run yet; on return nothing runs any more."""
    with (
        EmbeddedKafka(place / "kafka", brokers=brokers, overrides=_BROKER) as kafka,
        closing(connect(kafka.bootstrap)) as cluster,
    ):
        site = Site(kafka, cluster, place, report)
        try:
            yield site
        finally:
            site.processes.close()
