"""What a training step takes in memory and in time: as it is, with values computed again where that is nearly free, and
within three budgets between that and the least that can be had.

    python benchmarks/budgets.py benchmarks/unrolled_lstm.nn benchmarks/attention_stack.nn
    python benchmarks/budgets.py benchmarks/attention_stack.nn --run     # on a GPU: times, in turns

Bytes are those of a session: state, io and work. Modelled times are those of the roofline model. With ``--run`` losses
and all tensors after five steps must have the bits of the plain step; times are the least of the turns.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dslc.cli.compile import options_of
from dslc.cli.forecast import Forecast, all_sizes, forecasts
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.ops.registry import meanings
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime import measure
from dslc.runtime.load import load
from dslc.runtime.session import Session

#: Of what lies between the plain step and the least bytes, what each budget asks for.
ASKED = (0.4, 0.7, 0.95)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--providers", default="vendor")
    parser.add_argument("--run", action="store_true", help="build, and time on the device")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    return parser.parse_args()


def planned(checked: Checked, options: Options) -> dict[str, tuple[Options, Forecast]]:
    """Each variant's options and plan."""
    [sizes] = all_sizes(checked, {})
    plain, automatic, least = forecasts(checked, options, sizes, ("never", "auto", 1))
    found = {"never": (replace(options, mirror="never"), plain), "auto": (replace(options, mirror="auto"), automatic)}
    budgets = [plain.total - int(share * (plain.total - least.total)) for share in ASKED]
    for budget, plan in zip(budgets, forecasts(checked, options, sizes, tuple(budgets))):
        found[f"{budget / 1e6:,.0f} MB"] = (replace(options, mirror=budget), plan)
    return found


def timed(checked: Checked, variants: dict[str, Options], turns: int, steps: int) -> dict[str, tuple[float, bool]]:
    """Seconds of a step, and whether all bits are those of the first variant."""
    with TemporaryDirectory() as folder:
        sessions: dict[str, Session] = {}
        for number, (name, options) in enumerate(variants.items()):
            path = Path(folder) / f"v{number}.dslc"
            path.write_bytes(build(checked, options).artifact)
            device = "cpu" if options.target == "cpu" else "gpu"
            sessions[name] = load(path, device=device, weights="init", seed=1, meanings=meanings())
        first = next(iter(sessions.values()))
        inputs = measure.random_inputs(first, measure.program_of(first, "train_step", {}))
        losses = {n: [float(s.train_step(**inputs).loss) for _ in range(5)] for n, s in sessions.items()}
        states = {n: {t: v.tobytes() for t, v in s.state_tensors().items()} for n, s in sessions.items()}
        least = dict.fromkeys(sessions, float("inf"))
        for _ in range(turns):
            for name, session in sessions.items():
                start = time.perf_counter()
                for _ in range(steps):
                    result = session.train_step(**inputs)
                float(result.loss)
                least[name] = min(least[name], (time.perf_counter() - start) / steps)
        base = next(iter(sessions))
        return {n: (least[n], losses[n] == losses[base] and states[n] == states[base]) for n in sessions}


def main() -> None:
    args = _arguments()
    for model in args.models:
        checked = check_file(model)
        found = planned(checked, options_of({"target": args.target, "precision": args.precision,
                                             "providers": args.providers}))  # fmt: skip
        times = timed(checked, {n: o for n, (o, _) in found.items()}, args.turns, args.steps) if args.run else {}
        print(f"{checked.name}, {args.precision} for {args.target}\n"
              f"{'mirror':>10} {'bytes':>9} {'of plain':>8} {'again':>6} {'modelled':>9} {'of plain':>8}"
              + ("  measured  of plain" if times else ""))  # fmt: skip
        plain = found["never"][1]
        for name, (_, plan) in found.items():
            line = (f"{name:>10} {plan.total / 1e6:7,.0f}MB {plan.total / plain.total:8.3f} {plan.again:6} "
                    f"{plan.seconds * 1e3:7.2f}ms {plan.seconds / plain.seconds:8.3f}")  # fmt: skip
            if name in times:
                seconds, same = times[name]
                line += f" {seconds * 1e3:7.2f}ms {seconds / times['never'][0]:9.3f}"
                line += "  the same bits" if same else "  OTHER BITS"
            print(line, flush=True)


if __name__ == "__main__":
    main()
