"""Measure all that docs/performance.md shows, one benchmark after the other, and keep the results.

python benchmarks/suite.py [--only count,rekey] [--brokers localhost:9092]

Each result goes to benchmarks/results/<name>.json as soon as it is there; the page is made anew at the end. A benchmark
that fails, or whose sides computed different things, is named at the end, and its file stays as it was. All of it takes
about an hour on a quiet machine with two cores; ratios of a busy one say little.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import ROOT
from page import main as make_page

from stateflow.lab.bench.rows import ROWS, Row


def measured(row: Row, brokers: str | None) -> bool:
    """Run one benchmark as a person would; whether it is kept."""
    where = ["--brokers", brokers] if brokers else []
    with tempfile.TemporaryDirectory(prefix="stateflow-suite-") as folder:
        found = Path(folder) / f"{row.name}.json"
        command = [sys.executable, "-m", "stateflow.cli", "bench", *row.words, *where, "--save", str(found)]
        is_well = subprocess.run(command, check=False).returncode == 0 and found.exists()
        if is_well:
            place = ROOT / "benchmarks" / "results"
            place.mkdir(exist_ok=True)
            shutil.copy(found, place / found.name)
    return is_well


def main() -> int:
    """Measure, keep, show; 1 if any benchmark was not kept."""
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(names), help="names of rows with commas between")
    parser.add_argument("--brokers", help="a broker to use; each benchmark starts its own otherwise")
    asked = parser.parse_args()
    only = [name.strip() for name in asked.only.split(",")]
    if unknown := set(only) - set(names):
        parser.error(f"no row is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    failed = []
    for row in (row for row in ROWS if row.name in only):
        print(f"== {row.command}", flush=True)
        began = time.monotonic()
        if not measured(row, asked.brokers):
            failed.append(row.name)
        print(f"== {row.name} took {time.monotonic() - began:.0f} s", flush=True)
    make_page()
    if failed:
        print(f"not kept: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
