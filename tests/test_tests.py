"""The tests themselves: where they are, and that no test module depends on another."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pace import kept, started, within
from places import ROOT
from processor_time import LIMIT, NAME, measured, spent, too_long
from thinning import SOAK, draw, left_out, revision, taken, thinned

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("*.py"))
#: What tests/ has next to the folders of the source: suites that are not about one module, and what all of them share.
SUITES = {"base", "cli", "faults", "fuzz", "gpu", "golden", "models", "mutation", "peer", "regress", "soak", "support"}
SUITES |= {"surroundings", "tune"}
MOST_FILES = 24  # of a folder, so that one look shows them


#: What the text of a module has if its tree may have what is looked for: to parse all modules takes seconds.
MAY_IMPORT = re.compile(r"^\s*(?:from|import)\s[^()\n]*(?:\([^)]*)?\btest_", re.MULTILINE)
MAY_DRAW = re.compile(
    r"\brandom\.(?!(?:Random|default_rng|Philox|PCG64|Generator|seed)\b)\w"
    r"|\b(?:Random|default_rng|Philox|PCG64)\(\s*\)"
)


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def imported(text: str) -> set[str]:
    """The last names of the modules that are imported, if one of them may be a test's."""
    found = set[str]()
    if MAY_IMPORT.search(text) is None:
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[-1] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[-1], *(alias.name for alias in node.names)}
    return found


def edits_the_path(text: str) -> bool:
    if "sys.path" not in text:
        return False
    paths = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and node.attr == "path")
    return any(isinstance(node.value, ast.Name) and node.value.id == "sys" for node in paths)


def draws_without_a_seed(text: str) -> bool:
    """Whether it draws from the generator that ``random`` seeds by the clock, or makes one without a seed."""
    if MAY_DRAW.search(text) is None:
        return False
    for call in ast.walk(ast.parse(text)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        makes = call.func.attr in ("Random", "default_rng", "Philox", "PCG64")
        shared = ast.unparse(call.func.value) in ("random", "np.random") and not makes
        if (shared and call.func.attr not in ("Generator", "seed")) or (makes and not call.args and not call.keywords):
            return True
    return False


def test_every_random_test_can_be_repeated() -> None:
    """All draw from ``fuzz_seed``, which DSLC_SEED sets, or from a constant."""
    assert not [str(path) for path in MODULES if draws_without_a_seed(text_of(path))]


@pytest.mark.parametrize(
    ("text", "draws"),
    [
        ("random.randrange(9)", True), ("np.random.rand(3)", True), ("random.Random()", True), ("default(1)", False),
        ("np.random.default_rng()", True), ("random.Random(3).random()", False), ("np.random.default_rng(3)", False),
        ("np.random.Generator(np.random.Philox(key=3))", False),
    ],
)  # fmt: skip
def test_a_draw_without_a_seed_is_seen(text: str, draws: bool) -> None:
    assert draws_without_a_seed(text) is draws


def test_no_module_imports_a_test_module() -> None:
    """What two of them need is a module of tests/support."""
    tests = {path.stem for path in MODULES if path.stem.startswith("test_")}
    wrong = {str(path): found for path in MODULES if (found := imported(text_of(path)) & tests)}
    assert not wrong


def test_no_module_edits_the_path_of_imports() -> None:
    """``pythonpath`` in pyproject.toml has tests/support; a process of its own gets it by ``places.with_support``."""
    tools = TESTS / "mutation"  # they run pytest in a copy of the tree
    wrong = [str(path) for path in MODULES if tools not in path.parents and edits_the_path(text_of(path))]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "import test_a", "from test_a import b", "from c import test_a", "import d.test_a", "from e import b, test_a",
        "from f import (\n    b,\n    test_a,\n)", "if b:\n    import test_a",
    ],
)  # fmt: skip
def test_an_import_of_a_test_module_is_seen(text: str) -> None:
    assert "test_a" in imported(text)


@pytest.mark.parametrize("text", ["sys.path.insert(0, 'a')", "sys.path[:0] = ['a']", "sys.path += ['a']"])
def test_an_edit_of_the_path_is_seen(text: str) -> None:
    assert edits_the_path(text)


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


