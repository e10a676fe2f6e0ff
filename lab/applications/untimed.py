"""The part of a pipeline made by hand that has to do with event time, for those that keep nothing until it comes."""

from __future__ import annotations

from collections.abc import Iterator

from stateflow.record import RecordBatch


class UntimedPipeline:
    """Base of pipelines that only ``process``."""

    calls_application = True
    needs_turns = False

    def first_burst(self, batch: RecordBatch) -> None:
        """No record makes anything due."""

    def advance(self, watermark_ms: int) -> None:
        """Keeps nothing that waits for event time."""

    def finish(self, watermark_ms: int, horizons_ms: list[int]) -> None:
        """Nothing is pending."""

    def statistics(self) -> Iterator[tuple[str, int]]:
        """None."""
        return iter(())
