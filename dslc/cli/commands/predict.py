"""``dslc predict``"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.base.errors import DataError, InputError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import artifact_to_run, session_of
from dslc.cli.options import trust_option
from dslc.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dslc.runtime.artifact.interface import Dim, Tensor
    from dslc.runtime.session.session import Session


@click.command(cls=Command)
@click.argument("inputs", nargs=-1, required=True, metavar="[NAME=]FILE...")
@click.option("-o", "out", required=True, metavar="FILE", help="Output file: .npy for one result, .npz for all.")
@click.option("--artifact", metavar="PATH", help="A .dslc file or its folder; default: the artifact of ./dslc.yaml.")
@click.option("--weights", metavar="FILE", help="Use these weights instead of the published ones.")
@click.option("--device", default="auto", metavar="NAME", help="cpu, gpu, gpu:1 or auto.")
@trust_option
def command(
    inputs: tuple[str, ...], out: str, artifact: str | None, weights: str | None, device: str, trust: bool
) -> None:
    """Run a model on arrays in files; write its results to one.

    FILE is `file.npy`, or `file.npz:array`. NAME is the model's input; a model with one input needs none.
    """
    from dslc.runtime.data.formats.arrays import read_array

    target = Path(out)
    if target.suffix not in (".npy", ".npz"):
        raise click.BadParameter(f"{out!r} ends neither in .npy nor in .npz", param_hint="-o")
    with session_of(artifact_to_run(artifact, trust=trust), device=device, weights=weights, use="predict") as session:
        names = [tensor.name for tensor in session.interface.inputs]
        sources = _sources(inputs, names)
        if target.suffix == ".npy" and len(session.interface.results) != 1:
            listed = ", ".join(tensor.name for tensor in session.interface.results)
            raise click.BadParameter(f"the model has several results ({listed}): write an .npz", param_hint="-o")
        dims, by_name = session.interface.dims, {tensor.name: tensor for tensor in session.interface.inputs}
        arrays: dict[str, Any] = {
            name: read_array(source, partial(_require_shape, by_name[name], dims)) for name, source in sources.items()
        }
        found = session.predict(**arrays)
        results = _by_name(session, found)
    _write(target, results)
    shapes = {name: list(array.shape) for name, array in results.items()}
    text = ", ".join(f"{name} {array.dtype.name}{shapes[name]}" for name, array in results.items())
    emit({"out": str(target), "results": shapes}, one_line(f"wrote {target}: {text}"))


def _require_shape(tensor: Tensor, dims: Sequence[Dim], shape: tuple[int, ...]) -> None:
    from dslc.runtime.session.inputs import check_shape

    check_shape("predict", tensor, shape, dims)


def _sources(texts: tuple[str, ...], names: list[str]) -> dict[str, Any]:
    """The array of each input. Raises InputError R105 for an unknown name, DataError R101 for a malformed file."""
    from dslc.runtime.data.source import Source

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals:
            if len(names) != 1:
                raise InputError(
                    "R105",
                    f"the model has the inputs {', '.join(names)}",
                    place=text,
                    help=f"write NAME=FILE, such as {names[0]}={text}",
                )
            name, file = names[0], text
        if name not in names or name in found:
            cause = f"`{name}` is given twice" if name in found else f"the model has no input `{name}`"
            raise InputError("R105", cause, place=text, help=f"its inputs are {', '.join(names)}")
        path, inside, key = file.partition(".npz:")
        if not (inside and key) and not file.endswith(".npy"):
            raise DataError(
                "R101", "this does not name an array", place=file, help="write `file.npy` or `file.npz:array`"
            )
        found[name] = Source(Path(f"{path}.npz") if inside else Path(file), key if inside else None, file)
    return found


def _by_name(session: Session, found: Any) -> Mapping[str, NDArray[Any]]:
    names = [tensor.name for tensor in session.interface.results]
    return {names[0]: found} if len(names) == 1 else {name: getattr(found, name) for name in names}


def _write(target: Path, results: Mapping[str, NDArray[Any]]) -> None:
    import io

    import numpy as np

    from dslc.base.publish import publish_bytes

    buffer = io.BytesIO()
    if target.suffix == ".npy":
        [array] = results.values()
        np.save(buffer, array, allow_pickle=False)
    else:
        np.savez(buffer, allow_pickle=False, **results)
    publish_bytes(target, buffer.getvalue())
