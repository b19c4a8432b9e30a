"""Attention on a GPU: kernels in tiles, cuDNN by dslc, attention in parts, and PyTorch, forward and backward.

    python benchmarks/gpu_attention.py [--only TEXT] [--rounds 9] [--precision tf32]
                                                      on a GPU, with torch, where CUDA can be compiled

Each case has heads in bf16, or f32 whose products are in TF32, with masks, windows, grouped heads of keys or a bias.
``error`` is the root mean square of the difference from a result in f64, by the root mean square of that; PyTorch's is
next to it. Times are medians of CUDA graphs of ten calls each, in turns. ``cuDNN`` is the calls that a build with
libraries may choose, where it computes the case, ``parts`` the same attention with scores in memory. The gradients of
two runs must have the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Final
from unittest import mock
from zlib import crc32

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "support")]

from real_gpu.kernel_store import Writer, arguments  # noqa: E402
from real_gpu.launcher import Gpu  # noqa: E402

from dslc.compiler.codegen.cuda import compile as cuda_compile  # noqa: E402
from dslc.compiler.codegen.cuda.attention import lower as attention  # noqa: E402
from dslc.compiler.codegen.cuda.libraries.cudnn_attention import VendorAttention, attention_call  # noqa: E402
from dslc.compiler.codegen.cuda.lower import lower  # noqa: E402
from dslc.compiler.ir.graph import Input, Kind, Node, Value  # noqa: E402
from dslc.compiler.ir.op import OPS, Builder  # noqa: E402
from dslc.compiler.ir.types import DType, TensorType  # noqa: E402
from dslc.compiler.ops.products.attention_terms import is_plain, plain  # noqa: E402
from dslc.runtime.artifact.plan import Buffer  # noqa: E402
from dslc.runtime.cuda import device as devices  # noqa: E402
from dslc.runtime.cuda.libraries.libraries import Libraries  # noqa: E402
from dslc.runtime.cuda.owned import Owned  # noqa: E402


@dataclass(frozen=True)
class Case:
    """``mask``: of keys (a row of another length for each text), of pairs, or none. ``bias``: one with a gradient for
    the pairs of each head, the same for the whole batch."""

    name: str
    batch: int
    heads: int
    kept: int
    queries: int
    keys: int
    features: int
    causal: bool = False
    window: int = 0
    mask: str = ""
    bias: bool = False


@dataclass(frozen=True)
class Floats:
    """``dtype`` of the operands; ``attrs`` of the nodes; ``torch``: the dtype's name there."""

    dtype: DType
    attrs: dict[str, Any]
    torch: str


FLOATS: Final = {
    "bf16": Floats(DType.BF16, {}, "bfloat16"), "tf32": Floats(DType.F32, {"tf32": True}, "float32")
}  # fmt: skip

CASES: Final = (
    Case("GPT-2, causal", 16, 12, 12, 1024, 1024, 64, causal=True),
    Case("BERT, padding", 32, 12, 12, 128, 128, 64, mask="keys"),
    Case("BERT, 512, padding", 32, 12, 12, 512, 512, 64, mask="keys"),
    Case("ViT", 64, 12, 12, 197, 197, 64),
    Case("windows of Swin", 1024, 4, 4, 49, 49, 32),
    Case("128 features, causal", 4, 16, 16, 2048, 2048, 128, causal=True),
    Case("padding, causal", 8, 12, 12, 1024, 1024, 64, causal=True, mask="keys"),
    Case("mask of pairs", 8, 12, 12, 1024, 1024, 64, mask="pairs"),
    Case("Llama, grouped, causal", 8, 12, 4, 1024, 1024, 64, causal=True),
    Case("one head of keys, causal", 4, 16, 1, 2048, 2048, 128, causal=True),
    Case("256 features, causal", 4, 8, 4, 2048, 2048, 256, causal=True),
    Case("grouped, window 256", 4, 16, 4, 4096, 4096, 64, causal=True, window=256),
    Case("cross attention, padding", 64, 8, 8, 64, 64, 64, mask="keys"),
    Case("cross attention, odd", 16, 8, 4, 77, 203, 32, mask="keys"),
    Case("window to both sides, odd", 8, 8, 8, 1000, 1000, 32, window=100),
    Case("Swin, first stage, bias", 4096, 3, 3, 49, 49, 32, bias=True),
    Case("T5, bias", 16, 12, 12, 512, 512, 64, bias=True),
    Case("bias, odd", 32, 12, 12, 197, 197, 64, bias=True),
)


