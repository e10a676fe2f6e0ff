"""What an executor's Python process keeps between tasks."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import gc, json
from stateflow.spark.executor import PipelineTask
from stateflow.spark.kept_connection import spare_what_stays

found = []
for _ in range(2):
    spare_what_stays()
    found.append((gc.get_freeze_count(), len(gc.get_objects())))
    later = [[] for _ in range(1000)]
print(json.dumps(found))
"""


def test_what_is_imported_is_spared_the_collection_after_each_task_once() -> None:
    run = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    (spared, looked_at), (spared_later, looked_at_later) = json.loads(run.stdout)
    assert spared > 50 * looked_at, "what is left is that of the program itself"
    assert spared_later == spared
    assert looked_at_later >= looked_at + 1000
