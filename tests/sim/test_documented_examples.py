"""Every example of these pages runs, in order, and asserts what it says."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "examples_min"),
    [
        ("state.md", 9),
        ("event-time.md", 7),
        ("windows.md", 7),
        ("joins.md", 8),
        ("order.md", 5),
        ("records.md", 6),
        ("patterns.md", 6),
        ("graphs.md", 4),
        ("enrichment.md", 3),
        ("timers.md", 4),
        ("codecs.md", 3),
        ("aggregates.md", 4),
    ],
)
def test_every_example_runs(name: str, examples_min: int) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= examples_min
    # A module that can be imported: annotations are looked up in it.
    page = types.ModuleType(f"docs_{Path(name).stem.replace('-', '_')}_page")
    sys.modules[page.__name__] = page
    try:
        for number, example in enumerate(examples):
            exec(compile(example, f"{name}, example {number}", "exec"), page.__dict__)
    finally:
        del sys.modules[page.__name__]
