"""The same work at other sizes: larger values, more keys, more records, and one to 64 partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stateflow.lab.bench.workload import Workload

PARTITIONS = (1, 16, 64)
LARGE_VALUE_BYTES = 1_024
MORE = 10


def cells(load: Workload) -> dict[str, Workload]:
    """Workloads by what differs from ``load``, which is the first."""
    return {
        "as given": load,
        "values of 1 KiB": replace(load, value_bytes=LARGE_VALUE_BYTES),
        "10 times the keys": replace(load, keys=MORE * load.keys),
        "10 times the records": replace(
            load, records=MORE * load.records, warm_records=MORE * load.warm_records
        ),
        **{f"{count} partition{'s' * (count > 1)}": replace(load, partitions=count) for count in PARTITIONS},
    }


def measure_matrix(load: Workload, one: Callable[[Workload], dict[str, Any]]) -> dict[str, Any]:
    """Every cell's result, each measured by ``one`` as a benchmark of its own."""
    found = {name: one(cell) for name, cell in cells(load).items()}
    return {"cells": found, "same_result": all(cell["same_result"] for cell in found.values())}
