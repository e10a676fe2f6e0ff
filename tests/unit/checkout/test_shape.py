"""The shape of the code: small modules, short functions, telling names, tests that test, documents that
are true.
"""

from __future__ import annotations

import ast
import gc
import re
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from stateflow.config import AppOptions

ROOT = Path(__file__).resolve().parents[3]
SOURCE_FOLDERS = ("stateflow", "connectors", "compaction", "cli", "lab")
LINES_MAX = 400
MEDIAN_FUNCTION_LINES_MAX = 10
LONG_FUNCTION_LINES_MAX = 45  # the 95th percentile
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "base_utils"}
BY_NAME = {"import_module", "__import__"}
FORMER_WORDS = re.compile(
    r"absorb(s|ption)?|alternating|dangling|memberless|nursery|overtaken|patient|shelf|strands?|tends?|untimely"
    r"|void|wish(es)?"
)
"""Words of ours in names that the field has words for: ``docs/glossary.md``."""
FORMER_PRODUCT_WORDS = re.compile(r"cuts?")
"""A savepoint's barrier and the stages of a graph were called so. Elsewhere connections and batches are cut."""
ROOMY_PACKAGES = {"operators", "runtime"}
"""Their tests stand in rooms as their modules do."""
DOCUMENTED_FOLDERS = (*SOURCE_FOLDERS, "tests", "docs", "examples", "tools", "docker", "benchmarks")
CHECKING_CALL = re.compile(r"^_?(assert|check|expect|verify|require|compare|raises|fail|run_state_machine)")


def sources() -> list[Path]:
    """Every module of the package, each once (not through the links)."""
    found = []
    for top in SOURCE_FOLDERS:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            if not (parts[0] == "stateflow" and parts[1] in SOURCE_FOLDERS):
                found.append(path)
    return found


def suite() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """A million objects less for the garbage collector to look through, for all the tests that follow."""
    yield
    parsed.cache_clear()
    nodes.cache_clear()
    gc.collect()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a module: many tests look through it."""
    return tuple(ast.walk(parsed(path)))


def functions(among: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in among:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body, its docstring left out."""
    first, *rest = function.body
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    start = rest[0] if is_docstring and rest else first
    return (function.end_lineno or 0) - start.lineno + 1


def test_no_module_is_long() -> None:
    scripts = [ROOT / "dev.py", *(ROOT / "tools").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    lengths = {path: len(path.read_text().splitlines()) for path in [*sources(), *suite(), *scripts]}
    too_long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > LINES_MAX}
    assert not too_long


def test_no_module_has_a_vague_name() -> None:
    vague = [path for path in sources() if {path.stem, path.parent.name} & VAGUE_NAMES]
    assert not vague


def defined_names(among: Iterable[ast.AST]) -> Iterator[str]:
    """Names of classes, functions and parameters."""
    for node in among:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


@cache
def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


@cache
def is_former(word: str, is_product: bool) -> bool:
    return bool(FORMER_WORDS.fullmatch(word) or (is_product and FORMER_PRODUCT_WORDS.fullmatch(word)))


def is_product(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] in ("stateflow", "cli")


def test_nothing_is_named_by_a_word_that_the_field_does_not_know() -> None:
    former = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*sources(), *suite()]
        for in_product in [is_product(path)]
        for name in {path.stem, *defined_names(nodes(path))}
        if any(is_former(word, in_product) for word in words_of(name))
    ]
    assert not former


def test_functions_are_short(record_property: Callable[[str, object], None]) -> None:
    lengths = sorted(body_lines(function) for path in sources() for function in functions(nodes(path)))
    median, long = statistics.median(lengths), lengths[int(len(lengths) * 0.95)]
    print(f"{len(lengths)} functions: median {median} lines, 95th percentile {long}, longest {lengths[-1]}")
    record_property("median_function_lines", median)
    assert median <= MEDIAN_FUNCTION_LINES_MAX
    assert long <= LONG_FUNCTION_LINES_MAX


def test_test_files_have_different_names_and_no_package() -> None:
    names = [path.name for path in suite() if path.name != "conftest.py"]
    assert len(set(names)) == len(names)
    assert "__init__.py" not in names


def subpackages(package: str) -> set[str]:
    return {path.parent.name for path in (ROOT / "stateflow" / package).glob("*/__init__.py")}


def test_folders_of_unit_tests_are_named_for_packages() -> None:
    """Tests of the modules at the top of the package, and no others, stand at the top; those of rooms in rooms."""
    packages = {path.parent.name for path in (ROOT / "stateflow").glob("*/__init__.py")}
    places = {path.parent for path in (ROOT / "tests" / "unit").rglob("test_*.py")}
    folders = {str(place.relative_to(ROOT / "tests" / "unit")) for place in places}
    rooms = {f"{package}/{room}" for package in ROOMY_PACKAGES for room in subpackages(package)}
    assert folders - {"."} <= packages - ROOMY_PACKAGES | rooms | {"checkout", "examples"}
    assert packages - {"testing"} <= {folder.partition("/")[0] for folder in folders}


