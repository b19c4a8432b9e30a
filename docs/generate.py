"""Generates the pages of docs/ that come from tables in the code: ``make docs``.

    python docs/generate.py [--check]

``--check`` writes nothing and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from dslc.cli.views.manual import Argument

HERE: Final = Path(__file__).resolve().parent

#: Variables that commands and Python read. Those of configuration fields are in config.md.
ENVIRONMENT: Final = (
    (
        "DSLC_CACHE_DIR",
        "Folder of the cache; default: $XDG_CACHE_HOME/dslc, else ~/.cache/dslc; `off`: no cache.",
    ),
    ("DSLC_CACHE_MIB", "Maximum size of the cache in MiB; default: 1024."),
    ("DSLC_THREADS", "Number of CPU threads; default: one per processor. The bits do not depend on it."),
    ("DSLC_GPU_TIMEOUT", "Seconds after which a wait for a GPU fails (R208); default: 600; `off`: no limit."),
    ("NO_COLOR", "If set, no colours on a terminal."),
)


def commands_page() -> str:
    """docs/commands.md, from the commands' help."""
    from dslc.cli.app import app
    from dslc.cli.table import COMMANDS, SECTIONS

    lines = ["# Commands", ""]
    lines += ["Options of every command, before or after its name:", "", *_options(app), ""]
    lines += ["Environment variables:", "", "| variable | |", "|---|---|"]
    lines += [*(f"| `{name}` | {text} |" for name, text in ENVIRONMENT), ""]
    for section in SECTIONS:
        names = [name for name, entry in COMMANDS.items() if entry.section == section]
        if names:
            lines += [f"## {section}", ""]
        for name in names:
            command = import_module(f"dslc.cli.commands.{COMMANDS[name].module}").command
            usage = " ".join(piece for piece in _usage(command) if piece)
            lines += [f"### dslc {name}", "", f"`dslc {name} {usage}`", ""]
            lines += [inspect.cleandoc(command.help or "").replace("\b\n", ""), "", *_options(command)]
            lines += [""] if lines[-1] else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _usage(command: click.Command) -> list[str]:
    pieces = ["[OPTIONS]"]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            name = (parameter.name or "").upper()
            pieces.append(parameter.metavar or (name if parameter.required else f"[{name}]"))
    return pieces


def _options(command: click.Command) -> list[str]:
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and (command.name == "dslc" or parameter.expose_value):
            value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
            rows.append(f"| `{', '.join(parameter.opts)}{value}` | {parameter.help} |")
    return ["| option | |", "|---|---|", *rows] if rows else []


def errors_page() -> str:
    """docs/errors.md, from the pages of ``dslc explain``."""
    from dslc.base.errors import CODES, exit_code
    from dslc.base.explain import page

    lines = ["# Errors", "", "The pages that `dslc explain CODE` prints, with the exit code of each error.", ""]
    for code in CODES:
        text = page(code).rstrip("\n")
        status = "a warning" if code.startswith("W") else f"exit code {exit_code(code)}"
        lines += ["#" + text.split("\n")[0], "", f"*{status}*", *text.split("\n")[1:], ""]
    return "\n".join(lines).rstrip("\n") + "\n"


#: The part of config.md that the table of fields does not contain. A test loads every block as a configuration.
_CONFIG_FORMS: Final = """
## Example
```yaml
model: lenet.nn:LeNet
args:  {classes: 10}
build: {target: cpu, precision: f32, sizes: {train: {B: 64}, predict: {B: [1, 64]}}}
data:
  train: {image: digits.npz:train_x, label: digits.npz:train_y}
  eval:  {image: digits.npz:test_x,  label: digits.npz:test_y}
train: {epochs: 25, seed: 0, lr: {cosine: {warmup: 1 epoch, end: 0.01}}}
save:  {every: 1 epoch, keep: 2, best: highest accuracy}
```
The keys under `data.train` are the inputs of the model and of its train section. A source is `file.npz:key`,
`file.npy`, `file.csv:columns`, `file.bin:u16`, an idx file, or `folder/:image`, relative to the configuration; see
[data.md](data.md).

`build` accepts `target` (one name, or a list such as `[cpu, sm_90]`), `cpu`, `precision`, `sizes`, `name`, `fuse`,
`providers`, `bulk`, `mirror`, `prepare`, `steps_per_launch`, `streams`, `locked` and `gpu` ([tuning.md](tuning.md)).
`cpu` says which CPUs run the artifact: `all`, `native` (those like this machine's, which compiles faster), or a level
such as `x86_64_v3`. Without it, `dslc build` compiles for all, so its artifact can be shipped. The other commands
compile for this machine only if they have to build. `dslc build` afterwards replaces the artifact and keeps the
weights.
`sizes` gives the sizes of the model's dims: `{S: 160}` for all entries, `{train: {B: 64}, predict: {B: [1, 64]}}` for
one. Sizes of `eval` and `predict` that are not given follow from those of `train`, with the smallest batch added; where
`train` has none, the dim's default is taken. A list builds several. Evaluation needs batches that cover its rows:
`eval: {B: [1, 64]}`.
`sweep` describes the trials of `dslc sweep`: see [sweep.md](sweep.md).

A duration is `N steps` or `N epochs`. A step is one update of the weights, whatever its number of micro-batches.

## Schedules
`train.lr` is a number or a schedule. A number is the learning rate itself: `lr: 0.01` trains with 0.01 from the first
step to the last, whatever the model says. A schedule is a factor: the learning rate of a step is the base rate
(`train.base_lr`, else `base` of the schedule, else the model's) times the factor of `train.lr`. The same holds for
`train.schedules`: `beta: 0.5` is the value of `beta`. A file that sets both `base_lr` and a number is refused; `--lr`
on the command line is the base rate and replaces either.

`warmup` raises the factor linearly to 1. Then `cosine` and `linear` lower it to `end` (default 0) during `over`
(default: the rest of the run). `step` multiplies it by `factor` (default 0.1) after each `every`, or at each time in
`at`.
```yaml
model: lenet.nn
train: {epochs: 90, lr: {step: {at: [30 epochs, 60 epochs], factor: 0.1}}}
```
```yaml
model: lenet.nn
train: {epochs: 30, base_lr: 0.05, lr: {linear: {warmup: 500 steps, end: 0.1, over: 20 epochs}}}
```
```yaml
model: vae.nn
train: {epochs: 30, lr: constant, schedules: {beta: {constant: {base: 0.5, warmup: 5 epochs}}}}
```
The last example raises `beta`, a `float` argument of the train section, from 0 to 0.5 within five epochs.
"""


