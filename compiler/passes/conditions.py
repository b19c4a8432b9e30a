"""The conditions under which a pass runs: the options of the build, and the properties of its target."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import wraps
from typing import TypeAlias, TypeVar

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.graph import Graph, Node
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scan import body_of, scan, with_body

Condition: TypeAlias = Callable[[Build], bool]
Rule = TypeVar("Rule")


def when(condition: Condition, rewrite: Callable[[Graph], Graph]) -> Pass:
    """The pass, named as ``rewrite``, that rewrites the graph of a program if the condition holds for the build."""

    @wraps(rewrite)
    def step(program: Program, build: Build) -> Program:
        return dataclasses.replace(program, graph=rewrite(program.graph)) if condition(build) else program

    return step


def when_by(condition: Condition, rewrite: Callable[[Graph, Rule], Graph], rule: Callable[[Build], Rule]) -> Pass:
    """The same for a rewriter that decides by a rule of the build."""

    @wraps(rewrite)
    def step(program: Program, build: Build) -> Program:
        return dataclasses.replace(program, graph=rewrite(program.graph, rule(build))) if condition(build) else program

    return step


def in_bodies(step: Pass) -> Pass:
    """The pass on a program and on the bodies of its loops, innermost first."""

    @wraps(step)
    def run(program: Program, build: Build) -> Program:
        def rule(node: Node) -> Node | None:
            if node.op is not scan:
                return None
            body = body_of(node.attrs)
            changed = run(dataclasses.replace(program, graph=body), build).graph
            return None if changed is body else with_body(node, changed)

        graph = program.graph.rewrite(rule)
        return step(program if graph is program.graph else dataclasses.replace(program, graph=graph), build)

    del run.__wrapped__  # only passes made by `when` and `when_by` have it: tests find those with a condition by it
    run.__dict__.update(getattr(step, "__dict__", {}))
    return run


def tensor_cores(build: Build) -> bool:
    """Whether contractions run on tensor cores."""
    return traits_of(build.target).has_tensor_cores


def reads_halves(build: Build) -> bool:
    """Whether the build fuses, and kernels read and write 16-bit floats, which they compute in f32."""
    return build.fuse and traits_of(build.target).has_half_kernels


def attends_in_place(build: Build) -> bool:
    """Whether the build fuses, and attention on tensor cores reads and writes parts of tensors in place."""
    return build.fuse and traits_of(build.target).has_tensor_cores


def lacks_half_kernels(build: Build) -> bool:
    """Whether ops on 16-bit floats run as ops on f32 between casts."""
    return not traits_of(build.target).has_half_kernels


def reductions_with_bodies(build: Build) -> bool:
    """Whether a reduction's kernel may compute its operands, with or without the option ``fuse``."""
    return traits_of(build.target).fuses_reductions


def fuses_reductions(build: Build) -> bool:
    """Whether the build fuses, and kernels may combine reductions and several results with pointwise ops."""
    return build.fuse and traits_of(build.target).fuses_reductions


def reads_slices(build: Build) -> bool:
    """Whether the build fuses, and pointwise kernels may read parts of tensors in place."""
    return build.fuse and traits_of(build.target).reads_slices


def reads_any_layout(build: Build) -> bool:
    """Whether the build fuses, and kernels take tensors with their axes in any order, as fast as row-major ones."""
    return build.fuse and traits_of(build.target).reads_any_layout


def reads_images_last(build: Build) -> bool:
    """Whether the build fuses, and kernels of pools and resampling take channels last as fast as channels first."""
    return build.fuse and traits_of(build.target).reads_images_last


def fuses_into_contractions(build: Build) -> bool:
    """Whether contractions are computed by the compiler's own kernels, which take an epilogue, or measured times say
    for which it is faster."""
    return fuses_reductions(build) and (build.provider != "vendor" or bool(build.choices.ways))


def calls_libraries(build: Build) -> bool:
    """Whether the build fuses, and the vendor's libraries compute contractions."""
    return build.fuse and build.provider == "vendor" and traits_of(build.target).has_libraries


def batches_launches(build: Build) -> bool:
    """Whether the build fuses, and a launch takes longer than the work on a small tensor."""
    return build.fuse and traits_of(build.target).launches_are_costly


def writes_rows(build: Build) -> bool:
    """Whether the build fuses, and a kernel writes rows of tables in place."""
    return build.fuse and traits_of(build.target).has_device_memory


def shares_orders(build: Build) -> bool:
    """Whether the build fuses, and large scatters of rows sort their ids first."""
    return build.fuse and traits_of(build.target).has_device_memory


def rounds_to_tf32(build: Build) -> bool:
    """Whether the factors of f32 contractions are rounded to TF32."""
    return build.precision.tf32
