"""The C interface of cuBLASLt: its functions, and the constants of its ABI, which are stable since CUDA 11."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Final

from dslc.base.errors import EnvironmentFault
from dslc.runtime.cuda.libraries.library import missing

TYPES: Final = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}  # cudaDataType
COMPUTE: Final = {"f32": 68, "f64": 70, "tf32": 77}  # cublasComputeType_t: CUBLAS_COMPUTE_32F, _64F, _32F_FAST_TF32
TRANSA, TRANSB, EPILOGUE, BIAS = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t; the last is a pointer
ADD_BIAS = 4  # cublasLtEpilogue_t
BATCH_COUNT, BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
MAX_WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t: a, b, c, d
ALIGNMENTS_NEEDED: Final = (16, 17, 18, 19)  # cublasLtMatmulAlgoCapAttributes_t, in bytes: a, b, c, d
#: cublasLtReductionScheme_t: parts of a sum that is split are kept in f32 and added in a fixed order, neither in the
#: output's type nor by atomics; or they are added in place, in the order in which they are ready.
IN_COMPUTE_TYPE, IN_PLACE = 2, 1
#: The parameters of an algorithm in the order of its text: name, cublasLtMatmulAlgoConfigAttributes_t, C type.
#: ``splitk`` is -1 for algorithms that choose the number of parts by themselves.
CONFIGURATION: Final[tuple[tuple[str, int, Any], ...]] = (
    ("id", 0, ctypes.c_int32),
    ("tile", 1, ctypes.c_uint32),
    ("stages", 6, ctypes.c_uint32),
    ("splitk", 2, ctypes.c_int32),
    ("reduction", 3, ctypes.c_uint32),
    ("swizzle", 4, ctypes.c_uint32),
    ("custom", 5, ctypes.c_uint32),
    ("inner", 7, ctypes.c_uint16),
    ("cluster", 8, ctypes.c_uint16),
)
_TEXT: Final = re.compile(" ".join(f"{name}=(0|-?[1-9][0-9]{{0,9}})" for name, _, _ in CONFIGURATION), re.ASCII)
ALGORITHM: Final = 64  # bytes of cublasLtMatmulAlgo_t
RESULT: Final = 96  # bytes of cublasLtMatmulHeuristicResult_t: algorithm, u64 workspace, i32 status, ...

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
    "cublasLtMatmulAlgoInit": (_P, *(_I,) * 7, _P),
    "cublasLtMatmulAlgoConfigGetAttribute": (_P, _I, _P, _Z, _P),
    "cublasLtMatmulAlgoConfigSetAttribute": (_P, _I, _P, _Z),
    "cublasLtMatmulAlgoCapGetAttribute": (_P, _I, _P, _Z, _P),
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
        raise missing("cuBLASLt", error) from error
    library.cublasLtGetVersion.argtypes, library.cublasLtGetVersion.restype = (), _Z
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, _I
    return library


def checked(name: str, status: int) -> None:
    """R206 unless a call succeeded."""
    if status:
        raise EnvironmentFault("R206", f"{name} failed with status {status}", place="cuBLASLt")


def workspace_of(result: bytes) -> int:
    """The workspace that a ``cublasLtMatmulHeuristicResult_t`` names, in bytes."""
    return int.from_bytes(result[ALGORITHM : ALGORITHM + 8], "little")


def values_of(text: str) -> list[Any] | None:
    """The parameters that a text gives, as C values; None if it is no configuration."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    values = [kind(int(word)) for word, (_, _, kind) in zip(match.groups(), CONFIGURATION)]
    return values if all(v.value == int(word) for v, word in zip(values, match.groups())) else None
