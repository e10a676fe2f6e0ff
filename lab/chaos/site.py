"""Where a study happens: brokers of its own, the application's topics, what is sent to it and what has come of it."""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import StateflowError
from stateflow.lab.chaos.oracle import EXACT, STORES, Row
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

SAVEPOINTS = "savepoints"
FED_SECONDS, SETTLED_SECONDS = 60.0, 240.0
_TOPIC = {"retention.ms": "-1"}
"""The records are of 2023."""
_BROKER = {
    "broker.session.timeout.ms": 9_000,  # Kafka's own: a busy machine keeps a broker from its heartbeats for 3 s
}
_OUTPUTS = (*EXACT, "shops")


class Site:
    """The application, and everything around it."""

    def __init__(self, cluster: Cluster, place: Path, report: Report, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.place = place
        self.report = report
        self.app = f"chaos-{uuid.uuid4().hex[:8]}"
        self.kafka: EmbeddedKafka | None = None
        """The brokers, where they are the study's own."""
        self.processes = Processes(
            {
                "CHAOS_APP": self.app,
                "STATEFLOW_IMAGES": str(place / "images"),
                "STATEFLOW_SAVEPOINTS": str(place / SAVEPOINTS),
                # What commands note of this cluster is of no use later.
                "STATEFLOW_HOME": str(place / "home"),
                **settings,
            },
            place,
            report,
        )
        topics = {"orders": ORDER_PARTITIONS, "payments": PAYMENT_PARTITIONS} | dict.fromkeys(_OUTPUTS, 2)
        cluster.create(
            [TopicSpec(f"{self.app}-{name}", count, report.brokers, _TOPIC) for name, count in topics.items()]
        )

    @property
    def own_kafka(self) -> EmbeddedKafka:
        """The study's own brokers: no other's are killed."""
        assert self.kafka is not None, "events of brokers are drawn for the study's own only"
        return self.kafka

    def catalog(self) -> Catalog:
        """The application's catalog, once it has one and brokers tell it."""
        found: list[Catalog] = []

        def is_told() -> bool:
            try:
                found.append(ControlTopic(self.cluster, self.app).load())
            except StateflowError as failure:
                if not failure.is_retriable:
                    raise
            return bool(found)

        if not wait_until(is_told, FED_SECONDS):
            raise GaveUp("The catalog cannot be read.", action="look into the logs of the brokers.")
        return found[0]

    def feed(self, records: Sequence[Timed]) -> None:
        """Send records, each partition's in order; again as a whole where brokers do not take them at once.

        What the log has is what the oracle goes by, so records that come twice for that do no harm.
        """
        failures: list[StateflowError] = []

        def is_sent() -> bool:
            try:
                with closing(self.cluster.writer()) as writer:
                    for kind, topic in ((Order, "orders"), (Payment, "payments")):
                        own = [record for record in records if isinstance(record.value, kind)]
                        writer.send_many(
                            f"{self.app}-{topic}",
                            [None] * len(own),
                            [json.dumps(asdict(record.value)).encode() for record in own],
                            partitions=[record.partition for record in own],
                            timestamps_ms=[record.at_ms for record in own],
                        )
                    writer.flush()
            except StateflowError as failure:
                failures.append(failure)
                return False
            return True

        if not wait_until(is_sent, FED_SECONDS):
            self.report.note_stuck(f"brokers took no input for {FED_SECONDS:.0f} s: {failures[-1]}")

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
            raise GaveUp("The application does not go on.", action="look into its log.")

    # --- what there is ----------------------------------------------------------------------------------

    def sent(self) -> list[list[Timed]]:
        """Each partition of the input, as its log has it."""
        found = []
        for topic, kind, count in (
            ("orders", Order, ORDER_PARTITIONS),
            ("payments", Payment, PAYMENT_PARTITIONS),
        ):
            for number in range(count):
                part = TopicPartition(f"{self.app}-{topic}", number)
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
            for directory in find_task_directories(self.processes.state_dir, self.app)
        )

    def _told(self, topic: str) -> Iterator[Row]:
        for batch in read_topic(self.cluster, f"{self.app}-{topic}"):
            for key, value, at_ms in zip(batch.keys, batch.values, batch.timestamps_ms, strict=True):
                yield Row(topic, (key or b"").decode(), at_ms, (value or b"").decode())


@contextmanager
def open_site(bootstrap: str | None, partitions: int, place: Path, report: Report) -> Iterator[Site]:
    """The application, which does not run yet, on brokers of its own if none are named; then nothing runs any more."""
    with ExitStack() as stack:
        kafka = None
        if bootstrap is None:
            own = EmbeddedKafka(place / "kafka", brokers=report.brokers, overrides=_BROKER)
            kafka = stack.enter_context(own)
            bootstrap = kafka.bootstrap
        cluster = stack.enter_context(closing(connect(bootstrap)))
        settings = {
            "STATEFLOW_BROKERS": bootstrap,
            "STATEFLOW_PARTITIONS": str(partitions),
            "STATEFLOW_REPLICATION": str(report.brokers),
        }
        site = Site(cluster, place, report, settings)
        site.kafka = kafka
        stack.callback(site.processes.close)
        yield site
