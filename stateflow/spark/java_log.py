"""What Spark's Java process logs, with its traces: to a file of this user, or to stderr where more is asked for.

What went wrong is told by our own error, in one message. A trace of Spark before it says nothing more to most people.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stateflow.connectors.broker.places import user_state_dir
from stateflow.errors import JobFailed, StateflowError
from stateflow.output_places import require_file

_LOG = logging.getLogger(__name__)

SIZE_BYTES_MAX = 5_000_000
"""Of a file; one that is full is kept until the next is."""

_ERRORS_ONLY = """\
rootLogger.level = error
rootLogger.appenderRef.errors.ref = errors
logger.spark.name = org.apache.spark
logger.spark.level = error
logger.hadoop.name = org.apache.hadoop
logger.hadoop.level = error
appender.errors.name = errors
appender.errors.layout.type = PatternLayout
"""
_ON_STDERR = """\
appender.errors.type = Console
appender.errors.target = SYSTEM_ERR
appender.errors.layout.pattern = %d{{HH:mm:ss}} spark %p %c{{1}}: %m%n
"""
_IN_A_FILE = """\
appender.errors.type = RollingFile
appender.errors.fileName = {file}
appender.errors.filePattern = {file}.%i
appender.errors.createOnDemand = true
appender.errors.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n
appender.errors.policies.type = Policies
appender.errors.policies.size.type = SizeBasedTriggeringPolicy
appender.errors.policies.size.size = {size}
appender.errors.strategy.type = DefaultRolloverStrategy
appender.errors.strategy.max = 1
"""


@dataclass(frozen=True, slots=True)
class JavaLog:
    """Where a Java process logs its errors: in a file that there may not be yet, or on stderr."""

    file: Path | None

    def settings(self) -> str:
        """As Log4j's properties."""
        where = _ON_STDERR if self.file is None else _IN_A_FILE
        return _ERRORS_ONLY + where.format(file=_escaped(self.file), size=SIZE_BYTES_MAX)

    @contextmanager
    def named_by_errors(self) -> Iterator[None]:
        """A job that fails in this scope says where the log is, if it has something of it."""
        before = self._size_bytes()
        try:
            yield
        except JobFailed as error:
            if self._size_bytes() != before:
                error.action += f" Spark's own log of it: {self.file}."
            raise

    def _size_bytes(self) -> int:
        return self.file.stat().st_size if self.file is not None and self.file.exists() else 0


def java_log(app_name: str) -> JavaLog:
    """Where Java logs in this process, by the name of its first session: later ones have the same Java process.

    On stderr where more is asked for, or where no file can be written.
    """
    if not _chosen:
        _chosen.append(JavaLog(None if _LOG.isEnabledFor(logging.INFO) else _file(app_name)))
    return _chosen[0]


_chosen: list[JavaLog] = []


def _file(app_name: str) -> Path | None:
    file = user_state_dir() / "spark" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', app_name)[:100]}.log"
    try:
        require_file(file, "Spark's log", makes_folder=True)
        file.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, StateflowError):
        return None
    return file


def _escaped(file: Path | None) -> str:
    """As a value of properties, in which Log4j looks for variables."""
    return str(file).replace("\\", "\\\\").replace("$", "$$")
