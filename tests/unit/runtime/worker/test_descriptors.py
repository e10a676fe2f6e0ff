"""How many files a worker may have open, and what it says when tasks need more."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker import descriptors
from stateflow.runtime.worker.descriptors import TASK_DESCRIPTORS, DescriptorLimit
from stateflow.runtime.worker.memory import TaskMemory

CHILD = """
import resource
from stateflow.runtime.worker.descriptors import allow_descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512 if hard == resource.RLIM_INFINITY else min(512, hard)))
print(allow_descriptors(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_worker_takes_what_the_system_allows() -> None:
    told = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(set(told)) == 1
    assert int(told[0]) > 64


def test_a_limit_that_cannot_be_raised_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kind: int, _limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert descriptors.allow_descriptors() == 256


def test_to_hold_tasks_changes_no_limit_of_the_process() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        TaskMemory(WorkerSettings())
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[0] - 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_tasks_than_the_limit_provides_for_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "allowed_descriptors", lambda: 10 * TASK_DESCRIPTORS)
    limit = DescriptorLimit()
    for tasks in (1, 10, 11, 12):
        limit.note(tasks)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "11 tasks" in caplog.text
