"""Plants each fault of the tables in a copy of the tree, one at a time, and runs the tests that should notice.

    python tests/mutation/run.py [--json] [--only TEXT] [--part 1/2] [--again] [--survivors] [--baseline] [--relocate]

A run goes on where the last one stopped: ``.mutants/results.jsonl`` keeps what was found, by a digest of the fault;
a survivor is asked again when its tests are others (``--survivors``: those alone, in any case).
``--baseline`` runs each group of tests without a fault, which must pass. The exit code is 1 if a fault that is not
marked ``equivalent`` survived.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from faults import ROOT, TABLES, Fault, moved, read, renamed, tracked, why_not

RESULTS = ROOT / ".mutants"
#: Imported once, by the process that each run of tests is a fork of: none of them knows of this project.
PRELOADED = ("numpy", "pytest", "llvmlite.binding", "numba", "lark", "yaml", "click", "rich.console", "safetensors")
LIMIT = 90.0  # seconds; a fault may make a loop without end, which counts as noticed


class Copy:
    """The tree in a folder of its own. Each plant has a later time of change, so that no old bytecode serves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in tracked():
            source, to = ROOT / name, folder / name
            if not source.exists() and not source.is_symlink():
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                to.symlink_to(os.readlink(source))
            else:
                shutil.copyfile(source, to)
        self._later = time.time()

    def put(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        self._later += 2
        os.utime(path, (self._later, self._later))


def tested(folder: Path, tests: tuple[str, ...], limit: float = LIMIT, stop: bool = True) -> dict[str, Any]:
    """``{"status": "killed" | "survived" | "broken", "by", "failed", "seconds"}`` of the tests in a forked process.

    ``stop``: at the first test that fails, which is ``by``.
    """
    begin, report = time.monotonic(), folder.parent / "report.txt"
    report.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _child(folder, tests, report, stop)
    status = None
    while status is None and time.monotonic() - begin < limit:
        done, code = os.waitpid(pid, os.WNOHANG)
        status = code if done else None
        if not done:
            time.sleep(0.02)
    late = status is None
    with suppress(ProcessLookupError):  # all have ended by themselves
        os.killpg(pid, signal.SIGKILL)  # and what the tests may have left running
    if late:
        _, status = os.waitpid(pid, 0)
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    code = -1 if late or status is None else os.waitstatus_to_exitcode(status)
    found = "survived" if code == 0 else "broken" if code in (3, 4, 5) else "killed"
    by = "its time" if late else lines[-1] if lines else f"exit code {code}"
    seconds = round(time.monotonic() - begin, 1)
    return {"status": found, "by": by if found != "survived" else "", "failed": lines, "seconds": seconds}


def _child(folder: Path, tests: tuple[str, ...], report: Path, stop: bool) -> None:
    """Never returns. Tests that fail are the lines of ``report``."""
    os.setsid()
    out = os.open(folder.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    os.environ["DSLC_SEED"] = os.environ["DSLC_PART"] = os.environ["DSLC_EVERY_SLOW"] = "1"
    os.environ.pop("DSLC_TEST_CACHE", None)
    sys.path.insert(0, str(folder))
    sys.argv = ["pytest"]
    import pytest

    class Reporter:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                write(report.nodeid)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                write(report.nodeid)

    def write(line: str) -> None:
        with report.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    code: int = 3
    try:
        options = ["-x"] if stop else []
        plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
        code = int(pytest.main([*options, "-q", *plugins, *tests], plugins=[Reporter()]))
    finally:  # this process ends here whatever happens
        if sys.exc_info()[1] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _confirm(folder: Path, kept: list[tuple[str, dict[str, Any]]]) -> None:
    """A test that fails without the fault, too, has noticed nothing: that result is ``broken``."""
    noticed = sorted({found["by"] for _, found in kept if found["status"] == "killed" and "::" in found["by"]})
    files = sorted({found["by"] for _, found in kept if found["by"].endswith(".py")})
    if not noticed and not files:
        return
    failing = tested(folder, (*noticed, *files), limit=20 * LIMIT, stop=False)["failed"]
    for digest, found in kept:
        if found["by"] in failing or found["by"].partition("::")[0] in failing:
            print(f"broken: {found['name']}: {found['by']} fails by itself", file=sys.stderr)
            _keep(digest, {**found, "status": "broken"})


def relocate(tables: Path = TABLES, root: Path = ROOT) -> list[str]:
    """Writes the new paths of files and texts that have moved into the tables; gives what still cannot be planted."""
    paths = {path for f in read(tables) for path in (f.file, *(t.partition("::")[0] for t in f.tests))}
    paths |= {file for table in tables.glob("*.toml") for file in tomllib.loads(table.read_text()).get("tests", {})}
    for path in sorted(p for p in paths if not (root / p).is_file()):
        if to := renamed(path, root):
            print(f"{path} -> {to}")
            for table in tables.glob("*.toml"):
                text = table.read_text(encoding="utf-8")
                for end in ('"', "::"):
                    text = text.replace(f'"{path}{end}', f'"{to}{end}')
                table.write_text(text, encoding="utf-8")
    for fault, file in moved(read(tables), root):
        table = tables / fault.table
        text = table.read_text(encoding="utf-8")
        head = f'name = "{fault.name}"\nfile = "{fault.file}"\n'
        assert text.count(head) == 1, fault.name
        tests = "" if "\ntests = [" in _entry(text, head) else f"tests = {json.dumps(fault.tests)}\n"
        table.write_text(text.replace(head, f'name = "{fault.name}"\nfile = "{file}"\n{tests}'), encoding="utf-8")
        print(f"{fault.name}: {fault.file} -> {file}")
    return [f"{f.name}: {why}" for f in read(tables) if (why := why_not(f, root))]


def _entry(text: str, head: str) -> str:
    """A fault's entry, from its first line to the next entry."""
    return text[text.index(head) :].partition("[[fault]]")[0]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="print the counts and each result as JSON")
    parser.add_argument("--only", default="", help="faults whose name, file or table has one of these texts, A,B")
    parser.add_argument("--part", default="1/1", help="the n-th of m parts of the table")
    parser.add_argument("--again", action="store_true", help="ask again also what is known")
    parser.add_argument("--survivors", action="store_true", help="ask again what survived, and nothing else")
    parser.add_argument("--baseline", action="store_true", help="run the tests without a fault")
    parser.add_argument("--relocate", action="store_true", help="rewrite the tables for files and texts that moved")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no fault after this time")
    options = parser.parse_args()
    wanted = options.only.split(",")
    faults = [f for f in read() if any(text in f"{f.name} {f.file} {f.table}" for text in wanted)]
    if options.relocate:
        rotten = relocate()
        print("\n".join([*rotten, f"{len(rotten)} faults cannot be planted"]))
        return 2 if rotten else 0
    rotten = [f"{f.name}: {why}" for f in faults if (why := why_not(f))]
    if rotten:
        print("\n".join(rotten))
        return 2
    part, parts = map(int, options.part.split("/"))
    known = _results()
    asked = faults[part - 1 :: parts]
    if options.baseline:
        groups = sorted({f.tests for f in asked})
        asked = [Fault(" ".join(t), "", "", " ".join(t), t, "", "") for t in groups]
    todo = [f for f in asked if options.again or not _is_known(f, known.get(f.digest))]
    if options.survivors:
        todo = [f for f in asked if known.get(f.digest, {}).get("status") == "survived"]
    todo.sort(key=lambda f: (f.digest in known, f.digest))  # a part of a run is a sample of the tables
    for name in PRELOADED:
        importlib.import_module(name)
    begin, kept = time.monotonic(), list[tuple[str, dict[str, Any]]]()
    with tempfile.TemporaryDirectory(prefix="dslc-mutants-") as scratch:
        copy = Copy(Path(scratch) / "tree")
        for number, fault in enumerate(todo, 1):
            if time.monotonic() - begin > options.seconds:
                break
            if fault.file:
                good = (copy.folder / fault.file).read_text(encoding="utf-8")
                copy.put(fault.file, good.replace(fault.old, fault.new))
            found = {"name": fault.name, "tests": fault.tests, **tested(copy.folder, fault.tests)}
            if fault.file:
                copy.put(fault.file, good)
            kept.append((fault.digest, found))
            _keep(fault.digest, found)
            if found["status"] == "broken" or (options.baseline and found["status"] != "survived"):
                print((Path(scratch) / "output.txt").read_text(errors="replace")[-2000:], file=sys.stderr)
            line = f"{number}/{len(todo)} {found['status']:8} {found['seconds']:6.1f} s  {fault.name}  {found['by']}"
            print(line, file=sys.stderr, flush=True)
        if not options.baseline:
            _confirm(copy.folder, kept)
    return _summary(asked, _results(), options.json, options.baseline)


def _is_known(fault: Fault, row: dict[str, Any] | None) -> bool:
    """What was noticed once is noticed; a survivor is asked again when it has other tests."""
    if row is None or row["status"] == "broken":
        return False
    return row["status"] == "killed" or row["tests"] == list(fault.tests)


def _results() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row.pop("digest")] = row
    return found


def _keep(digest: str, found: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"digest": digest, **found}) + "\n")


def _summary(asked: list[Fault], known: dict[str, dict[str, Any]], as_json: bool, baseline: bool) -> int:
    rows = [{**known[f.digest], "equivalent": f.equivalent} for f in asked if f.digest in known]
    alive = [r for r in rows if r["status"] != "killed"]
    open_ = [r for r in alive if not r["equivalent"]]
    if baseline:
        failed = [r for r in rows if r["status"] != "survived"]
        print(f"{len(rows)} groups of tests without a fault, {len(failed)} failed")
        return 1 if failed else 0
    counts = {"asked": len(asked), "done": len(rows), "killed": len(rows) - len(alive), "survived": len(open_),
              "equivalent": len(alive) - len(open_)}  # fmt: skip
    if as_json:
        print(json.dumps({**counts, "results": rows}, indent=1))
    else:
        for row in alive:
            print(f"{row['status']}: {row['name']} {row['equivalent']}")
        print(", ".join(f"{name} {count}" for name, count in counts.items()))
    return 1 if open_ else 0


if __name__ == "__main__":
    sys.exit(main())
