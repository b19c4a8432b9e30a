"""Products and convolutions on a GPU: kernels of our own, cuBLASLt and cuDNN as an artifact calls them, and PyTorch.

    python benchmarks/gpu_contractions.py make [--arch sm_90] [--only TEXT]    where CUDA can be compiled
    python benchmarks/gpu_contractions.py run [--only TEXT]                    on a GPU, with torch, cuBLAS and cuDNN

The convolutions of ResNet-50, but the first, with each size once (``x3``: as often in the net) in bf16 at batch 32
and 256, and matmuls. Times are medians of 15 CUDA graphs of ten calls each, on the same buffers, so small ones stay
in the L2 cache; PyTorch is timed the same way, with ``cudnn.benchmark`` and without TF32. ``error`` is the root mean
square of the difference from a result in f64, over that of rounding it to the type: 1 is as good as can be. Marked
``!`` where it is above 1.5 in 16 bits; in f32 it is over the type's own step, and what is above 200 is marked.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from math import prod
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "support")]

from real_gpu.kernel_store import STORE, Reader, Writer  # noqa: E402
from real_gpu.launcher import Gpu  # noqa: E402
from real_gpu.vendor_cases import Contraction, convolution, describe, node_of  # noqa: E402

FOLDER = STORE / "contractions"
#: Channels in and out, size of the image, of the window, stride, how often. The first has 3 channels padded with zeros.
RESNET50 = (
    (8, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 3), (64, 256, 56, 1, 1, 4), (256, 64, 56, 1, 1, 2),
    (256, 128, 56, 1, 1, 1), (128, 128, 56, 3, 2, 1), (128, 512, 28, 1, 1, 4), (256, 512, 56, 1, 2, 1),
    (512, 128, 28, 1, 1, 3), (128, 128, 28, 3, 1, 3), (512, 256, 28, 1, 1, 1), (256, 256, 28, 3, 2, 1),
    (256, 1024, 14, 1, 1, 6), (512, 1024, 28, 1, 2, 1), (1024, 256, 14, 1, 1, 5), (256, 256, 14, 3, 1, 5),
    (1024, 512, 14, 1, 1, 1), (512, 512, 14, 3, 2, 1), (512, 2048, 7, 1, 1, 3), (1024, 2048, 14, 1, 2, 1),
    (2048, 512, 7, 1, 1, 2), (512, 512, 7, 3, 1, 2),
)  # fmt: skip
#: Stack, m, n, k, dtype, transposes.
MATMULS = (
    (1, 4096, 4096, 4096, "bf16", "nn"), (1, 4096, 4096, 4096, "bf16", "nt"), (1, 4096, 4096, 4096, "bf16", "tn"),
    (1, 4096, 4096, 4096, "f32", "nn"), (1, 8192, 3072, 768, "bf16", "nt"), (1, 768, 3072, 8192, "bf16", "tn"),
    (96, 512, 512, 64, "bf16", "nt"), (1, 1000, 1000, 1000, "bf16", "nn"), (1, 1023, 1025, 511, "bf16", "nn"),
    (1, 1023, 1025, 511, "f32", "tn"), (1, 64, 512, 784, "bf16", "nt"), (1, 64, 512, 784, "f32", "nt"),
    (1, 8192, 50257, 768, "bf16", "nt"),
)  # fmt: skip


def nodes() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Name, node, and what else the case holds."""
    for stack, m, n, k, dtype, turned in MATMULS:
        lead = (stack,) if stack > 1 else ()
        ta, tb = (t == "t" for t in turned)
        a, b = (*lead, *((k, m) if ta else (m, k))), (*lead, *((n, k) if tb else (k, n)))
        node = node_of("matmul", (a, b), dtype, transpose_a=ta, transpose_b=tb)
        name = f"matmul {f'{stack}x' if stack > 1 else ''}{m}x{n}x{k} {dtype} {turned}"
        yield name, node, {"work": 2 * stack * m * n * k, "times": 1}
    for batch in (32, 256):
        for into, out, size, window, stride, times in RESNET50:
            attrs = {"stride": (stride, stride), "pad": (window // 2, window // 2)}
            w, count = (out, into, window, window), (size - 1) // stride + 1
            work = 2 * batch * count * count * prod(w)
            for kind in ("conv", "conv_dgrad", "conv_wgrad"):
                if kind in ("conv", "conv_dgrad") and size == 224:
                    continue  # images have no gradient, and our own kernel is taken for few channels
                node = convolution(kind, (batch, into, size, size), w, "bf16", **attrs)
                name = f"{kind} b{batch} {into}>{out} {size}px {window}x{window}/{stride} x{times}"
                yield name, node, {"work": work, "times": times, "sum": f"{kind} b{batch}"}


def make(architecture: str, only: str) -> None:
    """Compiles all cases into ``.gpu/contractions``."""
    store = Writer(architecture)
    for name, node, more in nodes():
        if only in name:
            assert describe(store, name, node, **more) is not None, name
            print(name, len(store.cases[-1]["launches"]), flush=True)
    store.finish(FOLDER)


def run(only: str) -> None:
    """Times all cases and prints a table, then sums over the net."""
    import torch

    from dslc.runtime.cuda import device as devices
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.runtime.cuda.owned import Owned

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    gpu, store, device = Gpu(), Reader(FOLDER), devices.device(0)
    print(device.name, "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    print(
        f"{'':46} {'us: own':>9} {'vendor':>9} {'torch':>9}  TFLOP/s {'own':>6} {'vendor':>6}  error: own vendor torch"
    )
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 3)
    with device, closing(Owned(device)) as owned:
        libraries = Libraries(device, owned)
        for case in store.index["cases"]:
            if only not in case["name"]:
                continue
            try:
                times, errors, plan = _one(gpu, store, case, libraries)
            except Exception as error:  # noqa: BLE001 - one case that fails is told, the others are still of use
                print(f"{case['name']:46} {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            rates = [case["work"] / t / 1e12 for t in times[:2]]
            limit = 200 if " f32 " in case["name"] else 1.5
            shown = " ".join(f"{e:6.2f}{'!' if e > limit else ' '}" for e in errors)
            numbers = " ".join(f"{1e6 * t:9.1f}" for t in times)
            print(f"{case['name']:46} {numbers} {rates[0]:14.0f} {rates[1]:6.0f}  {shown} {plan}", flush=True)
            for i, t in enumerate(times):
                sums[case.get("sum", "matmul")][i] += 1e3 * t * case["times"]
        print(f"choosing took {libraries.seconds:.2f} s for {len(libraries.choices)} calls")
    for name, total in sums.items():
        print(f"sum in ms, {name:36} " + " ".join(f"{t:9.3f}" for t in total))


def _one(gpu: Gpu, store: Reader, case: dict[str, Any], libraries: Any) -> tuple[list[float], list[float], str]:
    """Seconds of own, vendor and torch; their errors; the library's choice."""
    import torch

    item = Contraction(gpu, store, case, libraries)
    try:
        generator = torch.Generator("cuda").manual_seed(1)
        kinds = [getattr(torch, {"bf16": "bfloat16", "f32": "float32"}[b.dtype]) for b in item.operands]
        xs = [
            torch.randn(b.shape, generator=generator, device="cuda").to(kind)
            for b, kind in zip(item.operands[:2], kinds)
        ]
        out = torch.empty(item.operands[2].shape, dtype=kinds[2], device="cuda")
        torch.cuda.synchronize()  # PyTorch has a stream of its own
        for x, address in zip(xs, item.addresses):
            gpu.copy(address, x.data_ptr(), x.numel() * x.element_size())
        gpu.wait()
        [instruction] = item.plan.instructions
        with torch.backends.cudnn.flags(enabled=True, benchmark=False):
            exact = _by_torch(instruction, [x.double() for x in xs], out.shape)()
        step = torch.finfo(kinds[2]).eps if kinds[2] is torch.float32 else None
        rounding = _rms(exact.to(kinds[2]).double() - exact) if step is None else step * _rms(exact)
        errors, times = [], []
        vendor = item.vendor()
        choice = list(libraries.choices.values())[-1]  # each case is another problem
        for work in (item.own, vendor):
            work()
            gpu.copy(out.data_ptr(), item.addresses[2], item.operands[2].bytes)
            gpu.wait()
            errors.append(_rms(out.double() - exact) / rounding)
            first = out.clone()
            torch.cuda.synchronize()
            work()
            gpu.copy(out.data_ptr(), item.addresses[2], item.operands[2].bytes)
            gpu.wait()
            assert torch.equal(first.view(torch.uint8), out.view(torch.uint8)), "two runs differ"
        peer = _by_torch(instruction, xs, out.shape)
        errors.append(_rms(peer().double() - exact) / rounding)
        for work in (item.own, vendor):
            found = gpu.seconds(work, 10, 15)
            times.append(found[len(found) // 2])
        times.append(_torch_seconds(peer))
        return times, errors, choice
    finally:
        item.close()
        torch.cuda.empty_cache()


def _rms(x: Any) -> float:
    return float(x.pow(2).mean().sqrt())


def _by_torch(instruction: Any, xs: list[Any], shape: Any) -> Any:
    """PyTorch's function of the same operands, which lie in memory as the plan says."""
    import torch

    if type(instruction).__name__ == "Gemm":
        a = xs[0].transpose(-1, -2) if instruction.transpose_a else xs[0]
        b = xs[1].transpose(-1, -2) if instruction.transpose_b else xs[1]
        return lambda: torch.matmul(a, b)
    last = instruction.attrs["layout"] == "last"
    first, second = (x.permute(0, 3, 1, 2) for x in xs) if last else xs
    stride, pad, dilation = (instruction.attrs[n] for n in ("stride", "pad", "dilation"))
    if instruction.kind == "conv":
        made = lambda: torch.nn.functional.conv2d(first, second, None, stride, pad, dilation)  # noqa: E731
    else:
        n, c, h, w = (shape[0], shape[3], *shape[1:3]) if last else shape
        layout = torch.channels_last if last else torch.contiguous_format
        like = torch.empty((n, c, h, w), dtype=first.dtype, device="cuda").to(memory_format=layout)
        data = instruction.kind == "conv_dgrad"
        dy, x, weight, mask = (
            (first, like, second, (True, False, False)) if data else (second, first, like, (False, True, False))
        )
        back = torch.ops.aten.convolution_backward
        made = lambda: back(dy, x, weight, None, stride, pad, dilation, False, [0, 0], 1, mask)[0 if data else 1]  # noqa: E731
    return (lambda: made().permute(0, 2, 3, 1)) if last else made


def _torch_seconds(work: Any) -> float:
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(17):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e4)
    return sorted(times[2:])[7]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "run"])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if given.what == "make":
        make(given.arch, given.only)
    else:
        run(given.only)
