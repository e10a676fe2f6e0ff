"""Where one case of the crash matrix happens: an application of its own, its worker processes, their disks and logs."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.errors import CatalogMissing, Interrupted, MembershipLost, ProducerFenced, StateflowError
from stateflow.failpoints import VARIABLE, Strike, Strikes
from stateflow.lab.faults.matrix.fork_server import STACKS_SIGNAL, ForkServer, ProcessState
from stateflow.lab.faults.matrix.operations import Operation, Operations, Oracle, source_partition
from stateflow.log.base import Cluster, TopicSpec
from stateflow.runtime.progress.lag import is_drained

TARGET = "stateflow.lab.faults.matrix.app:app"
SOURCE_PARTITIONS = 1
OUTPUT_PARTITIONS = 2
_POLL_SECONDS = 0.02
_STARTS_MAX = 6
_STACKS_SECONDS = 0.3
_TAKEN_OVER = (ProducerFenced.exit_code, MembershipLost.exit_code)

SETTINGS = {
    "STATEFLOW_COMMIT_INTERVAL_SECONDS": "0.1",
    "STATEFLOW_FLUSH_INTERVAL_SECONDS": "0.2",
    "STATEFLOW_PURGE_INTERVAL_SECONDS": "0.2",
    "STATEFLOW_IDLE_SECONDS": "0.5",
    "STATEFLOW_RESTORE_THREADS": "4",
    "STATEFLOW_CLIENT__FETCH_WAIT_MAX_MS": "50",
    "STATEFLOW_REVOKE_TIMEOUT_SECONDS": "5",
    "STATEFLOW_CLIENT__SESSION_TIMEOUT_MS": "2000",
    "STATEFLOW_CLIENT__HEARTBEAT_INTERVAL_MS": "300",
    "STATEFLOW_CLIENT__TRANSACTION_TIMEOUT_MS": "8000",
    "STATEFLOW_CLIENT__SOCKET_TIMEOUT_MS": "2000",
}
"""Short timeouts, so that a successor need not wait long. They change how long things take, and nothing else."""


STRIKE_SECONDS = 30.0
"""How long a case waits for its fault."""

IMAGES = "images"
"""Where images are kept, below the folder in which a case's processes are started."""


class Stuck(Exception):
    """What must come after a fault did not come in time."""


@dataclass(slots=True)
class Member:
    """One process of the case: a worker, or a tool that runs beside one."""

    name: str
    pid: int
    disk: Path
    log: Path
    arguments: Sequence[str]
    strike: Strike | None
    is_worker: bool = True
    codes: list[int] = field(default_factory=list)
    """How it ended, each time."""

    @property
    def has_struck(self) -> bool:
        """True once its armed fault has announced itself."""
        return self.strike is not None and Strikes.announced(self.strike) in self.log.read_text(
            errors="replace"
        )


@dataclass(frozen=True, slots=True)
class Lane:
    """What cases that run one after another share."""

    cluster: Cluster
    brokers: str
    fork_server: ForkServer
    cancelled: threading.Event
    """Set when whoever asked for the cases no longer wants them."""

    def check(self) -> None:
        """Raise ``Interrupted`` when nobody wants the result any more."""
        if self.cancelled.is_set():
            raise Interrupted("The study was stopped.", action="start it again with the same seed.")


