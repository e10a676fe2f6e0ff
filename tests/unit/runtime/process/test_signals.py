"""A stop that is asked for by a signal is heard while the main thread waits inside the Kafka client."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from stateflow.runtime.process.signals import stopped_by_signals

WAITS_IN_THE_CLIENT = """
import os
from confluent_kafka import Producer
from stateflow.runtime.process.signals import stopped_by_signals

producer = Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "nobody", "log_level": 0})
with stopped_by_signals(lambda: os._exit(7)):
    print("waiting", flush=True)
    producer.init_transactions(120)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_while_the_client_waits_for_a_broker(number: signal.Signals) -> None:
    """The client's call goes on for two minutes, and no handler in Python can run in it."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS_IN_THE_CLIENT], stdout=subprocess.PIPE, text=True
    ) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "waiting\n"
            waiting.send_signal(number)
            assert waiting.wait(60) == 7
        finally:
            waiting.kill()


def test_handlers_and_the_wake_up_descriptor_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stopped = threading.Event()
    with stopped_by_signals(stopped.set) as signalled:
        signal.raise_signal(signal.SIGTERM)
        assert stopped.wait(30)
        assert signalled.is_set()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert not [thread for thread in threading.enumerate() if thread.name == "signals"]
