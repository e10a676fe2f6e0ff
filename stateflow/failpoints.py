"""Named places in the code where a fault may strike: a kill, a hang, an exception.

The code says ``reach("commit.before_records")`` wherever a crash would leave things in a state of their own. That
costs one look at a variable unless somebody has armed the process: a test or a simulation with a handler of its own,
or a child process through one environment variable, see :func:`arm_from_environment`.

To add a point: one line in :data:`POINTS`, and the call. A test compares the table with the calls.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from stateflow.errors import ConfigError, StateflowError

VARIABLE = "STATEFLOW_FAILPOINTS"
"""``point:hit:action[,…]``: what strikes in this process, see :class:`Strike`."""

POINTS: Mapping[str, str] = {
    # a worker comes up
    "startup.before_catalog": "nothing of the application is written yet",
    "startup.before_topics": "the catalog is written, the application's own topics may be missing",
    "startup.before_topic_ids": "the topics are there, the catalog does not know their ids",
    "startup.before_join": "all is prepared, the worker is not a member of the group yet",
    # a task is opened
    "open.before_fence": "a predecessor may still be writing",
    "open.after_fence": "the predecessor is fenced, nothing is read yet",
    "open.before_first": "it has no committed input position, and never had: it is about to commit the first",
    "open.after_offsets": "the committed input offsets are known, no store is open",
    "open.after_stores": "the local stores are open and locked",
    "open.after_resolve": "the last commit is known, nothing is restored",
    "open.after_restore": "the stores stand for the last commit",
    "open.before_build": "a torn commit was repaired, if there was one",
    "open.after_build": "the task is ready, nothing is read from its input",
    # a task is claimed for a writer that others use, too
    "claim.before": "the writer is there, nobody can know that it will write for the task",
    "claim.after": "the claim is in the log, those with earlier ones may still be writing",
    "fence.each": "one of those who claimed the task before is about to be fenced",
    "release.before": "the task is let go of, its claim is still in the log",
    # what a torn commit left is repaired
    "takeover.before_begin": "orphaned keys, or a group's offset that is wrong, are known",
    "takeover.after_values": "true values are sent, in an open transaction",
    "takeover.before_records": "true values are acknowledged, no commit record is sent",
    "takeover.before_offsets": "commit records are acknowledged, the offsets are not in the transaction",
    "takeover.before_end": "everything is in the transaction, which is open",
    "takeover.after_end": "the transaction is committed, the stores do not know",
    "takeover.after_apply": "the stores stand behind what was repaired",
    # a changelog is read into a store
    "restore.before_clear": "a store that must go is still there",
    "restore.within_clear": "its position is gone from disk, its content is not",
    "restore.after_clear": "the store is empty",
    "restore.after_read": "records are pending in memory",
    "restore.before_write": "an epoch of the restore is complete, and not written",
    "restore.before_ingest": "its sorted file is written, the database does not have it",
    "restore.after_ingest": "the database has the file, the position is not moved",
    "restore.after_write": "an epoch and its position are written, not flushed",
    "restore.before_flush": "every store has reached its target, not flushed",
    "restore.after_flush": "the restore is durable",
    # a changelog is read newest first, in ranges
    "early.before_note": "a range's files are written, nothing says that they are complete",
    "early.after_note": "the range is on disk, the restore does not know",
    "early.before_flush": "the database has all ranges, not flushed",
    "early.after_flush": "the database is durable, the ranges are still beside it",
    # records are processed
    "process.before_batch": "a batch was read",
    "process.after_operators": "the operators have seen it, the position has not moved",
    "process.after_batch": "it is processed, nothing is committed",
    # an epoch is committed: the five steps
    "commit.before_drain": "1: there is something to commit",
    "commit.after_drain": "1: the operators are drained",
    "commit.before_changes": "2: the transaction is open, no change is sent",
    "commit.after_changes": "2: changes are sent beside the outputs, not acknowledged",
    "commit.before_records": "3: changes and outputs are acknowledged, no commit record is sent",
    "commit.after_record": "3: a commit record is sent to one of the changelogs",
    "commit.after_records": "3: all commit records are sent, not acknowledged",
    "commit.before_offsets": "3: commit records are acknowledged, the offsets are not in the transaction",
    "commit.after_proof": "3: the proof of membership is taken, the request with the offsets is not sent",
    "commit.before_end": "4: everything is in the transaction, or sent",
    "commit.before_end_txn": "4: all is acknowledged, the request that ends the transaction is not sent",
    "commit.after_end_txn": "4: the broker has ended the transaction, the client has only just heard",
    "commit.after_end": "4: committed, the stores do not know",
    "commit.after_apply": "5: the stores have the epoch",
    "commit.in_flight": "2 to 5: other threads may be anywhere in it, the worker goes on with other tasks",
    "commit.written": "5: the stores have the epoch, the worker has only just looked",
    "commit.before_group": "at least once: the input offsets are not committed",
    "commit.after_group": "at least once: the input offsets are committed",
    "commit.done": "the task knows that its commit is over",
    # local state is made durable
    "flush.before": "what was committed is in memory",
    "flush.before_positions": "the content is on disk, the positions it stands for are not",
    "flush.after": "content and positions are on disk",
    # an image is made
    "image.before_checkpoint": "an image is due",
    "image.after_checkpoint": "the checkpoint is on the local disk",
    "image.before_upload": "the thread of uploads begins with it",
    "image.before_file": "one of its files is about to be sent",
    "image.after_file": "one of its files was sent",
    "image.before_manifest": "all files are there, no manifest names them",
    "image.after_manifest": "the image is published",
    "image.before_discard": "the checkpoint is still on the local disk",
    # images that are garbage are collected
    "collect.before_manifests": "what is garbage is known",
    "collect.after_manifest": "an old manifest is gone, its files are not",
    "collect.before_files": "all old manifests are gone",
    "collect.after_file": "a file that nobody names is gone",
    # a changelog is deleted before safe images
    "trim.before_confirm": "the image is published, nothing was read back",
    "trim.before_mark": "its contents were read back, its mark is not there",
    "trim.before_decision": "the newest images are marked as safe",
    "trim.before_delete": "it is decided what goes of a changelog",
    "trim.after_delete": "that is gone, other changelogs of the task still have theirs",
    # a task begins with an image
    "install.before_fetch": "the image is chosen",
    "install.after_file": "one of its files was fetched",
    "install.before_rename": "all files are fetched and verified, under a passing name",
    "install.before_swap": "the image is whole beside the database",
    "install.within_swap": "the old database is moved away, the new one is not in its place",
    "install.after_swap": "the image is the database, the old one is not removed",
    # consumed records are dropped from repartition topics
    "purge.before": "records behind the committed offset are about to be dropped",
    "purge.after": "they are dropped",
    # a task has part in a savepoint of the running application
    "barrier.before_commit": "a task knows of a barrier, or met a record behind it",
    "barrier.after_commit": "its barrier point is committed, the state is not copied",
    "barrier.after_checkpoint": "a checkpoint of the state is on the local disk",
    "barrier.before_part": "its image is published, its part is not",
    "barrier.after_part": "its part is published",
    # a savepoint is made of the parts
    "savepoint.before_open": "nothing is asked for yet",
    "savepoint.after_open": "the barrier is open",
    "savepoint.after_parts": "all parts are there, input in flight is not collected",
    "savepoint.after_queue": "the records in flight of one partition are stored",
    "savepoint.before_manifest": "everything is there, no manifest names it",
    "savepoint.after_manifest": "the savepoint is whole, and not listed",
    "savepoint.after_list": "it is listed, the barrier is complete",
    # an application is restored from a savepoint
    "refill.after_generation": "the generation is being prepared, its topics are not there",
    "refill.after_topics": "its topics are there and empty",
    "refill.before_commit": "a chunk is sent, its transaction is open",
    "refill.after_commit": "a chunk is in a topic, with how far that is",
    "refill.before_active": "every topic is filled and compared, nothing is active",
    "refill.after_active": "the restored generation is active",
    # tasks go from worker to worker, or the worker ends
    "handover.assigned": "partitions were assigned, their tasks are not opening",
    "handover.before_start": "a task is open, its input is not read",
    "handover.revoked": "partitions must be given up",
    "handover.before_commit": "a task is about to make its last commit here",
    "handover.after_commit": "its last commit is over, it is not closed",
    "handover.after_close": "the task is closed, the group still waits for this member",
    "handover.lost": "partitions belong to others already",
    "stop.before_release": "the worker was asked to stop",
    "stop.before_leave": "all tasks are closed, the worker has not left the group",
    "stop.after_leave": "the worker has left the group",
    # a worker keeps copies of others' state, and takes over with one
    "standby.after_open": "the stores of a copy are open and locked",
    "standby.before_apply": "decided changes were read, the copy does not have them",
    "standby.after_apply": "the copy has them, with its position, not flushed",
    "standby.before_promote": "the task's new owner asks for the open stores of its copy",
    "standby.after_promote": "the stores are the new owner's, nothing was read after them",
    # tasks are placed by warmth
    "placing.before_report": "this worker has news of what it holds, the others do not know",
    "placing.after_report": "the others can know",
    "placing.before_decision": "the leader has decided, nobody knows",
    "placing.after_decision": "the decision is written, nobody has acted on it",
    # a micro-batch of Spark goes into a database
    "jdbc.after_claim": "the query's name is claimed under a staging table that is not there yet",
    "jdbc.after_staging": "executors have written the staging table",
    "jdbc.before_commit": "its rows and the micro-batch's number are in an open transaction",
    "jdbc.after_commit": "the rows are in the table, the staging table is still there, Spark has no note of it",
}
"""Name → what is so at that point. The part before the dot is the phase."""

_OTHER_PHASES = ("early", "jdbc")
"""Phases of commands and of drivers on Spark, which no worker passes."""

Action = Literal["kill", "stop", "raise"]
Handler = Callable[[str], None]
"""Called with the name of each point that is reached, in the thread that reaches it. It may raise, or wait."""

_handler: Handler | None = None


class FailpointStruck(StateflowError):
    """The exception that was to strike at a failpoint; nobody meets it who has not asked for it."""


def reach(point: str) -> None:
    """Say that execution has come to this point. Does what the armed handler does, which is nothing mostly."""
    if _handler is not None:
        _handler(known(point))


def known(point: str) -> str:
    """The name of a point; ``ConfigError`` when there is none of that name."""
    if point not in POINTS:
        raise ConfigError(
            f"there is no failpoint {point!r}.",
            action=f"take one of {', '.join(POINTS)}.",
            point=point,
        )
    return point


def phase_of(point: str) -> str:
    """The phase that a point belongs to: ``commit``, ``restore`` and so on."""
    return point.partition(".")[0]


def worker_points() -> list[str]:
    """The points that a worker can come to."""
    return [point for point in POINTS if phase_of(point) not in _OTHER_PHASES]


def phases() -> list[str]:
    """All phases, in the order of a worker's life."""
    return list(dict.fromkeys(map(phase_of, POINTS)))


@contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Inside, every point of this process is told to ``handler``. Scopes do not nest.

    To simulate a crash the handler raises a ``BaseException`` of its own, and goes on to raise it at every further
    point of what has died. To simulate a hang it waits in the thread it was called in, and returns for the zombie
    to go on.
    """
    arm(handler)
    try:
        yield
    finally:
        disarm()


def arm(handler: Handler) -> None:
    """Tell ``handler`` of every point until ``disarm``."""
    global _handler
    assert _handler is None, "failpoints are armed already"
    _handler = handler


def disarm() -> None:
    """Nothing strikes any more."""
    global _handler
    _handler = None


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that strikes once, when its point is reached for the ``hit``-th time in this process."""

    point: str
    action: Action
    """``kill``: SIGKILL, nothing more is executed. ``stop``: SIGSTOP, the process hangs until it gets SIGCONT.
    ``raise``: ``FailpointStruck``."""
    hit: int = 1

    @classmethod
    def parse(cls, text: str) -> Strike:
        """Read ``point:hit:action``. Raises ``ConfigError``."""
        point, _, rest = text.partition(":")
        hit, _, action = rest.partition(":")
        if not hit.isdecimal() or int(hit) < 1 or action not in get_args(Action):
            raise ConfigError(
                f"{text!r} is not a fault that can be armed.",
                action=f"write {VARIABLE}=point:hit:action, with a hit of 1 or more and one of"
                f" {', '.join(get_args(Action))}.",
                fault=text,
            )
        return cls(known(point), action, int(hit))  # type: ignore[arg-type]  # it is one of them

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}:{self.action}"


