"""The life of a kernel: the text of each stage that docs/compiler.md quotes.

    python docs/life.py [STAGE ...]

prints the stages, by default all. ``make docs`` writes them into the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dslc.compiler.artifact.plan import plan_of
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.codegen.cpu.object.compile import LEVELS, text_of
from dslc.compiler.codegen.cuda.compile import compiled
from dslc.compiler.codegen.cuda.region.pointwise import flat_source
from dslc.compiler.codegen.cuda.region.schedule import schedule
from dslc.compiler.codegen.cuda.region.thread_mapping import Flat
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Let, Region
from dslc.compiler.codegen.targets import target_of
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.scalar import Expr
from dslc.compiler.ir.text import format_graph
from dslc.compiler.options import Options
from dslc.compiler.pipeline import compile_entry, cut

GATED: Final = """\
nn 1
dim B in 1..64 = 32

model Net(x: [B, 100], gate: [B, 100]) -> [B, 100] {
  return x * sigmoid(gate) + 1
}
"""
DENSE: Final = """\
nn 1
dim B in 1..256 = 256

model Net(x: [B, 512]) -> [B, 512] {
  return relu(linear(x, 512))
}
"""


@cache
def _checked(text: str) -> Checked:
    with TemporaryDirectory() as folder, chdir(folder):
        Path("net.nn").write_text(text, encoding="utf-8")
        return check_file(Path("net.nn"))


def _program(text: str, target: str, after: str | None = None, provider: str = "auto") -> Program:
    """The program of ``predict`` after a pass, by default after all."""
    checked = _checked(text)
    sizes = {dim.name: dim.default for dim in checked.dims}
    return compile_entry(checked, "predict", sizes, Options(target=target, provider=provider), after=after)[0]


def _launch(text: str, target: str) -> Launch:
    """The one launch of the program of ``predict``."""
    [node] = _program(text, target).graph.nodes
    [found] = target_of(target).lower(node) or []
    return found


def stages() -> Mapping[str, str]:
    """The quoted text of each stage, by its name in the page."""
    gpu, cpu, dense = _launch(GATED, "sm_90"), _launch(GATED, "cpu"), _launch(DENSE, "sm_90")
    region = gpu.spec.region
    flat = schedule(region)
    assert isinstance(flat, Flat)
    return {
        "source": GATED,
        "graph": format_graph(cut(_checked(GATED), "predict", {"B": 32}).graph),
        "fuse": format_graph(_program(GATED, "sm_90", "fuse").graph),
        "region": _region(region),
        "schedule": f"{flat}\n{flat.geometry}",
        "numba": flat_source("k", region, flat)[0].text,
        "launch": f"{gpu.symbol}\nscalar_args {gpu.scalar_args}",
        "instruction": _plan(_program(GATED, "sm_90")),
        "cpu-ir": _matches(r"  .*(?:load|fdiv|store) <16 x float>.*", _cpu_text(cpu)),
        "cpu-instruction": _plan(_program(GATED, "cpu")),
        "dense": DENSE,
        "epilogue": format_graph(_program(DENSE, "sm_90", "epilogue").graph),
        "contraction": _matches(r"(?ms)^__device__ __forceinline__ float finished.*?^}", dense.code.text),
        "dense-instruction": _plan(_program(DENSE, "sm_90")),
        "library": _plan(_program(DENSE, "sm_90", provider="vendor")),
    }


def _cpu_text(launch: Launch) -> str:
    """The LLVM IR of a CPU kernel for x86-64-v3."""
    return text_of(launch.symbol, launch.code, LEVELS["x86_64_v3"].registers)[0]


def ptx() -> str:
    """The PTX of the first kernel. It depends on the version of Numba-CUDA, so the page quotes only a few lines."""
    launch = _launch(GATED, "sm_90")
    return compiled(launch.code, launch.symbol, "sm_90").ptx.decode("ascii")


def fill(page: str) -> str:
    """The page with the text of every block that follows a line ``<!-- stage: NAME -->``."""
    found = stages()

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{found[match[2]].rstrip()}\n{match[3]}"

    return re.sub(r"(?ms)(^<!-- stage: ([\w-]+) -->\n```\w*\n).*?(^```$)", block, page)


def _matches(pattern: str, text: str) -> str:
    return "\n".join(re.findall(pattern, text))


def _region(region: Region) -> str:
    """A region of one stage, a line for each value."""
    lines = [f"outer {region.outer} inner {region.inner}"]
    lines += [f"v{i} = load {each.dtype.value} strides {each.strides}" for i, each in enumerate(region.inputs)]
    [stage] = region.stages
    first = len(region.inputs) + 1 + len(region.indices)  # after the inputs, INNER and the indices
    lets = [let for let in stage.lets if isinstance(let, Let)]
    assert len(lets) == len(stage.lets), "a scan or a fetch has no line"
    lines += [f"v{first + i} = {_expr(let.expr)}" for i, let in enumerate(lets)]
    lines += [f"store v{each.value} strides {region.outputs[each.output].strides}" for each in stage.stores]
    return "\n".join(lines)


def _expr(expr: Expr) -> str:
    if expr.function == "arg":
        return f"v{expr.index}"
    if expr.function == "const":
        return str(expr.value)
    return f"{expr.function}({', '.join(_expr(each) for each in expr.args)})"


def _plan(program: Program) -> str:
    plan = plan_of(program)
    buffers = [f"buffer {i}: {each}" for i, each in enumerate(plan.buffers)]
    lines = [re.sub(r", (shared_bytes|args|workspace)=", r",\n       \1=", str(each)) for each in plan.instructions]
    return "\n".join([*lines, *buffers])


def main(names: list[str]) -> None:
    found = {**stages(), "ptx": ptx()}
    for name in names or found:
        print(f"--- {name}\n{found[name].rstrip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
