"""Matrix products by cuBLASLt, through ctypes: a few functions of a C interface that is stable since CUDA 11.

The bindings of nvmath-python do the same, but take 26 MB and half a second of imports; the constants below are part of
the library's ABI. A plan's matrices are row-major, cuBLASLt's are column-major: the same bytes are the transpose. So
the call computes ``out^T = op(b)^T @ op(a)^T``, with the operands swapped and every flag kept.

An algorithm is its configuration as text: the number of an implementation and its parameters, ``id=66 tile=20
stages=35 splitk=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=2``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from dslc.base.errors import EnvironmentFault
from dslc.base.turns import unbroken
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Buffer
from dslc.runtime.cuda.libraries import cublaslt_abi as abi
from dslc.runtime.cuda.libraries.cublaslt_abi import load_cublaslt
from dslc.runtime.cuda.libraries.library import Installed, Library, Way, unknown, version_text

if TYPE_CHECKING:
    from dslc.runtime.cuda.libraries.checked_calls import Noted

_PROPOSALS: Final = 32  # asked for at once
_ALIGNED: Final = 256  # bytes: the best alignment that the library knows, and the required one of a workspace
_LEAST_ALIGNED: Final = 64  # bytes: every buffer of a plan begins at a multiple


@dataclass(frozen=True, slots=True)
class Problem:
    """``out = alpha * op(a) @ op(b) + beta * c + bias``. Shapes ``[m, k]`` or ``[z, m, k]``; ``alignments``: the
    alignments of the addresses of a, b and out in bytes, 256 at most; ``workspace``: its size in bytes; ``algorithm``:
    its text, empty for the library's own choice. ``beta``: 0 without c; ``c_alignment``, ``bias_alignment``: of their
    addresses, 0 if there is none. c is like out, and the bias a row of it."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    out: tuple[int, ...]
    dtype: str
    out_dtype: str
    transpose_a: bool
    transpose_b: bool
    compute: str
    alpha: float
    alignments: tuple[int, int, int]
    workspace: int
    algorithm: str = ""
    beta: float = 0.0
    c_alignment: int = 0
    bias_alignment: int = 0

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.a)} by {self.dtype}{list(self.b)} to {self.out_dtype}{list(self.out)}"


def alignment(address: int) -> int:
    """The largest power of two that divides an address, 256 at most."""
    return min(address & -address, _ALIGNED) if address else _ALIGNED


class CublasLt(Library[Problem]):
    """A handle of the library. ``library``: that of ``load_cublaslt``, or a substitute in tests."""

    name: ClassVar = "cublaslt"
    title: ClassVar = "cuBLASLt"

    def __init__(self, library: Any, noted: Noted) -> None:
        self.library, self._noted = library, noted
        self.handle = self.made("cublasLt")

    @classmethod
    def open(cls, noted: Noted) -> Self:
        return cls(load_cublaslt(), noted)

    @classmethod
    def installed(cls) -> Installed:
        return Installed(version_text(int(load_cublaslt().cublasLtGetVersion())), "libcublasLt.so")

    @property
    def version(self) -> str:
        return version_text(int(self.library.cublasLtGetVersion()))

    def problem(
        self, call: Gemm | GraphOp, buffers: Sequence[Buffer], places: Sequence[int], workspace: int
    ) -> Problem:
        if not isinstance(call, Gemm):
            raise unknown("an operation graph of cublaslt")
        if call.epilogue != "none" or (call.c is None) != (call.beta == 0):
            raise unknown(f"a product by cublaslt with epilogue {call.epilogue} and beta {call.beta:g}")
        a, b, *_, out = buffers
        at_a, at_b, *at_others, at_out = map(alignment, places)
        more = iter(at_others)
        at_c, at_bias = (0 if given is None else next(more) for given in (call.c, call.bias))
        return Problem(
            a.shape, b.shape, out.shape, a.dtype, out.dtype, call.transpose_a, call.transpose_b, call.compute,
            call.alpha, (at_a, at_b, at_out), workspace, call.algorithm.decode("ascii", "replace"),
            call.beta, at_c, at_bias,
        )  # fmt: skip

    def default(self, problem: Problem) -> Way:
        described = _Described(self, problem)
        [(algorithm, need)] = described.proposals(1, problem.workspace, abi.IN_COMPUTE_TYPE, problem.alignments)
        return described.text(algorithm), need

    def candidates(self, problem: Problem, limit: int, deterministic: bool) -> list[Way]:
        # the text must hold wherever a plan puts the operands
        anywhere = replace(
            problem,
            alignments=(_LEAST_ALIGNED,) * 3,
            workspace=limit,
            algorithm="",
            c_alignment=min(problem.c_alignment, _LEAST_ALIGNED),
            bias_alignment=min(problem.bias_alignment, _LEAST_ALIGNED),
        )
        described = _Described(self, anywhere)
        reductions = abi.IN_COMPUTE_TYPE if deterministic else abi.IN_COMPUTE_TYPE | abi.IN_PLACE
        found: dict[str, int] = {}
        for algorithm, _ in described.proposals(_PROPOSALS, limit, reductions, anywhere.alignments):
            text = described.text(algorithm)
            try:
                _, found[text] = described.configured(text)
            except EnvironmentFault as error:
                if error.code != "R202":
                    raise
                continue  # its text does not say all of it
        return list(found.items())

    def prepare(self, problem: Problem) -> Product:
        described = _Described(self, problem)
        if problem.algorithm:
            algorithm, need = described.configured(problem.algorithm)
        else:
            [(algorithm, need)] = described.proposals(1, problem.workspace, abi.IN_COMPUTE_TYPE, problem.alignments)
        return Product(described, algorithm, need)

    def call(self, name: str, *args: Any) -> None:
        """A call that must succeed: R206."""
        abi.checked(name, int(getattr(self.library, name)(*args)))

    def made(self, name: str, *args: Any) -> int:
        """The object that a call makes and writes to its first argument, a place that is noted before."""
        out = ctypes.c_void_p()
        self._noted.append((partial(self._let_go, name, out), ()))
        self.call(f"{name}Create", ctypes.addressof(out), *args)
        return out.value or 0

    def _let_go(self, name: str, out: ctypes.c_void_p) -> None:
        """Destroy what lies there, once."""
        if out.value:
            destroy = partial(getattr(self.library, f"{name}Destroy"), out.value)
            _, status = unbroken((partial(setattr, out, "value", None), destroy))
            abi.checked(f"{name}Destroy", status)

    def set(self, name: str, target: int, attribute: int, value: Any) -> None:
        """Set an attribute of an object."""
        self.call(name, target, attribute, ctypes.addressof(value), ctypes.sizeof(value))


