"""``dslc weights``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.commands.train import name_map
from dslc.cli.options import define_option, pairs
from dslc.cli.output import emit, note, size_text, table

if TYPE_CHECKING:
    from dslc.runtime.weights.safetensors_file import TensorFile

_FILES = {"list": 1, "diff": 2, "convert": 2, "map": 2}


@click.command(cls=Command)
@click.argument("action", metavar="list|diff|convert|map", type=click.Choice(list(_FILES)))
@click.argument("files", nargs=-1, required=True, metavar="FILE [FILE|MODEL]")
@click.option("--map", "renames", multiple=True, metavar="OLD=NEW", help="Convert: rename tensors, or name a map.")
@click.option("--dtype", type=click.Choice(["f16", "bf16", "f32", "f64"]), help="Convert: the dtype of float tensors.")
@click.option(
    "--tolerance", type=click.FloatRange(0), default=0.0, metavar="X", help="Diff: tolerated difference of values."
)
@define_option
def command(
    action: str,
    files: tuple[str, ...],
    renames: tuple[str, ...],
    dtype: str | None,
    tolerance: float,
    defines: tuple[str, ...],
) -> int:
    """List, compare or convert files of weights, or propose a map.

    A FILE is a safetensors file (published weights, a checkpoint, or that of another framework) or the folder of
    a run. `diff A B` exits with 1 if they differ; `convert IN OUT` writes OUT with a SHA-256 of each tensor. `map FILE
    NET.nn[:MODEL]` prints a map of the file's names to the model's, and exits with 1 if a weight of the model gets
    no tensor.
    """
    if len(files) != _FILES[action]:
        raise click.UsageError(f"`dslc weights {action}` takes {_FILES[action]} file(s), {len(files)} are given")
    if action != "convert" and (renames or dtype):
        raise click.UsageError("--map and --dtype belong to `dslc weights convert`")
    if action != "map" and defines:
        raise click.UsageError("-D belongs to `dslc weights map`")
    if action == "map":
        return _map(files[0], files[1], pairs(defines, "-D"))
    if action == "list":
        return _list(files[0])
    if action == "diff":
        return _diff(files[0], files[1], tolerance)
    return _convert(Path(files[0]), Path(files[1]), name_map(renames) or [], dtype)


def _read(path: str) -> TensorFile:
    from dslc.runtime.weights import safetensors_file as tensorfile

    return tensorfile.read(_file(path))


def _file(path: str) -> str:
    """The path itself, or of a run's folder its best or newest checkpoint."""
    from dslc.runtime.train.run_weights import weights_file

    return str(weights_file(Path(path), note))


def _list(path: str) -> int:
    from dslc.runtime.weights.safetensors_file import read_head

    path = _file(path)
    head, verified = read_head(path)
    entries = sorted(head.entries.items())
    count = sum(entry.bytes for _, entry in entries)
    rows = [(name, str(entry), size_text(entry.bytes)) for name, entry in entries]
    digests = "every digest matches" if verified else "without digests"
    data = {
        "file": path,
        "verified": verified,
        "bytes": count,
        "tensors": {name: {"dtype": entry.dtype, "shape": list(entry.shape)} for name, entry in entries},
    }
    emit(data, table(("tensor", "type", "size"), rows, (2,)) + f"\n{len(rows)} tensors, {size_text(count)}, {digests}")
    return EXIT_OK


def _diff(left: str, right: str, tolerance: float) -> int:
    from dslc.runtime.weights.files import compared

    every = compared(_read(left).tensors, _read(right).tensors)
    differ = [d for d in every if d.largest is None or d.left != d.right or d.largest > tolerance]
    rows = [(d.name, d.left or "-", d.right or "-", "-" if d.largest is None else f"{d.largest:.3g}") for d in differ]
    data = {
        "same": len(every) - len(differ),
        "different": [
            {"name": d.name, "left": d.left, "right": d.right, "largest_difference": d.largest} for d in differ
        ],
    }
    last = f"{len(differ)} of {len(every)} tensors differ"
    emit(data, (table(("tensor", left, right, "largest"), rows, (3,)) + "\n" if rows else "") + last)
    return EXIT_DIFFERENCE if differ else EXIT_OK


def _map(path: str, model: str, args: Mapping[str, str]) -> int:
    from dslc.compiler.check.model import check_all
    from dslc.runtime.weights.propose.proposal import Wanted, propose, text_of
    from dslc.runtime.weights.safetensors_file import read_head
    from dslc.runtime.weights.slots import slots_in

    models = check_all(model, args)
    if len(models) != 1:
        names = ", ".join(found.name for found in models)
        raise click.UsageError(f"{model} has several models; name one of {names}: {model}:{models[0].name}")
    file = _file(path)
    head, _ = read_head(file)
    left_out = slots_in(head.entries, head.metadata)
    have = {name: entry for name, entry in head.entries.items() if name not in left_out}
    types = {name: info.input.value.type for name, info in models[0].params.items()}
    want = {name: Wanted(type.dtype.value, type.ints) for name, type in types.items()}
    proposal = propose(have, want, file)
    title = one_line(f"{Path(file).name} for {models[0].name} in {Path(model.partition(':')[0]).name}")
    emit(proposal.data(), text_of(proposal, title, have, want).rstrip("\n"))
    note(one_line(f"{proposal.count} of {len(want)} weights of the model get a tensor of {file}"))
    return EXIT_DIFFERENCE if proposal.missing else EXIT_OK


def _convert(source: Path, target: Path, names: list[str | dict[str, str]], dtype: str | None) -> int:
    from dslc.base.publish import publish_bytes
    from dslc.runtime.config.maps import map_of
    from dslc.runtime.weights import safetensors_file as tensorfile
    from dslc.runtime.weights.files import converted

    if target.suffix != ".safetensors":
        raise click.BadParameter(f"{target} does not end in .safetensors", param_hint="FILE")
    file = _read(str(source))
    tensors = map_of(names, "--map").renamed(file.tensors, str(source))
    floats = ("f16", "bf16", "f32", "f64")
    dtypes = {n: dtype if dtype is not None and t.dtype in floats else t.dtype for n, t in tensors.items()}
    arrays = {n: converted(t, dtypes[n], f"{source}: {n}") for n, t in tensors.items()}
    publish_bytes(target, tensorfile.encode(arrays, dtypes=dtypes))
    emit({"out": str(target), "tensors": len(arrays)}, one_line(f"wrote {target}: {len(arrays)} tensors"))
    return EXIT_OK
