"""Compares ``data.augment`` and ``data.mix`` with the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from dslc.base.errors import DataError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.augment.step import Step
from dslc.runtime.data.source import Source
from dslc.runtime.nearest import nearest


def check_mix(mix: Mix, interface: Interface, sources: Mapping[str, Source]) -> None:
    """DataError R102 if the inputs that ``data.mix`` names are not what it needs."""
    tensors = {tensor.name: tensor for tensor in interface.train_inputs}

    def refuse(cause: str, help: str) -> NoReturn:
        raise DataError("R102", cause, place="data.mix", help=help)

    for name in (mix.image, mix.label, mix.other, mix.share):
        if name not in tensors or not interface.rows_of(tensors[name]):
            close = nearest(name, tensors)
            help = f"did you mean `{close}`?" if close else f"its inputs are {', '.join(tensors)}"
            refuse(f"the model has no input `{name}` with rows", help)
    for name in (mix.other, mix.share):
        if name in sources:
            refuse(f"`{name}` comes from data.mix, not from a file", f"remove `{name}` from the sources")
    label, other, share = (tensors[name] for name in (mix.label, mix.other, mix.share))
    if (other.dtype, other.shape) != (label.dtype, label.shape):
        refuse(f"`{other}` is another tensor than `{label}`", f"declare `{mix.other}` as `{mix.label}` is declared")
    if len(share.shape) != 1 or numpy_dtype(share.dtype).kind != "f":
        refuse(f"`{share}` does not hold one float per row", f"declare `{mix.share}: [{interface.batch}]`")


def steps_of(augment: Mapping[str, Sequence[Step] | str], name: str) -> tuple[tuple[Step, ...], bool]:
    """The steps of an input, and whether it is a mask, which moves as its image does. DataError R102."""
    found = augment.get(name, ())
    if not isinstance(found, str):
        return tuple(found), False
    steps = augment.get(found, "")
    if isinstance(steps, str):
        cause = f"`{name}` is to move as `{found}`, which has no list of steps"
        place, help = f"data.augment.{name}", f"give `{found}` a list, or write one for `{name}`"
        raise DataError("R102", cause, place=place, help=help)
    return tuple(step.of_mask() for step in steps), True


def nearest_of(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps with the option `nearest`, where they have it."""
    # Each step is a dataclass, which its base class cannot say.
    return tuple(replace(s, nearest=True) if "nearest" in s.options() else s for s in steps)  # type: ignore[type-var]
