"""The broker of a run: one for all of its processes, begun when the first of them asks for it.

A broker that has worked for a while takes a third of the CPU time per request of one that has just started, and an
idle one takes two hundredths of a core. Tests name their topics, groups and applications uniquely; those that look at
a broker as a whole, or stop it, start one of their own.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.node import JVM_VARIABLE, SMALL_JVM, Jvm
from stateflow.errors import SetupError, StateflowError
from stateflow.testing.broker import VARIABLE, TestBroker, open_test_broker

HEAP_MIB = 768
"""What some hundred topics of five processes need, and then some."""
EMBEDDED = "embedded"
SETTINGS: dict[str, object] = {
    # Tests write records of 1970, which a broker would delete by their age.
    "log.retention.ms": -1,
    # The only broker of its cluster, which no test stops or freezes, has nobody to tell quickly that it lives: half
    # of what it takes while it has nothing to do. On a busy machine it is not taken for dead after three seconds.
    "metadata.max.idle.interval.ms": 5000,
    "broker.heartbeat.interval.ms": 5000,
    "broker.session.timeout.ms": 18_000,
}


@dataclass(frozen=True)
class RunBroker(TestBroker):
    """The broker of this run; `pid` and `log_dir` are None if the run did not start it."""

    pid: int | None = None
    log_dir: Path | None = None


@contextmanager
def open_broker(lender: str | None) -> Iterator[RunBroker]:
    """The broker that `lender` shares, for the time of the block; one of our own without it.

    STATEFLOW_TEST_BROKER chooses another one for all. Raises as ``open_test_broker`` does.
    """
    if lender and os.environ.get(VARIABLE, EMBEDDED) == EMBEDDED:
        yield _borrowed(lender)
        return
    with open_test_broker() as own:
        if own.embedded is None:
            yield RunBroker(own.bootstrap)
        else:
            yield RunBroker(own.bootstrap, own.embedded, own.embedded.pids[0], own.embedded.log_dirs[0])


def _borrowed(lender: str) -> RunBroker:
    with Client(lender, "AF_UNIX") as connection:
        connection.send_bytes(os.environ.get(JVM_VARIABLE, "").encode())
        answer = json.loads(connection.recv_bytes())
    if "problem" in answer:
        raise SetupError(answer["problem"], action=answer["action"])
    return RunBroker(answer["bootstrap"], None, answer["pid"], Path(answer["log_dir"]))


class BrokerLender:
    """Starts a broker when it is first asked for one, and tells everyone who asks where it is, until it is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stateflow-tests-")
        self.address = f"{self._folder.name}/broker"
        self._listener = Listener(self.address, "AF_UNIX")
        self._cluster: EmbeddedKafka | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the broker, if there is one."""
        with Client(self.address, "AF_UNIX"):  # hangs up without asking: the end
            pass
        self._thread.join()
        self._listener.close()
        if self._cluster is not None:
            self._cluster.stop()
        self._folder.cleanup()

    def _serve(self) -> None:
        while True:
            with self._listener.accept() as connection:
                try:
                    arguments = shlex.split(connection.recv_bytes().decode())
                except EOFError:
                    return
                connection.send_bytes(json.dumps(self._answer(arguments)).encode())

    def _answer(self, arguments: list[str]) -> dict[str, object]:
        if self._cluster is None:
            jvm = Jvm(HEAP_MIB, (*SMALL_JVM.arguments, *arguments))
            cluster = EmbeddedKafka(overrides=SETTINGS, jvm=jvm)
            try:
                self._cluster = cluster.start()
            except StateflowError as error:
                return {"problem": error.message, "action": error.action}
        (log_dir,), (pid,) = self._cluster.log_dirs, self._cluster.pids
        return {"bootstrap": self._cluster.bootstrap, "pid": pid, "log_dir": str(log_dir)}
