"""Matrix products by cuBLASLt, through ctypes: a dozen functions of a C interface that is stable since CUDA 11.

The bindings of nvmath-python do the same, but take 26 MB and half a second of imports; the constants below are part of
the library's ABI. A plan's matrices are row-major, cuBLASLt's are column-major: the same bytes are the transpose. So
the call computes ``out^T = op(b)^T @ op(a)^T``, with the operands swapped and every flag kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import EnvironmentFault
from dslc.base.turns import unbroken
from dslc.runtime.cuda.libraries.choices import Choice

if TYPE_CHECKING:
    from dslc.runtime.cuda.libraries.checked_calls import Noted

_TYPES: Final = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}  # cudaDataType
_COMPUTE: Final = {"f32": 68, "f64": 70, "tf32": 77}  # cublasComputeType_t: CUBLAS_COMPUTE_32F, _64F, _32F_FAST_TF32
_TRANSA, _TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_MAX_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t: a, b, c, d
#: Split reductions keep their parts in f32 and add them in a fixed order: neither in the output's type, nor by atomics.
_IN_COMPUTE_TYPE: Final = 2
_ALGORITHM: Final = 64  # bytes of cublasLtMatmulAlgo_t
_RESULT: Final = 96  # bytes of cublasLtMatmulHeuristicResult_t: algorithm, u64 workspace, i32 status, ...
_ALIGNED: Final = 256  # bytes: the best alignment that the library knows, and the required one of a workspace

_P, _I, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "cublasLtCreate": (_P,),
    "cublasLtDestroy": (_P,),
    "cublasLtMatmulDescCreate": (_P, _I, _I),
    "cublasLtMatmulDescSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatrixLayoutCreate": (_P, _I, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_P,) * 7, _I, _P, _P),
    "cublasLtMatmulAlgoCheck": (_P,) * 8,
    "cublasLtMatmul": (*(_P,) * 14, _Z, _P),
}


def load_cublaslt() -> Any:
    """The library. EnvironmentFault R205 if it is not installed."""
    try:
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
        library = ctypes.CDLL(path)
    except (ImportError, OSError, RuntimeError) as error:  # pathfinder's own error is a RuntimeError
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentFault(
            "R205",
            f"cuBLASLt cannot be loaded: {why}",
            help="pip install 'dslc[vendor]', or build with --providers own",
        ) from error
    library.cublasLtGetVersion.argtypes, library.cublasLtGetVersion.restype = (), _Z
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, _I
    return library


@dataclass(frozen=True, slots=True)
class Problem:
    """``out = alpha * op(a) @ op(b)``. Shapes ``[m, k]`` or ``[z, m, k]``; ``alignments``: the alignments of the
    addresses of a, b and out in bytes, 256 at most; ``workspace``: its size in bytes; ``algorithm``: empty for the
    library's own choice."""

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
    algorithm: bytes = b""

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.a)} by {self.dtype}{list(self.b)} to {self.out_dtype}{list(self.out)}"


