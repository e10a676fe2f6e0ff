"""A Kafka Streams application: records counted by key, run in a Java process of its own and driven over Py4J."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import get_field

from stateflow.connectors.broker.jars import JarSet, load_jar_set
from tests.foreign.java_process import SPARK_JARS, JavaProcess

STREAMS_JARS: JarSet = load_jar_set(Path(__file__).parent / "kafka-streams.json")

_STORE = "counts"
_RUNNING_SECONDS = 60.0
_LOOK_SECONDS = 0.1


class CountingApplication:
    """``stream(source).groupByKey().count()``, its store in memory: every start restores it from the changelog.

    Keys are strings, counts longs. Nothing is cached, so that every record is a record of the changelog, too.
    """

    def __init__(
        self, bootstrap: str, application_id: str, source: str, folder: Path, settings: Mapping[str, str]
    ) -> None:
        self.changelog = f"{application_id}-{_STORE}-changelog"
        self._java = JavaProcess(folder, STREAMS_JARS, tuple(SPARK_JARS.glob("rocksdbjni-*.jar")))
        try:
            self._streams = self._start(bootstrap, application_id, source, folder, settings)
        except BaseException:
            self.close()
            raise

    def _start(
        self, bootstrap: str, application_id: str, source: str, folder: Path, settings: Mapping[str, str]
    ) -> Any:
        streams = self._java.classes.org.apache.kafka.streams
        store = streams.state.Stores.inMemoryKeyValueStore(_STORE)
        builder = streams.StreamsBuilder()
        # `as` is a word of Python's own
        counts = getattr(streams.kstream.Materialized, "as")(store).withCachingDisabled()
        builder.stream(source).groupByKey().count(counts)
        properties = self._java.classes.java.util.Properties()
        serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
        for name, value in {
            "application.id": application_id,
            "bootstrap.servers": bootstrap,
            "state.dir": str(folder),
            "default.key.serde": serde,
            "default.value.serde": serde,
            "commit.interval.ms": "100",
            "auto.offset.reset": "earliest",
            **settings,
        }.items():
            properties.setProperty(name, value)
        running = streams.KafkaStreams(builder.build(), properties)
        running.start()
        return running

    def counts(self) -> dict[str, int]:
        """What the store holds, asked of the application itself; waits until it serves. Raises ``TimeoutError``."""
        self._await_running()
        streams = self._java.classes.org.apache.kafka.streams
        kind = streams.state.QueryableStoreTypes.keyValueStore()
        store = self._streams.store(streams.StoreQueryParameters.fromNameAndType(_STORE, kind))
        rows = store.all()
        found: dict[str, int] = {}
        try:
            while rows.hasNext():
                row = rows.next()
                found[str(get_field(row, "key"))] = int(get_field(row, "value"))
        finally:
            rows.close()
        return found

    def _await_running(self) -> None:
        until = time.monotonic() + _RUNNING_SECONDS
        while (state := self._streams.state().toString()) != "RUNNING":
            if time.monotonic() > until or state in ("ERROR", "NOT_RUNNING"):
                raise TimeoutError(f"Kafka Streams is {state}")
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Stop it in order, and its Java process."""
        try:
            if hasattr(self, "_streams"):
                self._streams.close()
        finally:
            self._java.close()
