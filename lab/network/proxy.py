"""A TCP proxy between Kafka clients and a broker that spoils one chosen request.

It makes the faults that a real network makes and no client API can: a request that arrives long after its
sender gave up on it, a connection that breaks just before or just after the broker acted. Addresses in the
broker's answers are rewritten, so clients that start at the proxy stay behind it.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from stateflow.lab.network.faults import CONNECTION_CUT, Caught, Fault, HeldRequest, RequestHead

_HOST = "127.0.0.1"
_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER = 3, 10, 60
_ANSWERS_WITH_ADDRESSES = frozenset({_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER})
_FRAME_BYTES_MAX = 256 << 20


class KafkaProxy:
    """Forwards every connection to its broker until a fault is armed; then spoils the next matching request.

    ``brokers`` is a bootstrap list that names every broker of the cluster (plaintext, addressed as its
    brokers advertise themselves or by this machine's name). Thread-safe.
    """

    def __init__(self, brokers: str) -> None:
        self._targets = [_address(one) for one in brokers.split(",")]
        self._listeners = [socket.create_server((_HOST, 0)) for _ in self._targets]
        self._ports = {
            target[1]: listener.getsockname()[1]
            for target, listener in zip(self._targets, self._listeners, strict=True)
        }
        self._lock = threading.Lock()
        self._armed: list[Caught] = []
        self._sockets: set[socket.socket] = set()
        self._seen: Counter[int] = Counter()
        self._closed = False

    @property
    def bootstrap(self) -> str:
        """`host:port[,…]` for the clients that are to go through the proxy."""
        return ",".join(f"{_HOST}:{self._ports[port]}" for _, port in self._targets)

    def __enter__(self) -> Self:
        for listener, target in zip(self._listeners, self._targets, strict=True):
            threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        with ExitStack() as stack:
            for listener in self._listeners:
                stack.callback(_close, listener)
            for connection in list(self._sockets):
                stack.callback(_close, connection)

    def arm(self, fault: Fault) -> Caught:
        """Spoil the next request that ``fault`` matches, once; the answer tells when, and holds the
        request."""
        caught = Caught(fault)
        with self._lock:
            self._armed.append(caught)
        return caught

    def requests_total(self, api_key: int) -> int:
        """Requests of one kind that clients have sent so far."""
        with self._lock:
            return self._seen[api_key]

    # --- one connection: a thread each way ------------------------------------------------------------

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        while not self._closed:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # closed: the proxy ends
            try:
                broker = socket.create_connection(target)
            except OSError:
                client.close()  # as the broker itself would refuse
                continue
            link = _Link(client, broker, target)
            with self._lock:
                self._sockets |= {client, broker}
            for pump in (self._pump_requests, self._pump_answers):
                threading.Thread(target=self._run, args=(pump, link), daemon=True).start()

    def _run(self, pump: Callable[[_Link], None], link: _Link) -> None:
        with suppress(OSError):  # either end went away: so does the other
            pump(link)
        link.close()
        with self._lock:
            self._sockets -= {link.client, link.broker}

    def _pump_requests(self, link: _Link) -> None:
        while (frame := _read_frame(link.client)) is not None:
            head = RequestHead.parse(frame)
            caught = self._match(head)
            link.asked[head.correlation_id] = head.api_key
            if caught is None:
                _write_frame(link.broker, frame)
                continue
            fault = caught.fault
            if fault.forwards:
                if fault.cuts:
                    link.answer_and_cut.add(head.correlation_id)
                _write_frame(link.broker, frame)
            caught.catch(HeldRequest(link.address, head, frame))
            if fault.cuts and not fault.forwards:
                raise OSError(CONNECTION_CUT)

    def _pump_answers(self, link: _Link) -> None:
        while (frame := _read_frame(link.broker)) is not None:
            (correlation_id,) = struct.unpack_from(">i", frame)
            api_key = link.asked.pop(correlation_id, -1)
            if correlation_id in link.answer_and_cut:
                raise OSError(CONNECTION_CUT)  # the broker has acted, its answer is lost
            if api_key in _ANSWERS_WITH_ADDRESSES:
                frame = self._with_own_ports(frame)
            _write_frame(link.client, frame)

    def _match(self, head: RequestHead) -> Caught | None:
        with self._lock:
            self._seen[head.api_key] += 1
            for index, caught in enumerate(self._armed):
                if caught.fault.matches(head):
                    return self._armed.pop(index)
        return None

    def _with_own_ports(self, frame: bytes) -> bytes:
        """Every broker address with the proxy's port. A port is four bytes behind its host in all
        versions."""
        for host, port in self._targets:
            names = b"|".join(re.escape(name.encode()) for name in {host, _HOST, "localhost"})
            old, new = struct.pack(">i", port), struct.pack(">i", self._ports[port])
            frame = re.sub(b"(?:" + names + b")" + re.escape(old), _keeping_host(new), frame)
        return frame


class _Link:
    """One client connection and the connection to the broker that serves it."""

    def __init__(self, client: socket.socket, broker: socket.socket, address: tuple[str, int]) -> None:
        self.client = client
        self.broker = broker
        self.address = address
        self.asked: dict[int, int] = {}
        self.answer_and_cut: set[int] = set()

    def close(self) -> None:
        _close(self.client)
        _close(self.broker)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    return host, int(port)


def _read_frame(source: socket.socket) -> bytes | None:
    """One length-prefixed message, or None at a clean end of the stream."""
    head = _read_exactly(source, 4)
    if head is None:
        return None
    (length,) = struct.unpack(">i", head)
    if not 0 <= length <= _FRAME_BYTES_MAX:
        raise OSError(f"a Kafka message of {length} bytes")
    return _read_exactly(source, length)


def _read_exactly(source: socket.socket, length: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < length:
        part = source.recv(min(1 << 20, length - len(parts)))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _write_frame(target: socket.socket, frame: bytes) -> None:
    target.sendall(struct.pack(">i", len(frame)) + frame)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):  # already disconnected
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _keeping_host(port: bytes) -> Callable[[re.Match[bytes]], bytes]:
    return lambda hit: hit[0][: -len(port)] + port
