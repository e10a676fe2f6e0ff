"""What a broker on this machine spends on compaction: CPU by thread, read from /proc."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CLEANER, _REQUESTS, _SCHEDULER = "kafka-log-clean", "data-plane-kafk", "kafka-scheduler"
"""Thread names, as the kernel cuts them."""


@dataclass(frozen=True, slots=True)
class BrokerCpu:
    """CPU seconds that a broker process has used so far, by what its threads do."""

    cleaner_seconds: float
    request_seconds: float
    """Request handlers and network threads: appends, and with them the rolling of segments."""
    total_seconds: float
    cleaner_wait_seconds: float
    """Time that cleaner threads were ready to run and did not get a core: the machine was busy otherwise."""
    scheduler_seconds: float = 0.0
    """Housekeeping: flushing, and deleting segments that were replaced or trimmed."""

    def __sub__(self, earlier: BrokerCpu) -> BrokerCpu:
        return BrokerCpu(
            self.cleaner_seconds - earlier.cleaner_seconds,
            self.request_seconds - earlier.request_seconds,
            self.total_seconds - earlier.total_seconds,
            self.cleaner_wait_seconds - earlier.cleaner_wait_seconds,
            self.scheduler_seconds - earlier.scheduler_seconds,
        )


def broker_pid(host: str, port: int) -> int | None:
    """The process on this machine that listens on the broker's port; None for a remote or hidden one."""
    if not _is_local(host) or not (_PROC / "net" / "tcp").exists():
        return None
    inodes = _listening_inodes(port)
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _holds_socket(entry, inodes):
            return int(entry.name)
    return None


def broker_cpu(pid: int) -> BrokerCpu:
    """CPU used by the broker's threads until now. Raises ``ProcessLookupError`` when it is gone."""
    cleaner = requests = scheduler = total = waited = 0
    try:
        tasks = list((_PROC / str(pid) / "task").iterdir())
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    for task in tasks:
        try:
            name = (task / "comm").read_text()
            ran, waiting, _ = (task / "schedstat").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that ended meanwhile
        nanoseconds = int(ran)
        total += nanoseconds
        if name.startswith(_CLEANER):
            cleaner += nanoseconds
            waited += int(waiting)
        elif name.startswith(_REQUESTS):
            requests += nanoseconds
        elif name.startswith(_SCHEDULER):
            scheduler += nanoseconds
    return BrokerCpu(cleaner / 1e9, requests / 1e9, total / 1e9, waited / 1e9, scheduler / 1e9)


def _is_local(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address)).is_loopback for address in addresses)


def _listening_inodes(port: int) -> set[str]:
    listening, found = "0A", set()
    for table in ("tcp", "tcp6"):
        path = _PROC / "net" / table
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == listening and int(fields[1].rsplit(":", 1)[1], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _holds_socket(process: Path, sockets: set[str]) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return False  # another user's process, or one that ended meanwhile
    return any(_link(descriptor) in sockets for descriptor in descriptors)


def _link(descriptor: Path) -> str | None:
    """What an open file leads to; None when it was closed meanwhile, as a broker does with segments all the time."""
    try:
        return os.readlink(descriptor)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return None
