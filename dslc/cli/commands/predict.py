"""``dslc predict``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import artifact_to_run, require_weights_of, session_of
from dslc.cli.generation import Wish, write_text
from dslc.cli.options import trust_option
from dslc.cli.output import emit, say

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked
    from dslc.compiler.foreseen import Foreseen
    from dslc.runtime.artifact.interface import Interface
    from dslc.runtime.config.config import Config
    from dslc.runtime.data.source import Source
    from dslc.runtime.session.session import Session
    from dslc.runtime.train.data import Dataset

_UNCLEAR = (
    "the target `{0}` is scaled, and it is not clear which result predicts it: results stay scaled. "
    "Name the result `{0}`, or use session.data.decode"
)


@click.command(cls=Command)
@click.argument("inputs", nargs=-1, metavar="[[NAME=]SOURCE...]")
@click.option("-o", "out", metavar="FILE", help="Output: .csv, .jsonl, .parquet, .npz, or .npy for one result.")
@click.option("--artifact", metavar="PATH", help="A .dslc file or its folder; default: the artifact of ./dslc.yaml.")
@click.option("--weights", metavar="FILE", help="Use these weights instead of the published ones.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto.")
@click.option(
    "--workers", type=click.IntRange(0, 256), default=0, metavar="N", help="Processes that read ahead; default: 0."
)
@click.option(
    "--rows",
    "names",
    metavar="COLUMN",
    help="Names of the rows: a column of the data, or of another table: x.csv:id.",
)
@click.option(
    "--generate", type=click.IntRange(0, 1_000_000_000), metavar="N", help="Write N tokens after each --prompt."
)
@click.option("--prompt", "prompts", multiple=True, metavar="TEXT", help="The beginning of a text. Repeatable.")
@click.option("--temperature", type=float, default=1.0, metavar="X", help="0: the most likely token; default: 1.")
@click.option("--top-k", type=int, metavar="K", help="Draw from the K most likely tokens only.")
@click.option("--top-p", type=float, metavar="P", help="Draw from the fewest tokens whose total probability is P.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of the draws; default: 0.")
@click.option("--stop", type=int, multiple=True, metavar="TOKEN", help="A text ends with this token. Repeatable.")
@click.option("--ids", is_flag=True, help="Prompts and texts are numbers of tokens, such as 15,2,7.")
@click.option("--tokenizer", metavar="FILE", help="The tokenizer of prompts; default: data.tokenizer, else bytes.")
@trust_option
def command(
    inputs: tuple[str, ...],
    out: str | None,
    artifact: str | None,
    weights: str | None,
    device: str,
    workers: int,
    names: str | None,
    generate: int | None,
    prompts: tuple[str, ...],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    stop: tuple[int, ...],
    ids: bool,
    tokenizer: str | None,
    trust: bool,
) -> None:
    """Run a model on data in files, or let it write text.

    SOURCE is data as in dslc.yaml: `file.npz:x`, `file.npy`, `new.csv:area,rooms`, `photos/:image`. Without its key,
    it takes that of dslc.yaml: `new.csv`, `photos/`. NAME is the model's input; a model with one input needs none.
    Without any SOURCE, the data is that of data.eval. A table has a row's name or number, the class of a classifier,
    and the results. If a target was scaled for training, its predictions are in the units of the data, and NAME.scaled
    holds the model's own results.

    With --generate, a model that maps tokens [B, T] to logits [B, T, V], or [B, V], writes N tokens after each
    --prompt. Equal seeds give equal texts. `session.generate` in Python does the same.
    """
    if generate is not None:
        if inputs or out is not None or names is not None:
            raise click.UsageError("--generate reads --prompt and prints the text: it takes no SOURCE, -o or --rows")
        config = _config() if artifact is None else None
        named = Path(tokenizer) if tokenizer is not None else None if config is None else config.data.tokenizer
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "stop": stop}
        wish = Wish(generate, prompts or ("\n",), options, ids, named)
        with session_of(
            artifact_to_run(artifact, trust=trust, device=device), device=device, weights=weights, use="predict"
        ) as found:
            require_weights_of(found, found.interface.name)
            write_text(found, wish)
        return
    if prompts or ids or stop or tokenizer is not None:
        raise click.UsageError("--prompt, --ids, --stop and --tokenizer belong to --generate N")
    if out is None:
        raise click.UsageError("Missing option '-o'.")
    _to_file(inputs, out, artifact, weights, device, workers, names, trust)


def _to_file(
    inputs: tuple[str, ...],
    out: str,
    artifact: str | None,
    weights: str | None,
    device: str,
    workers: int,
    names: str | None,
    trust: bool,
) -> None:
    from dslc.runtime.data.columns.fitted import Fitted
    from dslc.runtime.predict.files import FORMATS, check_folder, check_target, write
    from dslc.runtime.predict.layout import class_names, layout_of
    from dslc.runtime.predict.rows import Rows, open_rows
    from dslc.runtime.predict.sources import naming, of_weights, sources
    from dslc.runtime.predict.units import units_of
    from dslc.runtime.train.files import require_weights

    target = Path(out)
    if target.suffix not in FORMATS:
        raise click.BadParameter(f"{out!r} ends in none of {', '.join(FORMATS)}", param_hint="-o")
    config = _config() if artifact is None else None
    check_folder(target)
    if weights not in (None, "init"):
        require_weights(Path(weights))
    ahead = None if config is None else _opened(config, target, inputs, weights, names)  # refused before the build
    found = artifact_to_run(artifact, trust=trust, device=device, checked=None if ahead is None else ahead.checked)
    with session_of(found, device=device, weights=weights, use="predict") as session:
        face = session.interface
        require_weights_of(session, face.name)
        check_target(target, face)
        fitted = Fitted.of_notes(session.weights.notes, "the weights") or Fitted()
        if ahead is not None and ahead.fits(session):
            rows = Rows(session, *ahead.data)
        else:
            given = sources(inputs, [tensor.name for tensor in face.inputs], _known(config, inputs, of_weights(fitted)))
            named = None if names is None else naming(names, given)
            rows = open_rows(session, given, _notice, None if config is None else config.data, named)
        units = units_of(face, fitted, single=target.suffix == ".npy")
        check_target(target, units.interface)
        for name in units.unclear:
            say(one_line(_UNCLEAR.format(name)), err=True)
        classes, face = class_names(face, fitted), units.interface
        shapes = write(target, units.parts(rows.batches(workers)), lambda: layout_of(face, classes), face)
    dtypes = _dtypes(face)
    told = dict.fromkeys(units.names, " (in the units of the data)")
    text = ", ".join(f"{name} {dtypes[name]}{shape}{told.get(name, '')}" for name, shape in shapes.items())
    emit({"out": str(target), "rows": rows.count, "results": shapes}, one_line(f"wrote {target}: {text}"))


def _config() -> Config:
    from dslc.cli.settings import default_config

    return default_config("name an artifact: build/NAME")


@dataclass(frozen=True)
class _Ahead:
    """The data as it was opened before the build, for the artifact that a build would make."""

    checked: Checked
    model: Foreseen
    data: tuple[Dataset, Sequence[str] | None]

    def fits(self, session: Session) -> bool:
        """False for an artifact that was built with other options, which may be used as well."""
        sizes = [[dict(p.sizes) for p in each.artifact.programs("predict")] for each in (self.model, session)]
        return sizes[0] == sizes[1] and self.model.interface == session.interface


def _opened(
    config: Config, target: Path, inputs: tuple[str, ...], weights: str | None, names: str | None
) -> _Ahead | None:
    """Check what the command reads and open its data, before a build, which takes longer. None without the compiler:
    then nothing is built."""
    from dslc.base.version import has_compiler
    from dslc.cli.artifacts import notes_before_build, require_published
    from dslc.cli.compile import check_config, foreseen
    from dslc.runtime.predict.files import check_target
    from dslc.runtime.predict.rows import open_data
    from dslc.runtime.predict.sources import naming, sources
    from dslc.runtime.train.files import require_source

    if not has_compiler():
        return None
    checked = check_config(config)
    model = foreseen(config, checked)
    check_target(target, model.interface)
    given = sources(inputs, [tensor.name for tensor in model.interface.inputs], _known(config, inputs, {}))
    named = None if names is None else naming(names, given)
    notes = notes_before_build(config, checked, weights)
    if notes is None and config.data.columns:  # without the weights it is unknown what was fitted
        for name, source in given.items():
            require_source(source, f"predict.{name}")
        require_published(checked, notes, weights, model.name)
    data = open_data(model, given, notes or {}, _notice, config.data, named)
    require_published(checked, notes, weights, model.name)
    return _Ahead(checked, model, data)


def _known(config: Config | None, inputs: tuple[str, ...], trained: Mapping[str, Source]) -> Mapping[str, Source]:
    """The sources that give their keys to those of the command line; without these, the data itself."""
    if config is None:
        return trained if inputs else {}
    return {**config.data.train, **config.data.eval} if inputs else config.data.eval


def _notice(text: str) -> None:
    say(one_line(text), err=True)


def _dtypes(interface: Interface) -> dict[str, str]:
    """numpy's name of each result's dtype; bf16 results are written as float32."""
    from dslc.runtime.artifact.dtypes import numpy_name

    return {r.name: numpy_name("f32" if r.dtype == "bf16" else r.dtype) for r in interface.results}
