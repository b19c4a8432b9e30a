"""Recognises attention that is written as products, a softmax and what is added to scores, and computes it in tiles.

Before::

    %4 = matmul %q, %k {transpose_b=True, ...} : [64, 4, 49, 49]
    %5 = mul %4, 0.177 : [64, 4, 49, 49]
    %6 = add %5, %bias : [64, 4, 49, 49]  # with bias [4, 49, 49]
    %7 = softmax %6 {axis=3} : [64, 4, 49, 49]
    %8 = matmul %7, %v {...} : [64, 4, 49, 32]

After::

    %8, %9 = sdpa %q, %k, %v, %bias {causal=False, scale=0.177} : [64, 4, 49, 32], [64, 4, 49]

Several addends become one bias, and several masks (``where(mask, scores, -inf)``) one mask, which are computed once. A
tensor that multiplies or divides the scores and is the same for all keys, such as a learnt temperature of each head,
does so to q. It runs before differentiation, so that the gradient is that of the new node. Attention is taken if
nothing else reads the scores and the probabilities, and if tiles compute the new node by ``why_parts``. Addends whose
sum is almost as large as the scores, of parts that are smaller, stay, unless ``predict`` has it prepared from weights
alone: to write it takes as long as tiles save. In tiles a query whose scores are all minus infinity gives 0; products
give nan, unless the source replaces it by 0. For targets with tensor cores. Linear in nodes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial, reduce
from math import prod
from typing import Final

from dslc.compiler.codegen.targets import traits_of
from dslc.compiler.ir.build import Build, Precision
from dslc.compiler.ir.graph import Input, Kind, Node, Phase, Value, made_by
from dslc.compiler.ir.op import OPS, Builder, broadcast
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.sizes import Size
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import bool_attr, int_attr, int_tuple
from dslc.compiler.ops.compound.strided_attention import why_parts
from dslc.compiler.ops.products.attention import sdpa
from dslc.compiler.passes.lower.dtypes.wide import in_train_section
from dslc.compiler.passes.queries import has_one_reader, values_of_weights
from dslc.compiler.passes.rebuild import reading

_MOST: Final = 2  # the sum of several addends has at most one in so many elements of the scores
#: Features. With 128, tiles took 650 us with the gradient of a bias, products 479 (``benchmarks/results/ops.md``).
_MOST_IN_TF32: Final = 64


def written_attention(program: Program, build: Build) -> Program:
    """The pass. Idempotent."""
    traits = traits_of(build.target)
    if not (build.fuse and traits.has_tensor_cores) or build.provider == "reference":
        return program
    instead = {
        found.product.out: found.node().outputs[0]
        for found in written(program)
        if why_products(found, build.precision) is None
    }
    return dataclasses.replace(program, graph=reading(program.graph, instead)) if instead else program


@dataclass
class Written:
    """Attention: ``product`` is the last product. The scores are ``scale * q k^T``, times or by ``factors`` (names of
    ops, and what they read), plus ``addends``, minus infinity where one of the masks is false, and for later keys if
    ``causal``. ``prepared``: addends need weights alone, and ``predict`` need not compute their sum in each run."""

    product: Node
    softmax: Node
    q: Value
    k: Value
    scale: float
    factors: list[tuple[str, Value]]
    addends: list[Value]
    masks: list[Value]
    causal: bool
    prepared: bool = False

    @property
    def v(self) -> Value:
        return self.product.inputs[1]

    def node(self) -> Node:
        """The same as one node."""
        b = Builder().at(self.product, self.product.phase)
        masks = [reduce(partial(b, OPS["logical_and"]), self.masks)] if self.masks else []
        biases = [reduce(partial(b, OPS["add"]), self.addends)] if self.addends else []
        q = reduce(lambda q, factor: b(OPS[factor[0]], q, factor[1]), self.factors, self.q)
        return b.node(sdpa, q, self.k, self.v, *masks, *biases, causal=self.causal, scale=self.scale)


def written(program: Program) -> list[Written]:
    """All such attention of the forward pass, in order."""
    graph = program.graph
    is_read_once = has_one_reader(graph)
    known = values_of_weights(graph) if program.entry == "predict" else set()
    found = (_written(node, is_read_once) for node in graph.nodes if node.op.name == "matmul")
    return [dataclasses.replace(x, prepared=known.issuperset(x.addends)) for x in found if x is not None]


def why_products(found: Written, precision: Precision) -> str | None:
    """Why attention stays products; None if tiles compute it."""
    if in_train_section(found.product) or (found.softmax.name, found.softmax.span) in precision.nodes:
        return "it has another precision than the model"
    q, k, v = (x.type.ints for x in (found.q, found.k, found.v))
    if q[:-2] != k[:-2] or k[:-2] != v[:-2]:
        return "q, k and v have other heads"
    scores = (*q[:-1], k[-2])
    shapes = [x.type.ints for x in found.addends]
    total = prod(TensorType(DType.FLOAT, broadcast(shapes)).ints) if shapes else 0
    if not found.prepared and _MOST * total > prod(scores) and total > max(map(prod, shapes)):
        return "the sum of what is added is as large as the scores"
    if precision.tf32 and shapes and q[-1] > _MOST_IN_TF32:
        return f"with a bias and more than {_MOST_IN_TF32} features, TF32 is faster in products"
    node = found.node()
    types = [x.type if x.type.dtype is DType.B1 else TensorType(precision.compute, x.type.shape) for x in node.inputs]
    attrs = {**node.attrs, **({"tf32": True} if precision.tf32 else {})}
    return why_parts(Builder().node(sdpa, *(Input("x", Kind.DATA, t).value for t in types), **attrs))


def _written(product: Node, is_read_once: Callable[[Value], bool]) -> Written | None:
    """The attention whose last product a node is."""
    if product.phase is not Phase.FORWARD or _transposes(product) != (False, False):
        return None
    weights, guards = product.inputs[0], set[Value]()
    while (
        (guard := made_by(weights, "where")) is not None and is_read_once(weights) and _number(guard.inputs[2]) == 0.0
    ):
        guards.add(guard.inputs[0])  # a query that may see nothing gives 0
        weights = guard.inputs[1]
    softmax = made_by(weights, "softmax")
    if softmax is None or not is_read_once(weights) or int_attr(softmax.attrs, "axis") != weights.type.rank - 1:
        return None
    terms = _Terms(weights.type.shape)
    value: Value | None = softmax.inputs[0]
    while value is not None and (first := made_by(value, "matmul")) is None:
        value = terms.inner(value) if is_read_once(value) else None
    if value is None or first is None or not is_read_once(value) or not guards <= {*terms.masks}:
        return None
    ranks = {x.type.rank for x in (*first.inputs, *product.inputs)}
    if _transposes(first)[0] or value.type.shape != terms.shape or len(ranks) > 1:
        return None
    q, k, masks = first.inputs[0], _rows(first), [x for each in terms.masks for x in _factors(each)]
    causal = [x for x in masks if q.type.shape[-2] == k.type.shape[-2] and _is_causal(x)]
    known = [x for x in masks if x in causal or _is_finite(x, terms.addends)]
    kept = [x for x in dict.fromkeys(masks) if x not in known]
    if any(broadcast([q.type.shape, by.type.shape]) != q.type.shape for _, by in terms.factors):
        return None
    factors, addends = terms.factors[::-1], terms.addends[::-1]
    return Written(product, softmax, q, k, terms.scale, factors, addends, kept, bool(causal))


@dataclass
class _Terms:
    """What is done with a product ``[..., Tq, Tk]`` until the softmax, found from the softmax on."""

    shape: tuple[Size, ...]
    scale: float = 1.0
    factors: list[tuple[str, Value]] = field(default_factory=list)
    addends: list[Value] = field(default_factory=list)
    masks: list[Value] = field(default_factory=list)

    def inner(self, value: Value) -> Value | None:
        """The operand of the shape of scores from which a node makes a value; None if it is no term of attention."""
        made = value.producer
        if not isinstance(made, Node) or made.phase is not Phase.FORWARD:
            return None
        match made.op.name, made.inputs:
            case "where", (mask, inside, lowest) if _number(lowest) == -math.inf and not self.factors:
                self.masks.append(mask)
                return inside
            case "add", (first, second) if self.scale == 1.0 and not self.factors:  # only the product is scaled
                inside, other = (second, first) if _is_score(second) and not _is_score(first) else (first, second)
                self.addends.append(other)
                return inside if inside.type.shape == self.shape else None
            case "mul" | "div" as name, (inside, by) if (factor := _number(by)) is not None:
                self.scale *= factor if name == "mul" else 1 / factor if factor else 0
                return inside if 0 < self.scale < math.inf else None
            case "mul" | "div" as name, (first, second):
                inside, by = (second, first) if name == "mul" and not _is_score(first) else (first, second)
                self.factors.append((name, by))
                return inside if by.type.shape[-1:] in ((), (1,)) and inside.type.shape == self.shape else None
        return None


def _factors(mask: Value) -> list[Value]:
    """The masks all of which must be true."""
    made = made_by(mask, "logical_and")
    return [mask] if made is None else [x for each in made.inputs for x in _factors(each)]


def _is_causal(mask: Value) -> bool:
    made = made_by(mask, "tri")
    return made is not None and mask.type.rank == 2 and int_attr(made.attrs, "diagonal") == 0


def _is_finite(mask: Value, addends: Collection[Value]) -> bool:
    """Whether a mask says where an addend is not minus infinity, as scores say themselves."""
    made = made_by(mask, "ne")
    return made is not None and made.inputs[0] in addends and _number(made.inputs[1]) == -math.inf


def _is_score(value: Value) -> bool:
    """Whether a value is a product, or made of one by terms."""
    made = value.producer
    while isinstance(made, Node) and made.op.name in ("add", "mul", "div", "where"):
        made = made.inputs[1 if made.op.name == "where" else 0].producer
    return isinstance(made, Node) and made.op.name == "matmul"


def _number(value: Value) -> float | None:
    """The number that a constant of one element is."""
    made = made_by(value, "full")
    if made is None or prod(value.type.ints) != 1:
        return None
    found = made.attrs["value"]
    return float(found) if isinstance(found, int | float | str) else None


def _transposes(node: Node) -> tuple[bool, bool]:
    return bool_attr(node.attrs, "transpose_a"), bool_attr(node.attrs, "transpose_b")


def _rows(first: Node) -> Value:
    """k of a product ``q k^T``."""
    k, rank = first.inputs[1], first.inputs[1].type.rank
    if _transposes(first)[1]:
        return k
    turned = (*range(rank - 2), rank - 1, rank - 2)
    made = made_by(k, "transpose")
    if made is not None and int_tuple(made.attrs, "perm") == turned:
        return made.inputs[0]
    return Builder().at(first, first.phase)(OPS["transpose"], k, perm=turned)
