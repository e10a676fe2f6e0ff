"""An assert finds bugs and does nothing else: Python leaves it out under ``-O`` and ``PYTHONOPTIMIZE``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHIPPED_FOLDERS = ("stateflow", "connectors", "compaction", "cli")
WITHOUT_EFFECT = {
    "all",
    "any",
    "isinstance",
    "issubclass",
    "len",
    "map",
    "max",
    "min",
    "pairwise",
    "range",
    "set",
    "sum",
}
METHODS_WITHOUT_EFFECT = {"exists", "is_cached", "keys", "position", "stat"}


def effects(source: str) -> Iterator[str]:
    """What the asserts of a module do, or may do, beside looking at values."""
    asserts = [found for found in ast.walk(ast.parse(source)) if isinstance(found, ast.Assert)]
    for found in asserts:
        yield from (
            f"{found.lineno}: {ast.unparse(node)}" for node in ast.walk(found.test) if _may_have_effect(node)
        )


def _may_have_effect(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr not in METHODS_WITHOUT_EFFECT
    return not (isinstance(called, ast.Name) and called.id in WITHOUT_EFFECT)


@pytest.mark.parametrize(
    "statement", ["assert at.unsigned() == 2", "assert next(turns)", "assert (left := take())"]
)
def test_an_effect_is_found(statement: str) -> None:
    assert list(effects(statement))


def test_asserts_have_no_effect() -> None:
    modules = [path for folder in SHIPPED_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}:{effect}" for path in modules for effect in effects(path.read_text())]
    assert not found
