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


def test_signals_are_held_back_while_it_imports() -> None:
    """Java under spark-submit starts it with Python's own way with Ctrl-C: a traceback of the import."""
    work = (
        "import os, signal, pyspark.daemon, pyspark.worker, stateflow.spark.worker_daemon as daemon;"
        "daemon.import_needed = lambda: [os.kill(os.getpid(), each) for each in (signal.SIGINT, signal.SIGTERM)];"
        "pyspark.daemon.manager = lambda: print('serves', len(signal.sigpending()));"
        "daemon.main(daemon.WORKERS)"
    )
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"serves 2\n", b"")
