"""Finds the measurements that a build may obey: the project's ``dslc.lock``, and the tables that dslc ships. They also
decide what ``--providers auto`` means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslc.base.errors import EnvironmentFault
from dslc.cli.locks.providers import decided

if TYPE_CHECKING:
    from dslc.compiler.options import Options


def gpu_targets(options: Options) -> tuple[str, ...]:
    """The targets of a build that are GPUs."""
    from dslc.compiler.codegen.targets import ARCHITECTURES

    return tuple(target for target in options.targets if target in ARCHITECTURES)


def with_lock(
    options: Options, folder: Path, file: Path | None = None, *, gpus: Mapping[str, str] | None = None
) -> Options:
    """The options with what was measured for their GPUs, and with ``--providers auto`` decided (``providers.py``);
    unchanged for a build for CPUs, which reads no lock.

    ``folder``: of the project; ``file``: the lock, instead of the one there; ``gpus``: the GPU of each target instead
    of that of the options; a target that it lacks gets no measurements. Raises BuildError E0607, E0608;
    EnvironmentFault R210 if the options say ``locked`` and there is no lock.
    """
    from dslc.compiler.lock.choices import tuned
    from dslc.compiler.lock.find import FILE, find_lock, read_lock
    from dslc.compiler.lock.model import Lock
    from dslc.compiler.lock.table import table_for

    targets = gpu_targets(options)
    if not targets:
        return options
    path = file if file is not None else find_lock(folder)
    if path is None and options.locked:
        help = "measure the model on its GPU: `dslc tune` with the same file and options; or build without --locked"
        raise EnvironmentFault("R210", "there is no lock", place=str(folder / FILE), help=help)
    lock = None if path is None else read_lock(path)
    options = decided(options, targets, lock)
    table = Lock() if options.locked else table_for(vendor=options.provider == "vendor")
    place = None if path is None else str(path)
    if gpus is not None:
        held = {name for source in (lock or Lock(), table) for name in source.gpus}
        targets = tuple(target for target in targets if gpus.get(target) in held)
    asked = {target: options.gpu if gpus is None else gpus[target] for target in targets}
    found = {target: tuned(target, lock, table, gpu=asked[target], place=place) for target in targets}
    return replace(options, tuned=found)


def choices_lines(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where the choices of each GPU's problems come from, one line a target; the data are ``facts["choices"]``."""
    return [_line(target, each) for target, each in facts.items()]


def _line(target: str, counts: Mapping[str, Any]) -> str:
    names = (("lock", "from dslc.lock"), ("table", "from the shipped table"), ("heuristic", "by heuristic"))
    parts = [f"{counts[name]:,} {words}" for name, words in names if counts[name]]
    on = f"{target} as {counts['gpu'].partition(',')[0]}" if counts["gpu"] else target
    advice = (
        "" if not counts["missing"] else "; `dslc tune` measures the rest" if counts["lock"] else "; none from a lock"
    )
    return f"choices for {on}: {', '.join(parts) or 'none needed'}{advice}"


def advice_lines(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Advice to measure where libraries take most of a GPU program in ways that were not, one line a target; the data
    are ``facts["unmeasured"]``."""
    return [
        f"{each['calls']:,} unmeasured calls of libraries take {each['share']:.0%} of {each['entry']}'s modelled time "
        f"on {target}: `dslc tune --budget 50s` measures the longest first"
        for target, each in facts.items()
    ]
