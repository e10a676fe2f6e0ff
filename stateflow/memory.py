"""How the memory of one worker process is divided: one limit, and a share of it for everything that may grow.

Whatever grows with the load has a bound of its own or is set aside for, and all comes from here, so that one number
says what a process takes. Shares count what things really cost: a small record in a queue of the Kafka client takes
some 400 bytes beside its key and value, an entry of a map in Python some 200.

What grows with the number of tasks instead (a producer and a RocksDB each) has no bound here: ``docs/operating.md`` has
it measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

MEMORY_BYTES_MIN = 256 << 20
MEMORY_BYTES = 1 << 30
ENTRY_BYTES = 200
"""What an entry of a map costs beside its key and value: two bytes objects and a slot, about."""
QUEUED_RECORD_BYTES = 400
"""What a record in a client's queue of fetched records costs beside key and value; measured with librdkafka 2.16."""
SENT_RECORD_BYTES = 220
"""The same of a record that waits to be sent."""
TASK_BYTES = 1 << 20
"""What a task takes by itself, idle: a producer with its threads, an open database; measured with 64 tasks."""
SHARING_TASK_BYTES = TASK_BYTES // 2
"""The same where tasks share a producer; measured with 256 tasks."""
_PROCESS_BYTES = 80 << 20
"""What a worker takes before its first task."""
_TASK_CACHE_BYTES_MAX = 32 << 20
_RESTORE_BYTES_MIN = 8 << 20


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Bytes for each use. They add up to ``limit_bytes``."""

    process_bytes: int
    """Python, code and libraries; threads and connections; what allocators cannot give back."""
    block_cache_bytes: int
    """RocksDB's cache of blocks, indexes and filters, of all tasks."""
    memtables_bytes: int
    """RocksDB's memtables, of all tasks."""
    read_caches_bytes: int
    """Values that were read or committed, of all running tasks together."""
    dirty_bytes: int
    """State changed since the last commit, of all running tasks together: the largest task commits early."""
    commit_bytes: int
    """Set aside for what commits copy of their tasks' changes: sorted, on their way to the changelog, and to RocksDB.
    Nothing enforces it: as large as ``dirty_bytes``, which bounds the changes, those being committed included."""
    input_bytes: int
    """Records fetched ahead by the member of the group."""
    output_bytes: int
    """Records that wait to be sent, or for their acknowledgement."""
    restore_bytes: int
    """Restores that run at the same time, with what their readers fetch ahead."""
    standby_bytes: int
    """Standby copies, with what their reader fetches ahead; nothing without them."""

    @property
    def limit_bytes(self) -> int:
        """All of it."""
        return sum(size_bytes for _, size_bytes in self.shown())

    def shown(self) -> list[tuple[str, int]]:
        """Each share by its name."""
        return [(share.name, getattr(self, share.name)) for share in fields(self)]

    @property
    def tasks_max(self) -> int:
        """More tasks than this take more than ``process_bytes`` by themselves."""
        return max(1, (self.process_bytes - _PROCESS_BYTES) // TASK_BYTES)

    def restore_bytes_each(self, restores: int) -> int:
        """Of that many restores side by side, what one may take: half for its reader, half for what it holds."""
        return max(_RESTORE_BYTES_MIN, self.restore_bytes // max(1, restores))

    def read_cache_bytes_each(self, tasks: int) -> int:
        """The read cache of one of that many running tasks."""
        return min(_TASK_CACHE_BYTES_MAX, self.read_caches_bytes // max(1, tasks))


def memory_shares(limit_bytes: int = MEMORY_BYTES, *, standby: bool = False) -> MemoryShares:
    """The limit, divided."""
    part = limit_bytes // 16
    standby_bytes = part if standby else 0
    given = {
        "block_cache_bytes": 2 * part,
        "memtables_bytes": part,
        "read_caches_bytes": 2 * part,
        "dirty_bytes": 2 * part,
        "commit_bytes": 2 * part,
        "input_bytes": 2 * part,
        "output_bytes": part,
        "restore_bytes": 2 * part - standby_bytes,
        "standby_bytes": standby_bytes,
    }
    return MemoryShares(process_bytes=limit_bytes - sum(given.values()), **given)