class Program:
    """Launches over buffers: one of them for each value and block of scratch memory. ``libraries``: they compute what
    they can."""

    def __init__(
        self, gpu: Gpu, nodes: Sequence[Node], given: dict[Value, int], libraries: Libraries | None = None
    ) -> None:
        self.gpu, self.places = gpu, dict(given)
        self.steps: list[Callable[[], None]] = []
        self.own: list[int] = []
        for node in nodes:
            if node.op.view:
                self.places[node.out] = self.places[node.inputs[0]]
                continue
            for value in node.outputs:
                self.places.setdefault(value, self._allocated(value.type.bytes))
            call = attention_call(node) if libraries is not None else None
            if libraries is not None and isinstance(call, VendorAttention):
                self.steps.append(self._call(node, call, libraries))
                continue
            launches = lower(node)
            assert launches is not None, node.op.name
            blocks: dict[Any, int] = {}
            for launch in launches:
                for block in launch.scratch:
                    if block not in blocks:
                        blocks[block] = self._allocated(block.bytes)
            names = [*self.places, *blocks]
            addresses = [*self.places.values(), *blocks.values()]
            numbers = {name: i for i, name in enumerate(names)}
            for launch, told in zip(launches, Writer(gpu.architecture).launches(launches, numbers), strict=True):
                code = cuda_compile.compiled(launch.code, launch.symbol, gpu.architecture)
                kernel, values = gpu.kernel(launch.symbol, code.cubin), arguments(told, addresses)
                self.steps.append(
                    partial(gpu.launch, kernel, told["grid"], told["block"], told["shared"], values, early=True)
                )

    def _call(self, node: Node, call: VendorAttention, libraries: Libraries) -> Callable[[], None]:
        operands = (*node.inputs, *node.outputs)
        buffers = [Buffer("work", 0, v.type.dtype.value, v.type.ints) for v in operands]
        buffers.append(Buffer("work", 0, "u8", (call.room,)))
        places = [*(self.places[v] for v in operands), self._allocated(call.room)]
        count = len(operands)
        run = libraries.call(call.instruction(range(count), count, 0), buffers, places.__getitem__)
        return lambda: run.enqueue(self.gpu.stream)

    def _allocated(self, size: int) -> int:
        self.own.append(self.gpu.allocate(size))
        return self.own[-1]

    def run(self) -> None:
        for step in self.steps:
            step()

    def free(self) -> None:
        for address in self.own:
            self.gpu.free(address)


def nodes_of(case: Case, floats: Floats) -> tuple[dict[str, Value], Node, Node]:
    """Inputs by name, the forward node and its gradient."""
    by_query = (case.batch, case.heads, case.queries, case.features)
    by_key = (case.batch, case.kept, case.keys, case.features)
    shapes = {"q": by_query, "k": by_key, "v": by_key, "dy": by_query}
    values = {n: Input(n, Kind.DATA, TensorType(floats.dtype, s)).value for n, s in shapes.items()}
    if case.mask:
        shape = (case.batch, 1, 1 if case.mask == "keys" else case.queries, case.keys)
        values["mask"] = Input("mask", Kind.DATA, TensorType(DType.B1, shape)).value
    if case.bias:
        type = TensorType(floats.dtype, (case.heads, case.queries, case.keys))
        values["bias"] = Input("bias", Kind.DATA, type).value
    attrs: dict[str, Any] = {"causal": case.causal, "scale": case.features**-0.5, **floats.attrs}
    attrs |= {"window": case.window} if case.window else {}
    terms, trained = [values[n] for n in ("mask", "bias") if n in values], {"bias": True} if case.bias else {}
    q, k, v = (values[n] for n in "qkv")
    forward = Builder(name="here").node(OPS["sdpa"], q, k, v, *terms, **attrs)
    given = (q, k, v, *forward.outputs, values["dy"], *terms)
    return values, forward, Builder(name="here").node(OPS["sdpa_grad"], *given, **attrs, **trained)


