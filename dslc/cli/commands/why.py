"""``dslc why``"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.commands.show import ENTRY_HELP, EntryName
from dslc.cli.options import PRECISION_HELP, define_option, gpu_option, size_option
from dslc.cli.origins import placed
from dslc.cli.output import emit, size_text, table

if TYPE_CHECKING:
    from dslc.compiler.ir.program import Program
    from dslc.compiler.report.history import Change, Ending, History

_FLOATS: Final = re.compile(r"\b(?:f16|bf16|f32|f64)(?=\[)")
_SHOWN: Final = 16  # identical lines of each kind; --json has all


@click.command(cls=Command)
@click.argument("node", metavar="NODE|FILE:LINE")
@click.argument("model", metavar="[FILE[:MODEL]]", required=False)
@click.option("--entry", type=EntryName(), metavar="NAME", help=ENTRY_HELP)
@click.option("--target", metavar="NAME", help="The target of the build.")
@click.option("--precision", metavar="NAME", help=PRECISION_HELP)
@click.option("--providers", metavar="NAME", help="As in `dslc build`.")
@define_option
@size_option
@gpu_option
def command(
    node: str,
    model: str | None,
    entry: str | None,
    target: str | None,
    precision: str | None,
    providers: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
    gpu: str | None,
) -> None:
    """Explain what the compiler did with a node or a line.

    NODE is a name in the model, e.g. `c1`, or `stage.1` with everything below it; FILE:LINE is a line, e.g.
    `lenet.nn:7`. Without FILE, the model of ./dslc.yaml is used. Shows the nodes after each pass that changed them,
    each node's step, bytes, kernels and modelled time in the finished program, the class that describes each kernel
    and its launch, which lines are slow, and what passes did not do and why. In a model of 16 bits it shows the dtype
    of each node and why; in a build with libraries, whether a library or own kernels compute a node and why.
    """
    from dslc.cli.requests import chosen_entry, requested
    from dslc.compiler.options import precision_of
    from dslc.compiler.passes.order import PLANNED
    from dslc.compiler.pipeline import compile_entry, inspect_prepare
    from dslc.compiler.report.history import history, wanted
    from dslc.compiler.report.slow import slow_lines
    from dslc.runtime.artifact.header_schema import PREPARE

    request = requested(model, target=target, precision=precision, defines=defines, size=size)
    options = request.options(locked=False, gpu=gpu, providers=providers)  # nothing is built
    entry, sizes = chosen_entry(request, entry, options)
    programs: dict[str, Program] = {}
    with placed(request.config):
        if entry == PREPARE:
            inspect_prepare(request.checked, options, after=PLANNED, keep=programs.__setitem__)
        else:
            compile_entry(request.checked, entry, sizes, options, keep=programs.__setitem__)
    chosen = wanted(node, programs.values())
    never = ["requested (mirror: never)"] if options.mirror == "never" else []
    tuned = {target: each.choices for target, each in options.tuned.items()}
    slow = slow_lines([list(programs.values())[-1]], tuned)
    found = history(programs, chosen, mirror=never, asked=precision_of(request.checked, options), slow=slow)
    head = f"{entry} {' '.join(f'{n}={v}' for n, v in sizes.items())} for {options.targets[0]}".replace("  ", " ")
    data = {"node": node, "entry": entry, "sizes": dict(sizes), "target": options.targets[0], **found.as_json()}
    emit(data, "\n".join([one_line(f"{node} in {head}"), *_text(found)]))


def _text(found: History) -> Iterable[str]:
    if found.inputs:
        yield ""
        yield from _alike(found.inputs, "  ")
    for change in found.changes:
        yield from _change(change)
    yield ""
    if found.endings:
        yield "in the end"
        yield table(
            ("step", "node", "phase", "runs as", "in memory", "bytes", "modelled", "bound by"),
            [_row(e) for e in found.endings[:_SHOWN]],
            (0, 5, 6),
        )
        if len(found.endings) > _SHOWN:
            yield f"and {len(found.endings) - _SHOWN} more nodes"
        if kernels := [text for ending in found.endings[:_SHOWN] for text in ending.kernels]:
            yield ""
            yield "kernels"
            yield from _alike(kernels, "  ")
    elif found.changes or not found.inputs:
        yield "no node of the finished program comes from it: no result needs it, or an equal node replaces it"
    if found.reasons:
        yield ""
        yield from _alike(found.reasons, "")


def _change(change: Change) -> Iterable[str]:
    yield ""
    yield {"input": "as written"}.get(change.name, change.name)
    if sorted(map(_without_dtype, change.gone)) == sorted(map(_without_dtype, change.new)):
        yield from _alike(change.new, "  = ")
        return
    yield from _alike(change.gone, "  - ")
    yield from _alike(change.new, "  + ")


def _without_dtype(text: str) -> str:
    """A node's text without its float types, so that a node is recognised before and after a change of precision."""
    return _FLOATS.sub("", text)


def _alike(texts: Iterable[str], before: str) -> Iterable[str]:
    """Each distinct text once, with the number of its occurrences."""
    counted = Counter(texts)
    for text, count in list(counted.items())[:_SHOWN]:
        yield one_line(f"{before}{text}") + (f"  ({count} times)" if count > 1 else "")
    if len(counted) > _SHOWN:
        yield f"{before}and {sum(list(counted.values())[_SHOWN:])} more"


def _row(ending: Ending) -> tuple[str, ...]:
    from dslc.base.words import time_text

    is_view = ending.runs == ("a view",)
    runs = ending.runs[0] + (f" and {len(ending.runs) - 1} more" if len(ending.runs) > 1 else "")
    places = ending.places[0] + (f" and {len(ending.places) - 1} more" if len(ending.places) > 1 else "")
    return (
        str(ending.step) + (f" on stream {ending.stream}" if ending.stream else ""),
        f"{ending.node.partition(' : ')[0]}  {ending.name}",
        ending.phase,
        runs,
        places,
        "" if is_view else size_text(ending.bytes),
        "" if is_view else time_text(ending.seconds),
        ending.bound,
    )
