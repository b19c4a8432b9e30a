"""Leaves out the outer taps of convolutions that meet only the border of zeros, in every window.

Before, of a dilation that is larger than the image::

    %1 = conv %x, %w {dilation=(12, 12), pad=(12, 12), ...} : [4, 256, 9, 9]
    %2 = conv_dgrad %dy, %w {dilation=(12, 12), pad=(12, 12), size=(9, 9), ...} : [4, 2048, 9, 9]
    %3 = conv_wgrad %x, %dy {dilation=(12, 12), pad=(12, 12), size=(3, 3), ...} : [256, 2048, 3, 3]

After, with a weight of one tap instead of nine::

    %1 = slice %w {starts=(0, 0, 1, 1), stops=(256, 2048, 2, 2), ...} : [256, 2048, 1, 1]
    %2 = conv %x, %1 {dilation=(1, 1), pad=(0, 0), ...} : [4, 256, 9, 9]
    %3 = conv_dgrad %dy, %1 {dilation=(1, 1), pad=(0, 0), size=(9, 9), ...} : [4, 2048, 9, 9]
    %4 = conv_wgrad %x, %dy {dilation=(1, 1), pad=(0, 0), size=(1, 1), ...} : [256, 2048, 1, 1]
    %5 = pad %4 {low=(0, 0, 1, 1), high=(0, 0, 1, 1), ...} : [256, 2048, 3, 3]

The law: tap j of window i meets the element ``i*stride - pad + j*dilation`` of the image. If no window meets an element
by the first ``low`` taps and the last ``high`` ones, all their products are 0, and so is the weight's gradient there.
The other taps meet the same elements with a border of ``pad - low*dilation``. The border is equal on both sides, so the
number of windows may change if ``low`` is not ``high``: then the pass leaves out as many at each end. If the new border
is below 0, windows do not meet the image's ends: the pass leaves the axis as it is.

Kernels sum the products that are left, in blocks that may begin at others: sums are rounded in other places. A weight
that is not finite no longer makes results NaN by a tap that meets zeros. Groups of one channel stay: their
kernels visit only what the image has. Linear in nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from dslc.compiler.ir.build import Build
from dslc.compiler.ir.graph import Attr, Node, Value
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ops.attrs import int_attr, int_tuple
from dslc.compiler.ops.shape.slicing import pad, slice_
from dslc.compiler.ops.spatial.conv import Convolution, conv_wgrad


class Axis(NamedTuple):
    """A spatial axis of a convolution: the image's size, the kernel's, the number of windows, and how these lie."""

    size: int
    k: int
    windows: int
    stride: int
    pad: int
    dilation: int

    def met(self) -> tuple[int, int]:
        """The first tap that stays, and the number of those that stay."""
        meeting = [j for j in range(self.k) if self._meets(j)]
        if not meeting:
            return 0, self.k
        low, high = meeting[0], self.k - 1 - meeting[-1]
        if self.without(low, high).fitting != self.windows:
            low = high = min(low, high)
        return (low, self.k - low - high) if self.pad >= low * self.dilation else (0, self.k)

    def _meets(self, tap: int) -> bool:
        """Whether a window meets an element by this tap."""
        at = tap * self.dilation - self.pad  # of the first window
        first = max(0, -(at // self.stride))  # the first window that is not before the image
        return first < self.windows and first * self.stride + at < self.size

    @property
    def fitting(self) -> int:
        """The number of windows for the other numbers."""
        return (self.size + 2 * self.pad - self.dilation * (self.k - 1) - 1) // self.stride + 1

    def without(self, low: int, high: int) -> Axis:
        """The axis without so many taps at its ends."""
        k = self.k - low - high
        return self._replace(k=k, pad=self.pad - low * self.dilation, dilation=self.dilation if k > 1 else 1)


def met_taps(program: Program, build: Build) -> Program:
    """The pass; the same program if there is nothing to do."""
    graph = program.graph.rewrite(_rule)
    return program if graph is program.graph else dataclasses.replace(program, graph=graph)


def _rule(node: Node) -> Sequence[Value] | None:
    if not isinstance(node.op, Convolution):
        return None
    image, weight, result = (t.ints for t in node.op.tensors(node))
    if weight[1] == 1 < int_attr(node.attrs, "groups"):
        return None
    geometry = zip(*(int_tuple(node.attrs, name) for name in ("stride", "pad", "dilation")))
    axes = [Axis(*sizes, *given) for sizes, given in zip(zip(image[2:], weight[2:], result[2:]), geometry)]
    kept = [axis.met() for axis in axes]
    if all(count == axis.k for (_, count), axis in zip(kept, axes)):
        return None
    low = (0, 0, *(first for first, _ in kept))
    high = (0, 0, *(axis.k - first - count for (first, count), axis in zip(kept, axes)))
    left = [axis.without(*ends) for axis, ends in zip(axes, zip(low[2:], high[2:]))]
    b = Builder().at(node, node.phase)
    attrs: dict[str, Attr] = {name: tuple(getattr(axis, name) for axis in left) for name in ("pad", "dilation")}
    if node.op is conv_wgrad:
        made = b(node.op, *node.inputs, **{**node.attrs, **attrs, "size": tuple(axis.k for axis in left)})
        return (b(pad, made, low=low, high=high, interior=(0,) * len(low), value=0.0),)
    data, w = node.inputs
    stops = tuple(n - end for n, end in zip(weight, high))
    taken = b(slice_, w, starts=low, stops=stops, steps=(1,) * len(low))
    return (b(node.op, data, taken, **{**node.attrs, **attrs}),)
