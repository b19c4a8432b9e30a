"""What cuDNN is asked for: a convolution or one of its gradients, or an attention or its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Final, TypeAlias

from dslc.runtime.artifact.attention_check import SUMS
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.artifact.instructions import GraphOp
from dslc.runtime.artifact.plan import Buffer

_BUILDERS: Final = {"conv": "conv_fprop", "conv_dgrad": "conv_dgrad", "conv_wgrad": "conv_wgrad"}
_NAMES: Final = {"conv": ("image", "weight"), "conv_dgrad": ("loss", "filter"), "conv_wgrad": ("image", "loss")}
_ROLES: Final = {"sdpa": ("q", "k", "v"), "sdpa_grad": ("q", "k", "v", "o", "stats", "dO")}
#: A dtype -> the package's name of it.
TYPES: Final = {"f32": "FLOAT", "f16": "HALF", "bf16": "BFLOAT16"}
#: Forbidden properties of a plan. Tensor cores compute f32 as TF32, which must have been requested.
_INEXACT: Final = ("DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT", "WINOGRAD")
_CORES: Final = "TENSOR_CORE"

#: Sizes and strides of the axes of an operand's part, and its first element; in elements.
Part: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Convolution:
    """``kind`` is that of ``GraphOp``; shapes are those in memory, with channels ``last`` or first; ``workspace``: its
    size in bytes; ``compute``: ``tf32`` if f32 factors may be rounded to TF32; ``algorithm``: the name of a plan, empty
    for the library's choice. ``added``: what further operands are added to a `conv`, a ``bias`` for each channel or
    ``c``, like the result; ``relu``: of the sum. All of it in f32, before the result is rounded."""

    kind: str
    inputs: tuple[tuple[int, ...], tuple[int, ...]]
    out: tuple[int, ...]
    dtype: str
    last: bool
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    workspace: int
    compute: str = "f32"
    algorithm: str = ""
    added: tuple[str, ...] = ()
    relu: bool = False

    compiles: ClassVar = False  # whether its plans are compiled where they run

    def __str__(self) -> str:
        first, second = (f"{self.dtype}{list(s)}" for s in self.inputs)
        more = "".join(f" plus {kind}" for kind in self.added) + ", relu" * self.relu
        return f"{self.kind} of {first} and {second}{more} to {self.dtype}{list(self.out)}"

    @property
    def forbidden(self) -> tuple[str, ...]:
        """Numerical notes of cuDNN that its plans must not have."""
        return _INEXACT if self.units else (*_INEXACT, _CORES)

    @property
    def units(self) -> tuple[str, ...]:
        """The numerical notes of cuDNN that its plans have if the GPU's fastest units for the dtype compute them."""
        return () if self.dtype == self.compute == "f32" else (_CORES,)

    def describe(self, module: Any, graph: Any) -> None:
        """Adds it to an empty graph, whose tensors are numbered from 1: the operands, then the result."""
        kind = getattr(module.data_type, TYPES[self.dtype])
        operands = []
        for number, name, shape in zip((1, 2), _NAMES[self.kind], self.inputs):
            dim, stride = dims_of(shape, self.last)
            operands.append(graph.tensor(dim=dim, stride=stride, data_type=kind, name=name, uid=number))
        pads = {"pre_padding": list(self.pad), "post_padding": list(self.pad)}
        out = getattr(graph, _BUILDERS[self.kind])(
            **dict(zip(_NAMES[self.kind], operands)), **pads, stride=list(self.stride), dilation=list(self.dilation)
        )
        dim, stride = dims_of(self.out, self.last)
        # compiled plans exist for this order: what is like the result, then the bias
        for name, number in sorted(zip(self.added, range(3, 3 + len(self.added))), reverse=True):
            if name == "c":
                out = graph.add(a=out, b=graph.tensor(dim=dim, stride=stride, data_type=kind, name=name, uid=number))
            else:
                count, ones = dim[1], [1] * (len(dim) - 2)
                sizes, steps = [1, count, *ones], [count, 1, *(count for _ in ones)]
                out = graph.bias(
                    input=out, bias=graph.tensor(dim=sizes, stride=steps, data_type=kind, name=name, uid=number)
                )
        out = graph.relu(input=out) if self.relu else out
        out.set_output(True).set_data_type(kind).set_dim(dim).set_stride(stride).set_uid(3 + len(self.added))

    def addresses(self, operands: Sequence[int]) -> dict[int, int]:
        """The addresses of the graph's tensors, from those of all inputs and of the output."""
        return dict(enumerate(operands, 1))


