"""A loop whose elements do not need one another as one kernel: its PTX gives what the loop means."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_kernels.resident_loops import compare, inputs_of, meant, on_machine

from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cuda.recurrent import each_element
from dslc.compiler.codegen.cuda.recurrent.lower import loops_at_once, resident, resident_seconds, why_not_resident
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.scan import scan
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry

#: The steps of loops over x, d: [B, T, 8] and n: [B, T, 4], with the carries of a step and their shapes.
LOOPS = {
    "gates": ("h", "[B, 8]", "h = sigmoid(d)*h + (1 - sigmoid(d))*tanh(x)\n    yield h"),
    "a state of numbers": (
        "h", "[B, 8, 4]",
        "h = exp(unsqueeze(d, 2)*a)*h + unsqueeze(d*x, 2)*unsqueeze(n, 1)\n    yield sum(h*unsqueeze(n, 1), over=2)",
    ),
    "two carries": ("h, m", "[B, 8]", "m = maximum(m - 0.1, x)\n    h = where(x > h, h + d, 0.5*h) + m\n    yield h*m"),
    "products": (
        "h", "[B, 8, 4]",
        "h = sigmoid(unsqueeze(d, 2)*a)*h + unsqueeze(x, 2) @ unsqueeze(n, 1)\n"
        "    yield (h @ unsqueeze(n, 2))[:, :, 0]",
    ),
    "keys and values with a bonus": (
        "h", "[B, 8, 4]",
        "k = unsqueeze(x, 2) @ unsqueeze(n, 1)\n    y = ((h + a*k) @ unsqueeze(n, 2))[:, :, 0]\n"
        "    h = sigmoid(unsqueeze(d, 2))*h + k\n    yield y",
    ),
    "an outer product": (
        "h", "[B, 8, 8]",
        "h = unsqueeze(sigmoid(d), 2)*h + unsqueeze(x, 2)*unsqueeze(d, 1)\n    yield sum(h*unsqueeze(x, 1), over=2)",
    ),
}  # fmt: skip


def loops_of(name: str, folder: Path, precision: str = "f32", steps: int = 11, reverse: bool = False) -> list[Node]:
    """The loops of a training step: forward, and its gradient."""
    carried, shape, step = LOOPS[name]
    zeros = "".join(f"  {each} = zeros({shape})\n" for each in carried.split(", "))
    (folder / "net.nn").write_text(
        f"nn 1\ndim B = 2\nconst T = {steps}\n@precision(f32)\n"
        "block loop(xs: [B, T, 8], ds: [B, T, 8], ns: [B, T, 4]) -> [B, T, 8] {\n  param a: [8, 4] = uniform(1)\n"
        f"{zeros}  scan x, d, n in xs, ds, ns along T {'reverse ' * reverse}carry {carried} into y {{\n"
        f"    {step}\n  }}\n"
        "  return y\n}\n"
        "model Net(x: [B, T, 8], d: [B, T, 8], n: [B, T, 4]) -> [B, T, 8] {\n"
        "  param w: [8] = uniform(1)\n  return loop(x*w, d*w, n*sum(w))\n}\n"
        "train Net(t: [B, T, 8]) {\n  loss = mean(output*t)\n  optimizer = sgd(lr=0.1)\n}\n"
    )
    options = Options(target="sm_90", precision=precision, provider="vendor")
    program, _ = compile_entry(check_file(folder / "net.nn"), "train_step", {}, options)
    assert not program.loops, "a loop runs the kernels of its step"
    return [node for node in program.graph.nodes if node.op is scan]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_loop_and_its_gradient(name: str, precision: str, reverse: bool, tmp_path: Path, fuzz_seed: int) -> None:
    """Of more steps than a thread loads at once, and not a multiple of these."""
    nodes = loops_of(name, tmp_path, precision, reverse=reverse)
    assert len(nodes) == 2
    for number, node in enumerate(nodes):
        xs = inputs_of(node, fuzz_seed + number)
        found, wanted = (
            [x.astype("f4") for x in each] for each in (on_machine(node, xs, backwards=number == 1), meant(node, xs))
        )
        compare(found, wanted, most=1e-5 if precision == "f32" else 0.05)


def test_blocks_that_elements_do_not_fill(tmp_path: Path, fuzz_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(each_element, "_THREADS", 48)
    node, _ = loops_of("a state of numbers", tmp_path, steps=3)
    [kernel] = resident(node)
    assert kernel.spec.geometry.grid == (2, 1, 1) and kernel.spec.scalar_args == (("i32", 3),)
    xs = inputs_of(node, fuzz_seed)
    compare(on_machine(node, xs), meant(node, xs), most=1e-5)


def test_the_model_counts_bytes_and_trips(tmp_path: Path) -> None:
    short, long = (loops_of("gates", tmp_path, steps=steps)[0] for steps in (8, 8000))
    few, many = resident_seconds(short), resident_seconds(long)
    assert few is not None and many is not None and 20 * few < many < 2e-3
    assert loops_at_once(short, 2) == 1


@pytest.mark.parametrize("step", ["h = cumsum(h + x)", "h = softmax(h + x)", "h = h + mean(h, over=1, keep=true)"])
def test_a_loop_whose_elements_need_others_is_none(step: str, tmp_path: Path) -> None:
    (tmp_path / "net.nn").write_text(
        "nn 1\nconst T = 3\nmodel Net(xs: [4, T, 16]) -> [4, T, 16] {\n  h = zeros([4, 16])\n"
        f"  scan x in xs along T carry h into y {{ {step}; yield h }}\n  return y\n}}\n"
    )
    program, _ = compile_entry(check_file(tmp_path / "net.nn"), "predict", {}, Options(target="sm_90"))
    [node] = [node for node in program.graph.nodes if node.op is scan]
    assert why_not_resident(node) is not None and node in program.loops
