"""What the demo reads out of the workers' log."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
sys.path.insert(0, str(FOLDER))
try:
    from workers import running_tasks, worker_pids
finally:
    sys.path.remove(str(FOLDER))

LOG = """\
2026-11-21 06:40:01,001 INFO Worker w0 is process 101.
2026-11-21 06:40:01,002 INFO Worker w1 is process 102.
w0: task flights-0 is running
w1: task flights-1 is running
w1: task by-airport-0 is running
w0: task by-airport-0 is closed
w0: task flights-0 is closed
w1: task flights-0 is running
"""


def test_newest_process_of_each_worker() -> None:
    assert worker_pids(LOG) == {"w0": 101, "w1": 102}
    assert worker_pids(LOG + "2026-11-21 06:41:00,000 INFO Worker w1 is process 103.\n")["w1"] == 103


def test_tasks_belong_to_the_worker_that_started_them_last() -> None:
    assert running_tasks(LOG, "w1") == ["by-airport-0", "flights-0", "flights-1"]
    assert running_tasks(LOG, "w0") == []
    assert running_tasks(LOG) == ["by-airport-0", "flights-0", "flights-1"]
