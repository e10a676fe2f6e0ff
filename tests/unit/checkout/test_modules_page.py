"""The list of modules is that of the modules there are."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_of_modules_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("modules_page", ROOT / "tools" / "modules.py")
    assert spec is not None
    assert spec.loader is not None
    modules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(modules)
    assert modules.PAGE.read_text(encoding="utf-8") == modules.page(), "run `python3 tools/modules.py`"