@dataclass(frozen=True, slots=True)
class Attention:
    """``kind`` is that of ``GraphOp``: sdpa of (q, k, v), which gives y and the logarithm of each row's sum, or
    sdpa_grad of (q, k, v, y, that, dy), which gives dq, dk and dv. ``reads``: the part of each input that is an
    operand, [B, H, T, d]; ``writes``: of each result the number of an output, and the part of it. ``window``: a key as
    many positions away from a query or more does not meet it; 0 for none. The rest is as for ``Convolution``. Its plans
    are compiled where they run."""

    kind: str
    reads: tuple[Part, ...]
    writes: tuple[tuple[int, Part], ...]
    dtype: str
    causal: bool
    scale: float
    workspace: int
    algorithm: str = ""
    window: int = 0

    compiles: ClassVar = True
    forbidden: ClassVar = _INEXACT
    units: ClassVar[tuple[str, ...]] = ()  # all its plans are on tensor cores

    def __str__(self) -> str:
        shapes = (f"{self.dtype}{list(sizes)}" for sizes, _, _ in self.reads[:3])
        near = f" with window {self.window}" if self.window else ""
        return f"{'causal ' * self.causal}{self.kind}{near} of {', '.join(shapes)}"

    def describe(self, module: Any, graph: Any) -> None:
        """Adds it to an empty graph, whose tensors are numbered from 1: the operands, then the results."""
        wide = getattr(module.data_type, TYPES[self.dtype])
        types = dict.fromkeys(_ROLES[self.kind], wide) | {"stats": module.data_type.FLOAT}
        given = {}
        for number, (name, (sizes, strides, _)) in enumerate(zip(_ROLES[self.kind], self.reads), 1):
            given[name] = graph.tensor(
                dim=list(sizes), stride=list(strides), data_type=types[name], name=name, uid=number
            )
        options: dict[str, Any] = {"attn_scale": self.scale, "use_causal_mask": self.causal}
        if self.window:
            options["diagonal_band_left_bound"] = self.window
        if self.window and not self.causal:  # the causal mask is a bound of 0, and may not be named twice
            options["diagonal_band_right_bound"] = self.window - 1
        if self.kind == "sdpa":
            made = graph.sdpa(**given, generate_stats=True, **options)
            kinds = [wide, module.data_type.FLOAT]
        else:
            made = graph.sdpa_backward(**given, use_deterministic_algorithm=True, **options)
            kinds = [wide] * 3
        first = len(self.reads) + 1
        for number, (out, kind, (_, (sizes, strides, _))) in enumerate(zip(made, kinds, self.writes), first):
            out.set_output(True).set_data_type(kind).set_dim(list(sizes)).set_stride(list(strides)).set_uid(number)

    def addresses(self, operands: Sequence[int]) -> dict[int, int]:
        """As for ``Convolution``."""
        count = len(self.reads)
        parts = [(operands[n], part) for n, part in enumerate(self.reads)]
        parts += [(operands[count + n], part) for n, part in self.writes]
        sizes = [ITEMSIZE["f32" if n == SUMS else self.dtype] for n in range(len(parts))]
        return {n: place + start * size for n, ((place, (_, _, start)), size) in enumerate(zip(parts, sizes), 1)}


Problem: TypeAlias = Convolution | Attention


def problem_of(call: GraphOp, buffers: Sequence[Buffer], workspace: int, algorithm: str) -> Problem:
    """What an instruction asks for, on ``buffers``: all inputs and outputs."""
    if call.kind in _ROLES:
        reads = tuple(map(_part, call.attrs["reads"]))
        writes = tuple((int(number), _part(part)) for number, *part in call.attrs["writes"])
        scale, causal = float(call.attrs["scale"]), bool(call.attrs["causal"])
        window = int(call.attrs.get("window", 0))
        return Attention(call.kind, reads, writes, buffers[0].dtype, causal, scale, workspace, algorithm, window)
    first, second, *_, out = buffers
    stride, pad, dilation = (tuple(call.attrs[name]) for name in ("stride", "pad", "dilation"))
    return Convolution(
        call.kind, (first.shape, second.shape), out.shape, out.dtype, call.attrs["layout"] == "last",
        stride, pad, dilation, workspace, call.attrs["compute"], algorithm,
        tuple(call.attrs.get("added", ())), bool(call.attrs.get("relu", False)),
    )  # fmt: skip


def _part(listed: Sequence[Any]) -> Part:
    sizes, strides, start = listed
    return tuple(sizes), tuple(strides), int(start)


def dims_of(shape: Sequence[int], last: bool) -> tuple[list[int], list[int]]:
    """Sizes and strides in cuDNN's order: batch, channels, and the spatial axes."""
    order = [0, len(shape) - 1, *range(1, len(shape) - 1)] if last else range(len(shape))
    return [shape[axis] for axis in order], [prod(shape[axis + 1 :]) for axis in order]