def in_parts(gpu: Gpu, case: Case, floats: Floats, given: dict[str, int]) -> Program:
    """The same with all scores in memory; grouped heads are heads with more queries, a window is a mask that was made
    before."""
    values, forward, back = nodes_of(case, floats)
    made: list[Node] = []

    def emit(op: Any, *inputs: Value, **attrs: Any) -> Value:
        made.append(Builder(name="here").node(op, *inputs, **attrs))
        return made[-1].out

    mask = values.get("mask")
    if not is_plain(forward):
        masks = [] if mask is None else [mask]
        heads, mask, _, causal = plain(emit, values["q"], values["k"], masks, forward.attrs)
        scale = forward.attrs["scale"]
        q, dy = heads.joined(values["q"]), heads.joined(values["dy"])
        more = [] if mask is None else [mask]
        attrs = {"causal": causal, "scale": scale, **floats.attrs}
        forward = Builder(name="here").node(OPS["sdpa"], q, values["k"], values["v"], *more, **attrs)
        found = (q, values["k"], values["v"], *forward.outputs, dy, *more)
        back = Builder(name="here").node(OPS["sdpa_grad"], *found, **attrs)
    places = {value: given[name] for name, value in values.items()}
    for_masks = Program(gpu, made, places)
    for_masks.run()
    gpu.wait()
    with mock.patch.object(attention, "fits_tiles", lambda node: False):
        return Program(gpu, [forward, back], for_masks.places)


def tensors(case: Case, floats: Floats) -> dict[str, Any]:
    """Inputs of PyTorch on the GPU; a mask always has a key for each query but for the last query of pairs."""
    import torch

    values, _, _ = nodes_of(case, floats)
    generator = torch.Generator("cuda").manual_seed(crc32(case.name.encode()))
    shapes = {n: v.type.ints for n, v in values.items() if n != "mask"}
    kind = getattr(torch, floats.torch)
    found = {n: torch.randn(s, generator=generator, device="cuda").to(kind) for n, s in shapes.items()}
    if case.mask == "keys":
        ends = torch.randint(1, case.keys + 1, (case.batch, 1, 1, 1), generator=generator, device="cuda")
        found["mask"] = torch.arange(case.keys, device="cuda") < ends
    elif case.mask:
        shape = values["mask"].type.ints
        found["mask"] = torch.rand(shape, generator=generator, device="cuda") < 0.5
        found["mask"][..., 0] = True
    return found


