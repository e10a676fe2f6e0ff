"""What the stock brokers showed, as a part of the study's page."""

from __future__ import annotations

from collections.abc import Sequence

from stateflow.compaction.pages.html import percent, table
from stateflow.lab.compaction.stock_result import BrokerFigures, StockCell, StockFigures, StockLoad

_MB = 1e6


def stock_section(stock: StockFigures | None) -> str:
    """A heading, the policies side by side at every load, and every log whose bound was checked; nothing when there was
    none.
    """
    if stock is None:
        return ""
    broken = sum(cell.broken and not cell.overloaded for cell in stock.cells)
    told = (
        "<p>Cleaner backoff 15 s, buffer 128 MiB, as Kafka comes. "
        f"{broken} of {len(stock.cells)} logs grew beyond what was promised of them.</p>"
    )
    others = [
        [one.name, f"{one.bound:,.4g}", f"{one.measured:,.4g}", "yes" if one.held else "no"]
        for one in stock.objectives
    ]
    bounded = table(["other objective", "at most", "measured", "held"], others) if others else ""
    return (
        "<h2>On a stock broker</h2>" + told + "".join(map(_load, stock.loads)) + bounded + _logs(stock.cells)
    )


def _load(load: StockLoad) -> str:
    head = [
        "policy",
        "segment, ratio",
        "backoff, buffer",
        "largest log, MB",
        "cleaner CPU",
        "single cycles",
        "calibrated",
        "by default",
    ]
    brokers = [load.hand, *([] if load.nothing_better else [load.tuned]), load.with_broker_settings]
    same = (
        " No topic setting was predicted to be cheaper than the one by hand." if load.nothing_better else ""
    )
    told = (
        f"<p>{load.updates_per_second:g} updates/s; the log may have {load.bound_bytes / _MB:.2f} MB.{same} With "
        f"the cleaner settings {load.ratio_with_broker_settings:.0%} of the CPU by hand, predicted "
        f"{load.predicted:.0%}; what each new record costs alone makes {load.floor:.0%}.{_own(load)}</p>"
    )
    return told + table(head, [_row(broker) for broker in brokers])


def _own(load: StockLoad) -> str:
    if load.own is None:
        return ""
    return f" An application of ours with images and a trimmed changelog took {load.own.ratio:.1%} of its CPU by hand."


def _row(broker: BrokerFigures) -> Sequence[str]:
    (cell,) = broker.logs
    return [
        cell.name,
        f"{cell.policy.segment_ms / 1000:g} s, {cell.policy.dirty_ratio:g}",
        f"{broker.cleaner.backoff_ms / 1000:g} s, {broker.cleaner.dedupe_buffer_bytes >> 20} MiB",
        f"{cell.size_max_bytes / _MB:.2f}",
        percent(broker.use.cores),
        f"{percent(broker.use.low)} … {percent(broker.use.high)}",
        percent(broker.calibrated_cores),
        percent(broker.uncalibrated_cores),
    ]


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
