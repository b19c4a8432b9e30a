"""The tests themselves: where they are, and that no test module depends on another."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from places import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("*.py"))
#: What tests/ has next to the folders of the source: suites that are not about one module, and what all of them share.
SUITES = {"base", "cli", "faults", "fuzz", "gpu", "golden", "models", "mutation", "peer", "regress", "soak", "support"}
SUITES |= {"surroundings"}
MOST_FILES = 24  # of a folder, so that one look shows them


def imported(tree: ast.AST) -> set[str]:
    """The last names of all modules that are imported."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[-1] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[-1], *(alias.name for alias in node.names)}
    return found


def edits_the_path(tree: ast.AST) -> bool:
    return any(ast.unparse(node) == "sys.path" for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def test_no_module_imports_a_test_module() -> None:
    """What two of them need is a module of tests/support."""
    tests = {path.stem for path in MODULES if path.stem.startswith("test_")}
    wrong = {str(path): found for path in MODULES if (found := imported(ast.parse(path.read_text())) & tests)}
    assert not wrong


def test_no_module_edits_the_path_of_imports() -> None:
    """``pythonpath`` in pyproject.toml has tests/support; a process of its own gets it by ``places.with_support``."""
    tools = TESTS / "mutation"  # they run pytest in a copy of the tree
    wrong = [str(path) for path in MODULES if tools not in path.parents and edits_the_path(ast.parse(path.read_text()))]
    assert not wrong


@pytest.mark.parametrize("text", ["import test_a", "from test_a import b", "from c import test_a", "import d.test_a"])
def test_an_import_of_a_test_module_is_seen(text: str) -> None:
    assert "test_a" in imported(ast.parse(text))


@pytest.mark.parametrize("text", ["sys.path.insert(0, 'a')", "sys.path[:0] = ['a']", "sys.path += ['a']"])
def test_an_edit_of_the_path_is_seen(text: str) -> None:
    assert edits_the_path(ast.parse(text))


def test_helpers_are_in_one_place() -> None:
    places = (TESTS / "support", TESTS / "mutation")
    others = [p for p in MODULES if not p.name.startswith(("test_", "conftest")) and not {*places} & {*p.parents}]
    assert not others
    assert not [p for p in (TESTS / "support").rglob("*.py") if p.name.startswith(("test_", "conftest"))]


def test_the_folders_are_those_of_the_source() -> None:
    for path in MODULES:
        folder = path.relative_to(TESTS).parent
        if folder.parts and folder.parts[0] not in SUITES:
            assert (ROOT / folder).is_dir(), f"{path}: there is no {folder}"


def test_a_folder_can_be_seen_at_once() -> None:
    counted = Counter(path.parent for path in MODULES)
    assert not {folder: n for folder, n in counted.items() if n > MOST_FILES}
