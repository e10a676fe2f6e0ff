"""What the stock brokers showed, as a part of the study's page."""

from __future__ import annotations

from stateflow.compaction.pages.html import percent, table
from stateflow.lab.compaction.stock_result import StockCell, StockFigures

_MB = 1e6


def stock_section(stock: StockFigures | None) -> str:
    """A heading, the policies side by side, and every log whose bound was checked; nothing when there was none."""
    if stock is None:
        return ""
    three = (stock.hand, stock.tuned, stock.with_broker_settings)
    policies = [
        [
            cell.name,
            f"{cell.policy.segment_ms / 1000:g} s, {cell.policy.dirty_ratio:g}",
            f"{cell.cleaner.backoff_ms / 1000:g} s, {cell.cleaner.dedupe_buffer_bytes >> 20} MiB",
            f"{cell.size_max_bytes / _MB:.2f}",
            percent(cell.cleaner_cores),
            percent(cell.calibrated_cores),
            percent(cell.uncalibrated_cores),
        ]
        for cell in three
    ]
    head = [
        "policy",
        "segment, ratio",
        "backoff, buffer",
        "largest log, MB",
        "cleaner CPU",
        "calibrated",
        "not",
    ]
    told = (
        f"<p>Cleaner backoff 15 s, buffer 128 MiB, as Kafka comes. The log may have {stock.bound_bytes / _MB:.2f} MB. "
        f"{sum(cell.broken for cell in stock.cells)} of {len(stock.cells)} logs grew beyond what was promised of them."
        "</p>"
    )
    others = [
        [one.name, f"{one.bound:,.4g}", f"{one.measured:,.4g}", "yes" if one.held else "no"]
        for one in stock.objectives
    ]
    bounded = table(["other objective", "at most", "measured", "held"], others) if others else ""
    return "<h2>On a stock broker</h2>" + told + table(head, policies) + bounded + _logs(stock.cells)


def _logs(cells: tuple[StockCell, ...]) -> str:
    rows = [
        [
            cell.name + (" (disturbed)" if cell.disturbed else ""),
            f"{cell.policy.segment_ms / 1000:g} s, {cell.policy.dirty_ratio:g}",
            f"{cell.size_max_bytes / _MB:.2f}",
            f"{cell.expected_bytes / _MB:.2f}",
            f"{cell.promised_bytes / _MB:.2f}",
        ]
        for cell in cells
    ]
    return table(["log", "segment, ratio", "largest, MB", "predicted", "at most"], rows)