def config_page() -> str:
    """docs/config.md, from the schema of ``dslc.yaml``."""
    from dslc.runtime.config.fields import FIELDS

    lines = [
        "# dslc.yaml",
        "",
        "Command-line options override environment variables, which override the file, which overrides the defaults. "
        "`dslc config` prints each value with its origin. Only `args` and `build` affect the build. The file is plain "
        "data without tags, anchors or aliases. An unknown key is an error.",
        "",
        "| field | default | variable | meaning |",
        "|---|---|---|---|",
    ]
    for field in FIELDS:
        name = f"`{field.name}.NAME`" if field.open else f"`{field.name}`"
        variable = "" if field.open else f"`{field.variable}`"
        default = "" if field.open or field.default is None else f"`{_default(field.default)}`"
        lines.append(f"| {name} | {default} | {variable} | {field.doc} |")
    return "\n".join(lines) + "\n" + _CONFIG_FORMS


def _default(value: object) -> str:
    from dslc.runtime.config.space import Space

    if isinstance(value, bool):
        return str(value).lower()
    if value == ():
        return "[]"
    if isinstance(value, Space):
        return "{}"
    return str(getattr(value, "kind", value))


#: the introduction to the initialisers
_INITIAL: Final = (
    "A parameter or buffer, `param w: [D, H] = normal(0.02)`, and an argument such as `init=` or `bias_init=` take one "
    "of these, a number, or a [tensor of constants](language.md#constants) that broadcasts to the shape: `linear(6, "
    'bias_init=tensor([1, 0, 0, 0, 1, 0], dtype="float"))`. `fan_in` is the number of inputs of an element of the '
    "result, `fan_out` that of results of an input. `zeros` and `ones` are initialisers, too."
)


def ops_page() -> str:
    """docs/ops.md, from the tables of functions, optimizers and initialisers."""
    from dslc.cli.views.manual import every_page

    pages = every_page().values()
    lines = [
        "# Functions, optimizers, initialisers",
        "",
        "The pages that `dslc ops NAME` prints. `x |> f(a)` means `f(x, a)`.",
        "",
        "A function that has a gradient has gradients of gradients, to any order, which [`gradient`](#gradient) gives. "
        "Their second derivatives are compared with differences of the first.",
        "",
    ]
    for kind, title in (("function", "Functions"), ("optimizer", "Optimizers"), ("initialiser", "Initialisers")):
        lines += [f"## {title}", "", *([_INITIAL, ""] if kind == "initialiser" else [])]
        for page in pages:
            if page.kind == kind:
                lines += [f"### {page.name}", "", page.summary, ""]
                lines += _argument_table(page.arguments)
                lines += [page.doc, ""] if page.doc else []
                if page.example:
                    given = [f"# {page.given}"] if page.given else []
                    lines += ["```text", *given, *page.example.splitlines(), "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _argument_table(arguments: Sequence[Argument]) -> list[str]:
    rows = [
        f"| `{a.name}` | {a.type}{', by name' if a.named else ''} | {'' if a.default is None else f'`{a.default}`'} |"
        for a in arguments
    ]
    return ["| argument | | default |", "|---|---|---|", *rows, ""] if rows else []


def compiler_page() -> str:
    """docs/compiler.md, whose quoted stages come from life.py."""
    from life import fill

    return fill((HERE / "compiler.md").read_text(encoding="utf-8"))


def passes_of_compiler_page() -> str:
    """docs/passes.md, from the order of the passes and their docstrings."""
    from passes_page import passes_page

    return passes_page()


def python_interface_page() -> str:
    """docs/python.md, from the docstrings of what ``dslc`` exports."""
    from python_page import python_page

    return python_page()


PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands_page,
    "compiler.md": compiler_page,
    "config.md": config_page,
    "errors.md": errors_page,
    "ops.md": ops_page,
    "passes.md": passes_of_compiler_page,
    "python.md": python_interface_page,
}


def main(args: list[str]) -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = HERE / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in args:
                path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{'differs' if '--check' in args else 'written'}: docs/{name}")
    return 1 if stale and "--check" in args else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
