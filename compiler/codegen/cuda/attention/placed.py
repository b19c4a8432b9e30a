"""The text of a kernel of attention that says where its tensors lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.strided_attention import Places, bias_of, mask_of, terms_of

_CHUNK: Final = 16  # bytes, the most that a thread copies at once


def head_of(
    dtype: DType,
    scale: float,
    features: int,
    layouts: Mapping[str, Sequence[int]],
    mask: Sequence[int],
    bias: Sequence[int],
) -> str:
    """The lines of a kernel's text for its dtype, the scale of scores, and where rows, a mask and a bias lie. Rows are
    copied in the largest pieces that begin and end at a multiple of their size."""
    text = f'#define MMA_TYPE "{dtype.value}"\n' if dtype.is_half else ""
    piece = gcd(_CHUNK // dtype.itemsize, features, *(n for layout in layouts.values() for n in layout))
    text += f"#define PIECE {piece * dtype.itemsize}\n"
    text += f"using T = {C_TYPES[dtype]};\nconstexpr float SCALE = (float){float(scale).hex()};\n"
    text += f"#define MASKED {int(bool(mask))}\n#define BIASED {int(bool(bias))}\n"
    for name, layout in {"MASK": mask, "BIAS": bias, **layouts}.items():
        text += f"#define {name} {{{', '.join(map(str, layout))}}}\n" if layout else ""
    return text


def terms_at(node: Node, found: Places) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where the mask and the bias of a node on plain tensors lie; empty without one."""
    of = dict(zip(terms_of(node), found.terms, strict=True))
    mask, bias = mask_of(node), bias_of(node)
    return () if mask is None else of[mask], () if bias is None else of[bias]
