"""Which request a :class:`~stateflow.lab.network.proxy.KafkaProxy` spoils, how, and what became of it."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass
from enum import Enum

END_TXN = 26
"""API key of the request that ends a transaction."""

CONNECTION_CUT = "cut by the proxy"
_END_TXN_FLEXIBLE_FROM = 3
_ANSWER_TIMEOUT_SECONDS = 10.0


class Action(Enum):
    """What happens to the chosen request."""

    HOLD = "hold"
    """Kept back; the connection stays up, so the client waits for its own timeout before it tries again."""
    HOLD_AND_CUT = "hold-and-cut"
    """Kept back, and the connection breaks: the client tries again at once, on another one."""
    LOSE_ANSWER = "lose-answer"
    """Forwarded, and the connection breaks before the answer arrives."""
    DUPLICATE = "duplicate"
    """Forwarded as it is, and a copy kept for later. No TCP network does this; a broken middlebox might."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What stands before every request's body, and for EndTxn whose transaction it ends and how."""

    api_key: int
    api_version: int
    correlation_id: int
    transactional_id: str | None = None
    commits: bool | None = None

    @classmethod
    def parse(cls, frame: bytes) -> RequestHead:
        """Read a request without its length prefix."""
        api_key, api_version, correlation_id, client_id_bytes = struct.unpack_from(">hhih", frame)
        if api_key != END_TXN:
            return cls(api_key, api_version, correlation_id)
        body = frame[10 + max(0, client_id_bytes) :]
        if api_version >= _END_TXN_FLEXIBLE_FROM:  # one byte of (no) tagged fields, then a compact string
            start, length = 2, body[1] - 1
        else:
            start, length = 2, struct.unpack_from(">h", body)[0]
        transactional_id = body[start : start + length].decode()
        (commits,) = struct.unpack_from(">?", body, start + length + 10)
        return cls(api_key, api_version, correlation_id, transactional_id, commits)


@dataclass(frozen=True, slots=True)
class Fault:
    """The next request of this kind, and what is done to it."""

    action: Action
    api_key: int = END_TXN
    transactional_id: str | None = None
    """Of EndTxn: only this one's; None takes anybody's."""
    commits: bool | None = None
    """Of EndTxn: only commits, or only aborts; None takes either."""

    @property
    def forwards(self) -> bool:
        """True when the broker gets the request at its time."""
        return self.action in (Action.LOSE_ANSWER, Action.DUPLICATE)

    @property
    def cuts(self) -> bool:
        """True when the client loses its connection."""
        return self.action in (Action.HOLD_AND_CUT, Action.LOSE_ANSWER)

    def matches(self, head: RequestHead) -> bool:
        """True for a request that this fault is meant for."""
        return (
            head.api_key == self.api_key
            and self.transactional_id in (None, head.transactional_id)
            and self.commits in (None, head.commits)
        )


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """A request as the client sent it, to be delivered later."""

    broker: tuple[str, int]
    head: RequestHead
    frame: bytes

    def deliver(self) -> int:
        """Send it to the broker on a connection of its own; the broker's error code (0: it was obeyed).

        When this returns, the coordinator has written its decision; markers may still be on their way. Only
        for EndTxn, whose answer is known: throttle time, then the error.
        """
        assert self.head.api_key == END_TXN, "only the answer to EndTxn can be read"
        with socket.create_connection(self.broker, _ANSWER_TIMEOUT_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(self.frame)) + self.frame)
            answer = connection.makefile("rb")
            (length,) = struct.unpack(">i", answer.read(4))
            body = answer.read(length)
        tags = 1 if self.head.api_version >= _END_TXN_FLEXIBLE_FROM else 0
        (error_code,) = struct.unpack_from(">h", body, 8 + tags)
        return int(error_code)


class Caught:
    """The one request that a fault has met, or is still waiting for."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._happened = threading.Event()
        self._request: HeldRequest | None = None

    def catch(self, request: HeldRequest) -> None:
        """Called by the proxy."""
        self._request = request
        self._happened.set()

    @property
    def happened(self) -> bool:
        """True once the request was spoilt."""
        return self._happened.is_set()

    def wait(self, timeout_seconds: float = 10.0) -> HeldRequest:
        """The spoilt request; ``TimeoutError`` when none came."""
        if not self._happened.wait(timeout_seconds):
            raise TimeoutError(f"no request matched {self.fault} within {timeout_seconds} s")
        assert self._request is not None
        return self._request
