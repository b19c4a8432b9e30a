"""A process that builds cases: it reads the names of several in a line of JSON, and answers with their files."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from op_sweep.build import Recipe, level_of, recipe, written
from op_sweep.drawn import checked
from op_sweep.worker import table


def build(recipes: dict[str, Recipe], folder: Path) -> dict[str, tuple[str, str]]:
    """The files of several cases, whose kernels are compiled together; if one cannot be compiled, each on its own."""
    if not recipes:
        return {}
    try:
        return {name: (path, "") for name, path in written(recipes, folder).items()}
    except Exception as error:  # noqa: BLE001  # any fault of a build is a row of the table
        if len(recipes) == 1:
            return dict.fromkeys(recipes, ("", _text(error)))
    found: dict[str, tuple[str, str]] = {}
    for name, each in recipes.items():
        found |= build({name: each}, folder)
    return found


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", type=checked)
    parser.add_argument("target")
    parser.add_argument("provider")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    known, level = table(given.sizes), level_of(given.target)
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        found: dict[str, tuple[str, str]] = {}
        recipes: dict[str, Recipe] = {}
        for name in json.loads(line)["names"]:
            try:
                recipes[name] = recipe(known[name], given.target, given.provider, level, given.folder)
            except Exception as error:  # noqa: BLE001  # any fault of a build is a row of the table
                found[name] = ("", _text(error))
        answers.write(json.dumps(found | build(recipes, given.folder)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
