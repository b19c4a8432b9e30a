"""The order of the passes.

``LOWERING``: gradients, dtypes and layouts, in the ops that targets have kernels for. ``mirror``: which values the
backward pass recomputes. ``FUSING``: which nodes become one kernel. ``PLANNING``: kernels, order, streams and memory. A
new pass is an entry in one of these tuples; ``conditions.py`` has the conditions under which one runs.

Why some passes are where they are; a new one may rely on this:

- ``written_attention`` before ``autodiff``: the gradient is then that of attention, not that of its products.
- ``image_transposes`` after ``channels_last``, which places the convolutions: it moves transposes around other ops.
- ``free_transposes`` after all that move transposes: until then one that moves nothing cancels its inverse.
- ``wide_rows`` after all that pad rows, and before ``fuse``, whose nodes have more than one operand's rows.
- ``fuse`` before the other passes over pointwise nodes: these make its nodes larger, or let them read and write parts.
- ``training_epilogue`` after ``inline`` and ``row_bodies``: a sum that its readers compute costs even less.
- ``small_producers`` after the passes that join reductions: its steps may be smaller than the result of the node.
- ``joined_reshapes`` after all that change shapes; ``tf32`` near the end: a pass before it that asks for a product's
  kernels or time asks for those of the marked product (``rounding.py``).
- ``prepare`` after fusion: it takes out nodes that ``predict`` would run, so the bits are the same.
"""

from __future__ import annotations

from typing import Final

from dslc.compiler.ir.build import Build, Pass
from dslc.compiler.ir.program import Program
from dslc.compiler.passes.conditions import (
    attends_in_place,
    batches_launches,
    calls_libraries,
    fuses_into_contractions,
    fuses_reductions,
    in_bodies,
    lacks_half_kernels,
    reads_any_layout,
    reads_halves,
    reads_images_last,
    reads_slices,
    reductions_with_bodies,
    rounds_to_tf32,
    shares_orders,
    tensor_cores,
    when,
    when_by,
    writes_rows,
)
from dslc.compiler.passes.fuse.contraction.chains import chains
from dslc.compiler.passes.fuse.contraction.convolution_epilogue import convolution_epilogue
from dslc.compiler.passes.fuse.contraction.epilogue import epilogue, epilogue_rule
from dslc.compiler.passes.fuse.contraction.few_rows_epilogue import few_rows_epilogue, few_rows_rule
from dslc.compiler.passes.fuse.contraction.library_epilogue import library_epilogue, library_rule
from dslc.compiler.passes.fuse.contraction.tf32 import tf32
from dslc.compiler.passes.fuse.contraction.training_epilogue import training_epilogue
from dslc.compiler.passes.fuse.horizontal.horizontal import horizontal, slices
from dslc.compiler.passes.fuse.horizontal.horizontal_reductions import horizontal_reductions
from dslc.compiler.passes.fuse.horizontal.joined_slices import joined_slices
from dslc.compiler.passes.fuse.horizontal.placed_pads import placed_pads
from dslc.compiler.passes.fuse.horizontal.small_tensors import small_tensors
from dslc.compiler.passes.fuse.indexed.gather_casts import gather_casts
from dslc.compiler.passes.fuse.indexed.order_rows import order_rows
from dslc.compiler.passes.fuse.indexed.replacements import replacements
from dslc.compiler.passes.fuse.indexed.together import together
from dslc.compiler.passes.fuse.pointwise.bitmask import bitmask
from dslc.compiler.passes.fuse.pointwise.inline import inline
from dslc.compiler.passes.fuse.pointwise.joined_reshapes import joined_reshapes
from dslc.compiler.passes.fuse.pointwise.pieces import pieces
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse
from dslc.compiler.passes.fuse.pointwise.recompute_outputs import recompute_outputs
from dslc.compiler.passes.fuse.pointwise.slice_reads import slice_reads
from dslc.compiler.passes.fuse.pointwise.small_producers import pays, small_producers
from dslc.compiler.passes.fuse.pointwise.stacked import stacked
from dslc.compiler.passes.fuse.reduction.cross_entropy import cross_entropy
from dslc.compiler.passes.fuse.reduction.reduction_epilogue import reduction_epilogue
from dslc.compiler.passes.fuse.reduction.reduction_outputs import reduction_outputs
from dslc.compiler.passes.fuse.reduction.row_bodies import row_bodies, row_fits
from dslc.compiler.passes.lower.attention_forms import attention_forms
from dslc.compiler.passes.lower.compose import compose
from dslc.compiler.passes.lower.decompose import decompose
from dslc.compiler.passes.lower.dtypes.half_orders import half_orders
from dslc.compiler.passes.lower.dtypes.half_reads import half_reads
from dslc.compiler.passes.lower.dtypes.precision import precision
from dslc.compiler.passes.lower.dtypes.widen_halves import widen_halves
from dslc.compiler.passes.lower.few_queries import few_queries
from dslc.compiler.passes.lower.fold_scales import fold_scales
from dslc.compiler.passes.lower.fourier.transforms import transforms
from dslc.compiler.passes.lower.gradient.autodiff import autodiff
from dslc.compiler.passes.lower.joined_products import joined_products
from dslc.compiler.passes.lower.known_values import known_values
from dslc.compiler.passes.lower.layout.attention_transposes import attention_transposes
from dslc.compiler.passes.lower.layout.attention_views import attention_views
from dslc.compiler.passes.lower.layout.channels_last import channels_last, on_tensor_cores
from dslc.compiler.passes.lower.layout.free_transposes import free_transposes
from dslc.compiler.passes.lower.layout.image_transposes import image_transposes
from dslc.compiler.passes.lower.layout.pad_classes import pad_classes
from dslc.compiler.passes.lower.layout.pad_columns import pad_columns
from dslc.compiler.passes.lower.layout.pad_widths import pad_widths
from dslc.compiler.passes.lower.layout.transposes import transposes
from dslc.compiler.passes.lower.layout.wide_rows import wide_rows
from dslc.compiler.passes.lower.loops.after_loops import after_loops
from dslc.compiler.passes.lower.loops.half_loops import half_loops
from dslc.compiler.passes.lower.loops.loop_tails import loop_tails
from dslc.compiler.passes.lower.met_taps import met_taps
from dslc.compiler.passes.lower.partial_windows import partial_windows
from dslc.compiler.passes.lower.put_rows import put_rows
from dslc.compiler.passes.lower.simplify.simplify import simplify
from dslc.compiler.passes.lower.written_attention import written_attention
from dslc.compiler.passes.mirror.mirror import mirror_against
from dslc.compiler.passes.plan.joined_loops import joined_loops
from dslc.compiler.passes.plan.memory import memory
from dslc.compiler.passes.plan.pack_weights import pack_weights
from dslc.compiler.passes.plan.prepare import prepare
from dslc.compiler.passes.plan.schedule import schedule
from dslc.compiler.passes.plan.select_kernels import select
from dslc.compiler.passes.plan.streams import streams
from dslc.compiler.passes.runner import pass_name


