"""What one run of ours in this process was."""

from __future__ import annotations

import resource

from stateflow.lab.bench.result import Ran
from stateflow.lab.costs.running import Took
from stateflow.native.loading import native_state


def ran_here(records: int, took: Took, result: str) -> Ran:
    """With this process's memory, and by what the work was done."""
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    mode = "native" if native_state().in_use else "python"
    return Ran(records, took.seconds, took.cpu_seconds, result, mode, rss_bytes)
