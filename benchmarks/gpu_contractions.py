"""Products and convolutions on a GPU: kernels of our own, cuBLASLt and cuDNN as an artifact calls them, and PyTorch.

    python benchmarks/gpu_contractions.py make [--arch sm_90] [--only TEXT]    where CUDA can be compiled
    python benchmarks/gpu_contractions.py run [--only TEXT] [--best N]         on a GPU, with torch, cuBLAS and cuDNN

The convolutions of ResNet-50, but the first, with each size once (``x3``: as often in the net) in bf16 at batch 32
and 256, matmuls, and convolutions unlike those: 1-D and 3-D, dilated, grouped, of odd channels, tall, alone. Times are
medians of CUDA graphs of up to ten calls each, on the same buffers, so small ones stay in the L2 cache; PyTorch is
timed the same way, with ``cudnn.benchmark``. ``best`` is the fastest of N of the library's ways. ``error`` is the
root mean square of the difference from a result in f64 (f32 above 5e10 operations), over that of rounding it to the
type: 1 is as good as can be. Marked ``!`` where it is above 1.5 in 16 bits; in f32 it is over the type's own step, and
what is above 200 is marked.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import prod
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "support")]

from real_gpu.kernel_store import STORE, Reader, Writer  # noqa: E402
from real_gpu.launcher import Gpu  # noqa: E402
from real_gpu.vendor_cases import Contraction, convolution, describe, node_of  # noqa: E402

from dslc.compiler.ops.spatial.channels_last import to_first, to_last  # noqa: E402
from dslc.runtime.artifact.instructions import GraphOp  # noqa: E402

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


#: Image and weight with channels first, stride, pad and dilation of each axis, dtype (``last``: channels last in f32).
#: A transposed convolution's forward is ``conv_dgrad``.
OTHERS: dict[str, tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int], str]] = {
    "unet3d widest": ((2, 192, 96, 96, 96), (64, 192, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "bf16"),
    "unet3d narrow": ((2, 32, 96, 96, 96), (64, 32, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "bf16"),
    "unet3d first": ((2, 8, 96, 96, 96), (32, 8, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "bf16"),
    "unet3d middle": ((2, 256, 12, 12, 12), (512, 256, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "bf16"),
    "unet3d grow": ((2, 128, 96, 96, 96), (128, 128, 2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), "bf16"),
    "video plane": ((2, 64, 16, 56, 56), (144, 64, 1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), "bf16"),
    "video time": ((2, 144, 16, 56, 56), (64, 144, 3, 1, 1), (1, 1, 1), (1, 0, 0), (1, 1, 1), "bf16"),
    "3d dilated": ((2, 64, 32, 32, 32), (64, 64, 3, 3, 3), (1, 1, 1), (2, 2, 2), (2, 2, 2), "bf16"),
    "3d 4 groups": ((2, 128, 32, 32, 32), (128, 32, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "bf16"),
    "3d": ((2, 32, 48, 48, 48), (64, 32, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "tf32"),
    "3d last": ((2, 32, 48, 48, 48), (64, 32, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "tf32 last"),
    "3d f32": ((2, 32, 24, 24, 24), (64, 32, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), "f32"),
    "dcgan": ((128, 256, 16, 16), (512, 256, 4, 4), (2, 2), (1, 1), (1, 1), "bf16"),
    "to rgb": ((128, 3, 64, 64), (128, 3, 4, 4), (2, 2), (1, 1), (1, 1), "bf16"),
    "dilated 4": ((8, 256, 65, 65), (256, 256, 3, 3), (1, 1), (4, 4), (4, 4), "bf16"),
    "dilated 12": ((8, 512, 33, 33), (256, 512, 3, 3), (1, 1), (12, 12), (12, 12), "bf16"),
    "32 groups of 16": ((32, 512, 28, 28), (512, 16, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "14 groups of 24": ((64, 336, 14, 14), (336, 24, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "8 groups of 64": ((32, 512, 28, 28), (512, 64, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "2 groups of 128": ((32, 256, 28, 28), (256, 128, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "12 to 20": ((32, 12, 64, 64), (20, 12, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "100 to 100": ((16, 100, 64, 64), (100, 100, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "256 to 18": ((16, 256, 64, 64), (18, 256, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "to one channel": ((16, 512, 31, 31), (1, 512, 4, 4), (1, 1), (1, 1), (1, 1), "bf16"),
    "stem": ((64, 8, 224, 224), (64, 8, 7, 7), (2, 2), (3, 3), (1, 1), "bf16"),
    "stem tf32": ((64, 8, 224, 224), (64, 8, 7, 7), (2, 2), (3, 3), (1, 1), "tf32 last"),
    "tall": ((4, 64, 8, 8192), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "one image": ((1, 256, 14, 14), (256, 256, 3, 3), (1, 1), (1, 1), (1, 1), "bf16"),
    "f16": ((32, 128, 28, 28), (128, 128, 3, 3), (1, 1), (1, 1), (1, 1), "f16"),
    "tf32": ((32, 128, 28, 28), (128, 128, 3, 3), (1, 1), (1, 1), (1, 1), "tf32"),
    "tf32 last": ((32, 128, 28, 28), (128, 128, 3, 3), (1, 1), (1, 1), (1, 1), "tf32 last"),
    "f32": ((32, 128, 28, 28), (128, 128, 3, 3), (1, 1), (1, 1), (1, 1), "f32"),
    "wavenet": ((8, 128, 16000), (256, 128, 2), (1,), (512,), (512,), "bf16"),
    "wav2vec": ((16, 512, 3199), (512, 512, 3), (2,), (0,), (1,), "bf16"),
    "1d patches": ((64, 8, 16384), (256, 8, 16), (16,), (0,), (1,), "bf16"),
}  # fmt: skip


def others() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """As ``nodes``, of ``OTHERS``."""
    for name, (x, w, stride, pad, dilation, kind) in OTHERS.items():
        dtype, *last = kind.split()
        attrs: dict[str, Any] = {"stride": stride, "pad": pad, "dilation": dilation}
        if dtype == "tf32":
            dtype, attrs["tf32"] = "f32", True
        count = [(s + 2 * p - d * (t - 1) - 1) // f + 1 for s, p, d, t, f in zip(x[2:], pad, dilation, w[2:], stride)]
        work = 2 * x[0] * prod(count) * prod(w)
        for op in ("conv", "conv_dgrad", "conv_wgrad"):
            node = convolution(op, x, w, dtype, last=bool(last) or None, **attrs)
            yield f"{name}: {op} {kind}", node, {"work": work, "times": 1, "sum": f"others, {op}"}


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
    yield from others()


def make(architecture: str, only: str) -> None:
    """Compiles all cases into ``.gpu/contractions``."""
    store = Writer(architecture)
    for name, node, more in nodes():
        if only in name:
            assert describe(store, name, node, **more) is not None, name
            print(name, len(store.cases[-1]["launches"]), flush=True)
    store.finish(FOLDER)


def run(only: str, best: int) -> None:
    """Times all cases and prints a table, then sums over the net."""
    import torch

    from dslc.runtime.cuda import device as devices
    from dslc.runtime.cuda.libraries.libraries import Libraries
    from dslc.runtime.cuda.owned import Owned

    torch.backends.cudnn.benchmark = True
    gpu, store, device = Gpu(), Reader(FOLDER), devices.device(0)
    print(device.name, "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    print(
        f"{'':46} {'us: own':>9} {'vendor':>9} {'best':>9} {'torch':>9}  TFLOP/s {'own':>6} {'vendor':>6}"
        "  error: own vendor torch"
    )
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    with device, closing(Owned(device)) as owned:
        libraries = Libraries(device, owned)
        for case in store.index["cases"]:
            if only not in case["name"]:
                continue
            try:
                times, errors, plan = _one(gpu, store, case, libraries, best)
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


def _one(
    gpu: Gpu, store: Reader, case: dict[str, Any], libraries: Any, best: int
) -> tuple[list[float], list[float], str]:
    """Seconds of own, vendor, the best of the library's ways and torch; the errors of own, vendor and torch; the
    library's choice and the best way."""
    import torch

    item = Contraction(gpu, store, case, libraries)
    try:
        generator = torch.Generator("cuda").manual_seed(1)
        known = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
        kinds = [known[b.dtype] for b in item.operands]
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
        wide = torch.float64 if case["work"] < 5e10 else torch.float32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
            exact = _by_torch(instruction, [x.to(wide) for x in xs], out.shape)().double()
        tf32 = isinstance(instruction, GraphOp) and instruction.attrs["compute"] == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
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
            times.append(_median(gpu, work))
        ways = {choice: times[-1]}
        for text, _ in item.candidates()[:best]:
            if text not in ways:
                ways[text] = _median(gpu, item.vendor(text))
        fastest = min(ways, key=ways.__getitem__)
        times += [ways[fastest], _torch_seconds(peer)]
        return times, errors, choice if fastest == choice else f"{choice} -> {fastest}"
    finally:
        item.close()
        torch.cuda.empty_cache()


