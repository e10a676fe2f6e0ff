"""What workers with one writer each do, and what the world may do to them: the settings of a search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedProtocol:
    """What workers do. The defaults are KIP-447's way with every wait that it needs."""

    claims: bool = False
    """Claim a task before anything is written for it, and fence every writer with an earlier claim."""
    claims_first: bool = True
    """Fence after the claim is in the log, not before."""
    shows_generation: bool = True
    """The offsets of a transaction prove that the worker is in the group."""
    without_offsets: str = ""
    """Workers whose transactions have no offsets: at least once, or where an epoch without input sends none."""
    waits_for_offsets: bool = True
    """A new owner waits until no undecided transaction holds the task's offsets."""
    waits_for_end: bool = True
    """A new owner restores up to the end of the changelog, when all of it is decided; not up to its last stable
    offset at once."""
    new_ids: bool = True
    """Each life of a writer has a transactional id of its own."""
    new_life_after_retry: bool = True
    """Begin anew, with all tasks, when an EndTxn was sent more than once."""
    commits_before_moving: bool = True
    """Let go of a task only between transactions."""
    gives_up_when_lost: bool = True
    """Abort, and drop all tasks, when the group has gone on without this worker."""
    verifies_membership: bool = True
    """Ask the group, after a restore, whether one still is in it."""
    proves_first: bool = False
    """A task whose changelog has no commit record is given one before anything else is written for it."""
    sweeps: bool = False
    """After the fence, abort a transaction of the fenced writer that touches the changelog."""


@dataclass(frozen=True, slots=True)
class SharedFaults:
    """What the world may do, and how often."""

    moves: int = 0
    """Tasks handed over by a worker that is well, by a rebalance or by placement, without one."""
    throws: int = 0
    """Workers thrown out of the group; they do not know."""
    crashes: int = 0
    retries: int = 0
    duplicates: int = 0
    timeouts: int = 0
    """Transactions aborted by the coordinator for their age."""
    slow_markers: int = 0
    """Transactions whose markers reach changelog and group at different times, after the answer."""
    lost_markers: int = 0
    """Transactions that time out without a marker in the changelogs (KAFKA-20734)."""
    abandoned_time_out: bool = True
    """Transactions that nobody will end any more time out at last (switched off to show who waits for it)."""
    apart: bool = False
    """A transaction may also be of one task alone, so that tasks begin in different ones."""
    tasks: int = 1
    stateless: bool = False
    inputs: int = 2
