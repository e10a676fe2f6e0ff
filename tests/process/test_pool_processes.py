"""Processes of a pool end with the one that started it, also when that is killed while they have nothing to do."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

OF_A_RESTORE = """
import multiprocessing
from stateflow.checkpoint.recovery import _begin_lane
from stateflow.log.memory import MemoryCluster

def pool():
    context = multiprocessing.get_context("spawn")
    given = MemoryCluster, context.Queue(), context.Event()
    return ProcessPoolExecutor(2, context, _begin_lane, given)
"""

OF_A_REPARTITION = """
from stateflow.log.memory import MemoryCluster
from stateflow.scale.processes import Processes

def pool():
    return Processes(MemoryCluster, 2)._pool
"""

OF_A_STUDY = """
from stateflow.lab.pool import process_pool

def pool():
    return process_pool(2)
"""

KILLED = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
{made}
if __name__ == "__main__":
    made = pool()
    made.submit(abs, -1).result()
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("made", [OF_A_RESTORE, OF_A_REPARTITION, OF_A_STUDY])
def test_a_pool_whose_owner_is_killed_leaves_no_process(tmp_path: Path, made: str) -> None:
    program = tmp_path / "killed.py"
    program.write_text(KILLED.format(made=made))
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, start_new_session=True
    ) as owner:
        try:
            said, _ = owner.communicate(
                timeout=60
            )  # ends once no process holds the pipe that all have inherited
        finally:
            with suppress(ProcessLookupError):
                os.killpg(owner.pid, signal.SIGKILL)
    assert said == b"killed\n"
