"""placed: a copy of each part, after zeros if the parts leave something."""

from __future__ import annotations

from math import prod

from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region.ir import all_strides
from dslc.compiler.codegen.region.pointwise import copy_into, filled
from dslc.compiler.ir.graph import Node
from dslc.compiler.ops.compound.boxes import places_of


@lowers("placed", target="cpu")
def placed(node: Node) -> list[Launch]:
    shape = node.types[0].ints
    boxes, strides = places_of(node.input_types, node.attrs), all_strides(shape)
    launches = [] if sum(prod(box.shape) for box in boxes) == prod(shape) else filled(node, 0)
    for x, box in zip(node.inputs, boxes):
        launches.append(copy_into(x, node.out, sum(at * step for at, step in zip(box.start, strides))))
    return launches
