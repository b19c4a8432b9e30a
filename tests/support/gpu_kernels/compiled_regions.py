"""The regions of all samples, and their PTX."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_kernels.sample_nodes import OPS, SAMPLES, node_of

from dslc.compiler.codegen.cuda import compile as cuda_compile
from dslc.compiler.codegen.cuda.lower import lower
from dslc.compiler.codegen.cuda.region.kernel import SizeGenericRegion
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.region.ir import Region


def distinct() -> Iterator[tuple[str, Launch]]:
    """The regions of all samples, each once."""
    seen = set()
    for name in sorted(SAMPLES):
        if name in OPS and not OPS[name].view:
            for number in range(len(SAMPLES[name])):
                for dtype in ("f32", "bf16", "f64"):
                    for launch in lower(node_of(name, number, dtype)[0]) or []:
                        if isinstance(launch.spec, Region | SizeGenericRegion) and launch.symbol not in seen:
                            seen.add(launch.symbol)
                            yield f"{name} {number} {dtype}", launch


def ptx_of(launch: Launch, architecture: str) -> str:
    return cuda_compile.compiled(launch.code, launch.symbol, architecture).ptx.decode("ascii")