class _Described:
    """A problem in the library's words: its operation and the layouts of its matrices."""

    def __init__(self, lt: CublasLt, problem: Problem) -> None:
        self.lt, self.problem = lt, problem
        p = problem
        self.scale = ctypes.c_double if p.compute == "f64" else ctypes.c_float
        self._computes = abi.COMPUTE[p.compute], abi.TYPES["f64" if p.compute == "f64" else "f32"]
        self.operation = lt.made("cublasLtMatmulDesc", *self._computes)
        # the library's first operand is our second one
        for flag, transposed in ((abi.TRANSA, p.transpose_b), (abi.TRANSB, p.transpose_a)):
            lt.set("cublasLtMatmulDescSetAttribute", self.operation, flag, ctypes.c_int32(transposed))
        if p.bias_alignment:
            lt.set("cublasLtMatmulDescSetAttribute", self.operation, abi.EPILOGUE, ctypes.c_int32(abi.ADD_BIAS))
            self.set_bias(p.bias_alignment)
        count = p.out[0] if len(p.out) == 3 else 1
        layouts = []
        for shape, dtype in ((p.b, p.dtype), (p.a, p.dtype), (p.out, p.out_dtype)):
            rows, cols = shape[-2:]
            layout = lt.made("cublasLtMatrixLayout", abi.TYPES[dtype], cols, rows, cols)
            if len(shape) == 3:
                step = rows * cols if shape[0] > 1 else 0  # 0: one matrix for the whole stack
                lt.set("cublasLtMatrixLayoutSetAttribute", layout, abi.BATCH_COUNT, ctypes.c_int32(count))
                lt.set("cublasLtMatrixLayoutSetAttribute", layout, abi.BATCH_STRIDE, ctypes.c_int64(step))
            layouts.append(layout)
        self.operands = (*layouts, layouts[-1])

    def set_bias(self, address: int) -> None:
        """Where the bias is; for a choice, an address that is aligned like it."""
        self.lt.set("cublasLtMatmulDescSetAttribute", self.operation, abi.BIAS, ctypes.c_uint64(address))

    def proposals(
        self, count: int, workspace: int, reductions: int, alignments: tuple[int, int, int]
    ) -> list[tuple[bytes, int]]:
        """What the library proposes, best first: algorithms with the workspace that they need, ``count`` at most."""
        lt = self.lt
        preference = lt.made("cublasLtMatmulPreference")
        a, b, out = alignments
        c = self.problem.c_alignment or out
        values = {abi.MAX_WORKSPACE: ctypes.c_uint64(workspace), abi.REDUCTIONS: ctypes.c_uint32(reductions)}
        values |= {n: ctypes.c_uint32(bytes_) for n, bytes_ in zip(abi.ALIGNMENTS, (b, a, c, out))}
        for attribute, value in values.items():
            lt.set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
        results, found = ctypes.create_string_buffer(count * abi.RESULT), ctypes.c_int(0)
        places = (ctypes.addressof(results), ctypes.addressof(found))
        status = lt.library.cublasLtMatmulAlgoGetHeuristic(
            lt.handle, self.operation, *self.operands, preference, count, *places
        )
        rows = [results.raw[i * abi.RESULT : (i + 1) * abi.RESULT] for i in range(0 if status else found.value)]
        good = [
            (row[: abi.ALGORITHM], abi.workspace_of(row)) for row in rows if not int.from_bytes(row[72:76], "little")
        ]
        if not good:
            raise lt.refused(replace(self.problem, algorithm=""), "has no algorithm")
        return good

    def text(self, algorithm: bytes) -> str:
        """The configuration of an algorithm."""
        place = ctypes.create_string_buffer(algorithm, abi.ALGORITHM)
        words = []
        for name, attribute, kind in abi.CONFIGURATION:
            value, written = kind(), ctypes.c_size_t()
            self.lt.call(
                "cublasLtMatmulAlgoConfigGetAttribute", ctypes.addressof(place), attribute, ctypes.addressof(value),
                ctypes.sizeof(value), ctypes.addressof(written),
            )  # fmt: skip
            words.append(f"{name}={value.value}")
        return " ".join(words)

    def configured(self, text: str) -> tuple[bytes, int]:
        """The algorithm of a configuration, which the library need not look for, and the workspace that it needs. R202
        unless it computes this problem with its workspace and addresses."""
        lt, p = self.lt, replace(self.problem, algorithm=text)
        values = abi.values_of(text)
        if values is None:
            raise lt.refused(p, "that is no configuration of an algorithm")
        place, result = ctypes.create_string_buffer(abi.ALGORITHM), ctypes.create_string_buffer(abi.RESULT)
        types = (abi.TYPES[p.dtype], abi.TYPES[p.dtype], abi.TYPES[p.out_dtype], abi.TYPES[p.out_dtype])
        status = lt.library.cublasLtMatmulAlgoInit(
            lt.handle, *self._computes, *types, values[0].value, ctypes.addressof(place)
        )
        if status:
            raise lt.refused(p, f"it has no algorithm with this id (status {status})")
        for (_, attribute, _), value in list(zip(abi.CONFIGURATION, values))[1:]:
            lt.set("cublasLtMatmulAlgoConfigSetAttribute", ctypes.addressof(place), attribute, value)
        status = lt.library.cublasLtMatmulAlgoCheck(
            lt.handle, self.operation, *self.operands, ctypes.addressof(place), ctypes.addressof(result)
        )
        if status:
            raise lt.refused(p, f"it does not support that (status {status})")
        if (need := abi.workspace_of(result.raw)) > p.workspace:
            raise lt.refused(p, f"it needs a workspace of {need} bytes, not {p.workspace}")
        b, a, c, out = (self._least_alignment(place, attribute) for attribute in abi.ALIGNMENTS_NEEDED)
        given, least = (*p.alignments, p.c_alignment or p.alignments[2]), (a, b, out, c)
        if any(have < need for have, need in zip(given, least)):
            raise lt.refused(p, f"it needs addresses that are multiples of {a}, {b} and {out}, not {p.alignments}")
        return place.raw, need

    def _least_alignment(self, algorithm: Any, attribute: int) -> int:
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        self.lt.call(
            "cublasLtMatmulAlgoCapGetAttribute", ctypes.addressof(algorithm), attribute, ctypes.addressof(value),
            ctypes.sizeof(value), ctypes.addressof(written),
        )  # fmt: skip
        return value.value


class Product:
    """A matrix product that is ready to run. ``algorithm``: its configuration, as text; ``workspace``: the bytes that
    it needs."""

    def __init__(self, described: _Described, algorithm: bytes, workspace: int) -> None:
        self._described, self._lt, self.workspace = described, described.lt, workspace
        problem = described.problem
        self._alpha, self._beta = described.scale(problem.alpha), described.scale(problem.beta)
        self._algorithm = ctypes.create_string_buffer(algorithm, abi.ALGORITHM)
        self.algorithm = described.problem.algorithm or described.text(algorithm)

    def run(self, operands: Sequence[int], workspace: int, stream: Any) -> None:
        a, b, *others, out = operands
        problem = self._described.problem
        if problem.bias_alignment:
            self._described.set_bias(others[-1])
        c = others[0] if problem.c_alignment else out
        layout_b, layout_a, layout_out, _ = self._described.operands
        self._lt.call(
            "cublasLtMatmul", self._lt.handle, self._described.operation, ctypes.addressof(self._alpha),
            b, layout_b, a, layout_a, ctypes.addressof(self._beta), c, layout_out, out, layout_out,
            ctypes.addressof(self._algorithm), workspace, self.workspace, int(stream),
        )  # fmt: skip
