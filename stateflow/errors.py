"""Every error that stateflow raises on purpose: what broke, and what to do about it.

One tree, rooted at :class:`StateflowError`. Each class carries the exit code that the CLI ends with, and whether a
worker waits for it to pass; the tables in ``docs/operating.md`` are compared with them. A bug is an ``assert`` and is
never caught.
"""

from __future__ import annotations

import errno

DISTRIBUTION = "stateflow-kafka"
"""What pip installs. The project called `stateflow` on PyPI is another one."""


def install_command(*extras: str) -> str:
    """The command that installs this package, with extras; over an installed one it only adds what they need."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'" if extras else f"pip install {DISTRIBUTION}"


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for want of space, or of what a user or a file may have of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StateflowError(Exception):
    """A failure with a cause that a person can act on.

    ``message`` says what broke, ``action`` what to do about it, ``fields`` the facts as data (topic, offset, …).
    """

    exit_code = 1
    retriable = False
    """Whether an error of this class may pass without anybody doing anything."""

    def __init__(self, message: str, *, action: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.action = action
        self.fields = fields

    @property
    def is_retriable(self) -> bool:
        """Whether a worker opens the task again after this error, with back-off; any other one ends the application.

        Commands do not wait: for them every error is an error.
        """
        return self.retriable

    def __str__(self) -> str:
        return f"{self.message} What to do: {self.action}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors travel between the processes of a restore and from Spark's executors, fields and all.
        return _rebuilt, (type(self), self.message, self.action, self.fields)


def _rebuilt(
    kind: type[StateflowError], message: str, action: str, fields: dict[str, object]
) -> StateflowError:
    return kind(message, action=action, **fields)


class ConfigError(StateflowError):
    """A setting is missing, unknown, of the wrong type or out of range."""

    exit_code = 2


class GraphError(ConfigError):
    """The application's graph cannot run as it was written."""


class TopicSettingsUnfit(ConfigError):
    """A topic of the application has settings on the cluster that lose records, or their times."""


# --- the broker and its topics: 10 … 19 -------------------------------------------------------------


class BrokerUnreachable(StateflowError):
    """No broker answered at the given address in time."""

    exit_code = 10
    retriable = True


class TopicMissing(StateflowError):
    """A topic that must exist does not."""

    exit_code = 11


class PartitionCountChanged(StateflowError):
    """A topic has another number of partitions than the state was built for."""

    exit_code = 12


class PartitionsAdded(PartitionCountChanged):
    """A source has more partitions than when the worker started, which has to prepare anew to read them."""


class TopicRecreated(StateflowError):
    """A topic was deleted and created again: its offsets no longer mean what they meant."""

    exit_code = 13


class OffsetOutOfRange(StateflowError):
    """The wanted offset is not, or no longer, in the log. ``fields``: topic, partition, offset, low, high."""

    exit_code = 14


class ProducerFenced(StateflowError):
    """A newer producer of this task took over, or its transaction ran past its time-out: never retry with this one."""

    exit_code = 15
    retriable = True


class TransactionAborted(StateflowError):
    """A transaction had to be aborted; nothing of it is visible, and its input will be read again."""

    exit_code = 16
    retriable = True


class BrokerRefused(StateflowError):
    """The broker refused a request (authorization, policy, bad configuration)."""

    exit_code = 17


class OffsetsPending(StateflowError):
    """An open transaction holds offsets of a group, or the end of a log; until it ends nobody knows where that is."""

    exit_code = 18
    retriable = True


class MembershipLost(StateflowError):
    """This member of a consumer group was replaced or timed out; its partitions belong to another one now."""

    exit_code = 19
    retriable = True


# --- records: 20 … 29 -------------------------------------------------------------------------------


class DecodeError(StateflowError):
    """Bytes could not be decoded. ``fields``: topic, partition, offset where known."""

    exit_code = 20


class EncodeError(StateflowError):
    """A value could not be encoded by the codec declared for it."""

    exit_code = 21


class ProcessingError(StateflowError):
    """User code raised on a record, under the policy *fail*. ``fields``: step, topic, partition, offset."""

    exit_code = 22


class StateBoundExceeded(ProcessingError):
    """A record would make a state larger than was declared for it, or a counter larger than 64 bits hold."""


class SchemaUnavailable(StateflowError):
    """A schema that values name, or are to be written with, cannot be had from the schema registry."""

    exit_code = 23


class InputPositionLost(StateflowError):
    """A position that was committed in a source partition is gone: reading it from the start would count it twice."""

    exit_code = 24


# --- local state: 30 … 39 ---------------------------------------------------------------------------


