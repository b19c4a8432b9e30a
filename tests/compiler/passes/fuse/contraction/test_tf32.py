"""tf32: products of f32 take their factors as TF32 where the precision says so, by our kernels and by the libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from graphs.random_graphs import graph_of, input_of
from places import MODELS

from dslc.base.errors import BuildError
from dslc.cli.commands.verify import options_again
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.contraction.kernel import Contract
from dslc.compiler.codegen.cuda.libraries.cublaslt import VendorGemm
from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConv
from dslc.compiler.cost import machine_of, roof
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.options import Options, precision_of, recorded_options
from dslc.compiler.passes.fuse.contraction.tf32 import tf32
from dslc.compiler.pipeline import build, compile_entry

LENET = MODELS / "lenet.nn"
PLAIN = {"transpose_a": False, "transpose_b": False}


def test_a_product_of_f32_and_one_of_16_bits(golden: Callable[[str, str], None]) -> None:
    b = Builder(name="fc")
    x, w = (input_of(n, Kind.PARAM, 8, 8) for n in "xw")
    half = input_of("h", Kind.DATA, 8, 8, dtype=DType.BF16)
    graph = graph_of(
        [x, w, half],
        {
            "result.y": b(OPS["matmul"], x.value, w.value, **PLAIN),
            "result.h": b(OPS["matmul"], half.value, half.value, **PLAIN),
        },
    )
    after = tf32(graph)
    assert tf32(after) is after, "a second run changes something"
    golden("passes/tf32.txt", f"before\n\n{format_graph(graph)}\nafter\n\n{format_graph(after)}")


@pytest.mark.parametrize("provider", ["own", "vendor"])
def test_all_products_of_a_training_step(provider: str) -> None:
    """Forward, both gradients, with and without what is done to their results; not the convolution of one channel."""
    checked = check_file(str(LENET))
    program, _ = compile_entry(checked, "train_step", {"B": 512}, Options("sm_90", provider, "tf32"))
    specs = [launch.spec for launches in program.kernels.values() for launch in launches]
    own = [s.tf32 for s in specs if isinstance(s, Contract)]
    calls = [s.compute for s in specs if isinstance(s, VendorGemm | VendorConv)]
    assert all(own) and set(calls) <= {"tf32"}
    assert len(own) + len(calls) >= 12 and bool(calls) is (provider == "vendor")


@pytest.mark.parametrize(("provider", "precision"), [("vendor", "tf32"), ("vendor", "f32"), ("own", "tf32")])
def test_images_have_channels_last_where_a_library_rounds(provider: str, precision: str) -> None:
    """cuDNN's TF32 algorithms for channels first move them at each call, in a workspace as large as the tensors."""
    program, _ = compile_entry(check_file(str(LENET)), "train_step", {"B": 512}, Options("sm_90", provider, precision))
    names = [node.op.name for node in program.kernels if node.op.name.startswith("conv")]
    last = (provider, precision) == ("vendor", "tf32")
    assert len(names) >= 3 and {name.endswith("_last") for name in names} == {last}


def test_f32_stays_f32() -> None:
    program, _ = compile_entry(check_file(str(LENET)), "train_step", {"B": 64}, Options("sm_90", "vendor", "f32"))
    specs = [launch.spec for launches in program.kernels.values() for launch in launches]
    assert not any(s.tf32 for s in specs if isinstance(s, Contract))
    assert all(s.compute == "f32" for s in specs if isinstance(s, VendorGemm | VendorConv))


def test_the_model_of_time_knows_it() -> None:
    b, (x, w) = Builder(name="fc"), (input_of(n, Kind.PARAM, 512, 512).value for n in "xw")
    plain, fast = (b.node(OPS["matmul"], x, w, **PLAIN, **more) for more in ({}, {"tf32": True}))
    assert roof(fast, machine_of("sm_90"))[1] < roof(plain, machine_of("sm_90"))[1] / 4


def test_an_artifact_says_so_and_is_built_again_so() -> None:
    """In options that decide the bytes; the same source in f32 is another build."""
    checked = check_file(str(LENET))
    options = Options("sm_90", "own", "tf32", {"train": {"B": (8,)}})
    recorded = [recorded_options(checked, replace(options, precision=name)) for name in ("tf32", "f32")]
    assert [r["precision"] for r in recorded] == [{"compute": n, "params": "f32"} for n in ("tf32", "f32")]
    again = options_again(recorded[0], "lenet")
    assert (again.precision, again.target, again.provider) == ("tf32", "sm_90", "own")
    assert precision_of(checked, again).tf32 and not precision_of(checked, options_again(recorded[1], "lenet")).tf32


def test_a_cpu_has_none() -> None:
    with pytest.raises(BuildError, match="E0602"):
        build(check_file(str(LENET)), Options("cpu", precision="tf32"))
