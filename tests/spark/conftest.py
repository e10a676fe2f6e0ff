"""The Spark session that most tests of this folder share."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.sessions import Sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSIONS = Sessions()


@pytest.fixture(scope="session")
def sessions(quick_java: None) -> Iterator[Sessions]:
    """The sessions of this process."""
    yield _SESSIONS
    _SESSIONS.close()


@pytest.fixture(scope="module")
def session(sessions: Sessions) -> SparkSession:
    """The shared one."""
    return sessions.shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """End it with the last test of this folder: those after it are no tests of Spark."""
    yield
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        _SESSIONS.close()
