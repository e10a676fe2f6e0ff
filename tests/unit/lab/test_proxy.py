"""The proxy tells of every request that it spoils, however fast the broker is."""

from __future__ import annotations

import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator

import pytest

from stateflow.lab.network.faults import Action, Fault, RequestHead
from stateflow.lab.network.proxy import KafkaProxy
from tests.unit.lab.kafka_requests import end_txn

ROUNDS = 300
REQUEST = end_txn(1, "t", commits=True)
ANSWER = struct.pack(">iih", RequestHead.parse(REQUEST).correlation_id, 0, 0)


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


@pytest.fixture
def hasty_broker() -> Iterator[str]:
    """Answers each connection's one request as soon as it has it."""

    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4 + len(REQUEST), socket.MSG_WAITALL)
            self.request.sendall(framed(ANSWER))

    with socketserver.TCPServer(("127.0.0.1", 0), Answering) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


@pytest.fixture
def switching_threads() -> Iterator[None]:
    """Every few bytecodes another thread's turn."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("switching_threads")
def test_a_lost_answer_is_told_however_soon_it_came(hasty_broker: str) -> None:
    with KafkaProxy(hasty_broker) as proxy:
        host, _, port = proxy.bootstrap.partition(":")
        for _ in range(ROUNDS):
            caught = proxy.arm(Fault(Action.LOSE_ANSWER))
            with socket.create_connection((host, int(port))) as client:
                client.sendall(framed(REQUEST))
                assert client.recv(1) == b"", "the answer is lost"
            assert caught.wait(timeout_seconds=5.0).broker == ("127.0.0.1", int(hasty_broker.split(":")[1]))
