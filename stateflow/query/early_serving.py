"""Answering for keys over HTTP on loopback while a restore is under way, for `stateflow state get` and for programs.

``GET /v1/stores/STORE/keys/KEY?wait_seconds=S`` answers 200 with the rows, or 202 with the bound while they are not
known. A file in the application's state directory, for its owner alone as the state is, says where and with
which token (``Authorization: Bearer …``): other users of the machine reach loopback, too.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from stateflow.errors import ConfigError
from stateflow.query.local import TaskRow, as_fields
from stateflow.scale.early.asks import Answer, Ask, Bound
from stateflow.scale.early.restore import EarlyRestore
from stateflow.store.directory import make_private

FILE = "serving.json"
WAIT_SECONDS_MAX = 60.0
_WAITING_MAX = 64
"""Questions that wait at the same time: each has a thread."""
_IDLE_SECONDS = 10.0
"""A connection that sends nothing for so long is closed."""
_PARTS = ("v1", "stores", "keys")


@contextmanager
def serving(restore: EarlyRestore, state_dir: Path, app: str) -> Iterator[str]:
    """Inside, keys are answered for at the address that is yielded, and the file says so."""
    server = _Server(restore)
    file = state_dir / app / FILE
    make_private(file.parent)
    thread = threading.Thread(target=server.serve_forever, name="early-answers", daemon=True)
    thread.start()
    try:
        _write(file, {"url": server.url, "token": server.token, "pid": os.getpid()})
        yield server.url
    finally:
        file.unlink(missing_ok=True)
        server.shutdown()
        server.server_close()
        thread.join()


def answer_fields(answer: Answer) -> dict[str, Any]:
    """An answer as JSON has it."""
    return {
        "store": answer.store,
        "key": answer.key,
        "rows": [as_fields(TaskRow(answer.task or "", row)) for row in answer.rows],
        "source": answer.source,
        "task": answer.task,
        "offset_first": None if answer.offsets is None else answer.offsets.offset_first,
        "offset_next": None if answer.offsets is None else answer.offsets.offset_next,
        "seconds": answer.seconds,
    }


def bound_fields(bound: Bound | None) -> dict[str, Any] | None:
    """A bound as JSON has it; None while the question was not taken up."""
    return None if bound is None else asdict(bound)


class _Server(ThreadingHTTPServer):
    """On a free port of loopback."""

    daemon_threads = True
    block_on_close = False  # who waits when the restore ends is told by its question, which ends then

    def __init__(self, restore: EarlyRestore) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.restore = restore
        self.token = secrets.token_urlsafe(32)
        self.waiting = threading.Semaphore(_WAITING_MAX)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Answer one question."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._send(HTTPStatus.UNAUTHORIZED, {"message": f"the token is in {FILE}"})
        elif not self.server.waiting.acquire(blocking=False):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"message": f"{_WAITING_MAX} questions wait already"})
        else:
            try:
                self._send(*self._answered())
            finally:
                self.server.waiting.release()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: keys are state, which no log has."""

    def _answered(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        url = urlsplit(self.path)
        parts = url.path.split("/")[1:]
        if len(parts) != 5 or (parts[0], parts[1], parts[3]) != _PARTS:
            return HTTPStatus.NOT_FOUND, {"message": "ask for /v1/stores/STORE/keys/KEY"}
        try:
            seconds = float(parse_qs(url.query).get("wait_seconds", ["0"])[0])
            ask = self.server.restore.ask(unquote(parts[2]), unquote(parts[4]))
        except (ConfigError, ValueError) as error:
            return HTTPStatus.BAD_REQUEST, {"message": str(error)}
        answer = ask.wait(min(max(seconds, 0.0), WAIT_SECONDS_MAX))
        return _outcome(ask, answer, is_whole=self.server.restore.is_whole)

    def _send(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        data = json.dumps(content, default=str).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _outcome(ask: Ask, answer: Answer | None, *, is_whole: bool) -> tuple[HTTPStatus, Mapping[str, Any]]:
    if answer is not None:
        return HTTPStatus.OK, answer_fields(answer)
    if ask.is_over:
        said = "the restore is whole" if is_whole else "the restore ended before the key was found"
        return HTTPStatus.GONE, {"message": said, "is_whole": is_whole}
    return HTTPStatus.ACCEPTED, {"store": ask.entry.name, "key": ask.key, "bound": bound_fields(ask.bound)}


def _write(file: Path, content: Mapping[str, Any]) -> None:
    """Under its name only when it is whole, and readable for its owner alone from the first byte on."""
    draft = file.with_name(f"{FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(content, out)
    draft.rename(file)
