"""Requests beside the poll thread: one of a kind at a time, and none that the end of a process waits for."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from stateflow.runtime.background import BackgroundRequest

ENDS_AMID_A_REQUEST = """
import threading
from stateflow.runtime.background import BackgroundRequest

begun = threading.Event()

def unanswered():
    begun.set()
    threading.Event().wait()

request = BackgroundRequest("asking")
request.begin(unanswered)
begun.wait()
request.close(waits=False)
print("closed")
"""


def test_the_end_of_a_process_does_not_wait_for_a_request_without_an_answer() -> None:
    """A worker that was stopped while no broker answered stayed for half a minute, until its request timed out."""
    command = [sys.executable, "-c", ENDS_AMID_A_REQUEST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "closed\n"


def test_the_outcome_is_taken_later() -> None:
    request, answered = BackgroundRequest[int]("asking"), threading.Event()

    def asked() -> int:
        answered.wait()
        return 7

    request.begin(asked)
    assert (request.is_under_way, request.is_over) == (True, False)
    answered.set()
    request.wait()
    assert request.is_over
    assert request.take() == 7
    request.begin(lambda: 1 // 0)
    request.wait()
    with pytest.raises(ZeroDivisionError):
        request.take()
    request.close(waits=True)
