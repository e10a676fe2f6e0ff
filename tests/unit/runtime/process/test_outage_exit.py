"""A process that is told to stop ends at once if no broker answers, and never once it has stopped in order."""

from __future__ import annotations

import threading

from stateflow.runtime.process.outage_exit import OutageExit
from tests.waiting import wait_until


class Process:
    """What is asked about the brokers, and the code with which it was ended."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.asked = 0
        self.codes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def is_reachable(self) -> bool:
        self.asked += 1
        answers = self.answers
        self.gate.wait()
        return answers


def test_without_any_broker_it_ends_with_the_code_of_a_stop() -> None:
    process = Process(answers=False)
    leaving = OutageExit(process.is_reachable, 130, process.codes.append)
    assert process.asked == 0, "nobody looks before it is to stop"
    leaving.begin()
    leaving.begin()
    wait_until(lambda: bool(process.codes), "the end")
    leaving.close()
    assert set(process.codes) == {130}


def test_brokers_that_answer_leave_it_its_time_and_are_asked_again() -> None:
    process = Process(answers=True)
    leaving = OutageExit(process.is_reachable, 0, process.codes.append)
    leaving.begin()
    wait_until(lambda: process.asked > 1, "another look")
    assert process.codes == []
    process.answers = False
    wait_until(lambda: bool(process.codes), "the end")
    leaving.close()


def test_what_has_stopped_in_order_is_not_ended() -> None:
    process = Process(answers=False)
    process.gate.clear()
    leaving = OutageExit(process.is_reachable, 0, process.codes.append)
    leaving.begin()
    wait_until(lambda: process.asked == 1, "a look, which takes a while")
    leaving.close()
    process.gate.set()
    assert leaving._thread is not None
    leaving._thread.join(10)
    assert process.codes == []
