"""Casts to a float dtype that the source names: they keep it in models of any precision, with their gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from thinning import taken

import dslc
from dslc.base.errors import BuildError, DslcError
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.graph import Phase
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry

_MODEL = """nn 1
dim B in 1..8 = 4
block wide(x: {dtype}[B, D]) -> {dtype}[B, D] {{
  return tanh(x) * 2
}}
model Net(x: [B, 16]) -> [B, 4] {{
  y = x |> linear(16) as first
  z = wide(cast(y, "{dtype}"))
  return {back} |> linear(4) as head
}}
precision {{ compute = {compute} }}
train Net(label: i32[B]) {{
  loss = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}}
"""


def _checked(folder: Path, dtype: str, compute: str, back: str = 'cast(z, "float")') -> Checked:
    (folder / "net.nn").write_text(_MODEL.format(dtype=dtype, compute=compute, back=back))
    return check_file(str(folder / "net.nn"))


@pytest.mark.parametrize("compute", ["f32", "f64", "tf32", "bf16", "f16"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_a_written_float_dtype_stays_forward_and_backward(tmp_path: Path, dtype: str, compute: str) -> None:
    checked = _checked(tmp_path, dtype, compute)
    program, _ = compile_entry(checked, "train_step", {"B": 4}, Options(target="sm_90"), after="precision")
    nodes = program.graph.nodes
    (tanh,) = (n for n in nodes if n.op.name == "tanh")
    assert {str(t.dtype) for t in (*tanh.types, *tanh.input_types)} == {dtype}
    backward = {str(n.types[0].dtype) for n in nodes if n.phase is Phase.BACKWARD and n.op.name in ("mul", "sub")}
    assert backward == {dtype}
    rest = "f32" if compute == "tf32" else compute
    forward = [n for n in nodes if n.op.name == "matmul" and n.phase is Phase.FORWARD]
    assert len(forward) == 2 and {str(n.types[0].dtype) for n in forward} == {rest}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_gpu_builds_casts_to_16_bits(tmp_path: Path, dtype: str) -> None:
    build(_checked(tmp_path, dtype, "f32"), Options(target="sm_90", provider="own"))


@pytest.mark.parametrize("dtype", taken(["f64", "f16", "f32", "bf16"], 2))
def test_the_cpu_builds_casts_without_numpy(tmp_path: Path, dtype: str) -> None:
    build(_checked(tmp_path, dtype, "f32"), Options(provider="own"))


def test_numpy_refuses_casts_to_bf16(tmp_path: Path) -> None:
    checked = _checked(tmp_path, "bf16", "f32")
    with pytest.raises(BuildError, match="numpy has no bf16") as caught:
        build(checked, Options(provider="reference"))
    assert caught.value.code == "E0602" and "net.nn" in str(caught.value.place)


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "f16":
        return x.astype(np.float16).astype(np.float32)
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize(("dtype", "provider"), [("f16", "own"), ("f16", "reference"), ("bf16", "own")])
def test_each_op_on_16_bits_rounds_its_result(tmp_path: Path, dtype: str, provider: str) -> None:
    """A chain of ops, a sum and a product of matrices, in the bits that their f32 results have when rounded."""
    (tmp_path / "net.nn").write_text(f"""nn 1
model Net(x: [4, 16], w: [16, 8]) -> (chain: [4, 16], sums: [4], product: [4, 8], back: [4, 16], turned: [16, 4]) {{
  a = cast(x, "{dtype}")
  b = a * 1.7 + a * a
  s = sum(b, over=1)
  y = b @ cast(w, "{dtype}")
  return cast(b, "float"), cast(s, "float"), cast(y, "float"), cast(a, "float"), cast(transpose(b, [1, 0]), "float")
}}
""")
    (tmp_path / "net.dslc").write_bytes(
        build(check_file(str(tmp_path / "net.nn")), Options(provider=provider)).artifact
    )
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 16)).astype(np.float32), rng.integers(-3, 4, (16, 8)).astype(np.float32)
    with dslc.load(tmp_path / "net.dslc") as session:
        found = session.predict(x=x, w=w)
    a = _rounded(x, dtype)
    b = _rounded(_rounded(a * _rounded(np.array(1.7, np.float32), dtype), dtype) + _rounded(a * a, dtype), dtype)
    assert np.array_equal(found.back, a) and np.array_equal(found.chain, b) and np.array_equal(found.turned, b.T)
    for got, exact in ((found.sums, b.astype(np.float64).sum(1)), (found.product, b.astype(np.float64) @ w)):
        assert np.array_equal(got, _rounded(got, dtype)), "a result is rounded"
        assert np.array_equal(got, _rounded(exact.astype(np.float32), dtype)), "and only once"


@pytest.mark.parametrize("back", ["z", "(z + y)"])
def test_a_written_float_dtype_does_not_mix_with_others(tmp_path: Path, back: str) -> None:
    with pytest.raises(DslcError, match="cast"):
        _checked(tmp_path, "f16", "f32", back)
