"""The endpoint for scrapes and its clients."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stateflow.runtime.worker import metrics_endpoint


def nothing(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Length", "0")])
    return []


def test_a_client_that_says_nothing_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_endpoint._Handler, "timeout", 0.01)
    server = metrics_endpoint._listening("127.0.0.1", 0, nothing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port)) as client:
            assert client.recv(1) == b""  # the server has given it up
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert capfd.readouterr().err == ""
