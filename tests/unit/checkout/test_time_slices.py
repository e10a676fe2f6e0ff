"""A test that only computes keeps its core longer, and so does what it starts."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.time_slices import DEFAULT_SECONDS, LONG_SECONDS, TimeSlices

OWN = Path("/proc/self/sched")
KNOWN_FROM = (6, 12)


def kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])


pytestmark = pytest.mark.skipif(
    kernel() < KNOWN_FROM or not OWN.exists() or "se.slice" not in OWN.read_text(),
    reason="this kernel does not know slices of a process, or does not tell them",
)


def slice_in(told: str) -> int:
    """In nanoseconds."""
    return int(re.findall(r"se\.slice +: +(\d+)", told)[0])


@pytest.fixture
def slices() -> Iterator[TimeSlices]:
    slices = TimeSlices()
    yield slices
    slices.ask_for(LONG_SECONDS)


def test_processes_that_it_starts_keep_the_slice(slices: TimeSlices) -> None:
    asked = round(LONG_SECONDS * 1e9)
    started = [sys.executable, "-c", f"print(open({str(OWN)!r}).read())"]
    slices.ask_for(LONG_SECONDS)
    assert slice_in(OWN.read_text()) == asked
    assert slice_in(subprocess.run(started, capture_output=True, text=True, check=True).stdout) == asked
    slices.ask_for(DEFAULT_SECONDS)
    assert slice_in(OWN.read_text()) < asked


def test_a_system_without_such_slices_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = slice_in(OWN.read_text())
    with monkeypatch.context() as patch:
        patch.setattr("sys.platform", "darwin")
        TimeSlices().ask_for(LONG_SECONDS / 2)
    assert slice_in(OWN.read_text()) == before