class Site:
    """An application on a broker, and processes that run it. ``close`` leaves none of them."""

    def __init__(self, lane: Lane, place: Path, app: str, seed: int, settings: Mapping[str, str]) -> None:
        self.lane = lane
        self.cluster = cluster = lane.cluster
        self.place = place
        self.app = app
        self.random = random.Random(seed)  # noqa: S311 - a history, not a secret
        self.oracle = Oracle()
        self.injected = False
        """True once the fault has struck."""
        self.settings = {**SETTINGS, "STATEFLOW_BROKERS": lane.brokers, "FAULTS_APP": app, **settings}
        self.members: list[Member] = []
        self.disks: list[Path] = []
        self._operations = Operations(seed)
        self._catalog: Catalog | None = None
        place.mkdir(parents=True)
        cluster.create(
            [TopicSpec(f"{app}-in", SOURCE_PARTITIONS), TopicSpec(f"{app}-out", OUTPUT_PARTITIONS)]
        )
        self._writer = cluster.writer()

    def close(self) -> None:
        """End everything at once and throw the disks away."""
        for member in self.members:
            self.signal(member, signal.SIGKILL)
        while any(self.state(member).code is None for member in self.members):
            time.sleep(_POLL_SECONDS)  # the kernel takes a moment; nothing survives the signal
        self._writer.close()
        shutil.rmtree(self.place, ignore_errors=True)

    # --- input ------------------------------------------------------------------------------------------

    def feed(self, count: int) -> None:
        """Send the next operations, and note them for the oracle."""
        self._send(list(self._operations.take(count)))

    def feed_one_each(self, count: int) -> None:
        """Send one operation for each of many keys."""
        self._send(list(self._operations.one_each(count)))

    def _send(self, operations: list[Operation]) -> None:
        now_ms = int(time.time() * 1000)
        self._writer.begin()
        for operation in operations:
            partition = source_partition(operation.key, SOURCE_PARTITIONS)
            data = str(operation).encode()
            self._writer.send(f"{self.app}-in", None, data, partition=partition, timestamp_ms=now_ms)
        self._writer.commit()
        self.oracle.add(operations)

    # --- processes --------------------------------------------------------------------------------------

    def worker(self, name: str, *, disk: str | None = None, strike: Strike | None = None) -> Member:
        """Start a worker, its state on the disk of that name (its own by default)."""
        where = self.place / (disk or name)
        arguments = ["run", TARGET, "--name", name, "--state-dir", str(where), "--verbose"]
        if where not in self.disks:
            self.disks.append(where)
        return self._begin(name, where, arguments, strike)

    def tool(self, name: str, arguments: Sequence[str], strike: Strike | None = None) -> Member:
        """Start another `stateflow` command."""
        member = self._begin(name, self.place, arguments, strike)
        member.is_worker = False
        return member

    def _begin(self, name: str, disk: Path, arguments: Sequence[str], strike: Strike | None) -> Member:
        log = self.place / f"{name}-{len(self.members)}.log"
        log.touch()
        member = Member(name, 0, disk, log, arguments, strike)
        self._start(member)
        self.members.append(member)
        return member

    def _start(self, member: Member) -> None:
        armed = {} if member.strike is None else {VARIABLE: str(member.strike)}
        environment = {**self.settings, **armed}
        member.pid = self.lane.fork_server.start(member.arguments, environment, self.place, member.log)

    def again(self, member: Member) -> None:
        """Start an ended member anew, as a supervisor does: same name, same disk, nothing armed."""
        member.strike = None
        self._start(member)

    def state(self, member: Member) -> ProcessState:
        """How a member's process stands."""
        return self.lane.fork_server.state(member.pid)

    def signal(self, member: Member, number: signal.Signals) -> None:
        """Signal a member's process."""
        self.lane.fork_server.signal(member.pid, number)

    def stop(self, *members: Member) -> None:
        """Ask members to commit and end, and wait for it."""
        for member in members:
            self._await_listening(member)
            self.signal(member, signal.SIGTERM)
        for member in members:
            self.await_ended(member)

    def _await_listening(self, member: Member) -> None:
        """One that has just been started again cannot be asked to stop yet: it would just be gone."""
        self.wait_until(
            lambda: self.state(member).code is not None or catches(member.pid, signal.SIGTERM),
            f"{member.name} to listen",
        )

    def kill(self, member: Member) -> None:
        """End a member as a power cut would."""
        self.signal(member, signal.SIGKILL)
        self.await_ended(member)

    def await_ended(self, member: Member, seconds: float = 20.0) -> int:
        """Wait for a member's end; its exit code."""
        self.wait_until(lambda: self.state(member).code is not None, f"the end of {member.name}", seconds)
        code = self.state(member).code
        assert code is not None, "it has ended"
        member.codes.append(code)
        return code

    def run(self, name: str, arguments: Sequence[str]) -> None:
        """Run another `stateflow` command to its end, which must be a good one."""
        tool = self.tool(name, arguments)
        code = self.await_ended(tool)
        if code:
            raise Stuck(f"{name} ended with {code}")

    def run_when_possible(self, name: str, arguments: Sequence[str], seconds: float = 40.0) -> None:
        """Run it again and again until it ends well, as it may have to wait for what another one left."""
        deadline = time.monotonic() + seconds
        while self.await_ended(self.tool(name, arguments)):
            if time.monotonic() > deadline:
                raise Stuck(f"{name} did not end well within {seconds:.0f} s")

    def forget_catalog(self) -> None:
        """Read the catalog again when it is needed next: something has changed it."""
        self._catalog = None

    # --- how far it is ------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The application's catalog, once its own topics are there. Raises ``CatalogMissing``."""
        if self._catalog is None:
            found = ControlTopic(self.cluster, self.app).load()
            if not found.active.topic_ids:
                raise CatalogMissing("the topics are not there yet.", action="wait.")
            self._catalog = found
        return self._catalog

    @property
    def is_prepared(self) -> bool:
        """True when a worker has written the catalog and made the topics."""
        try:
            return bool(self.catalog.active.topic_ids)
        except CatalogMissing:
            return False

    @property
    def is_drained(self) -> bool:
        """True when everything that was sent is processed and committed."""
        return self.is_prepared and is_drained(self.cluster, self.catalog)

    def drain(self, *members: Member, seconds: float = 60.0) -> None:
        """Wait until all is processed, starting again those of ``members`` that end before, as a supervisor does."""
        deadline = time.monotonic() + seconds
        while not self.is_drained:
            for member in members:
                code = self.state(member).code
                if code is not None:
                    self._again_after(member, code)
            if time.monotonic() > deadline:
                raise Stuck(f"the input was not processed within {seconds:.0f} s")
            self.lane.check()
            time.sleep(_POLL_SECONDS)

    def _again_after(self, member: Member, code: int) -> None:
        member.codes.append(code)
        if len(member.codes) > _STARTS_MAX or (
            code >= 0 and code not in _TAKEN_OVER and member.strike is None
        ):
            raise Stuck(f"{member.name} ended with {member.codes}")
        self.again(member)

    def feed_until(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Keep sending a few operations until it has happened; False when it does not in time."""
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline:
                return False
            self.lane.check()
            self.feed(self.random.randrange(2, 8))
            time.sleep(_POLL_SECONDS * 2)
        return True

    def wait_until(self, happened: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
        """Wait; ``Stuck`` when it does not happen in time."""
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline:
                raise Stuck(f"waited {seconds:.0f} s for {what}")
            self.lane.check()
            time.sleep(_POLL_SECONDS)

    def happens(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Wait; whether it happened in time."""
        try:
            self.wait_until(happened, "", seconds)
        except Stuck:
            return False
        return True

    def show_stacks(self) -> None:
        """Let every process that still runs write what each of its threads is doing."""
        for member in self.members:
            self.signal(member, signal.SIGCONT)
            self.signal(member, STACKS_SIGNAL)
        time.sleep(_STACKS_SECONDS)

    def said(self) -> str:
        """What the processes wrote, for whoever looks into a failure."""
        logs = [
            f"--- {member.name} {member.codes}\n{member.log.read_text(errors='replace')}"
            for member in self.members
        ]
        return "\n".join(logs)


Struck = Member | None
"""Who a fault has struck; None when it did not come to that."""


def struck_while_fed(site: Site, member: Member) -> Struck:
    """Keep sending until the member's fault strikes."""
    return member if site.feed_until(lambda: member.has_struck, STRIKE_SECONDS) else None


CaseError = (Stuck, StateflowError, OSError)
"""What makes a case fail by itself, apart from what its checks find."""


def catches(pid: int, number: signal.Signals) -> bool:
    """True when a process has a handler of its own for a signal (Linux)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False  # it is gone
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
