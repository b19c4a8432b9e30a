"""tf32: products of f32 take their factors as TF32 where the precision says so, by our kernels and by the libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from graphs.random_graphs import graph_of, input_of
from places import MODELS

from dslc.base.errors import BuildError
from dslc.cli.commands.verify import options_again
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.attention.tiled import TiledAttention
from dslc.compiler.codegen.cuda.contraction.kernel import Contract
from dslc.compiler.codegen.cuda.libraries.cublaslt import VendorGemm, VendorSum
from dslc.compiler.codegen.cuda.libraries.cudnn import VendorConv, VendorConvSum
from dslc.compiler.cost import machine_of, roof
from dslc.compiler.ir.graph import Kind
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.text import format_graph
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.contraction import product_and_epilogue
from dslc.compiler.options import Options, precision_of, recorded_options
from dslc.compiler.passes.fuse.contraction.tf32 import tf32
from dslc.compiler.passes.rounding import tf32_rounded
from dslc.compiler.pipeline import Program, build, compile_entry

LENET = MODELS / "lenet.nn"
PLAIN = {"transpose_a": False, "transpose_b": False}


def rounding_of(program: Program) -> tuple[list[bool], list[str]]:
    """Whether each own product rounds its factors, and what each call of a library computes in."""
    specs = [launch.spec for launches in program.kernels.values() for launch in launches]
    calls = [s.gemm if isinstance(s, VendorSum) else s.conv if isinstance(s, VendorConvSum) else s for s in specs]
    products = [s.compute for s in calls if isinstance(s, VendorGemm | VendorConv)]
    return [s.tf32 for s in specs if isinstance(s, Contract)], products


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
    own, calls = rounding_of(program)
    assert all(own) and set(calls) <= {"tf32"}
    assert len(own) + len(calls) >= 12 and bool(calls) is (provider == "vendor")


BLOCK = """nn 1
dim B in 1..4096 = 16

model Block(x: [B, 64, 16, 16]) -> [B, 256, 128] {
  y = relu(conv(x, 128, 3, pad=1) + (conv(x, 128, 1) as short))
  t = transpose(reshape(y, [B, 128, 256]), [0, 2, 1])
  q, k, v = linear(t, 128) as q, linear(t, 128) as k, linear(t, 128) as v
  u = t + (sdpa(q, k, v) |> linear(128) as out)
  return u + (u |> linear(512) as up |> gelu |> linear(128) as down)
}

train Block(target: [B, 256, 128]) {
  loss      = mse(output, target)
  optimizer = sgd(lr=0.1)
}
"""


@pytest.mark.parametrize(
    ("provider", "entry", "wanted"),
    [("own", "train_step", set()), ("vendor", "train_step", {VendorSum}), ("vendor", "predict", {VendorSum})],
)
def test_products_with_what_is_added_to_them_and_attention(
    provider: str, entry: str, wanted: set[type], tmp_path: Path
) -> None:
    """A bias, a residual, relu: in the call of a library, and in the kernel that stores the sums."""
    (tmp_path / "block.nn").write_text(BLOCK, encoding="utf-8")
    program, _ = compile_entry(
        check_file(str(tmp_path / "block.nn")), entry, {"B": 16}, Options("sm_90", provider, "tf32")
    )
    names = {node.op.name for node in program.kernels}
    assert "contraction" in names and names & {"sdpa", "strided_sdpa"}
    assert wanted <= {type(launch.spec) for launches in program.kernels.values() for launch in launches}
    own, calls = rounding_of(program)
    assert all(own) and set(calls) <= {"tf32"}
    assert len(own) >= (1 if provider == "own" else 0)
    assert any(isinstance(x.spec, TiledAttention) for launches in program.kernels.values() for x in launches)


@pytest.mark.parametrize(("precision", "in_memory"), [("tf32", False), ("f32", True)])
def test_the_scores_of_attention_are_not_in_memory(precision: str, in_memory: bool, tmp_path: Path) -> None:
    """Of 256 queries and keys, in a training step of 64 images: neither in scratch blocks nor as a value."""
    (tmp_path / "block.nn").write_text(BLOCK, encoding="utf-8")
    checked = check_file(str(tmp_path / "block.nn"))
    program, _ = compile_entry(checked, "train_step", {"B": 64}, Options("sm_90", "own", precision))
    nodes = [node for node in program.kernels if node.op.kernel_kind.startswith("attention")]
    blocks = [block.bytes for node in nodes for launch in program.kernels[node] for block in launch.scratch]
    scores = 64 * 256 * 256 * 4
    assert len(nodes) == 2 and max(blocks) == (scores if in_memory else 64 * 256 * 4)
    assert program.memory is not None and program.memory.scratch.keys() >= {nodes[1]}
    assert not any(v.type.bytes >= scores and v.type.ints[-2:] == (256, 256) for v in program.memory.places)


@pytest.mark.parametrize(("provider", "precision"), [("vendor", "tf32"), ("vendor", "f32"), ("own", "tf32")])
def test_images_have_channels_last_where_a_library_rounds(provider: str, precision: str) -> None:
    """cuDNN's TF32 algorithms for channels first move them at each call, in a workspace as large as the tensors."""
    program, _ = compile_entry(check_file(str(LENET)), "train_step", {"B": 512}, Options("sm_90", provider, precision))
    names = [node.op.name for node in program.kernels if node.op.name.startswith("conv")]
    last = (provider, precision) == ("vendor", "tf32")
    assert len(names) >= 3 and {name.endswith("_last") for name in names} == {last}


def test_the_product_of_a_contraction_is_marked_with_it() -> None:
    """Also a convolution's, which a library computes with its bias and residual."""
    x, w = (input_of(n, Kind.DATA, *shape).value for n, shape in (("x", (2, 3, 8, 8)), ("w", (4, 3, 3, 3))))
    each = (("dilation", (1, 1)), ("groups", 1), ("pad", (1, 1)), ("stride", (1, 1)))
    plain = Builder(name="conv").node(OPS["contraction"], x, w, product="conv", each=each, body=(("relu", (0,), ()),))
    marked = [product_and_epilogue(node)[0].attrs.get("tf32") for node in (plain, tf32_rounded(plain))]
    assert marked == [None, True]


def test_f32_stays_f32() -> None:
    program, _ = compile_entry(check_file(str(LENET)), "train_step", {"B": 64}, Options("sm_90", "vendor", "f32"))
    own, calls = rounding_of(program)
    assert not any(own) and set(calls) == {"f32"}


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
