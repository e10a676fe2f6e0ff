"""Where Spark's Java process logs, and how errors name the place; that it does is in `tests/spark`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from stateflow.errors import ConfigError, JobFailed, TopicRecreated
from stateflow.spark import java_log as module
from stateflow.spark.java import quiet_interrupts
from stateflow.spark.java_log import JavaLog, java_log


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, in a process that has no Java yet."""
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "_chosen", [])
    return tmp_path / "home"


def test_traces_go_to_a_file_named_after_the_first_session(home: Path) -> None:
    log = java_log("snapshot-a/b")
    assert log.file == home / "spark" / "snapshot-a_b.log"
    assert f"appender.errors.fileName = {log.file}\n" in log.settings()
    assert java_log("another") == log, "it has the same Java process"
    assert list((home / "spark").iterdir()) == []


def test_who_wants_to_know_more_has_them_on_stderr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert java_log("shop") == JavaLog(None)
    assert "SYSTEM_ERR" in JavaLog(None).settings()


def test_they_do_where_no_file_can_be_written(home: Path) -> None:
    home.write_text("no folder")
    assert java_log("shop") == JavaLog(None)


@pytest.mark.parametrize(
    ("error", "is_named"),
    [
        (JobFailed("a task failed.", action="cure the cause."), True),
        (ConfigError("it is wrong.", action="put it right."), False),
    ],
)
def test_a_failed_job_names_the_file_if_it_has_something_of_it(
    error: JobFailed | ConfigError, is_named: bool, home: Path
) -> None:
    log = java_log("shop")
    assert log.file is not None

    def fail(file: Path) -> None:
        with log.named_by_errors():
            file.write_text("a trace\n")
            raise error

    with pytest.raises(type(error)) as raised:
        fail(log.file)
    assert raised.value.action.endswith(f" Spark's own log of it: {log.file}.") is is_named
    with pytest.raises(JobFailed) as raised_later, log.named_by_errors():
        raise JobFailed("another.", action="look.")
    assert raised_later.value.action == "look.", "nothing was added"


@pytest.mark.parametrize(
    ("error", "is_shown"),
    [(TopicRecreated("it is another.", action="look."), False), (ValueError("a bug of the user's"), True)],
)
def test_py4j_shows_no_trace_of_an_error_that_is_told_later(
    error: Exception, is_shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with quiet_interrupts():
        try:
            raise error
        except Exception:
            logging.getLogger("py4j.clientserver").error(
                "There was an exception while executing the Python Proxy on the Python Side.",
                exc_info=sys.exc_info(),
            )
    assert bool(caplog.records) is is_shown
