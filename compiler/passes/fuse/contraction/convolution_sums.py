"""Gives convolutions of ``predict`` on a GPU the pointwise node that reads them: a bias, a residual, an activation.

Before, with channels last::

    %1 = conv_last %x, %w {...} : bf16[1, 56, 56, 64]  # conv forward
    %2 = fused %1, %bias, %rest {relu((%1 + %bias) + %rest)} : bf16[1, 56, 56, 64]  # relu forward

After::

    %2 = contraction %x, %w, %bias, %rest {product="conv_last", ..., body=...} : bf16[1, 56, 56, 64]  # relu forward

The pointwise node must be the only reader of the convolution. cuDNN adds a bias for each channel and maybe a residual,
and applies relu. dslc's own kernels, such as those of depthwise convolutions and of few channels, compute any formula;
they take it where they compute the convolution in any case, unless the convolution alone has a measured way. Both
compute in f32 and round once. Measured times decide if all of them are known. For training, where gradients read the
values in between, see ``training_sums.py``. Linear in nodes and reads.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from dslc.compiler.codegen.lowering_cache import lowered
from dslc.compiler.codegen.target import LibraryCall
from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.conditions import batches_launches
from dslc.compiler.passes.fuse.body import is_pointwise
from dslc.compiler.passes.fuse.contraction.pointwise_readers import Takes, not_measured_slower, with_readers
from dslc.compiler.passes.fuse.contraction.tf32 import rounded

CONVOLUTIONS: Final = ("conv", "conv_last", "conv_dgrad", "conv_dgrad_last")


def convolution_sums(program: Program, build: Build) -> Program:
    """The pass. Deterministic and idempotent."""
    if program.entry != "predict" or not batches_launches(build):
        return program
    graph = with_readers(program.graph, convolution_of, takes(build))
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)


def convolution_of(node: Node) -> Node | None:
    """The last convolution that a pointwise node reads: what the others give is there by then."""
    if not is_pointwise(node) or len(node.outputs) > 1:
        return None
    made = [value.producer for value in dict.fromkeys(node.inputs) if value.type == node.types[0]]
    found = [n for n in made if isinstance(n, Node) and n.op.name in CONVOLUTIONS and n.phase is node.phase]
    return found[-1] if found else None


def takes(build: Build) -> Takes:
    """Whether a library computes both as one node, or the own kernels of the convolution do, and measured times do not
    speak against it."""
    vendor, tf32 = build.provider == "vendor", build.precision.tf32

    def rule(first: Node, last: Node, found: Node) -> bool:
        first, found = (rounded(node) if tf32 else node for node in (first, found))
        one, alone = (lowered(node, build.target, vendor) or () for node in (found, first))
        called = any(isinstance(launch.spec, LibraryCall) for launch in one)
        own = not any(isinstance(launch.spec, LibraryCall) for launch in alone)
        own = own and 0 < len(one) <= len(alone)
        measured = (build.choices.seconds(node, build.providers) is not None for node in (first, found))
        taken = called or (own and tuple(measured) != (True, False))
        return taken and not_measured_slower(build, first, last, found)

    return rule
