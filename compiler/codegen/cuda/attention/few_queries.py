"""Attention of one or few queries to a long cache: the keys are split into parts, so that they keep the device busy."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, CppKernel, constants
from dslc.compiler.codegen.device_model import H200
from dslc.compiler.codegen.launch import Launch, Scratch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.attrs import float_attr
from dslc.compiler.ops.compound.few_queries import plain_node
from dslc.compiler.ops.compound.strided_attention import pairs, places, reads_of, terms_of, writes_of
from dslc.compiler.ops.products.attention_terms import share_of_heads

_THREADS: Final = 128
_BLOCKS: Final = 2 * H200.multiprocessors
_AT_ONCE: Final = 4  # rows of keys that a thread has in flight; fewer if there are several queries
_ALONE: Final = 4  # iterations of a block that take less time than another launch

Layout = tuple[int, ...]


@described("FewQueries", "dtype kept stack inner share queries keys features layouts mask scale part file")
@dataclass(frozen=True)
class FewQueries(CppKernel):
    """``k(q, k, v, [mask,] y)``: ``stack`` heads of k, each read by ``queries`` rows of ``share`` heads of q.

    ``kept``: the dtype of k and v. ``inner``: of the last axis of the stack of q. ``layouts``: of q, k, v and y the
    first element, and the strides along these axes and from row to row; ``mask``: the same, and the stride from key to
    key, or empty. ``part``: keys of a block; if these are not all, the result is f32 parts for ``JoinedQueries``.
    """

    dtype: DType
    kept: DType
    stack: int
    inner: int
    share: int
    queries: int
    keys: int
    features: int
    layouts: tuple[Layout, ...]
    mask: Layout
    scale: float
    part: int
    file: str = "few_queries.cu"

    @property
    def rows(self) -> int:
        return self.queries * self.share

    @property
    def splits(self) -> int:
        return -(-self.keys // self.part)

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.stack * self.splits, 1, 1), (_THREADS, 1, 1))

    def head(self) -> str:
        result = self.dtype if self.splits == 1 else DType.F32
        text = (
            f"using T = {C_TYPES[self.dtype]};\nusing KV = {C_TYPES[self.kept]};\nusing RESULT = {C_TYPES[result]};\n"
        )
        text += f"constexpr float SCALE = (float){float(self.scale).hex()};\n#define SPLITS {self.splits}\n"
        for name, layout in zip("QKVY", self.layouts, strict=True):
            text += f"#define {name} {{{', '.join(map(str, layout))}}}\n"
        argument = ", const unsigned char *__restrict__ mask" if self.mask else ""
        text += f"#define MASKED {int(bool(self.mask))}\n#define MASK_ARGUMENT {argument}\n"
        text += f"#define MASK {{{', '.join(map(str, self.mask))}}}\n" if self.mask else ""
        return text + constants(
            THREADS=_THREADS, TEAM=team_of(self.features), NEXT=_at_once(self.rows), INNER=self.inner, SHARE=self.share,
            QUERIES=self.queries, ROWS=self.rows, KEYS=self.keys, PART=self.part, FEATURES=self.features,
        )  # fmt: skip


@described("JoinedQueries", "dtype stack inner share queries splits features layout file")
@dataclass(frozen=True)
class JoinedQueries(CppKernel):
    """``k(parts, y)``: adds the parts that ``FewQueries`` gives."""

    dtype: DType
    stack: int
    inner: int
    share: int
    queries: int
    splits: int
    features: int
    layout: Layout
    file: str = "few_queries_join.cu"

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.stack * self.share * self.queries, 1, 1), (-(-self.features // 32) * 32, 1, 1))

    def head(self) -> str:
        text = f"using T = {C_TYPES[self.dtype]};\n#define Y {{{', '.join(map(str, self.layout))}}}\n"
        return text + constants(
            THREADS=self.geometry.block[0], INNER=self.inner, SHARE=self.share, QUERIES=self.queries,
            ROWS=self.share * self.queries, SPLITS=self.splits, FEATURES=self.features,
        )  # fmt: skip


def team_of(features: int) -> int:
    """Threads of a key, a power of 2."""
    return 1 << (-(-features // 8) - 1).bit_length()


def _at_once(rows: int) -> int:
    return max(1, _AT_ONCE // (1 << (rows - 1).bit_length()))


def part_of(stack: int, keys: int, features: int, rows: int) -> int:
    """Keys of a block: all of them if they are few, else parts for as many blocks as keep the device busy."""
    turn = _THREADS // team_of(features) * _at_once(rows)
    if keys <= _ALONE * turn:
        return keys
    splits = min(-(-keys // turn), max(1, _BLOCKS // stack))
    return -(-keys // (splits * turn)) * turn


@lowers("few_queries_sdpa", target="cuda")
def few_queries_sdpa(node: Node) -> list[Launch]:
    own = plain_node(node)
    q, k = own.input_types[:2]
    [(_, write)] = writes_of(node.attrs)
    found = places([*reads_of(node.attrs)[:3], write], [pairs(own, x) for x in terms_of(own)])
    assert found is not None, "the pass asks for this"
    [mask] = found.terms or [()]
    share, queries, features = share_of_heads(q, k), q.ints[-2], q.ints[-1]
    stack, keys = prod(k.ints[:-2]), k.ints[-2]
    part = part_of(stack, keys, features, share * queries)
    spec = FewQueries(
        q.dtype, node.inputs[1].type.dtype, stack, found.inner, share, queries, keys, features, found.rows, mask,
        float_attr(node.attrs, "scale"), part,
    )  # fmt: skip
    if spec.splits == 1:
        return [Launch(spec, node.inputs, node.outputs)]
    parts = Scratch(0, stack * spec.splits * spec.rows * (features + 2) * DType.F32.itemsize)
    joined = JoinedQueries(q.dtype, stack, found.inner, share, queries, spec.splits, features, found.rows[3])
    return [Launch(spec, node.inputs, (parts,)), Launch(joined, (parts,), node.outputs)]
