"""The daemon that Spark's Python workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted by /proc")
def test_what_it_imports_starts_no_threads() -> None:
    """Only the thread that forks lives on in a worker: locks that others hold would stay locked."""
    work = (
        "import os, sys, stateflow.spark.worker_daemon as daemon; daemon.import_needed();"
        "print(len(os.listdir('/proc/self/task')), {*daemon.NEEDED, 'pyarrow'} <= sys.modules.keys())"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it
    done = subprocess.run([sys.executable, "-c", work], env=environment, capture_output=True, check=True)
    assert done.stdout == b"1 True\n"


def outcome(work: str) -> tuple[int, bytes, bytes]:
    """Of a Python process: its exit code, and what it has written."""
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_signals_are_held_back_while_it_imports() -> None:
    """Java under spark-submit starts it with Python's own way with Ctrl-C: a traceback of the import."""
    work = (
        "import os, signal, pyspark.daemon, pyspark.worker, stateflow.spark.worker_daemon as daemon;"
        "daemon.import_needed = lambda: [os.kill(os.getpid(), each) for each in (signal.SIGINT, signal.SIGTERM)];"
        "pyspark.daemon.manager = lambda: print('serves', len(signal.sigpending()));"
        "daemon.main(daemon.WORKERS)"
    )
    assert outcome(work) == (0, b"serves 2\n", b"")


def test_signals_between_two_tasks_are_held_back() -> None:
    """Spark's daemon sets them for each task anew, to what ends the worker; amid a task they are left to the driver."""
    work = (
        "import os, signal, stateflow.spark.worker_daemon as daemon;"
        "stop = lambda *_: os.kill(os.getpid(), signal.SIGTERM);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM));"
        "work = lambda *files: (stop(), print('works', len(signal.sigpending())));"
        "daemon._serve(work, None, None);"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); stop();"
        "print('lives', len(signal.sigpending()))"
    )
    assert outcome(work) == (0, b"works 0\nlives 1\n", b"")
