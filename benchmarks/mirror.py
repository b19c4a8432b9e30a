"""Compares a training step with recomputed values with the plain step: bytes, bits and time, alternating.

    python benchmarks/mirror.py examples/resnet/resnet.nn:ResNet50 --size B=256 --target sm_90 --precision bf16 \
        --providers vendor --mirror never auto 7.9GB 6.9GB

Losses and all tensors after a few steps must have the bits of the first variant. Times are the least of the turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from variants import Builder, compared


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


def main() -> None:
    args = _arguments()
    given = ["--target", args.target, "--providers", args.providers]
    given += ["--size", f"train:{args.size}"] if args.size else []
    given += ["--precision", args.precision] if args.precision else []
    with TemporaryDirectory() as folder:
        builder = Builder(Path(folder), given)
        started = {mirror: builder.start(args.model, mirror) for mirror in args.mirror}
        made = {mirror: future.result() for mirror, future in started.items()}
        found = compared(made, "cpu" if args.target == "cpu" else "gpu", args.turns, args.steps)
    base = found[args.mirror[0]][0]
    for mirror, (seconds, same) in found.items():
        said = f"{made[mirror].bytes / 1e9:7.3f} GB, modelled {made[mirror].share:+.2%}"
        print(f"{mirror:8} {seconds * 1e3:9.3f} ms, {seconds / base:.4f} of {args.mirror[0]}; {said}; "
              f"{'the same bits' if same else 'OTHER BITS'}")  # fmt: skip


if __name__ == "__main__":
    main()
