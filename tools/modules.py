"""Write docs/modules.md: one line for every module, taken from the first sentence of its docstring."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "modules.md"
FOLDERS = ("stateflow", "connectors", "compaction", "cli", "lab")
LINE_MAX = 160
_HEAD = """# Modules

Every package from above, and what each of its modules is. Written by `python3 tools/modules.py` from their docstrings.
"""


def page() -> str:
    """The page as it should be now."""
    return "\n".join([_HEAD, *(section for folder in FOLDERS for section in _sections(ROOT / folder))])


def _sections(folder: Path) -> Iterator[str]:
    modules = sorted(path for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__"))
    yield f"## `{folder.relative_to(ROOT)}/`\n\n{_summary(folder / '__init__.py')}\n"
    if modules:
        rows = [f"| `{path.stem}` | {_summary(path)} |" for path in modules]
        yield "\n".join(["| module | what it is |", "|---|---|", *rows, ""])
    for below in sorted(folder.iterdir()):
        if (below / "__init__.py").exists() and not below.is_symlink():
            yield from _sections(below)


def _summary(module: Path) -> str:
    """The first paragraph of a module's docstring as one line."""
    said = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    line = " ".join(said.split("\n\n")[0].split())
    return (line if len(line) <= LINE_MAX else line[: line.rindex(" ", 0, LINE_MAX)] + " …").replace(
        "|", "\\|"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT), file=sys.stderr)