def version_text(number: int) -> str:
    """130100 as ``13.1.0``, the version format of cuBLASLt and cuDNN."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def alignment(address: int) -> int:
    """The largest power of two that divides an address, 256 at most."""
    return min(address & -address, _ALIGNED) if address else _ALIGNED


def _check(name: str, status: int) -> None:
    if status:
        raise EnvironmentFault("R206", f"{name} failed with status {status}", place="cuBLASLt")


class CublasLt:
    """A handle of the library. ``library``: that of ``load_cublaslt``, or a substitute in tests. The device's context
    must be current in every call."""

    def __init__(self, library: Any, noted: Noted) -> None:
        """``noted``: where the handle is noted."""
        self._library = library
        self._handle = self._made(noted, "cublasLt")

    @property
    def version(self) -> str:
        """``13.1.0``"""
        return version_text(int(self._library.cublasLtGetVersion()))

    def product(self, problem: Problem, noted: Noted) -> Product:
        """A product that is ready to run. EnvironmentFault R202 where the library has no algorithm that takes no more
        than the workspace."""
        return Product(self, problem, noted)

    def _call(self, name: str, *args: Any) -> None:
        _check(name, int(getattr(self._library, name)(*args)))

    def _made(self, noted: Noted, name: str, *args: Any) -> int:
        """The object that a call makes and writes to its first argument, a place that is noted before."""
        out = ctypes.c_void_p()
        noted.append((partial(self._let_go, name, out), ()))
        self._call(f"{name}Create", ctypes.addressof(out), *args)
        return out.value or 0

    def _let_go(self, name: str, out: ctypes.c_void_p) -> None:
        """Destroy what lies there, once."""
        if out.value:
            destroy = partial(getattr(self._library, f"{name}Destroy"), out.value)
            _, status = unbroken((partial(setattr, out, "value", None), destroy))
            _check(f"{name}Destroy", status)

    def _set(self, name: str, target: int, attribute: int, value: Any) -> None:
        self._call(name, target, attribute, ctypes.addressof(value), ctypes.sizeof(value))


class Product:
    """One matrix product: its descriptors, and ``algorithm``, the library's or the given one, as bytes."""

    def __init__(self, lt: CublasLt, problem: Problem, noted: Noted) -> None:
        self._lt, self._problem = lt, problem
        made, p = partial(lt._made, noted), problem
        scale = ctypes.c_double if p.compute == "f64" else ctypes.c_float
        self._alpha, self._beta = scale(p.alpha), scale(0.0)
        scale_type = _TYPES["f64" if p.compute == "f64" else "f32"]
        self._operation = made("cublasLtMatmulDesc", _COMPUTE[p.compute], scale_type)
        # the library's first operand is our second one
        for flag, transposed in ((_TRANSA, p.transpose_b), (_TRANSB, p.transpose_a)):
            lt._set("cublasLtMatmulDescSetAttribute", self._operation, flag, ctypes.c_int32(transposed))
        count = p.out[0] if len(p.out) == 3 else 1
        self._layouts = []
        for shape, dtype in ((p.b, p.dtype), (p.a, p.dtype), (p.out, p.out_dtype)):
            rows, cols = shape[-2:]
            layout = made("cublasLtMatrixLayout", _TYPES[dtype], cols, rows, cols)
            if len(shape) == 3:
                step = rows * cols if shape[0] > 1 else 0  # 0: one matrix for the whole stack
                lt._set("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_COUNT, ctypes.c_int32(count))
                lt._set("cublasLtMatrixLayoutSetAttribute", layout, _BATCH_STRIDE, ctypes.c_int64(step))
            self._layouts.append(layout)
        self._algorithm = ctypes.create_string_buffer(p.algorithm or self._heuristic(made), _ALGORITHM)
        if p.algorithm:
            self._check()

    @property
    def algorithm(self) -> bytes:
        return self._algorithm.raw

    def choice(self) -> Choice:
        """The algorithm, to be stored."""
        return Choice("", self.algorithm)

    def _operands(self) -> Sequence[int]:
        b, a, out = self._layouts
        return (b, a, out, out)

    def _heuristic(self, made: Callable[..., int]) -> bytes:
        """The first algorithm that the library proposes."""
        lt, p = self._lt, self._problem
        preference = made("cublasLtMatmulPreference")
        a, b, out = p.alignments
        values = {_MAX_WORKSPACE: ctypes.c_uint64(p.workspace), _REDUCTIONS: ctypes.c_uint32(_IN_COMPUTE_TYPE)}
        values |= {n: ctypes.c_uint32(bytes_) for n, bytes_ in zip(_ALIGNMENTS, (b, a, out, out))}
        for attribute, value in values.items():
            lt._set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
        result, found = ctypes.create_string_buffer(_RESULT), ctypes.c_int(0)
        places = (ctypes.addressof(result), ctypes.addressof(found))
        status = lt._library.cublasLtMatmulAlgoGetHeuristic(
            lt._handle, self._operation, *self._operands(), preference, 1, *places
        )
        state = int.from_bytes(result.raw[_ALGORITHM + 8 : _ALGORITHM + 12], "little")
        if status or not found.value or state:
            raise self._unknown("has no algorithm")
        return result.raw[:_ALGORITHM]

    def _check(self) -> None:
        """Checks that the library supports the given algorithm for this product."""
        result = ctypes.create_string_buffer(_RESULT)
        places = (ctypes.addressof(self._algorithm), ctypes.addressof(result))
        status = self._lt._library.cublasLtMatmulAlgoCheck(
            self._lt._handle, self._operation, *self._operands(), *places
        )
        need = int.from_bytes(result.raw[_ALGORITHM : _ALGORITHM + 8], "little")
        if status or need > self._problem.workspace:
            raise self._unknown("does not accept the plan's algorithm")

    def _unknown(self, what: str) -> EnvironmentFault:
        return EnvironmentFault(
            "R202",
            f"cuBLASLt {what} for {self._problem}",
            place="cuBLASLt",
            help="build with --providers own",
        )

    def run(self, a: int, b: int, out: int, workspace: int, stream: Any) -> None:
        """Enqueue the product. ``workspace``: the address of the problem's workspace, a multiple of 256."""
        layout_b, layout_a, layout_out, _ = self._operands()
        self._lt._call(
            "cublasLtMatmul", self._lt._handle, self._operation, ctypes.addressof(self._alpha),
            b, layout_b, a, layout_a, ctypes.addressof(self._beta), out, layout_out, out, layout_out,
            ctypes.addressof(self._algorithm), workspace, self._problem.workspace, int(stream),
        )  # fmt: skip
