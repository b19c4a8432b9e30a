"""Whatever a message, a help or a page names exists: functions, arguments, words, commands and their options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from places import ROOT

from dslc.base.errors import CODES
from dslc.base.explain import page
from dslc.cli.app import app
from dslc.cli.habits import OPTIONS as HABITS
from dslc.compiler.check.arithmetic import STATIC_FUNCTIONS
from dslc.compiler.check.calls.declared import RESERVED_INPUTS
from dslc.compiler.check.groups import KNOWN as ATTRIBUTES
from dslc.compiler.check.sections import GROUPS
from dslc.compiler.check.training.optimizer import COMMON
from dslc.compiler.check.training.parameters import PARAMETERS
from dslc.compiler.ir.function import FUNCTIONS, OPTIMIZERS
from dslc.compiler.ops.random.init import INITIALISERS
from dslc.compiler.ops.registry import load_all
from dslc.dsl.dtype_names import DTYPES
from dslc.dsl.tables import load_tables

load_all()
CALLABLE = {*FUNCTIONS, *OPTIMIZERS, *INITIALISERS, *STATIC_FUNCTIONS, PARAMETERS, "len"}
WORDS = {word for word in load_tables().words if word.isalpha()}
ARGUMENTS = {p.name for f in FUNCTIONS.values() for p in f.parameters} | {
    name for optimizer in OPTIMIZERS.values() for name in (*COMMON, *optimizer.defaults)
}
FIELDS = {"train", "precision", "budget", "loss", "metrics", "optimizer", "ema", "accumulate", "compute", "params",
          "memory", "mesh", "shards", "output", "weight", "int", "float", "bool", "str", "list", "none", "self",
          "step"}  # fmt: skip
#: names that stand for the user's own
EXAMPLES = {"name", "f", "x", "y", "a", "b", "i", "n", "fc", "tok", "embed", "mu", "value", "condition", "nn"}
#: calls of a session; ops that messages name as what they are
OTHERS = {"predict", "train_step", "contraction", "gelu_grad"}
KNOWN = OTHERS | CALLABLE | WORDS | ARGUMENTS | FIELDS | EXAMPLES | {*ATTRIBUTES, *DTYPES, *GROUPS, *RESERVED_INPUTS}


def options(command: click.Command) -> set[str]:
    return {o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)} | {"--help"}


def commands() -> dict[str, click.Command]:
    context = click.Context(app)
    found = {name: app.get_command(context, name) for name in app.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def spoken(folder: Path) -> Iterator[tuple[str, str]]:
    """Each text of the code that is no docstring, with its place; what is put in stands as a NUL."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr):
                inner.add(id(node.value))  # a docstring
            if isinstance(node, ast.JoinedStr):
                inner.update(id(part) for part in node.values)
                parts = (p.value if isinstance(p, ast.Constant) else "\0" for p in node.values)
                yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


@cache
def texts_of(*folders: str) -> list[tuple[str, str]]:
    return [text for folder in folders for text in spoken(ROOT / folder)]


LANGUAGE = ("compiler/check", "compiler/ops", "dsl")
EVERYWHERE = ("compiler", "dsl", "runtime", "dslc/base", "dslc/cli")
PAGES = [(code, page(code)) for code in CODES]


#: Calls of other programs, whose options they are.
FOREIGN = re.compile(
    r"\b(?:docker|pip|mypy|pytest|nvidia-smi|ulimit) [^`\n]*|--force-reinstall|--gpus all"  # the last two after a `pip`
)


def quoted(text: str) -> list[str]:
    """What stands between backticks, on one line."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_the_language_names_its_own() -> None:
    """A lone word in backticks, and the name before a parenthesis, in what the checker says and its pages show."""
    wrong = []
    told = texts_of(*LANGUAGE) + [(code, text) for code, text in PAGES if code.startswith(("E01", "E02", "E03", "E05"))]
    for place, text in told:
        for piece in quoted(text):
            lone = re.fullmatch(r"@?([a-z][a-z0-9_]*)", piece)
            names = [lone.group(1)] if lone else re.findall(r"(?<![\w.\0])([a-z][a-z0-9_]*)\(", piece)
            names += re.findall(r"(?<=[(, ])([a-z][a-z0-9_]*)=", piece)
            wrong += [f"{place}: `{piece}`" for name in names if re.sub(r"_\d+$", "", name) not in KNOWN]
    assert not wrong, "\n".join(wrong)


def test_commands_and_options_exist() -> None:
    """An option by itself is one of dslc; that of another command stands after the command: `docker run --rm`."""
    known = commands()
    every = set().union(*map(options, known.values())) | options(app)
    wrong = []
    for place, text in [*texts_of(*EVERYWHERE), *PAGES]:
        for name in re.findall(r"(?:`|\$ |^)dslc ([a-z]+)\b", text, flags=re.MULTILINE):
            if name not in known:
                wrong.append(f"{place}: dslc {name}")
        for name, rest in re.findall(r"(?:`|^)dslc ([a-z]+)([^`\n]*)", text, flags=re.MULTILINE):
            given = re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", rest)
            wrong += [f"{place}: dslc {name} {o}" for o in given if name in known and o not in options(known[name])]
        if text in HABITS:
            continue  # an option of another tool, that is told ours
        for o in re.findall(r"(?<![\w(-])--[a-z][a-z-]*[a-z](?![\w-])", FOREIGN.sub("", text)):
            wrong += [f"{place}: {o}"] if o not in every else []
    assert not wrong, "\n".join(sorted(set(wrong)))


@pytest.mark.parametrize(
    "source",
    ["`strew` it", "write `conf(x, 3)`", "`dslc buid`", "`dslc build --bulks 3`", "dslc: build with --bulks"],
)
def test_these_tests_can_fail(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "texts_of", lambda *_: [("here:1", source)])
    law = test_commands_and_options_exist if "dslc" in source else test_the_language_names_its_own
    with pytest.raises(AssertionError, match="here:1"):
        law()