def exact(case: Case, xs: dict[str, Any]) -> list[Any]:
    """In f64, head by head."""
    import torch

    share = case.heads // case.kept
    q, k, v, dy = (xs[n].double() for n in ("q", "k", "v", "dy"))
    allowed = xs.get("mask", torch.ones((), dtype=torch.bool, device="cuda")).expand(
        case.batch, 1, case.queries, case.keys
    )
    ahead = torch.arange(case.keys, device="cuda") - torch.arange(case.queries, device="cuda")[:, None]
    allowed = allowed & (ahead <= 0) if case.causal else allowed
    allowed = allowed & (ahead.abs() < case.window) if case.window else allowed
    y, lse, dq = torch.empty_like(q), q.new_empty(q.shape[:-1]), torch.empty_like(q)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    bias = xs["bias"].double() if case.bias else q.new_zeros((case.heads, 1, 1))
    of_bias = torch.zeros_like(bias)
    for r in range(case.batch):
        for h in range(case.heads):
            s = q[r, h] @ k[r, h // share].T * case.features**-0.5 + bias[h]
            s = s.masked_fill(~allowed[r, 0], -torch.inf)
            lse[r, h] = s.logsumexp(-1)
            p = (s - lse[r, h].nan_to_num(neginf=0.0)[:, None]).exp()
            y[r, h] = p @ v[r, h // share]
            slope = p * (dy[r, h] @ v[r, h // share].T - (dy[r, h] * y[r, h]).sum(-1, keepdim=True))
            of_bias[h] += slope if case.bias else 0
            slope *= case.features**-0.5
            dq[r, h] = slope @ k[r, h // share]
            dk[r, h // share] += slope.T @ q[r, h]
            dv[r, h // share] += p.T @ dy[r, h]
    return [y, lse, dq, dk, dv, *([of_bias] if case.bias else [])]


def by_torch(case: Case, xs: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward, and forward with gradients, which returns y and these. A bias is a mask of floats there."""
    import torch

    mask = xs.get("mask")
    if case.window or (case.causal and mask is not None):
        ahead = torch.arange(case.keys, device="cuda") - torch.arange(case.queries, device="cuda")[:, None]
        near = ahead.abs() < (case.window or case.keys)
        near = near & (ahead <= 0) if case.causal else near
        mask = near if mask is None else near & mask
    q, k, v, *bias = (xs[n].detach().requires_grad_() for n in ("q", "k", "v", "bias") if n in xs)
    if bias:
        mask = bias[0].expand(case.batch, *bias[0].shape)
    more: dict[str, Any] = {"is_causal": True} if case.causal and mask is None else {"attn_mask": mask}
    more |= {"enable_gqa": True} if case.heads != case.kept else {}

    def forward() -> Any:
        with torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **more)

    def both() -> Any:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **more)
        return y.detach(), *torch.autograd.grad(y, (q, k, v, *bias), xs["dy"])

    return forward, both


def torch_seconds(work: Callable[[], Any], rounds: int) -> float:
    """The median of CUDA graphs of ten calls."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            work()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e4)
    return statistics.median(times)


def read(gpu: Gpu, address: int, like: Any) -> Any:
    """A copy of ours as a tensor of PyTorch."""
    import torch

    found = torch.empty_like(like)
    gpu.copy(found.data_ptr(), address, found.numel() * found.element_size())
    gpu.wait()
    return found


def error(found: Any, wanted: Any) -> float:
    """Root mean square of the difference by that of what is wanted; inf where one of both is not finite alone."""
    import torch

    known = torch.isfinite(wanted)
    if not torch.equal(known, torch.isfinite(found)):
        return float("inf")
    found, wanted = found.double()[known], wanted[known]
    return float((found - wanted).pow(2).mean().sqrt() / wanted.pow(2).mean().sqrt())


def results(gpu: Gpu, program: Program, nodes: Sequence[Node], like: Sequence[Any]) -> list[Any]:
    """What a run of the program makes of its inputs."""
    program.run()
    gpu.wait()
    outputs = [program.places[v] for node in nodes for v in node.outputs]
    return [read(gpu, address, each) for address, each in zip(outputs, like, strict=True)]


def rows(gpu: Gpu, libraries: Libraries, floats: Floats, only: str, rounds: int) -> Iterator[str]:
    """A line of the table for each case."""
    import torch

    for case in CASES:
        if only not in case.name:
            continue
        xs, (values, forward, back) = tensors(case, floats), nodes_of(case, floats)
        torch.cuda.synchronize()
        given = {n: x.data_ptr() for n, x in xs.items()}
        places = {value: given[name] for name, value in values.items()}
        nodes = [forward, back]
        made = {name: [Program(gpu, nodes[: n + 1], places, by) for n in range(2)]
                for name, by in (("ours", None), ("cuDNN", libraries))
                if by is None or all(isinstance(attention_call(node), VendorAttention) for node in nodes)}  # fmt: skip
        parts, wanted = in_parts(gpu, case, floats, given), exact(case, xs)
        kinds = [wanted[1].float() if n == 1 else x.to(xs["q"].dtype) for n, x in enumerate(wanted)]
        torch.cuda.synchronize()
        same, errors = True, []
        for _, both in made.values():
            found, again = (results(gpu, both, nodes, kinds) for _ in range(2))
            same = same and all(torch.equal(a, b) for a, b in zip(found, again))
            errors += [error(a, b) for a, b in zip(found, wanted)]
        theirs = by_torch(case, xs)
        y, *slopes = theirs[1]()
        others = [error(a, b) for a, b in zip((y, *slopes), (wanted[0], *wanted[2:]))]
        times = {
            name: [statistics.median(gpu.seconds(each.run, 10, rounds)) for each in pair] for name, pair in made.items()
        }
        one, both = times["ours"]
        called = times.get("cuDNN", [float("nan")] * 2)
        peers = [torch_seconds(each, rounds) for each in theirs]
        slow = statistics.median(gpu.seconds(parts.run, 3, rounds))
        flops = 4 * prod((case.batch, case.heads, case.queries, case.keys, case.features)) / (2 if case.causal else 1)
        shown = " ".join(f"{1e6 * t:9.1f}" for t in (one, both, *called, *peers, slow))
        worst, peer = max(errors), max(others)
        verdict = "" if same and worst < 3 * peer + 1e-3 else "  WRONG"
        yield (
            f"{case.name:27} {shown} {peers[1] / min(both, called[1]):8.2f} {flops * 3.5 / both / 1e12:7.0f} "
            f"{worst:.1e} {peer:.1e} {'same' if same else 'other'} bits{verdict}"
        )
        for program in (*(each for pair in made.values() for each in pair), parts):
            program.free()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this text in their names")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--precision", choices=list(FLOATS), default="bf16")
    asked = parser.parse_args()
    columns = "".join(f"{name:>10}" for name in ("forward", "both", "cuDNN f", "cuDNN", "torch f", "torch", "parts"))
    print(f"{'us':27}{columns} torch/us TFLOP/s   worst error, torch's")
    import torch

    torch.backends.cuda.matmul.allow_tf32 = asked.precision == "tf32"
    gpu, device = Gpu(), devices.device(0)
    with device, closing(Owned(device)) as owned:
        for line in rows(gpu, Libraries(device, owned), FLOATS[asked.precision], asked.only, asked.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