def _median(gpu: Gpu, work: Any) -> float:
    """Seconds of a call, of graphs of as many as take some milliseconds."""
    [once] = gpu.seconds(work, 1, 1)
    found = gpu.seconds(work, max(1, min(10, int(5e-3 / once))), 9)
    return found[len(found) // 2]


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
    rank = len(shape)
    first, second = (x.permute(to_first(rank)) for x in xs) if last else xs
    stride, pad, dilation = (instruction.attrs[n] for n in ("stride", "pad", "dilation"))
    like = torch.empty(shape, dtype=first.dtype, device="cuda")
    like = like.permute(to_first(rank)) if last else like
    x_too, w_too = {"conv": (first, second), "conv_dgrad": (like, second), "conv_wgrad": (first, like)}[
        instruction.kind
    ]
    groups, none = x_too.shape[1] // w_too.shape[1], [0] * (rank - 2)
    if instruction.kind == "conv":
        convolved = torch.ops.aten.convolution
        made = lambda: convolved(first, second, None, stride, pad, dilation, False, none, groups)  # noqa: E731
    else:
        data = instruction.kind == "conv_dgrad"
        dy, x, weight, mask = (
            (first, like, second, (True, False, False)) if data else (second, first, like, (False, True, False))
        )
        back = torch.ops.aten.convolution_backward
        made = lambda: back(dy, x, weight, None, stride, pad, dilation, False, none, groups, mask)[0 if data else 1]  # noqa: E731
    return (lambda: made().permute(to_last(rank))) if last else made


def _torch_seconds(work: Any) -> float:
    import torch

    for _ in range(3):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    count = max(1, min(10, int(5 / start.elapsed_time(end))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            work()
    times = []
    for _ in range(11):
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / count)
    return sorted(times[2:])[4]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "run"])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", default="")
    parser.add_argument("--best", type=int, default=0, help="how many of the library's ways are timed")
    given = parser.parse_args()
    if given.what == "make":
        make(given.arch, given.only)
    else:
        run(given.only, given.best)
