"""Compares a lock with the problems of a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dslc.compiler.lock.choices import Asked, Tuned, origins
from dslc.compiler.options import entry_sizes
from dslc.compiler.pipeline import compile_entry

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked
    from dslc.compiler.options import Options


@dataclass(frozen=True)
class Checkup:
    """``gpu``: whose measurements were compared, empty if the lock has none for the target. ``present``: the number of
    problems that are in the lock. ``missing``: the keys of the others. ``unused``: keys of blocks that no build of the
    model asks for."""

    gpu: str
    present: int
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def checkup(checked: Checked, options: Options) -> dict[str, Checkup]:
    """The passes run over all entries, and nothing is compiled. By target; only targets with measurements in
    ``options.tuned``. Raises BuildError."""
    return {target: _of_target(checked, options, target, found) for target, found in options.tuned.items()}


def _of_target(checked: Checked, options: Options, target: str, found: Tuned) -> Checkup:
    asked = Asked(found.choices.ways)
    programs = [
        compile_entry(checked, entry, sizes, options, target=target, choices=replace(found.choices, ways=asked))[0]
        for entry, sizes in entry_sizes(checked, options)
    ]
    counted = origins(programs, target, found)
    unused = sorted({block.key for block in found.lock.blocks} - asked.keys_asked)
    return Checkup(found.gpu, counted.lock, counted.missing, tuple(unused))
