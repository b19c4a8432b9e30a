"""The pages of docs/ that come from tables are as the tables say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from places import ROOT

from dslc.base import errors
from dslc.cli.app import app
from dslc.cli.table import COMMANDS
from dslc.runtime.config.fields import FIELDS
from dslc.runtime.config.load import load_config


def test_generated_pages_are_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}run `make docs`"


def test_links_lead_somewhere() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "examples", "benchmarks") for page in ROOT.glob(f"{folder}/**/*.md")),
    ]
    assert len(pages) > 8
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


PAGES = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("benchmarks/**/*.md"),
    *ROOT.glob("dslc/base/pages/*.md"),
]  # fmt: skip
#: Commands of other programs, whose options they are; an option by itself is one of dslc or of OTHERS.
FOREIGN = re.compile(r"\b(?:docker|mypy|pip|torchrun|python \S+\.py) [^`\n]*")
#: Options of scripts and of pytest that pages name.
OTHERS = {"--update-golden", "--source", "--length", "--temperature", "--torch", "--mode", "--modes",
          "--compile", "--sizes", "--room", "--rounds", "--only", "--run", "--threads", "--turns"}  # fmt: skip


def test_every_option_that_a_page_names_is_there() -> None:
    """Options after a command are checked for that command. docs/commands.md lists all of them."""
    with click.Context(app) as context:
        commands = {name: app.get_command(context, name) for name in COMMANDS}
    options = {
        n: {o for p in c.params for o in p.opts} | {"-h", "--help"} for n, c in commands.items() if c is not None
    }
    known = set().union(*options.values(), OTHERS, {"--version"})
    wrong: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        own = re.sub(FOREIGN, "", text)
        wrong += [f"{page.name}: {o}" for o in re.findall(r"(?<![\w-])--[a-z][a-z-]*", own) if o not in known]
        for command, rest in re.findall(r"\bdslc ([a-z]+)((?: [^`\n|;&#>]*)?)", text):
            given = re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", rest) if command in options else []
            wrong += [f"{page.name}: dslc {command} {o}" for o in given if o not in options[command]]
    assert not wrong


def test_every_path_and_variable_that_a_page_names_is_there() -> None:
    texts = {page: re.sub(r"New file `.+?`", "", page.read_text(encoding="utf-8")) for page in PAGES}
    folders = "dsl|compiler|runtime|dslc|tests|docs|examples|benchmarks"
    for page, text in texts.items():
        for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
            assert (ROOT / path).exists(), f"{page}: {path}"
    sources = [path for floor in ("dsl", "compiler", "runtime", "dslc/base", "dslc/cli")
               for path in (ROOT / floor).rglob("*.py")]  # fmt: skip
    read = {name for path in sources for name in re.findall(r"\bDSLC_[A-Z_]+[A-Z]\b", path.read_text(encoding="utf-8"))}
    named = set(re.findall(r"\bDSLC_[A-Z_]+[A-Z]\b", "".join(texts.values())))
    fields = {field.variable for field in FIELDS if not field.open}
    ours = {"DSLC_SEED", "DSLC_PART", "DSLC_SOAK", "DSLC_EVERY_SLOW"}  # of the tests
    ours |= {"DSLC_FAILPOINT", "DSLC_FAILPOINT_LOG"}
    assert read - ours <= named <= read | fields | ours


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [name for name in COMMANDS if not re.search(rf"`(dslc )?{name}\b", readme)]
    assert not missing


def test_the_configurations_of_config_md_are_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/config.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        path = tmp_path / "dslc.yaml"
        path.write_text(block)
        config = load_config(str(path), {}, {})
        assert config.train.epochs > 1
        assert all(e.origin != "default" for e in config.entries if e.name == "train.lr"), block


def test_the_configuration_of_the_examples_page_is_read(tmp_path: Path) -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", (ROOT / "examples/README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "dslc.yaml").write_text(block)
    config = load_config(str(tmp_path / "dslc.yaml"), {}, {})
    assert config.start.map and config.start.replace


def test_make_help_lists_every_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    ran = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in ran.stdout.splitlines() if line.startswith("  make ")} == targets
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony and set(phony[1].split()) == targets


def test_the_readme_shows_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is the example's, and its error message is the real one."""
    from dslc.compiler.check.model import check_file
    from dslc.dsl.diagnostics import CompileError

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = [text for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE) if not kind]
    model = (ROOT / "examples/digits/lenet.nn").read_text(encoding="utf-8")
    assert blocks[0] == model
    [shown] = [block for block in blocks if block.startswith("error[")]
    monkeypatch.chdir(tmp_path)
    Path("lenet.nn").write_text(model.replace("conv(16, 5)", "conv(16, 5, strides=2)"), encoding="utf-8")
    with pytest.raises(CompileError) as raised:
        check_file("lenet.nn")
    assert raised.value.render() + "\n" == shown


def test_the_table_of_exit_codes_is_complete() -> None:
    """docs/robust.md: each code that an error or a command has."""
    text = (ROOT / "docs/robust.md").read_text(encoding="utf-8")
    listed = {int(n) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for n in row.split(",")}
    possible = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert listed == (possible | {errors.exit_code(code) for code in errors.CODES}) - {errors.EXIT_OK}