def test_every_test_tests() -> None:
    shared = checkers(parsed(ROOT / "tests" / "waiting.py"))
    empty = [
        f"{path.relative_to(ROOT)}::{name}"
        for path in suite()
        if path.name.startswith("test_")
        for name in unchecking_tests(parsed(path), shared)
    ]
    assert not empty


def unchecking_tests(tree: ast.Module, shared: set[str]) -> list[str]:
    """Tests of a module that assert nothing, neither by themselves nor by what they call."""
    known = shared | checkers(tree)
    tests = [function for function in functions(ast.walk(tree)) if function.name.startswith("test_")]
    return [function.name for function in tests if not is_checking(function, known)]


def checkers(tree: ast.Module) -> set[str]:
    """Functions of a test module that assert something, which its tests may call instead of asserting."""
    return {function.name for function in functions(ast.walk(tree)) if is_checking(function, set())}


def is_checking(function: ast.FunctionDef | ast.AsyncFunctionDef, known: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if CHECKING_CALL.match(name) or name in known:
                return True
    return False


def test_nothing_is_pickled() -> None:
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                assert not {"pickle", "cloudpickle", "dill"} & set(names), path


IMPORTS_BY_NAME = {
    "stateflow/app.py": "stateflow.cli.",  # `App.main`: a script is its own command line
    "cli/main.py": "stateflow.cli.",
    "cli/laboratory.py": "stateflow.lab.commands.",  # in checkouts alone
    "lab/faults/matrix/fork_server.py": "stateflow.cli.",  # which stands below
    "stateflow/__init__.py": "stateflow.testing",
}
"""Modules that import others of ours by a name in a text, which the import contract in pyproject.toml cannot see."""


def test_what_the_import_contract_cannot_see_is_known() -> None:
    """A package would reach up to one above it otherwise, and nobody would notice."""
    for path in sources():
        for node in nodes(path):
            if not (isinstance(node, ast.Call) and node.args and called_name(node) in BY_NAME):
                continue
            name = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if isinstance(name, ast.Constant) and str(name.value).startswith("stateflow"):
                here = path.relative_to(ROOT).as_posix()
                known = IMPORTS_BY_NAME.get(here)
                assert known is not None, f"{here}:{node.lineno}"
                assert str(name.value).startswith(known), f"{here}:{node.lineno}"


def called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_no_error_is_dropped_without_a_reason() -> None:
    """A handler that does nothing says in a comment why nothing is right."""
    for path in sources():
        lines = path.read_text().splitlines()
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.body[0], ast.Pass | ast.Continue):
                written = lines[node.lineno - 1 : node.body[0].lineno]
                assert any("#" in line for line in written), f"{path}:{node.lineno}"


def documents() -> list[Path]:
    return [
        path
        for path in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
        if path.exists()
    ]


def named_paths(text: str) -> set[str]:
    """What a document puts between backticks, or links to, that looks like a path of this repository."""
    quoted = re.findall(r"`([^`\s]+)`", text) + re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    roots = "|".join(DOCUMENTED_FOLDERS)
    return {path for path in quoted if re.fullmatch(rf"({roots})/[\w./*-]*", path)}


def test_paths_named_in_documents_exist() -> None:
    missing = [
        f"{document.relative_to(ROOT)}: {path}"
        for document in documents()
        for path in sorted(named_paths(document.read_text()))
        if not list(ROOT.glob(path.rstrip("/")))
    ]
    assert not missing


def test_links_between_documents_lead_somewhere() -> None:
    for document in documents():
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}"


def test_modules_named_in_docstrings_exist() -> None:
    """They are named from the top of the checkout, or from `stateflow/`."""
    missing = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in (*sources(), *suite())
        for named in re.findall(r"``(\w+/[\w/]+\.py)``", path.read_text())
        if not (ROOT / named).exists() and not (ROOT / "stateflow" / named).exists()
        if not named.startswith("pyspark/")
    ]
    assert not missing


def test_every_setting_is_documented() -> None:
    text = "".join(document.read_text() for document in documents())
    unnamed = [option.name for option in fields(AppOptions) if not re.search(rf"`{option.name}[`=]", text)]
    assert not unnamed


def test_no_writer_has_a_send_of_its_own() -> None:
    """There is one way only for records to a topic: ``Writer.append`` takes them in columns."""
    own = [
        f"{path.name}: {found.name}.{method.name}"
        for path in (*sources(), *suite())
        for found in nodes(path)
        if isinstance(found, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith(("Writer", "Sender")) for base in found.bases)
        for method in found.body
        if isinstance(method, ast.FunctionDef) and method.name in ("send", "send_many")
    ]
    assert own == []
