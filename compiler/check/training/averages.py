"""Layers that are running averages of others: ``@ema(online, 0.99) layer target = ...``."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.compiler.check.reports import Reports
from dslc.compiler.check.tensors import ParamInfo
from dslc.compiler.check.values import Problem
from dslc.compiler.ir.graph import Kind


def averaged(stored: Mapping[str, ParamInfo]) -> dict[str, tuple[str, float]]:
    """Each parameter that is a running average -> the parameter that it averages, and the decay. Frozen ones stay."""
    return {
        name: (info.groups.average.counterpart(name), info.groups.average.decay)
        for name, info in stored.items()
        if info.input.kind is Kind.PARAM and info.groups.average is not None and not info.groups.freeze
    }


def check_averages(stored: Mapping[str, ParamInfo], reports: Reports) -> None:
    """E0210 for each layer with a parameter whose counterpart is missing, has another shape or is an average itself."""
    told = set()
    for name, (source, _) in averaged(stored).items():
        average, own = stored[name].groups.average, stored[name].input.value.type
        assert average is not None
        if average.span in told:
            continue
        other = stored.get(source)
        help = "both layers are calls of one block with the same arguments, and both are used"
        if other is None or other.input.kind is not Kind.PARAM:
            why = f"there is no parameter `{source}`"
        elif other.input.value.type != own:
            why = f"`{source}` is {other.input.value.type}, not {own}"
        elif other.groups.average is not None:
            why, help = f"`{source}` is an average itself", "average the layer that is trained"
        else:
            continue
        told.add(average.span)
        reports.add(Problem("E0210", f"`{name}` cannot be an average: {why}", average.span, help=help))
