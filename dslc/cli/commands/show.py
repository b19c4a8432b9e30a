"""``dslc show``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.options import PRECISION_HELP, define_option, gpu_option, size_option
from dslc.cli.origins import placed
from dslc.cli.output import emit

if TYPE_CHECKING:
    from dslc.cli.requests import Request
    from dslc.compiler.ir.program import Program
    from dslc.compiler.options import Options

ENTRIES = ("init", "accumulate_step", "train_step", "update_step", "eval_step", "eval_finish", "prepare", "predict")
ENTRY_HELP = f"The entry: {', '.join(ENTRIES)}; default: train_step, else predict."


class EntryName(click.Choice[str]):
    """One of ``ENTRIES``, also with the name of a later update that has programs of its own: ``train_step.NAME``."""

    def __init__(self) -> None:
        super().__init__(ENTRIES)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        entry, dot, turn = value.partition(".")
        return f"{super().convert(entry, param, ctx)}{dot}{turn}"


@click.command(cls=Command)
@click.argument("model", metavar="[FILE[:MODEL]]", required=False)
@click.option("--entry", type=EntryName(), metavar="NAME", help=ENTRY_HELP)
@click.option("--after", metavar="PASS", help="Show the graph after this pass.")
@click.option("--diff", metavar="PASS", help="Show what this pass changes.")
@click.option("--svg", metavar="FILE", help="Write a picture of the graph.")
@click.option("--target", metavar="NAME", help="The target of the build.")
@click.option("--precision", metavar="NAME", help=PRECISION_HELP)
@click.option("--providers", metavar="NAME", help="As in `dslc build`.")
@define_option
@size_option
@gpu_option
def command(
    model: str | None,
    entry: str | None,
    after: str | None,
    diff: str | None,
    svg: str | None,
    target: str | None,
    precision: str | None,
    providers: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
    gpu: str | None,
) -> None:
    """Print a model's graph, as checked or after a pass.

    Without FILE, the model of ./dslc.yaml.
    """
    from dslc.cli.requests import requested
    from dslc.cli.views.graphs import difference, memory_text
    from dslc.compiler.ir.text import format_graph

    if after is not None and diff is not None:
        raise click.UsageError("--after and --diff exclude each other")
    request = requested(model, target=target, precision=precision, defines=defines, size=size)
    options = request.options(locked=False, gpu=gpu, providers=providers)  # nothing is built
    if after is None and diff is None and entry is None:
        graph, text = request.checked.graph, format_graph(request.checked.graph)
    elif diff is not None:
        program = _compile(request, entry, options, diff)
        graph = program.graph
        text = difference(format_graph(_before(request, entry, options, diff).graph), format_graph(graph))
    else:
        program = _compile(request, entry, options, after)
        graph, text = program.graph, format_graph(program.graph) + memory_text(program)
    data = {"model": request.checked.name, "entry": entry, "after": after, "diff": diff, "text": text, "svg": svg}
    if svg is None:
        emit(data, text.rstrip("\n"))
        return
    from dslc.base.publish import publish_bytes
    from dslc.compiler.report.graph_svg import svg as draw

    publish_bytes(Path(svg), draw(graph).encode())
    emit(data, one_line(f"wrote {svg}: {len(graph.nodes)} nodes"))


def _compile(request: Request, entry: str | None, options: Options, after: str | None) -> Program:
    """The Program of an entry after the given pass; before all passes for None."""
    from dslc.cli.requests import chosen_entry
    from dslc.compiler.options import precision_of
    from dslc.compiler.pipeline import compile_entry, cut, inspect_prepare
    from dslc.runtime.artifact.header_schema import PREPARE

    wanted, sizes = chosen_entry(request, entry, options)
    if wanted == PREPARE:
        with placed(request.config):
            return inspect_prepare(request.checked, options, after=after)
    if after is None:
        return cut(request.checked, wanted, sizes, precision_of(request.checked, options).loss_scale)
    with placed(request.config):
        program, _ = compile_entry(request.checked, wanted, sizes, options, after=after)
    return program


def _before(request: Request, entry: str | None, options: Options, name: str) -> Program:
    from dslc.compiler.passes.order import PIPELINE, PLANNING
    from dslc.compiler.passes.runner import pass_name
    from dslc.runtime.artifact.header_schema import PREPARE

    names = [pass_name(step) for step in (PLANNING if entry == PREPARE else PIPELINE)]
    at = names.index(name)
    return _compile(request, entry, options, names[at - 1] if at else None)