def test_what_is_thinned_is_slow_and_not_lost() -> None:
    params = thinned(["a", "b", ("c", "d"), "e"], 2)
    assert [param.values for param in params] == [("a",), ("b",), ("c", "d"), ("e",)]
    assert [[mark.name for mark in param.marks] for param in params] == [[], ["slow"], [], ["slow"]]


def test_the_revision_draws_the_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        subprocess.run(("git", *words), cwd=tmp_path, check=True, capture_output=True)

    assert revision(tmp_path) != revision(tmp_path)
    git("init", "-q")
    (tmp_path / "one").write_text("1")
    git("add", "one")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    drawn = revision(tmp_path)
    assert len(drawn) >= 40 and revision(tmp_path) == drawn
    for name in ("DSLC_PART", "DSLC_SEED"):
        monkeypatch.delenv(name, raising=False)
    draw(drawn)
    assert os.environ["DSLC_PART"] == drawn and (int(drawn[:8], 16) == int(os.environ["DSLC_SEED"])) is not SOAK
    monkeypatch.setenv("DSLC_SEED", "5")
    draw(revision(tmp_path / ".."))
    assert os.environ["DSLC_PART"] == drawn and os.environ["DSLC_SEED"] == "5"
    found = set()
    for name in range(40):
        monkeypatch.setenv("DSLC_PART", f"{name}")
        found.add(tuple(taken(range(10), 3)))
    assert found == ({tuple(range(10))} if SOAK else {(0, 3, 6, 9), (1, 4, 7), (2, 5, 8)})


class Case:
    """Stands for one item of pytest."""

    def __init__(self, nodeid: str, slow: bool) -> None:
        self.nodeid, self.slow = nodeid, slow

    def get_closest_marker(self, name: str) -> bool | None:
        return self.slow or None


def test_a_run_takes_a_part_of_the_slow_tests_and_runs_together_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"a::t": 40, "b::t": 32, "c::t": 2, "d::t": 1}  # slow cases of the only slow test of a file
    taken_of = {"a::t": 2, "b::t": 1, "c::t": 1, "d::t": 1, "e::few": 3, "a::quick": 50}
    slow = [Case(f"{name}[{n}]", True) for name, count in counts.items() for n in range(count)]
    slow += [Case(f"e::few_{n}[{case}]", True) for n in range(5) for case in range(3)]
    items: Any = slow + [Case(f"a::quick[{n}]", False) for n in range(50)]
    ran = set[str]()
    for seed in range(300):
        monkeypatch.setenv("DSLC_PART", str(seed))
        taken = {each.nodeid for each in items} - {each.nodeid for each in left_out(items)}
        assert Counter(each.partition("[")[0].partition("_")[0] for each in taken) == taken_of
        assert not {each.nodeid for each in left_out(items)} & taken
        ran |= taken
    assert len(ran) == len(items)


def test_a_test_of_the_normal_run_that_takes_long_is_listed(request: pytest.FixtureRequest) -> None:
    """Its set-up and itself together; of a process that it started, too."""
    times = {"long": [0.6, 0.6], "longer": [1.5], "short": [0.9], "unmeasured": []}
    reports = [
        pytest.TestReport(
            name, ("", 0, ""), {}, "passed", None, "call", user_properties=[(NAME, p * LIMIT) for p in parts]
        )
        for name, parts in times.items()
    ]
    assert [line.split()[-1] for line in too_long(reports)] == ["longer", "long"]
    before, own = spent(), list(request.node.user_properties)
    with measured(request.node):
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    [(name, seconds)] = request.node.user_properties[len(own) :]
    del request.node.user_properties[len(own) :]
    assert name == NAME and 0.3 <= float(str(seconds)) <= spent() - before
    request.applymarker("slow")
    with measured(request.node):
        pass
    assert request.node.user_properties == own


def test_what_takes_twice_as_long_is_noticed() -> None:
    """The least time counts, so what else the machine does makes no difference."""

    def times(least: float) -> Callable[[], float]:
        those = cycle((3 * least, 1.7 * least, least))
        return lambda: next(those)

    assert within(times(1.4), times(1.0), 1.5) and not within(times(2.0), times(1.0), 1.5)
    assert 0 < started("-c", "pass")() < started("-c", "import time\nwhile time.process_time() < 0.5: pass")()


def test_a_limit_is_kept_or_not_on_any_machine() -> None:
    assert kept(1.0, 1.0) and kept(1.4, 1.0) and not kept(1000.0, 1.0)
