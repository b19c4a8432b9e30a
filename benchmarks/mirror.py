"""A training step with values computed again, beside the plain one: bytes, bits and time, in turns.

    python benchmarks/mirror.py examples/resnet/resnet.nn:ResNet50 --size B=256 --target sm_90 --precision bf16 \
        --providers vendor --mirror never auto 7.9GB 6.9GB

Losses and all tensors after a few steps must have the bits of the first variant. Times are the least of the turns.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from dslc.cli.compile import options_of
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.pipeline import build
from dslc.runtime import measure
from dslc.runtime.load import load
from dslc.runtime.session import Session


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("--size", default="", help="B=256")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--precision")
    parser.add_argument("--providers", default="auto")
    parser.add_argument("--mirror", nargs="+", default=["never", "auto"])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    return parser.parse_args()


def _session(args: argparse.Namespace, mirror: str, folder: Path) -> tuple[Session, str]:
    """A session of the variant, and what its plan takes."""
    dim, _, size = args.size.partition("=")
    options = {"target": args.target, "providers": args.providers, "mirror": mirror,
               "sizes": {"train": {dim: int(size)}} if dim else {}}  # fmt: skip
    if args.precision:
        options["precision"] = args.precision
    made = build(check_file(args.model), options_of(options))
    path = folder / f"{mirror}.dslc"
    path.write_bytes(made.artifact)
    step = next(r for r in made.reports if r.entry == "train_step")
    planned = made.header["state"]["bytes"] + step.io_bytes + step.work_bytes
    said = f"{planned / 1e9:7.3f} GB" + ("" if step.mirrored is None else f", modelled {step.mirrored.share:+.2%}")
    return load(
        path, device="cpu" if args.target == "cpu" else "gpu", weights="init", seed=1, meanings=meanings()
    ), said


def main() -> None:
    args = _arguments()
    with TemporaryDirectory() as folder:
        made = {mirror: _session(args, mirror, Path(folder)) for mirror in args.mirror}
        sessions = {mirror: session for mirror, (session, _) in made.items()}
        first = next(iter(sessions.values()))
        inputs = measure.random_inputs(first, measure.program_of(first, "train_step", {}))
        losses = {m: [float(s.train_step(**inputs).loss) for _ in range(5)] for m, s in sessions.items()}
        states = {m: {n: v.tobytes() for n, v in s.state_tensors().items()} for m, s in sessions.items()}
        times: dict[str, list[float]] = {mirror: [] for mirror in sessions}
        for _ in range(args.turns):
            for mirror, session in sessions.items():
                start = time.perf_counter()
                for _ in range(args.steps):
                    result = session.train_step(**inputs)
                float(result.loss)
                times[mirror].append((time.perf_counter() - start) / args.steps)
        base = args.mirror[0]
        for mirror, (_, said) in made.items():
            same = losses[mirror] == losses[base] and states[mirror] == states[base]
            least = min(times[mirror])
            print(f"{mirror:8} {least * 1e3:9.3f} ms, {least / min(times[base]):.4f} of {base}; {said}; "
                  f"{'the same bits' if same else 'OTHER BITS'}")  # fmt: skip


if __name__ == "__main__":
    main()
