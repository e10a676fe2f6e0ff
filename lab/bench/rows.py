"""What the page of results shows: a row for each command, what is aimed at, and in which file its result is kept."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark that is kept: ``benchmarks/results/<name>.json`` by ``stateflow bench <arguments>``."""

    name: str
    title: str
    arguments: str
    aim: float | None = None
    """Of the ratio of rates beside the first peer."""
    aim_text: str = ""
    """What else is aimed at, in words."""

    def aim_beside(self, peer: str) -> float | None:
        """The aim if it is about this peer."""
        return self.aim if f"--vs {peer}" in self.arguments else None

    @property
    def words(self) -> list[str]:
        """The arguments, one by one."""
        return shlex.split(self.arguments)

    @property
    def command(self) -> str:
        """As a person types it."""
        return f"stateflow bench {self.arguments}"


_STREAMS = "--vs kafka-streams"
_LARGE = f"{_STREAMS} --records 2000000 --rounds 2"
ROWS = (
    Row("count", "a count per key", f"count {_LARGE}", 5),
    Row("newest", "the newest value per key", f"newest {_LARGE}"),
    Row(
        "newest-1kib",
        "the newest value per key, 1 KiB each",
        f"newest {_STREAMS} --records 500000 --value-bytes 1024 --rounds 2",
    ),
    Row("rekey", "a count behind a re-key step", f"rekey {_LARGE}", 3),
    Row("window", "a sum per key and minute", f"window {_LARGE}", 4),
    Row("operator", "a sum by an operator class", f"operator {_LARGE}"),
    Row(
        "join",
        "a join of two inputs within 3 s",
        f"join {_STREAMS} --records 300000 --keys 60000 --rounds 2",
    ),
    Row("shuffle", "ShuffleBench", f"shuffle {_STREAMS} --records 500000 --rounds 2"),
    Row("restore", "a full restore", f"restore {_LARGE}", 2, "memory at most 400 MB"),
    Row("image", "an image and 1 % tail restored", f"image {_LARGE}", 20),
    Row("read", "reading", f"read {_STREAMS} --records 2000000 --rounds 2", 1),
    Row("write", "writing", f"write {_STREAMS} --records 1000000 --rounds 2"),
    Row("operator-quix", "a sum by an operator class", "operator --vs quix --rounds 2", 10),
    Row(
        "operator-faust",
        "a sum by an operator class, 200,000 records",
        "operator --vs faust --records 200000 --rounds 1",
    ),
    Row(
        "latency",
        "latency at 2,000 records/s",
        f"latency {_STREAMS} --seconds 12 --rounds 2",
        None,
        "p50 ≤ 120 ms",
    ),
    Row(
        "low-rate",
        "1,000 records/s, each counted, in a window, with two timers and a result",
        "low-rate --seconds 20 --rounds 2",
        None,
        "≤ 60 µs of CPU per record",
    ),
    Row(
        "restart",
        "first result after a start",
        f"restart {_STREAMS} --keys 3000000 --rounds 1",
        None,
        "warm ≤ 1 s",
    ),
    Row(
        "count-matrix",
        "a count per key at other sizes",
        f"count {_STREAMS} --records 500000 --matrix --rounds 1",
    ),
)
