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
values in between, see ``training_epilogue.py``. Linear in nodes and reads.
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
from dslc.compiler.passes.fuse.contraction.pointwise_join import (
    JoinRule,
    join_readers,
    measured_faster,
    products_read,
)
from dslc.compiler.passes.rounding import tf32_rounded

CONVOLUTIONS: Final = ("conv", "conv_last", "conv_dgrad", "conv_dgrad_last")


def convolution_epilogue(program: Program, build: Build) -> Program:
    """The pass. Deterministic and idempotent."""
    if program.entry != "predict" or not batches_launches(build):
        return program
    graph = join_readers(program.graph, convolution_of, convolution_rule(build))
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)


def convolution_of(node: Node) -> Node | None:
    """The convolution that a pointwise node reads last: the results of the others are computed before it."""
    found = [made for made in products_read(node) if made.op.name in CONVOLUTIONS and made.types == node.types]
    return found[-1] if found else None


def convolution_rule(build: Build) -> JoinRule:
    """The rule of a build: a library or the own kernels of the convolution compute both as one node, and measured times
    do not say that this is slower. Own kernels do not if the convolution alone has a measured way."""
    vendor, tf32 = build.provider == "vendor", build.precision.tf32

    def rule(product: Node, reader: Node, joined: Node) -> bool:
        product, joined = (tf32_rounded(node) if tf32 else node for node in (product, joined))
        of_both, of_product = (lowered(node, build.target, vendor) or () for node in (joined, product))
        called = any(isinstance(launch.spec, LibraryCall) for launch in of_both)
        own = not any(isinstance(launch.spec, LibraryCall) for launch in of_product)
        own = own and 0 < len(of_both) <= len(of_product)
        measured = (build.choices.seconds(node, build.providers) is not None for node in (product, joined))
        taken = called or (own and tuple(measured) != (True, False))
        return taken and measured_faster(build, (product, reader), joined) is not False

    return rule
