"""Recurrent models twice: with a loop at run time, and written out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.session.session import Session

ROWS, WIDTH = 2, 4


@dataclass(frozen=True)
class Cell:
    """A step: ``before`` the loop, the names it carries and yields, and its statements on ``xt`` and ``zt``."""

    carry: tuple[str, ...]
    yields: tuple[str, ...]
    step: str
    before: str = ""


_GATES = "  param w: [4, 16] = uniform(0.5)\n  param r: [4, 16] = uniform(0.5)\n  param b: [16] = uniform(0.5)\n"
_GRU = "  param w: [4, 12] = uniform(0.5)\n  param r: [4, 12] = uniform(0.5)\n  param s: [4] = uniform(0.5)\n"

CELLS = {
    "lstm": Cell(
        ("h", "c"),
        ("h",),
        "i, f, g, o = split(xt @ w + h @ r + b, 4)\n"
        "c = sigmoid(f) * c + sigmoid(i) * tanh(g)\nh = sigmoid(o) * tanh(c)\n",
        _GATES + "  h = zeros([B, 4])\n  c = h\n",
    ),
    "gru": Cell(
        ("h",),
        ("h",),
        "a1, a2, a3 = split(xt @ w, 3)\nb1, b2, b3 = split(h @ r, 3)\ng = sigmoid(a1 + b1)\n"
        "u = tanh(a3 + sigmoid(a2 + b2) * b3 + s)\nh = (1 - g) * u + g * h\n",
        _GRU + "  h = zeros([B, 4])\n",
    ),
    "no carry": Cell((), ("q",), "q = tanh(xt @ w)\n", "  param w: [4, 4] = uniform(0.5)\n"),
    "swap": Cell(
        ("h", "c"), ("h", "d"), "d = h * xt\nk = c + sin(xt)\nc = h\nh = tanh(k * w)\n",
        "  param w: [4] = uniform(0.5)\n  h = zeros([B, 4])\n  c = ones([B, 4])\n",
    ),
    "two sequences": Cell(
        ("h",), ("old", "h"), "old = h\nh = sin(h * w) + xt * zt\n",
        "  param w: [4] = uniform(0.5)\n  h = zeros([B, 4])\n",
    ),
    "layer": Cell(
        ("h",), ("h",), "h = tanh(up(xt) + up(h))\n", "  layer up = linear(4)\n  h = zeros([B, 4])\n"
    ),
    "hands on": Cell(("h",), ("xt", "h", "k"), "h = h\nk = w\n", "  w = ones([B, 4])\n  h = zeros([B, 4])\n"),
    "nested": Cell(
        ("h",),
        ("h",),
        "s = zeros([B])\nLOOP vt in xt along 1 carry s into p {\n  s = s + tanh(vt * q)\n  yield s\n}\n"
        "h = sin(h * w) + p + reshape(s, [B, 1])\n",
        "  param w: [4] = uniform(0.5)\n  param q: [] = uniform(0.9)\n  h = zeros([B, 4])\n",
    ),
}  # fmt: skip


def model(cell: Cell, steps: int, *, written_out: bool, reverse: bool = False) -> str:
    """The source of a model that runs a cell over T = ``steps`` elements, and of its training."""
    results = ", ".join(f"y{i}" for i in range(len(cell.yields)))
    step = "".join(f"    {line}\n" for line in cell.step.splitlines())
    if written_out:
        step = _inner_written_out(step)
        flipped = "[:, ::-1]" if reverse else ""
        stacked = "".join(f"  y{i} = stack(l{i}, axis=1){flipped}\n" for i in range(len(cell.yields)))
        kept = "".join(f"    l{i} = l{i} + [{name}]\n" for i, name in enumerate(cell.yields))
        lists = "".join(f"  l{i} = []\n" for i in range(len(cell.yields)))
        at = "T - 1 - t" if reverse else "t"
        loop = f"{lists}  for t in 0..T {{\n    xt = x[:, {at}]\n    zt = z[:, {at}]\n{step}{kept}  }}\n{stacked}"
    else:
        carry = f" carry {', '.join(cell.carry)}" if cell.carry else ""
        backward = " reverse" if reverse else ""
        step = step.replace("LOOP", "scan")
        loop = (
            f"  scan xt, zt in x, z along T{backward}{carry} into {results} {{\n{step}"
            f"    yield {', '.join(cell.yields)}\n  }}\n"
        )
    total = " + ".join(f"y{i} * {i + 1}" for i in range(len(cell.yields)))
    return (
        f"nn 1\ndim B in 1..8 = {ROWS}\nconst T = {steps}\n"
        f"model Net(x: [B, T, 4], z: [B, T, 4]) -> [B, T, 4] {{\n{cell.before}"
        f"  param last: [4] = uniform(0.5)\n{loop}  return ({total}) * last + 0 * z\n}}\n"
        "train Net(t: [B, T, 4]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.5)\n}\n"
    )


def _inner_written_out(step: str) -> str:
    """The loop inside the cell "nested", written out over the four columns of ``xt``."""
    head = "    LOOP vt in xt along 1 carry s into p {\n"
    if head not in step:
        return step
    before, rest = step.split(head)
    inner, after = rest.split("    }\n", 1)
    lines = inner.replace("yield s", "ps = ps + [s]")
    loop = f"    for n in 0..4 {{\n      vt = xt[:, n]\n{lines}    }}\n"
    return f"{before}    ps = []\n{loop}    p = stack(ps, axis=1)\n{after}"


def opened(text: str, folder: Path, **options: object) -> Session:
    """A session of the model in ``text`` on the CPU with initial weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.nn").write_text(text)
    made = build(check_file(folder / "net.nn"), Options(**options))  # type: ignore[arg-type]
    (folder / "net.dslc").write_bytes(made.artifact)
    return dslc.load(folder / "net.dslc", device="cpu", weights="init")


def data(steps: int, seed: int, dtype: str = "f4") -> dict[str, np.ndarray]:
    """Inputs and targets."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((ROWS, steps, WIDTH)).astype(dtype) for name in ("x", "z", "t")}