class Strikes:
    """A handler that carries out strikes. What it does, it says first on stderr in one line: :meth:`announced`."""

    def __init__(self, strikes: Sequence[Strike]) -> None:
        self._waiting = {(known(strike.point), strike.hit): strike for strike in strikes}
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        """Count, and strike if it is time."""
        with self._lock:
            self._reached[point] += 1
            strike = self._waiting.pop((point, self._reached[point]), None)
        if strike is not None:
            os.write(2, f"{self.announced(strike)}\n".encode())  # unbuffered: nothing runs after a kill
            _carry_out(strike)

    @staticmethod
    def announced(strike: Strike) -> str:
        """The line that tells whoever reads stderr that this strike has happened."""
        return f"failpoint {strike} strikes"


def arm_from_environment() -> None:
    """Arm this process with what :data:`VARIABLE` says; nothing when it is not set. Raises ``ConfigError``."""
    text = os.environ.get(VARIABLE)
    if text:
        arm(Strikes([Strike.parse(part.strip()) for part in text.split(",")]))


def _carry_out(strike: Strike) -> None:
    if strike.action == "raise":
        raise FailpointStruck(
            f"The failpoint {strike.point} was armed, and has struck.",
            action=f"unset {VARIABLE}: only a test sets it.",
            point=strike.point,
        )
    os.kill(os.getpid(), signal.SIGKILL if strike.action == "kill" else signal.SIGSTOP)
