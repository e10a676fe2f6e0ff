"""Make the tables and the plot of docs/performance.md from benchmarks/results/*.json.

python benchmarks/page.py
"""

from __future__ import annotations

from pathlib import Path

from stateflow.lab.bench.page import kept_results, with_tables
from stateflow.lab.bench.plot import bars, svg

ROOT = Path(__file__).resolve().parents[1]
PAGE, PLOT = ROOT / "docs" / "performance.md", ROOT / "docs" / "img" / "performance.svg"


def main() -> None:
    """Write both."""
    results = kept_results(ROOT / "benchmarks" / "results")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    PLOT.write_text(svg(bars(results)), encoding="utf-8")
    print(f"{PAGE.name} and {PLOT.name} show {', '.join(results)}")


if __name__ == "__main__":
    main()