def _everywhere(*passes: Pass) -> tuple[Pass, ...]:
    """Passes over graphs, which also visit the bodies of loops."""
    return tuple(in_bodies(each) for each in passes)


LOWERING: Final[tuple[Pass, ...]] = (
    written_attention,
    autodiff,
    fold_scales,
    joined_products,
    precision,
    *_everywhere(
        compose,
        met_taps,
        attention_forms,
        when(batches_launches, partial_windows),
        when_by(tensor_cores, channels_last, on_tensor_cores),
        when(reductions_with_bodies, decompose),
        when(lacks_half_kernels, widen_halves),
    ),
    transforms,
    *_everywhere(
        when(reads_halves, half_reads),
        when(reads_halves, half_orders),
        when(batches_launches, half_loops),
        when(batches_launches, after_loops),
        when(batches_launches, loop_tails),
        simplify,
        when(writes_rows, put_rows),
        when(reads_any_layout, transposes),
        when(reads_images_last, image_transposes),
        when(attends_in_place, few_queries),
        when(attends_in_place, attention_transposes),
        when(attends_in_place, attention_views),
        free_transposes,
        when(calls_libraries, pad_classes),
        when(calls_libraries, pad_widths),
        when(batches_launches, wide_rows),
    ),
    when(batches_launches, known_values),
    pad_columns,
)
FUSING: Final[tuple[Pass, ...]] = (
    *_everywhere(
        when(shares_orders, order_rows),
        when(reads_any_layout, replacements),
        when(batches_launches, gather_casts),
        when(reads_slices, placed_pads),
        when(batches_launches, together),
        fuse,
        when_by(fuses_reductions, few_rows_epilogue, few_rows_rule),
        when_by(fuses_into_contractions, epilogue, epilogue_rule),
        when_by(calls_libraries, library_epilogue, library_rule),
    ),
    convolution_epilogue,
    *_everywhere(
        when(fuses_reductions, cross_entropy),
        when(batches_launches, small_tensors),
        when_by(batches_launches, horizontal, slices),
        when_by(fuses_reductions, inline, row_fits),
        when_by(fuses_reductions, reduction_outputs, row_fits),
        when(fuses_reductions, bitmask),
        when(fuses_reductions, reduction_epilogue),
        when(fuses_reductions, horizontal_reductions),
        when(fuses_reductions, recompute_outputs),
        when_by(fuses_reductions, row_bodies, row_fits),
        when_by(batches_launches, small_producers, pays),
        when(reads_slices, slice_reads),
        when(reads_slices, stacked),
    ),
    when(reads_slices, pieces),
    training_epilogue,
    *_everywhere(
        when(batches_launches, joined_slices),
        when(rounds_to_tf32, tf32),
        joined_reshapes,
    ),
    pack_weights,
    prepare,
    chains,
    joined_loops,
)
PLANNING: Final[tuple[Pass, ...]] = (select, schedule, streams, memory)


def mirror(program: Program, build: Build) -> Program:
    """Recomputes values in the backward pass if the following passes then need fewer bytes."""
    return mirror_against(program, build, FUSING, PLANNING)


PIPELINE: Final[tuple[Pass, ...]] = (*LOWERING, mirror, *FUSING, *PLANNING)
#: The last pass, after which a program is planned.
PLANNED: Final = pass_name(memory)
