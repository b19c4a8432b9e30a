"""What to call for commands and options of other tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

#: The help for each command.
COMMANDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("init", "create", "startproject"), "`dslc new NAME` makes a project"),
    **dict.fromkeys(("fit", "run", "finetune", "start"), "`dslc train` trains the model of dslc.yaml"),
    **dict.fromkeys(("test", "evaluate", "validate", "val", "score"), "`dslc eval` evaluates the model of dslc.yaml"),
    **dict.fromkeys(("infer", "inference", "generate"), "`dslc predict` writes predictions"),
    "compile": "`dslc build` compiles",
    **dict.fromkeys(("export", "save", "deploy", "serve"),
                    "`dslc build` writes a package, build/NAME, that Python programs import"),
    **dict.fromkeys(("report", "summary", "html"), "`dslc build` writes build/NAME/report.html"),
    **dict.fromkeys(("lint", "validate-config"), "`dslc check` checks a model, `dslc check --data` the data, too"),
    "format": "`dslc fmt` formats sources",
    **dict.fromkeys(("profile", "benchmark", "time"), "`dslc bench` times a step and its kernels"),
    **dict.fromkeys(("resume", "continue"), "`dslc train --resume` continues a run"),
    **dict.fromkeys(("convert", "import"), "`dslc weights convert` reads the weights of other tools"),
    **dict.fromkeys(("list", "ls", "history", "logs"), "`dslc runs` lists the runs"),
    **dict.fromkeys(("clean", "clear"), "`dslc cache clear` empties the cache; build/ and runs/ are yours to delete"),
    "version": "`dslc --version` prints it",
    "help": "`dslc --help` lists the commands, `dslc COMMAND --help` its options",
}  # fmt: skip

#: The help for an argument that a command does not take, by its end.
ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys((".yaml", ".yml"), "`--config FILE` names the configuration"),
    ".safetensors": "`--weights FILE` names weights",
    ".dslc": "`--artifact PATH` names an artifact",
    ".nn": "`--config FILE` names the configuration, which names the model",
}

_ALIKE: Final = 0.7  # a letter of four or more left out, added or swapped
#: The help for each option.
OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--batch-size", "--batch", "--bs"), "`--size B=64` builds for this size of the dim B"),
    **dict.fromkeys(("--learning-rate", "--base-lr"), "`--lr 0.01` sets the base rate"),
    **dict.fromkeys(("--num-epochs", "--max-epochs", "--epoch"), "`--epochs 10`"),
    **dict.fromkeys(("--output", "--out", "--output-file"), "`-o FILE` names the file"),
    **dict.fromkeys(("--cuda", "--use-gpu"), "`--device gpu`"),
    **dict.fromkeys(("--checkpoint", "--ckpt", "--pretrained"), "`--weights FILE`, or `--resume` to go on"),
    **dict.fromkeys(("--workers", "--num-workers"), "`--set data.workers=4`"),
    **dict.fromkeys(("--fp16", "--bf16", "--amp"), "`--precision bf16`"),
    **dict.fromkeys(("--output-dir", "--log-dir", "--save-dir"), "`--set save.dir=runs/first`"),
    **dict.fromkeys(("--file", "--yaml", "--conf", "-c"), "`--config FILE`"),
    **dict.fromkeys(("--random-seed",), "`--seed 0`"),
    **dict.fromkeys(("--model", "--net"), "`--artifact PATH` names what runs"),
}  # fmt: skip


def alike(name: str, options: Iterable[str]) -> list[str]:
    """Those of the options that ``name`` may be a misspelling of; the dashes that all of them have do not count."""
    from difflib import SequenceMatcher

    word = name.lstrip("-")
    return [each for each in options if SequenceMatcher(None, word, each.lstrip("-")).ratio() >= _ALIKE]


def argument_hint(text: str, parameters: Iterable[click.Parameter]) -> str | None:
    """The help for an argument that the command with these parameters does not take."""
    hint = next((hint for end, hint in ARGUMENTS.items() if text.endswith(end)), "")
    if not hint and re.match(r"[a-z_.]+=", text):
        hint = "`--set FIELD=VALUE` sets a field of the configuration"
    return _if_known(hint, parameters)


def option_hint(name: str, parameters: Iterable[click.Parameter]) -> str | None:
    """The help for an option of another tool, if the command with these parameters has what stands for it."""
    return _if_known(OPTIONS.get(name, ""), parameters)


def _if_known(hint: str, parameters: Iterable[click.Parameter]) -> str | None:
    known = {option for parameter in parameters for option in parameter.opts}
    return hint if hint and known.issuperset(re.findall(r"`(-[a-z-]+)", hint)) else None
