"""What all tests share: golden files, fuzz counts and seeds, and a summary of what was skipped."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from pace import kept
from processor_time import LIMIT, measured, too_long
from thinning import SOAK, draw, left_out, revision

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    draw(revision(Path(__file__).parent))
    # The kernels that one test compiles serve the others of this run, and are removed afterwards.
    if "DSLC_TEST_CACHE" not in os.environ:
        os.environ["DSLC_TEST_CACHE"] = tempfile.mkdtemp(prefix="dslc-cache-")
        config.add_cleanup(partial(shutil.rmtree, os.environ["DSLC_TEST_CACHE"], ignore_errors=True))
    os.environ["DSLC_CACHE_DIR"] = os.environ["DSLC_TEST_CACHE"]
    # The commands that tests start run as users' do: with the bytecode of the last run, not compiled again each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # A shell starts a background job with SIGINT ignored, and children inherit that: tests of signals need it heard.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


#: Seconds that a test with the marker ``slow``, or any test at its full count, may take, unless pyproject.toml or the
#: soak allow more. The limit ends what hangs, so it leaves room for a machine that is busy.
_SLOW_TIMEOUT: Final = 600


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What the collection makes stays until the end, so no search for garbage needs to look at it: many tests ask for
    one, which takes 0.2 s else."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = (
        os.environ.get("DSLC_EVERY_SLOW") == "1" or config.option.keyword or any("::" in name for name in config.args)
    )
    if not SOAK and not asked:
        left = left_out(items)
        config.hook.pytest_deselected(items=left)
        ids = set(map(id, left))
        items[:] = [item for item in items if id(item) not in ids]
    limit = max(_SLOW_TIMEOUT, int(config.getini("timeout") or 0))
    for item in items:
        if (SOAK or item.get_closest_marker("slow")) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(limit))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    with measured(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with measured(item):
        return (yield)


def pytest_report_header(config: pytest.Config) -> str:
    scale = "all of it" if os.environ.get("DSLC_SOAK") == "1" else "a tenth (DSLC_SOAK=1 for all)"
    return f"fuzz: DSLC_SEED={os.environ['DSLC_SEED']}, {scale}; cases drawn by DSLC_PART={os.environ['DSLC_PART']}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("area/name.txt", text)``: text equals tests/golden/area/name.txt; ``--update-golden`` rewrites it."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}; write it with: pytest --update-golden")
        expected = path.read_bytes().decode()
        assert text == expected, f"differs from {path}; if the new text is right: pytest --update-golden"

    return check


@pytest.fixture
def allowed() -> Callable[[float, float], bool]:
    """``allowed(spent, limit)``: whether seconds of processor time keep to a limit meant for the reference machine."""
    return kept


@pytest.fixture
def fuzz_count() -> Callable[..., int]:
    """``fuzz_count(full, share=10)``: how many random cases to try; all when DSLC_SOAK=1, else one of ``share`` (at
    least one)."""
    soak = os.environ.get("DSLC_SOAK") == "1"

    def count(full: int, share: int = 10) -> int:
        return full if soak else max(1, full // share)

    return count


@pytest.fixture
def fuzz_seed() -> int:
    """DSLC_SEED, which the revision draws unless it is set; printed, so that a failure can be repeated."""
    seed = int(os.environ["DSLC_SEED"])
    print(f"DSLC_SEED={seed}")
    return seed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason.removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.write_line(f"skipped {reasons.total()}:")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"  {count} x {reason}")
    if lines := too_long(terminalreporter.stats.get("passed", [])):
        terminalreporter.write_line(f"more than {LIMIT:.0f} s of processor time without the marker slow:")
    for line in lines:
        terminalreporter.write_line(f"  {line}")
