"""A broker's exporter asked over HTTP while a topic is measured."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stateflow.cli.main import run
from stateflow.compaction.sensing.exposition import BYTES_MAX, scrape
from stateflow.errors import BrokerUnreachable, ConfigError
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import connect
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker
RECORDED = Path(__file__).parents[1] / "unit" / "compaction" / "expositions"


class Exporter(ThreadingHTTPServer):
    """Serves the recorded expositions one after another, the last one again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies = [(RECORDED / f"without-rules-{number}.txt").read_bytes() for number in (1, 2)]
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        bodies = {"/metrics": self.server.bodies[min(self.server.asked, 1)], "/page": b"<html>hello</html>"}
        found = b"a 1\n" * (BYTES_MAX // 4 + 1) if self.path == "/endless" else bodies.get(self.path)
        self.send_response(200 if found is not None else 404)
        self.end_headers()
        if self.path == "/metrics":
            self.server.asked += 1
        try:
            self.wfile.write(found or b"")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client had enough

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: the test's output is the command's."""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_measuring_asks_the_exporter_before_and_after(
    broker: TestBroker, exporter: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, topic = connect(broker.bootstrap), f"exported-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(topic, 1, 1, {"cleanup.policy": "compact", "segment.ms": "500"})])
    try:
        writer = cluster.writer()
        for number in range(2000):
            writer.send(topic, b"k%d" % (number % 20), b"v" * 300, partition=0)
        writer.commit()
        writer.close()
        arguments = ["measure", "--brokers", broker.bootstrap, "--topic", topic, "--seconds", "300ms"]
        arguments += [
            "--rate",
            "1000",
            "--restore-rate",
            "100000",
            "--metrics-url",
            f"{exporter.url}/metrics",
        ]
        assert run(["compaction", *arguments, "--json"]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert exporter.asked == 2
        told = found["cleaner_estimate"]
        assert 0 < told["low"] < told["cores"] <= told["high"]
        assert told["moved_bytes_per_second"] > 1e5
        assert run(["compaction", *arguments]) == 0
        assert "moved" in capsys.readouterr().out
    finally:
        cluster.delete([topic])
        cluster.close()


def test_an_exporter_that_is_none_is_named(exporter: Exporter) -> None:
    for path in ("/page", "/missing", "/endless"):
        with pytest.raises(BrokerUnreachable, match=path):
            scrape(exporter.url + path)
    with pytest.raises(BrokerUnreachable):
        scrape("http://127.0.0.1:1/metrics", timeout_seconds=1.0)
    with pytest.raises(ConfigError):
        scrape("file:///etc/passwd")
