"""Pieces come to the job that they are for, in the order of those that sent them, however the engine goes about it."""

from __future__ import annotations

import functools
import random
import threading

import pytest

from stateflow.log.base import Cluster
from stateflow.log.memory import MemoryCluster
from stateflow.scale.engine import Engine, InProcess
from stateflow.scale.processes import Processes
from stateflow.scale.shuffle import Inbox, Sending

SENDERS, RECEIVERS = 7, 5


def send(cluster: Cluster, sender: int) -> Sending[int]:
    """Pieces of random sizes to random receivers; some send nothing."""
    draw = random.Random(sender)
    count = draw.randrange(30)
    for number in range(count):
        yield draw.randrange(RECEIVERS), b"%d/%d:" % (sender, number) + b"x" * draw.randrange(2_000)
    return count


def receive(cluster: Cluster, receiver: int, inbox: Inbox) -> tuple[int, list[bytes]]:
    """What came, read twice."""
    pieces = list(inbox)
    assert list(inbox) == pieces
    assert sum(map(len, pieces)) == inbox.size_bytes
    return receiver, pieces


def refuse(cluster: Cluster, sender: int) -> Sending[int]:
    """One sender fails after it has sent something."""
    yield 0, b"never to be found"
    if sender == 3:
        raise ValueError("sender 3")
    return 0


def expected(receiver: int) -> list[bytes]:
    cluster = MemoryCluster()
    sent = [piece for sender in range(SENDERS) for to, piece in send(cluster, sender) if to == receiver]
    cluster.close()
    return sent


def check(engine: Engine) -> None:
    told: list[object] = []
    lock = threading.Lock()

    def on_done(result: object) -> None:
        with lock:
            told.append(result)

    counts, found = engine.shuffle(send, range(SENDERS), receive, range(RECEIVERS), on_done)
    assert found == [(receiver, expected(receiver)) for receiver in range(RECEIVERS)]
    assert sum(counts) == sum(len(pieces) for _, pieces in found) > 20
    assert sorted(map(repr, told)) == sorted(map(repr, [*counts, *found])), "each told once"


@pytest.mark.parametrize("lanes", [1, 3])
def test_by_threads(lanes: int) -> None:
    cluster = MemoryCluster()
    check(InProcess(cluster, lanes))
    cluster.close()


def test_by_processes() -> None:
    with Processes(functools.partial(MemoryCluster), 2) as engine:
        check(engine)


def test_nothing_is_found_of_a_round_that_failed() -> None:
    cluster = MemoryCluster()
    reached: list[int] = []
    with pytest.raises(ValueError, match="sender 3"):
        InProcess(cluster).shuffle(
            refuse, range(SENDERS), lambda _, job, __: reached.append(job), range(RECEIVERS)
        )
    assert not reached
    cluster.close()
