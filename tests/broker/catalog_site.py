"""An application that ran once, told by its catalog and changelogs alone, and the command line to try on it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import (
    AppEntry,
    Catalog,
    GenerationEntry,
    InputEntry,
    KeyLayout,
    RoutingEntry,
    StageEntry,
    StoreEntry,
    StoreKind,
)
from stateflow.catalog.names import changelog_topic
from stateflow.changelog.format import TOUCH_KEY
from stateflow.cli.main import run
from stateflow.codec.scalar import Integer, String
from stateflow.codec.structured import Json
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.routing import RoutingTable
from stateflow.state.layout import index_bytes, prefixed_key, window_key
from stateflow.store.directory import task_directory
from stateflow.store.rocks import RocksResources, RocksTaskStores

PARTITIONS = 3
KEYS = [f"key-{i:04}" for i in range(500)]


def store(name: str, kind: StoreKind, layout: KeyLayout, value_codec: dict[str, object]) -> StoreEntry:
    return StoreEntry(
        name=name, stage="by", kind=kind, layout=layout, key_codec=String.describe(), value_codec=value_codec
    )


class Application:
    """An application that ran: its catalog, and changelogs with five rounds of updates, aborts and deletions."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.id = f"app-{uuid.uuid4().hex[:8]}"
        integer = Integer.describe()
        stores = [
            store("counts", "value", "plain", integer),
            store("hourly", "window", "window", integer),
            store("seen", "list", "prefixed", Json.describe()),
        ]
        topics = {store.name: changelog_topic(self.id, store.name) for store in stores}
        config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        created = cluster.create([TopicSpec(topic, PARTITIONS, config=config) for topic in topics.values()])
        routing = RoutingEntry(kind="modulo", partitions=PARTITIONS)
        self.topics = topics
        self.catalog = ControlTopic(cluster, self.id).ensure(
            Catalog(
                app=AppEntry(app=self.id, guarantee="exactly-once"),
                stages={
                    "main": StageEntry(name="main", inputs=(InputEntry(name="lines"),), source_partitions=2),
                    "by": StageEntry(name="by", inputs=(InputEntry(name="by", upstream="main"),)),
                },
                stores={store.name: store for store in stores},
                generations={
                    0: GenerationEntry(
                        generation=0,
                        state="active",
                        routing=routing,
                        topic_ids={name: info.topic_id for name, info in created.items()},
                    )
                },
            )
        )
        self._routing = RoutingTable.from_entry(routing)
        self.truth: dict[str, dict[str, int]] = {"counts": {}}
        for round_ in range(5):
            self.write(round_)
        self.write(99, commit=False)

    def partition(self, key: str) -> int:
        return self._routing.partition_of(key.encode())

    def write(self, round_: int, *, commit: bool = True) -> None:
        writer = self.cluster.writer(f"{self.id}-writer")
        writer.begin()
        for number, key in enumerate(KEYS):
            data, partition = key.encode(), self.partition(key)
            deleted = (number + round_) % 7 == 0
            value = None if deleted else Integer.encode(number * round_)
            writer.send(self.topics["counts"], data, value, partition=partition)
            window = window_key(data, 3_600_000 * round_)
            writer.send(self.topics["hourly"], window, Integer.encode(round_), partition=partition)
            element = prefixed_key(data, index_bytes(round_))
            writer.send(self.topics["seen"], element, Json.encode({"round": round_}), partition=partition)
            if commit and deleted:
                self.truth["counts"].pop(key, None)
            elif commit:
                self.truth["counts"][key] = number * round_
        for partition in range(PARTITIONS):
            writer.send(self.topics["counts"], TOUCH_KEY, b"", partition=partition)
        if commit:
            writer.commit()
        else:
            writer.abort()
        writer.close()

    def opened(self, state_dir: Path, partition: int) -> RocksTaskStores:
        place = task_directory(state_dir, self.id, self.cluster.cluster_id, 0, f"by-{partition}")
        return RocksTaskStores.open(place, ["counts", "hourly", "seen"], RocksResources())

    def counts(self, state_dir: Path) -> dict[str, int]:
        found: dict[str, int] = {}
        for partition in range(PARTITIONS):
            stores = self.opened(state_dir, partition)
            rows = {key.decode(): Integer.decode(value) for key, value in stores.reader("counts").scan()}
            assert all(self.partition(key) == partition for key in rows)
            found |= rows
            stores.close()
        return found


def stateflow(capfd: pytest.CaptureFixture[str], *arguments: str, exit_code: int = 0) -> dict[str, object]:
    capfd.readouterr()
    code = run([*arguments, "--json"])
    out, err = capfd.readouterr()
    assert code == exit_code, (out, err)
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def at(cluster: KafkaCluster, application: Application, *more: str) -> tuple[str, ...]:
    return ("--app", application.id, "--brokers", cluster.bootstrap, *more)
