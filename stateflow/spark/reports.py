"""What tasks tell the driver while the rest of their job still runs: results, each once its task has ended.

It is Spark's accumulators: what a task adds comes to the driver with the end of the task, if it succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import Accumulator, AccumulatorParam

from stateflow.scale.shuffle import OnDone

if TYPE_CHECKING:
    from pyspark import SparkContext


class _Told(AccumulatorParam[list[Any]]):
    """Hands on what comes, in the driver; in an executor, where there is nobody to hand on to, gathers it."""

    def __init__(self, on_done: OnDone | None = None) -> None:
        self._on_done = on_done

    def __reduce__(self) -> tuple[type[_Told], tuple[()]]:
        return _Told, ()  # whoever listens stays in the driver

    def zero(self, value: list[Any]) -> list[Any]:  # noqa: ARG002 - as Spark calls it
        """Nothing."""
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - Spark's name
        """Both together."""
        if self._on_done is None:
            return [*value1, *value2]
        for result in value2:
            self._on_done(result)
        return []


class Reports:
    """What a task adds its results to."""

    def __init__(self, accumulator: Accumulator[list[Any]]) -> None:
        self._accumulator = accumulator

    def add(self, result: Any) -> None:
        """Tell the driver of a result once this task has ended."""
        self._accumulator.add([result])


def reports(context: SparkContext, on_done: OnDone | None) -> Reports | None:
    """Reports that go to ``on_done``, which is called by a thread of Spark's; None without one."""
    return None if on_done is None else Reports(context.accumulator([], _Told(on_done)))
