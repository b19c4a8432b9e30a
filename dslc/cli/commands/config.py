"""``dslc config``"""

from __future__ import annotations

from typing import Any

import click

from dslc.cli.app import Command
from dslc.cli.output import emit, table
from dslc.cli.settings import config_options, read_config


@click.command(cls=Command)
@config_options
def command(**flags: Any) -> None:
    """Print each value of the configuration and its origin.

    Flags override DSLC_* variables, which override the file, which overrides the defaults.
    """
    config = read_config(**flags)
    entries = [{"name": e.name, "value": e.value, "origin": e.origin} for e in config.entries]
    rows = [(e.name, _shown(e.value), e.origin) for e in config.entries]
    emit({"file": None if config.path is None else str(config.path), "values": entries}, table(_HEAD, rows))


_HEAD = ("field", "value", "from")


def _shown(value: object) -> str:
    """The value as YAML would write it on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)
