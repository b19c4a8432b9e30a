"""Casts to a float dtype that the source names: they keep it in models of any precision, with their gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.base.errors import BuildError, DslcError
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ir.graph import Phase
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry

_MODEL = """nn 1
dim B in 1..8 = 4
model Net(x: [B, 16]) -> [B, 4] {{
  y = x |> linear(16) as first
  z = tanh(cast(y, "{dtype}")) * 2
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


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_cpu_refuses_casts_to_16_bits(tmp_path: Path, dtype: str) -> None:
    checked = _checked(tmp_path, dtype, "f32")
    with pytest.raises(BuildError, match=f"cpu does not compute in {dtype}") as caught:
        build(checked, Options())
    assert caught.value.code == "E0602" and "net.nn" in str(caught.value.place)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_the_cpu_builds_casts_to_f64_and_f32_without_numpy(tmp_path: Path, dtype: str) -> None:
    build(_checked(tmp_path, dtype, "f32"), Options(provider="own"))


@pytest.mark.parametrize("back", ["z", "(z + y)"])
def test_a_written_float_dtype_does_not_mix_with_others(tmp_path: Path, back: str) -> None:
    with pytest.raises(DslcError, match="cast"):
        _checked(tmp_path, "f16", "f32", back)
