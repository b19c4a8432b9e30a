"""What a training step takes in memory and in time: as it is, with values computed again where that is nearly free, and
within three budgets between that and the least that can be had.

    python benchmarks/budgets.py benchmarks/unrolled_lstm.nn benchmarks/attention_stack.nn
    python benchmarks/budgets.py benchmarks/attention_stack.nn --run     # on a GPU: times, in turns

Bytes are those of a session: state, io and work. Modelled times are those of the roofline model, as parts of the plain
step's. With ``--run`` losses and all tensors after five steps must have the bits of the plain step; times are the least
of the turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from variants import Builder, compared

from dslc.cli.build_options import options_of
from dslc.cli.views.forecast import Forecast, all_sizes, forecasts
from dslc.compiler.check.model import Checked, check_file
from dslc.compiler.options import Options

#: Of what lies between the plain step and the least bytes, what each budget asks for.
ASKED = (0.4, 0.7, 0.95)
_HEAD = f"\n{'mirror':>10} {'bytes':>9} {'of plain':>8} {'again':>6} {'modelled':>8}"


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


def planned(checked: Checked, options: Options) -> tuple[dict[str, Forecast], list[int]]:
    """The plans of the plain step and of ``auto``, and the budgets."""
    [sizes] = all_sizes(checked, {})
    plain, automatic, least = forecasts(checked, options, sizes, ("never", "auto", 1))
    budgets = [plain.total - int(share * (plain.total - least.total)) for share in ASKED]
    return {"never": plain, "auto": automatic}, budgets


def foreseen(model: str, options: Options) -> None:
    """Prints what each variant will take."""
    checked = check_file(model)
    plans, budgets = planned(checked, options)
    [sizes] = all_sizes(checked, {})
    for budget, plan in zip(budgets, forecasts(checked, options, sizes, tuple(budgets))):
        plans[f"{budget / 1e6:,.0f} MB"] = plan
    print(f"{checked.name}{_HEAD}", flush=True)
    plain = plans["never"]
    for name, plan in plans.items():
        print(_line(name, plan.total, plain.total, plan.again, plan.seconds / plain.seconds), flush=True)


def measured(models: Sequence[str], options: Options, given: Sequence[str], turns: int, steps: int) -> None:
    """Prints what each variant takes on the device. Models are timed when all is built."""
    with TemporaryDirectory() as folder:
        builder = Builder(Path(folder), given)
        started = {model: {mirror: builder.start(model, mirror) for mirror in ("never", "auto")} for model in models}
        for model, variants in started.items():
            _, budgets = planned(check_file(model), options)
            variants |= {f"{budget / 1e6:,.0f} MB": builder.start(model, f"{budget}B") for budget in budgets}
        built = {m: {name: v.result() for name, v in variants.items()} for m, variants in started.items()}
        for model, made in built.items():
            times = compared(made, "cpu" if options.target == "cpu" else "gpu", turns, steps)
            print(f"{model}{_HEAD}  measured  of plain", flush=True)
            for name, variant in made.items():
                seconds, same = times[name]
                line = _line(name, variant.bytes, made["never"].bytes, variant.again, 1 + variant.share)
                line += f" {seconds * 1e3:7.2f}ms {seconds / times['never'][0]:9.3f}"
                print(f"{line}  {'the same bits' if same else 'OTHER BITS'}", flush=True)


def _line(name: str, taken: int, plain: int, again: int, modelled: float) -> str:
    return f"{name:>10} {taken / 1e6:7,.0f}MB {taken / plain:8.3f} {again:6} {modelled:8.3f}"


def main() -> None:
    args = _arguments()
    asked = {"target": args.target, "precision": args.precision, "providers": args.providers}
    if args.run:
        given = [text for name, value in asked.items() for text in (f"--{name}", value)]
        measured(args.models, options_of(asked), given, args.turns, args.steps)
    else:
        for model in args.models:
            foreseen(model, options_of(asked))


if __name__ == "__main__":
    main()