class StateLocked(StateflowError):
    """The state directory is in use by another process."""

    exit_code = 30
    retriable = True


class StateForeign(StateflowError):
    """The state directory belongs to another application, cluster or format version."""

    exit_code = 31


class StateCorrupt(StateflowError):
    """The local store or an image is damaged. The changelog still has everything.

    ``fields``: replaceable, when a new store in its place would do.
    """

    exit_code = 32

    @property
    def is_retriable(self) -> bool:
        """A damaged store is set aside when its task is opened again, and filled from the changelog."""
        return bool(self.fields.get("replaceable"))


class DiskFull(StateflowError):
    """No space left where the state is kept; nothing acknowledged was lost."""

    exit_code = 33


class ImagesUnreachable(StateflowError):
    """The place where images are kept cannot be read or written. The changelog has everything."""

    exit_code = 34


class ChangelogTrimmed(StateflowError):
    """A changelog no longer has the whole state, and no image that begins where the log does can be used."""

    exit_code = 35


class TooManyOpenFiles(StateflowError):
    """The system's limit of open files for this process, or for the machine, is reached; the state is unharmed."""

    exit_code = 36


class GlobalTableTooLarge(StateflowError):
    """A global table outgrew the memory that its application gives it. ``fields``: topic, bytes_max, keys."""

    exit_code = 37


class BufferFull(StateflowError):
    """More is held back in one task than its application allows. ``fields``: store, records, bytes."""

    exit_code = 38


# --- catalog and generations: 40 … 49 ---------------------------------------------------------------


class CatalogIncompatible(StateflowError):
    """The code and the catalog on the control topic disagree about a store or a stage."""

    exit_code = 40


class CatalogMissing(StateflowError):
    """There is no catalog for this application on this cluster, or its first start is still under way."""

    exit_code = 41


class GenerationUnfinished(StateflowError):
    """A repartition was begun and neither finished nor aborted, or was finished without this worker."""

    exit_code = 42


class AuditFailed(StateflowError):
    """Key counts or hashes differ between the two sides of a repartition; the old generation stays active."""

    exit_code = 43


class StillRunning(StateflowError):
    """An offline operation was asked for while workers of the application are running."""

    exit_code = 44


class CommitTorn(StateflowError):
    """The last commit of a task is only half visible; the task must repair it before its log is copied."""

    exit_code = 45


class MergeUndefined(StateflowError):
    """Two states of one key met, and nothing says how they become one. ``fields``: store, key."""

    exit_code = 46


class ReplayPending(StateflowError):
    """An eventual changelog leaves out windows that the application must log or close before a copy of its topics."""

    exit_code = 47


class OldGenerationWritten(GenerationUnfinished):
    """What a repartition copies was written to after it began; it must be undone, and begun anew."""

    exit_code = 48


class TopicForeign(StateflowError):
    """A topic that would be the application's own is another one's, or holds records of unknown origin."""

    exit_code = 49


# --- set-up and tuning: 50 … 59 ---------------------------------------------------------------------


class SetupError(StateflowError):
    """Something needed on this machine (Java, broker jars, an optional package) cannot be had."""

    exit_code = 50


class ObjectiveUnreachable(StateflowError):
    """No setting of the tuner meets the stated objective."""

    exit_code = 51


class JobFailed(StateflowError):
    """A Spark job failed after all attempts of one of its tasks."""

    exit_code = 52


class WaitTimedOut(StateflowError):
    """What a command waited for did not happen in the time given; what was changed stands."""

    exit_code = 53


class CalibrationDoubtful(StateflowError):
    """What cleaning costs was learnt while the broker or its machine did something else, and is not kept."""

    exit_code = 54


# --- savepoints: 60 … 69 ----------------------------------------------------------------------------


class SavepointMissing(StateflowError):
    """There is no savepoint of that name, or not any more."""

    exit_code = 60


class SavepointFailed(StateflowError):
    """A savepoint could not be made; nothing of it is kept, and the application goes on."""

    exit_code = 61


class SavepointUnfit(StateflowError):
    """A savepoint cannot be restored here without saying what is to become of part of it."""

    exit_code = 62


class Interrupted(StateflowError):
    """Stopped by the user (Ctrl-C or SIGTERM) after a clean close."""

    exit_code = 130


def exit_codes() -> dict[int, type[StateflowError]]:
    """Exit code → error class, for the CLI and the documentation."""
    found: dict[int, type[StateflowError]] = {}
    todo: list[type[StateflowError]] = [StateflowError]
    while todo:
        error = todo.pop(0)
        found.setdefault(error.exit_code, error)
        todo.extend(error.__subclasses__())
    return dict(sorted(found.items()))
