"""A run's configuration as the text of a ``dslc.yaml`` that repeats the run.

The text holds the values that the run took from its file, flags and variables. Defaults are left out, and so is the
run's folder: the repeated run gets its own. Paths are relative to the folder of the original configuration, so the new
file belongs there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from dslc.base.errors import ArtifactError, DslcError
from dslc.base.visible import one_line
from dslc.base.words import yaml_key
from dslc.runtime.config.values import from_file
from dslc.runtime.config.yaml import parse_yaml
from dslc.runtime.history.folders import CONFIG_NAME, StoredRun

_OPEN_LEVELS: Final = 2  # levels that are written as blocks; deeper ones are written on one line


def as_yaml(run: StoredRun) -> str:
    """The text. ArtifactError R307 if the run's configuration is damaged or does not fit this version of dslc."""
    place, help = (
        str(run.folder / CONFIG_NAME),
        "write the configuration by hand; `dslc runs show RUN` shows what is known",
    )
    if run.damaged is not None or not run.config:
        why = run.damaged or "it has no configuration"
        raise ArtifactError(
            "R307", f"the configuration of run {run.name[:80]} is not known: {why}", place=place, help=help
        )
    tree: dict[str, Any] = {}
    for name, value in _given(run).items():
        *above, last = name.split(".")
        inner = tree
        for key in above:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise ArtifactError("R307", f"`{name[:60]}` is given twice", place=place, help=help)
        if last in inner:
            raise ArtifactError("R307", f"`{name[:60]}` is given twice", place=place, help=help)
        inner[last] = value
    head = f"# run {one_line(run.name)} of dslc {one_line(run.text('versions', 'dslc')) or 'an unknown version'}\n"
    try:
        text = head + _block(tree, 0)
        from_file(parse_yaml(text.encode(), place))
    except (DslcError, ValueError, RecursionError) as error:
        why = error.message if isinstance(error, DslcError) else str(error)
        raise ArtifactError(
            "R307", f"the configuration of the run is damaged: {why}", place=place, help=help
        ) from error
    return text


def _given(run: StoredRun) -> dict[str, Any]:
    """The values that were set, by field. Of two that set the learning rate, the one outside of the file won."""
    found = {
        name: value
        for name, value in run.config.items()
        if run.origins.get(name) != "default" and name != "save.dir" and value is not None
    }
    lr = found.get("train.lr")
    names_rate = isinstance(lr, int | float) or (
        isinstance(lr, Mapping) and any(isinstance(of, Mapping) and "base" in of for of in lr.values())
    )
    if "train.base_lr" in found and names_rate:
        lost = "train.base_lr" if ":" in run.origins.get("train.base_lr", "") else "train.lr"
        del found[lost]
    return found


def _block(tree: Mapping[str, Any], level: int) -> str:
    lines = ""
    for key, value in tree.items():
        begin = "  " * level + yaml_key(key) + ":"
        if isinstance(value, dict) and value and level < _OPEN_LEVELS:
            lines += begin + "\n" + _block(value, level + 1)
        else:  # JSON is YAML
            lines += f"{begin} {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n"
    return lines
