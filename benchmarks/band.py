"""CPU per million records of this checkout beside that of the last release: a report, which fails nothing.

python benchmarks/band.py [--records 1000000] [--rounds 3]     # how it stands to benchmarks/band.json
python benchmarks/band.py --update                             # at a release, on a quiet machine: what it is now

How fast the machine is at the moment is in both (``lab/bench/band.py``). A CI job keeps the output; people look at it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from stateflow.cli.output import emit_table
from stateflow.lab.bench.result import OURS

FILE = Path(__file__).with_name("band.json")
_HEADER = (
    "work",
    "CPU s per million",
    "at the release's pace",
    "at the release",
    "ratio",
    "verdict",
    "load",
    "load at the release",
)
WORKS = ("count", "rekey", "window", "operator")


def main() -> None:
    """Measure each work, and show a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--update", action="store_true", help="write what is measured to band.json")
    parser.add_argument("--only", default=",".join(WORKS), help="works with commas between")
    asked = parser.parse_args()
    size = ["--records", str(asked.records), "--rounds", str(asked.rounds), "--json"]
    what = ["--update-band" if asked.update else "--band", str(FILE)]
    rows = []
    for work in asked.only.split(","):
        command = [sys.executable, "-m", "stateflow.cli", "bench", work, *size, *what]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        body = json.loads(done.stdout.splitlines()[-1])
        now = body["cpu_seconds_per_million"][OURS]
        load = body["machine"]["load_average"]
        written = {"at_release": now, "now_at_its_pace": now, "load_at_release": load, "ratio": 1.0}
        found = body.get("band", {**written, "verdict": "written"})
        at_pace, at_release = found["now_at_its_pace"], found["at_release"]
        loads = load, found["load_at_release"]
        rows.append((work, now, at_pace, at_release, found["ratio"], found["verdict"], *loads))
    emit_table(_HEADER, rows)


if __name__ == "__main__":
    main()
