"""One Spark session for most tests of this folder: each new one starts its Python processes, and Spark itself, anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from stateflow.spark.java import end_java
from stateflow.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sessions:
    """The session that tests share, from the first that asks for it on; it ends where others want one of their own."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._shared: SparkSession | None = None

    def shared(self) -> SparkSession:
        """With two slots, and nothing else that is not the default."""
        if self._shared is None:
            self._shared = self._open.enter_context(spark_session())
        return self._shared

    @contextmanager
    def own(self, settings: SparkSettings) -> Iterator[SparkSession]:
        """One with other settings, for the time of a block."""
        self.close()
        if "spark.jars" in settings.conf:  # which Java's own class path has only from its start on
            end_java()
        with spark_session(settings) as session:
            yield session

    def close(self) -> None:
        """End it, if there is one."""
        self._open.close()
        self._shared = None
