"""Which process a broker is, as its sockets tell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.compaction.sensing.broker_cpu import broker_cpu, broker_pid

LOOKS = 60  # without the care that is tested, about one look in seven fails
CHURNING = """
import itertools, socket, sys
files = [open(sys.argv[1]) for _ in range(200)]  # numbered before the socket: they are looked at first
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
for number in itertools.count():
    files[number % 200].close()
    files[number % 200] = open(sys.argv[1])
"""


@pytest.fixture
def churning(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Process and port of a server that closes and opens files without end, as a broker does with segments."""
    path = tmp_path / "segment"
    path.touch()
    with subprocess.Popen(
        [sys.executable, "-c", CHURNING, str(path)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.pid, int(server.stdout.readline())
        finally:
            server.kill()


def test_a_broker_that_closes_files_meanwhile_is_found(churning: tuple[int, int]) -> None:
    pid, port = churning
    assert {broker_pid("127.0.0.1", port) for _ in range(LOOKS)} == {pid}


def test_cpu_of_a_process_that_is_gone_is_refused(churning: tuple[int, int]) -> None:
    pid, _ = churning
    assert broker_cpu(pid).total_seconds > 0
    with pytest.raises(ProcessLookupError):
        broker_cpu(2**22 + 1)  # no process has a number above this limit
