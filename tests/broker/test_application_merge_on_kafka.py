"""Two applications on a real broker become one, from the command line."""

from __future__ import annotations

import json
import struct
import uuid

import pytest
from click.testing import CliRunner

from stateflow.cli.scale import command
from stateflow.errors import MergeUndefined
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import Committed
from stateflow.log.kafka import KafkaCluster
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.state.layout import index_bytes, prefixed_key, window_key
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker


def elements(key: bytes, *values: bytes) -> list[tuple[bytes, bytes | None]]:
    rows: list[tuple[bytes, bytes | None]] = [(prefixed_key(key), struct.pack(">QQ", 0, len(values)))]
    return rows + [(prefixed_key(key, index_bytes(index)), value) for index, value in enumerate(values)]


def at_rest(cluster: KafkaCluster, partitions: int) -> WrittenApp:
    """An application without unread records whose tasks have committed their input."""
    app = WrittenApp(cluster, f"merge-{uuid.uuid4().hex[:8]}", RoutingTable.modulo(partitions))
    app.create()
    app.commit_inputs(dict.fromkeys(range(partitions), 100))
    return app


def test_two_applications_become_one(cluster: KafkaCluster, broker: TestBroker) -> None:
    ours, theirs = at_rest(cluster, 2), at_rest(cluster, 1)
    ours.write_state("totals", [(b"key-%d" % number, b"ours") for number in range(20)])
    theirs.write_state("totals", [(b"KEY-%d" % number, b"theirs") for number in range(20)])
    theirs.write_state("hourly", [(window_key(b"a", 3_600_000), b"1")])
    ours.write_state("recent", elements(b"a", b"1", b"2"))
    theirs.write_state("recent", elements(b"a", b"3"))
    source = TopicPartition(f"{theirs.app}-source", 1)
    cluster.commit(theirs.app, {source: Committed(7)})

    def merge(*arguments: str) -> str:
        given = ["merge", "--app", ours.app, "--from", theirs.app, "--brokers", broker.bootstrap, *arguments]
        result = CliRunner().invoke(command, given, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    planned = {row["store"]: row for row in json.loads(merge("--dry-run", "--json"))["stores"]}
    assert (planned["totals"]["keys_theirs"], planned["totals"]["keys_both"]) == (20, 0)
    assert (planned["recent"]["keys_both"], planned["recent"]["is_defined"]) == (1, True)
    assert generations.load_catalog(cluster, ours.app).active.generation == 0

    assert "all equal" in merge()
    found = {
        store: {key: value for part in ours.found_state(store, 1).values() for key, value in part.items()}
        for store in ("totals", "hourly", "recent")
    }
    assert found["totals"] == ours.expected["totals"] | theirs.expected["totals"]
    assert found["hourly"] == theirs.expected["hourly"]
    assert found["recent"] == dict(elements(b"a", b"1", b"2", b"3"))
    assert cluster.committed(ours.app, [source])[source].offset_next == 7
    assert generations.load_catalog(cluster, ours.app).active.merged_app == theirs.app


def test_states_that_nothing_can_merge_stop_it_before_it_begins(
    cluster: KafkaCluster, broker: TestBroker
) -> None:
    ours, theirs = at_rest(cluster, 2), at_rest(cluster, 2)
    for app in (ours, theirs):
        app.write_state("totals", [(b"a", b"1")])
    given = ["merge", "--app", ours.app, "--from", theirs.app, "--brokers", broker.bootstrap]
    with pytest.raises(MergeUndefined, match=r"totals \(1 keys\).*nothing was changed"):
        CliRunner().invoke(command, given, catch_exceptions=False)
    assert generations.preparing(generations.load_catalog(cluster, ours.app)) is None
