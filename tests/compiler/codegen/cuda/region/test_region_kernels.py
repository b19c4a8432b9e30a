"""Kernels compiled for GPUs without one: what their PTX may hold, and that its bytes depend on nothing else.

A run compiles a share of the regions of the samples of op_samples, chosen by DSLC_PART; all with DSLC_SOAK=1.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels.compiled_regions import distinct, ptx_of
from gpu_kernels.kernel_sources import source_of
from gpu_kernels.sample_nodes import OPS
from llvmlite import binding
from llvmlite import ir as llvm
from places import with_support
from thinning import taken

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.llvm import indexing as llvm_indexing
from dslc.compiler.codegen.cuda.llvm.division import magic_of
from dslc.compiler.codegen.cuda.llvm.lanes import Lanes
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.kernel import SizeGenericRegion
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.source import Call, Source
from dslc.compiler.codegen.cuda.region.thread_mapping import Rows
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.builder import RegionBuilder
from dslc.compiler.codegen.region.ir import Access, Region
from dslc.compiler.codegen.region.pointwise import copy
from dslc.compiler.codegen.region.queries import functions_of
from dslc.compiler.codegen.targets import ARCHITECTURES
from dslc.compiler.ir.graph import Input, Kind
from dslc.compiler.ir.op import Builder
from dslc.compiler.ir.scalar import call
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.toolchain import numba_cuda

pytestmark = pytest.mark.slow

#: Their accurate forms contract, widen or keep a table by themselves.
_CONTRACTED = {
    "exp",
    "expm1",
    "log",
    "log1p",
    "tanh",
    "erf",
    "sin",
    "cos",
    "pow",
    "mod",
    "floordiv",
    "tan",
    "asin",
    "acos",
}
_CONTRACTED |= {"atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "erfc"}
_REDUCED = {"sin", "cos", "tan"}  # large arguments, by a table in local memory and a product in f64


def assert_clean(where: str, launch: Launch, ptx: str) -> None:
    functions = functions_of(launch.spec.region if isinstance(launch.spec, SizeGenericRegion) else launch.spec)
    arguments = len(launch.reads) + len(launch.writes) + sum(kind == "i64" for kind, _ in launch.scalar_args)
    assert ptx.startswith(".version") and f".visible .entry {launch.symbol}(" in ptx, where
    assert "NumbaEnv" not in ptx and not re.search(r"\.loc\b", ptx) and ".file" not in ptx and "/" not in ptx, where
    assert len(re.findall(r"\.param \.u64", ptx)) == arguments, where
    if not functions & _CONTRACTED and "fma(" not in source_of(launch.symbol, launch.code).text:
        assert not re.search(r"\b(?:fma|mad)\.\S*f(?:32|64)", ptx), f"{where} contracts"
    if not functions & _REDUCED:
        assert ".local" not in ptx, f"{where} uses local memory"
        if "F64" not in repr(launch.spec) and not re.search(
            r"[IU](32|64).*BF?16|BF?16.*[IU](32|64)", repr(launch.spec)
        ):
            assert ".f64" not in ptx, f"{where} computes in f64"


def test_regions_compile_for_every_architecture(allowed: Callable[[float, float], bool]) -> None:
    """About 100 ms of the processor each, which is printed."""
    chosen = taken(distinct(), 40)
    seconds = []
    for number, (where, launch) in enumerate(chosen):
        begin = time.process_time()
        assert_clean(where, launch, ptx_of(launch, ARCHITECTURES[number % 3]))
        seconds.append(time.process_time() - begin)
    middle = float(np.median(seconds))
    print(f"{len(seconds)} kernels, {1e3 * middle:.0f} ms each in the middle, {1e3 * max(seconds[1:]):.0f} ms at most")
    assert allowed(middle, 0.5)


def region(kind: str, dtype: DType, size: int = 4096) -> Region:
    """x * y + x, relu with a bias, a softmax, or a transpose, of 512 rows."""
    if kind == "softmax":
        x = Input("x", Kind.DATA, TensorType(dtype, (512, size)))
        [launch] = lower(Builder(name="here").node(OPS["softmax"], x.value, axis=1)) or []
        softmax: Region = launch.spec
        return softmax
    if kind == "transpose":
        return copy((512, size), Access(dtype, (1, 512)), Access(dtype, (size, 1)))
    wide_strides = (size, 1)
    second = Access(dtype, (0, 1) if kind == "bias" else wide_strides)
    builder = RegionBuilder((512, size), (), [Access(dtype, wide_strides), second], [Access(dtype, wide_strides)])
    builder.row()
    x, y = builder.input(0), builder.input(1)
    product = builder.let(x * y + x if kind == "chain" else call("max", x + y, 0.0), dtype)
    builder.store(0, product)
    return builder.region()


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16, DType.F64])
@pytest.mark.parametrize("kind", ["chain", "bias", "softmax", "transpose"])
def test_neighbours_are_read_and_written_16_bytes_at_once(kind: str, dtype: DType) -> None:
    spec = region(kind, dtype)
    ptx = ptx_of(Launch(spec, (), ()), "sm_90")
    accesses = re.findall(r"\b(?:ld|st)\.global\.\S+", ptx)
    wide = {"ld.global.v4.f32", "ld.global.v4.u32", "ld.global.v2.f64", "st.global.v4.f32", "st.global.v4.u32",
            "st.global.v2.f64", "ld.global.v4.b32", "st.global.v4.b32"}  # fmt: skip
    assert accesses and set(accesses) <= wide
    if kind == "softmax":
        cut = schedule(spec)
        assert isinstance(cut, Rows) and len(accesses) == 2 * cut.held, "a row is read once and written once"


def test_an_offset_or_an_odd_size_narrows_the_access_and_not_the_vector() -> None:
    one = region("chain", DType.F32)
    moved = replace(one, inputs=(replace(one.inputs[0], offset=2), one.inputs[1]))
    ptx = ptx_of(Launch(moved, (), ()), "sm_90")
    assert set(re.findall(r"\bld\.global\.\S+", ptx)) == {"ld.global.v2.f32", "ld.global.v4.f32"}
    assert re.findall(r"\bst\.global\.\S+", ptx) == ["st.global.v4.f32"]


def test_indices_are_64_bits_wide_where_they_must_be_and_only_there() -> None:
    small, large = region("chain", DType.F32, 1 << 21), region("chain", DType.F32, 1 << 22)  # 2 ** 30 and 2 ** 31
    assert "to_i64" not in source_of("k", small).text
    assert "to_i64(block())" in source_of("k", large).text
    assert ptx_of(Launch(large, (), ()), "sm_90")
    assert cuda_compile.geometry(large).grid == (1 << 21, 1, 1)


def test_a_quotient_by_a_constant_is_no_division() -> None:
    odd = RegionBuilder((33, 5, 7), (), [Access(DType.F32, (35, 1, 5))], [Access(DType.F32, (35, 7, 1))])
    odd.row()
    odd.store(0, odd.let(odd.input(0), DType.F32))
    assert not re.search(r"\b(?:div|rem)\.", ptx_of(Launch(odd.region(), (), ()), "sm_90"))


_COMPILE = """
import sys
from gpu_kernels.compiled_regions import distinct
from gpu_kernels.compiled_regions import ptx_of
chosen = [x for _, x in list(distinct())[5::400]]
if sys.argv[1] == "backwards":
    chosen.reverse()
