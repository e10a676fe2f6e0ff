"""How many files and connections this process may have open: a task takes some of both for itself."""

from __future__ import annotations

import logging
import resource

from stateflow.errors import TooManyOpenFiles

_LOG = logging.getLogger(__name__)

TASK_DESCRIPTORS = 24
"""What a task opens: 16 when idle, measured with 64 and 256 tasks, and the table files of its database."""
SHARING_TASK_DESCRIPTORS = 16
"""The same where tasks share a producer: 9 when idle."""
DESCRIPTORS_MIN = 128
"""A process with its clients and a handful of tasks."""
_WITHOUT_BOUND = 65_536
"""Asked for where the hard limit is none at all: systems refuse to make the soft one infinite."""


def allow_descriptors() -> int:
    """Raise the limit of this process as far as it may do that itself; returns what it is then.

    The usual soft limit of 1,024 is for programs that use ``select``; neither librdkafka nor RocksDB does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WITHOUT_BOUND if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            _LOG.info("The limit of open files stays at %d: %s", soft, error)
    return allowed_descriptors()


def check_descriptors() -> None:
    """Raise ``TooManyOpenFiles`` where the limit cannot do for any worker, after raising it as far as may be.

    To be called before any client is made: one that gets no socket says that brokers do not answer.
    """
    limit = allow_descriptors()
    if limit < DESCRIPTORS_MIN:
        raise TooManyOpenFiles(
            f"this process may have {limit} files and connections open, and a worker needs {DESCRIPTORS_MIN} at least.",
            action="raise the limit (ulimit -Hn, LimitNOFILE=).",
            limit=limit,
        )


def allowed_descriptors() -> int:
    """The limit of this process as it is."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WITHOUT_BOUND if soft == resource.RLIM_INFINITY else soft


class DescriptorLimit:
    """Warns once when more tasks run than the limit of open files provides for."""

    def __init__(self, each: int = TASK_DESCRIPTORS) -> None:
        self._each = each
        self._limit = allowed_descriptors()
        self._has_warned = False

    def note(self, tasks: int) -> None:
        """So many tasks run now."""
        if tasks * self._each > self._limit and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%d tasks run in this process, and each has about %d files and connections open: the limit of %d"
                " (ulimit -Hn) will not do. Raise it, or run more workers.",
                tasks,
                self._each,
                self._limit,
            )
