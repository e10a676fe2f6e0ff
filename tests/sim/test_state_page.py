"""Every example of ``docs/state.md`` runs, in order, and asserts what it says."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "state.md"


def test_every_example_runs() -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) > 8
    # A module that can be imported: annotations are looked up in it.
    page = types.ModuleType("docs_state_page")
    sys.modules[page.__name__] = page
    try:
        for number, example in enumerate(examples):
            exec(compile(example, f"{PAGE.name}, example {number}", "exec"), page.__dict__)
    finally:
        del sys.modules[page.__name__]
