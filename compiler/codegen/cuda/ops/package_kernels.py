"""Kernels in CUDA C++ that packages bring for their ops."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.base.errors import BuildError
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, kernel_text
from dslc.compiler.codegen.cuda.kernel_spec import Compiled, KernelSpec
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.described import described
from dslc.compiler.ir.graph import Node
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.packages.composed import Composed


@described("OwnKernel", "op inputs outputs blocks threads constants source")
@dataclass(frozen=True)
class OwnKernel(KernelSpec):
    """``k(inputs..., outputs...)``: calls the function ``kernel`` of the package's ``source``, so its signature is
    checked when it is compiled, and waits for the kernels before it, so the package's author need not know of that."""

    op: str
    inputs: tuple[DType, ...]
    outputs: tuple[DType, ...]
    blocks: int
    threads: int
    constants: tuple[tuple[str, int], ...]
    source: str

    @property
    def geometry(self) -> Geometry:
        return Geometry((self.blocks, 1, 1), (self.threads, 1, 1))

    def text(self, symbol: str) -> str:
        """The whole source that NVRTC compiles."""
        types = [
            *((f"X{i}", t) for i, t in enumerate(self.inputs)),
            *((f"Y{i}", t) for i, t in enumerate(self.outputs)),
        ]
        listed = ", ".join(f"{'const ' * (name[0] == 'X')}{name} *{name.lower()}" for name, _ in types)
        return "\n".join(
            [
                kernel_text("numbers.cuh"),
                *(f"using {name} = {C_TYPES[dtype]};" for name, dtype in types),
                *(f"constexpr long long {name} = {value};" for name, value in self.constants),
                f'#line 1 "{self.op}"',
                self.source,
                f'#line 1 "call of {self.op}"',
                f'extern "C" __global__ void __launch_bounds__({self.threads}) {symbol}({listed}) {{',
                "  wait_for_those_before();",
                f"  kernel({', '.join(name.lower() for name, _ in types)});",
                "}\n",
            ]
        )

    def compile(self, symbol: str, architecture: str) -> Compiled:
        from dslc.compiler.toolchain.nvrtc import Rejected, compile_cuda

        try:
            return Compiled(*compile_cuda(self.text(symbol), architecture))
        except Rejected as error:
            said = next((line for line in error.log.splitlines() if ": error" in line), error.log.strip()[:200])
            message = f"the op `{self.op}`: its CUDA C++ does not compile for {architecture}: {said}"
            help = "its author mends the source that `cuda` returns"
            raise BuildError("E0115", message, place=self.op, help=help) from error


def own_kernel(node: Node) -> list[Launch] | None:
    """The launch of a composed op; None if the package has no kernel for these types and sizes."""
    assert isinstance(node.op, Composed)
    dtypes = tuple(t.dtype for t in node.input_types), tuple(t.dtype for t in node.types)
    if not all(dtype in C_TYPES for each in dtypes for dtype in each):
        return None
    found = node.op.cuda(node.input_types, node.types, node.attrs)
    if found is None:
        return None
    constants = tuple(sorted(found.constants.items()))
    spec = OwnKernel(node.op.name, *dtypes, found.blocks, found.threads, constants, found.source)
    return [Launch(spec, node.inputs, node.outputs)]
