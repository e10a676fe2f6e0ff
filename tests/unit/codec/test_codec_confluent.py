"""The Confluent wire format against a registry over HTTP on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.confluent import ConfluentAvro
from stateflow.codec.schema_registry import FixedSchemas, SchemaRegistry
from stateflow.errors import ConfigError, DecodeError, EncodeError, GraphError, SchemaUnavailable
from stateflow.lab.applications.stage import StageBench
from stateflow.state.declare import declared_fields
from stateflow.testing import TestDriver

OLD = {"type": "record", "name": "Payment", "fields": [{"name": "cents", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "shop", "type": "string", "default": "?"}]}


class Registry(ThreadingHTTPServer):
    """Numbers schemas as they come, from 7 on, for whoever has the password."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.schemas: dict[int, str] = {}
        self.asked: list[str] = []


class Answering(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self._answer(self.server.schemas.get(int(self.path.rpartition("/")[2])), "schema")

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        known = self.server.schemas
        number = next((n for n, schema in known.items() if schema == text), 7 + len(known))
        known[number] = text
        self._answer(number, "id")

    def _answer(self, found: Any, name: str) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        code = 401 if self.headers["Authorization"] != "Basic secret" else 404 if found is None else 200
        body = json.dumps({name: found}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not to stderr."""


@pytest.fixture
def server() -> Iterator[Registry]:
    made = Registry()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def registry(server: Registry, authorization: str | None = "Basic secret") -> SchemaRegistry:
    return SchemaRegistry(f"http://127.0.0.1:{server.server_port}/", authorization=authorization)


def test_values_of_old_and_new_writers_read_as_the_readers(server: Registry) -> None:
    old = ConfluentAvro(OLD, registry(server), subject="payments/eu-value")
    new = ConfluentAvro(NEW, registry(server), subject="payments/eu-value")
    written = old.encode({"cents": 5})
    assert written.hex() == "00" + "00000007" + "0a"
    assert [new.decode(written) for _ in range(3)] == [{"cents": 5, "shop": "?"}] * 3
    assert old.decode(new.encode({"cents": 6, "shop": "s"})) == {"cents": 6}
    assert server.asked == [
        "POST /subjects/payments%2Feu-value/versions",
        "GET /schemas/ids/7",
        "POST /subjects/payments%2Feu-value/versions",
        "GET /schemas/ids/8",
    ], "a number is asked for once"


def test_a_registry_that_does_not_answer_stops_the_task_under_every_policy(server: Registry) -> None:
    app = sf.App("shop")
    refused = ConfluentAvro(NEW, registry(server, None))
    payments = app.topic("payments", key=str, value=refused)
    app.stream(payments, co_partitioned=True, on_error=sf.Skip()).count(name="n")
    bench = StageBench(app.topology().stages[0])
    with pytest.raises(SchemaUnavailable, match=r"schemas/ids/7.*401"):
        bench.feed((b"k", bytes.fromhex("00000000070a"), 1))
    assert "secret" not in repr(registry(server))
    with pytest.raises(SchemaUnavailable):
        ConfluentAvro(NEW, registry(server, None), subject="s").encode({"cents": 1, "shop": ""})


def test_bytes_without_a_schema_are_a_records_fault() -> None:
    codec = ConfluentAvro(OLD, FixedSchemas({3: OLD}), subject="s")
    assert codec.decode(codec.encode({"cents": -1})) == {"cents": -1}
    for data in (
        b"",
        b"\x00\x00",
        b"\x01\x00\x00\x00\x03\x01",
        b"\x00\x00\x00\x00\x03",
        b"\x00\x00\x00\x00\x03\x01\x01",
    ):
        with pytest.raises(DecodeError):
            codec.decode(data)
    with pytest.raises(SchemaUnavailable, match="schema 9 is not among"):
        codec.decode(b"\x00\x00\x00\x00\x09\x01")
    with pytest.raises(EncodeError, match="no subject"):
        ConfluentAvro(OLD, FixedSchemas({3: OLD})).encode({"cents": 1})


def test_state_keeps_its_schemas_in_the_catalog_instead() -> None:
    class Op:
        last: sf.Value[Any] = sf.state(codec=ConfluentAvro(OLD, FixedSchemas({3: OLD})))

    with pytest.raises(GraphError, match="registry"):
        declared_fields(Op, "op")


def test_an_address_is_checked_at_once() -> None:
    with pytest.raises(ConfigError, match="not the address"):
        SchemaRegistry("file:///etc/passwd")


VERBS: dict[str, Callable[[sf.Stream[str, Any], sf.Stream[str, Any]], sf.Stream[str, Any]]] = {
    "window join": lambda left, right: left.outer_join(
        right, lambda one, two: one or two, name="kept", within=timedelta(seconds=5), value=sf.Json
    ),
    "as-of join": lambda left, right: left.left_join(
        right.to_table(name="table", history=timedelta(hours=1)),
        lambda one, _: one,
        name="kept",
        grace=timedelta(seconds=1),
        value=sf.Json,
    ),
    "in_order": lambda left, _: left.in_order(name="kept"),
    "suppress by limit": lambda left, _: left.suppress(sf.TimeLimit(timedelta(seconds=1)), name="kept"),
    "suppress by ticks": lambda left, _: left.suppress(sf.Every(timedelta(seconds=1)), name="kept"),
    "process in order": lambda left, _: left.process(Passing, name="kept", order="event-time"),
    "match": lambda left, _: left.match(
        sf.pattern(dict).begin("one").within(timedelta(seconds=5)),
        lambda found: found["one"],
        name="kept",
        value=sf.Json,
    ),
}


class Passing(sf.Operator[str, Any, Any]):
    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        ctx.emit(value)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_that_hold_records_back_keep_them_as_plain_avro(verb: str) -> None:
    """So that the catalog alone can read them, as it can not what a registry numbers."""
    app, codec = sf.App("shop"), ConfluentAvro(NEW, FixedSchemas({7: NEW}), subject="in-value")
    left, right = (app.topic(name, key=str, value=codec) for name in ("in", "other"))
    keyed = [app.stream(topic, co_partitioned=True) for topic in (left, right)]
    out = app.topic("out", key=str, value=sf.Json)
    VERBS[verb](keyed[0], keyed[1]).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send_many(left, [("a", {"cents": 5, "shop": "x"}, 1_000)])
    driver.crash(disk_lost=True)
    driver.restore()
    driver.send_many(left, [("b", {"cents": 6, "shop": "x"}, 60_000)])
    driver.end_input()
    assert ("a", {"cents": 5, "shop": "x"}) in [(row.key, row.value) for row in driver.rows(out)]
    for entry in app.topology().stores:
        assert entry.name.startswith("table") or "confluent" not in json.dumps(entry.value_codec), entry.name
    driver.stop()
