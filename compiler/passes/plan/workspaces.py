"""Chooses the ways of all problems together if a build has a budget of bytes.

Each call's algorithm has a workspace, and calls that follow each other share one place, so the plan needs room for the
largest workspace alone. If the fastest ways do not fit a budget, values are recomputed, which takes more time than a
slower algorithm of one call may. So plans are made for several limits of the workspace, and the build takes the limit
whose plan fits and ends first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from dslc.compiler.cost import machine_for
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.choice import key_of
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.plan.stream_timeline import finish

_MOST: Final = 6  # limits to try, and so plans to make


def with_limit(build: Build, plan: Callable[[Build], Program]) -> Build:
    """The build with the limit of the workspace that its ways keep together; the same build without a budget.

    ``plan``: the planned program of a build.
    """
    if build.budget is None or not build.choices.ways:
        return build
    planned = plan(build)
    best, least = build, _price(planned, build)
    for limit in _limits(planned, build):
        if _nothing_to_gain(planned, build):
            break
        build = dataclasses.replace(build, choices=dataclasses.replace(build.choices, workspace_limit=limit))
        planned = plan(build)
        price = _price(planned, build)
        if price < least:
            best, least = build, price
    return best


def _price(planned: Program, build: Build) -> tuple[int, float]:
    """The bytes above the budget, then the seconds."""
    assert planned.memory is not None and build.budget is not None
    over = planned.memory.io_bytes + planned.memory.work_bytes - build.budget
    return max(0, over), finish(planned, machine_for(build))


def _nothing_to_gain(planned: Program, build: Build) -> bool:
    """Whether fewer bytes cannot give a faster plan: it fits, recomputes nothing, and has the streams that it wants."""
    fits = _price(planned, build)[0] == 0
    return fits and planned.mirrored is None and (build.streams == 1 or bool(planned.streams))


def _limits(planned: Program, build: Build) -> list[int]:
    """Limits below the workspace of the plan, largest first. Each is the workspace of a measured way, and under each
    every measured problem has a way. The smallest such limit is among them."""
    choices, sizes, taken, least = build.choices, set[int](), 0, 0
    for key in dict.fromkeys(key_of(node) for node in planned.graph.nodes if not node.op.view):
        way = choices.best(key, build.providers)
        if way is not None:
            own = [w.choice.workspace for w in choices.ways[key] if w.choice.provider in build.providers]
            taken, least = max(taken, way.choice.workspace), max(least, min(own))
            sizes.update(own)
    found = sorted((size for size in sizes if least <= size < taken), reverse=True)
    count = min(len(found), _MOST - 1)
    return [found[(i + 1) * len(found) // count - 1] for i in range(count)]