ptx = {x.symbol: ptx_of(x, "sm_90") for x in chosen}
print("\\n".join(ptx[s] for s in sorted(ptx)))
"""


def test_the_bytes_depend_neither_on_the_process_nor_on_the_order(tmp_path: Path) -> None:
    texts = [
        subprocess.run(
            [sys.executable, "-c", _COMPILE, order],
            env=with_support(PYTHONHASHSEED=seed),
            cwd=cwd,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order, seed, cwd in (("forwards", "1", tmp_path), ("backwards", "2", "/"))
    ]
    assert texts[0] == texts[1] and texts[0].count(".visible .entry") >= 3


def test_sizes_are_numbers_that_a_kernel_without_reductions_is_called_with() -> None:
    def added(*shapes: tuple[int, ...]) -> Launch:
        values = [Input(f"x{i}", Kind.DATA, TensorType(DType.BF16, s)).value for i, s in enumerate(shapes)]
        [launch] = lower(Builder(name="here").node(OPS["add"], *values)) or []
        return launch

    one, other, odd = (added((rows, columns), (columns,)) for rows, columns in ((512, 64), (96, 2048), (512, 63)))
    assert one.symbol == other.symbol != odd.symbol
    assert one.scalar_args != other.scalar_args and len(one.scalar_args) == len(other.scalar_args)
    assert cuda_compile.geometry(one.spec) != cuda_compile.geometry(other.spec)
    wide = [added((rows, 1 << 20), (1 << 20,)) for rows in (1 << 12, 1 << 13)]  # i64 is divided by constants
    assert wide[0].symbol == wide[1].symbol != one.symbol and all(kind == "i64" for kind, _ in wide[0].scalar_args)


def test_indices_are_divided_by_sizes_that_are_not_known() -> None:
    """The two functions as LLVM compiles them for this processor."""
    i32, module = llvm.IntType(32), llvm.Module()
    for writer in (llvm_indexing.divided, llvm_indexing.rest):
        function = llvm.Function(module, llvm.FunctionType(i32, [i32] * 3), writer.__name__)
        builder = llvm.IRBuilder(function.append_basic_block())
        builder.ret(writer(builder, *(Lanes(DType.I32, [argument]) for argument in function.args)).value)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    with binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine) as engine:
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int32] * 3)
        divided, rest = (kind(engine.get_function_address(name)) for name in ("divided", "rest"))
        rng = np.random.default_rng(0)
        for size in (1, 2, 3, 1000, (1 << 30) + 1, (1 << 31) - 1, *map(int, rng.integers(1, 1 << 31, 100))):
            for x in {0, 1, size - 1, size, (1 << 31) - 1, *map(int, rng.integers(0, 1 << 31, 20))}:
                quotient = divided(x, *magic_of(size))
                assert (quotient, rest(x, quotient, size)) == divmod(x, size)


@pytest.mark.parametrize(
    "text",
    [
        "def k(p0):\n    while thread():\n        pass\n",
        "def k(p0):\n    t1 = thread() + 1\n",
        "def k(p0):\n    t1 = p0.real\n",
        "c0 = open('x')\ndef k(p0):\n    t1 = thread()\n",
    ],
)
def test_a_text_is_made_of_assignments_calls_and_loops(text: str) -> None:
    words = r"not an? (statement|expression) of a kernel|is not a valid DType"
    with pytest.raises((TypeError, ValueError), match=words):
        numba_cuda.ptx_of(Source("k", text, 1, 32, (Call("thread"),)), "sm_90")


def test_a_name_that_changes_in_a_loop_has_its_last_value_after_it() -> None:
    """Four turns of ``t = t + t``, which NVVM unrolls to a shift by four bits: the thread's number times 16."""
    loop = "    for t2 in range(4):\n        t1 = plus(t1, t1)\n"
    text = f"def k(p0):\n    t1 = thread()\n{loop}    store_i32_1(p0, t1, t1)\n"
    calls = (Call("thread"), Call("plus"), Call("store", (DType.I32, 1)))
    ptx = numba_cuda.ptx_of(Source("k", text, 1, 32, calls), "sm_90").decode("ascii")
    assert re.search(r"shl\.b32\s+%r\d+, %r\d+, 4;|mul\.lo\.s32\s+%r\d+, %r\d+, 16;", ptx), ptx
