"""Artifacts named on the command line, and the facts that commands print about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dslc.cli.output import note, size_text

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked
    from dslc.runtime.artifact.file import Artifact, Program
    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.config.config import Config
    from dslc.runtime.session.session import Session


def artifact_to_read(text: str | None) -> Artifact:
    """``build/lenet``, ``build/lenet/lenet.dslc``; None: the artifact of ./dslc.yaml as it is, or a new build if there
    is none. For commands that only read the artifact."""
    from dslc.runtime.artifact.file import read_artifact

    if text is not None:
        return read_artifact(named_artifact(text))
    from dslc.cli.compile import artifact_of, artifact_path

    config = _config()
    path = artifact_path(config)
    return read_artifact(path) if path.exists() else artifact_of(config, as_built=True)


def artifact_to_run(text: str | None, *, trust: bool, device: str, checked: Checked | None = None) -> Artifact:
    """As ``artifact_to_read``, for commands that run the artifact. An artifact named by the user is trusted. That of
    ./dslc.yaml is used as last built if this user's own build made it or with ``trust``; else it is built from
    scratch, for ``device``, on which it will run. ``checked``: the model of ./dslc.yaml, if it was checked before."""
    from dslc.cli.compile import artifact_of
    from dslc.runtime.artifact.file import read_artifact

    if text is not None:
        return read_artifact(named_artifact(text))
    return artifact_of(_config(), as_built=True, trust=trust, checked=checked, device=device)


def named_artifact(text: str) -> Path:
    """The file that an argument names: the file itself, or the artifact in a folder, which may have been renamed."""
    path = Path(text)
    if not path.is_dir():
        return path
    named, inside = path / f"{path.resolve().name}.dslc", sorted(path.glob("*.dslc"))
    return inside[0] if len(inside) == 1 else named


def _config() -> Config:
    from dslc.cli.settings import default_config

    return default_config("name an artifact: build/NAME")


def session_of(
    artifact: Artifact,
    *,
    device: str,
    weights: str | None = None,
    seed: int = 0,
    use: str | None = None,
    part: tuple[int, int] = (0, 1),
) -> Session:
    """A session of an artifact that was read from a file; without ``weights``, with those next to the artifact.
    ``use``: one of ``opening.USES``, which limits the allocated memory to its calls; None for all calls.
    ``part``: of several processes that train together."""
    from dslc.face import reference_meanings
    from dslc.runtime.session.load import start
    from dslc.runtime.session.open import USES

    assert artifact.path is not None
    if weights not in (None, "init"):
        from dslc.runtime.train.run_weights import weights_file

        weights = str(weights_file(Path(weights), note))
    return start(
        artifact, str(artifact.path.parent), device=device, weights=weights, seed=seed, contexts=1, verify="all",
        meanings=reference_meanings, calls=None if use is None else USES[use], part=part,
    )  # fmt: skip


def require_weights_of(session: Session, name: str) -> None:
    """Raise WeightsMissing R304 before data is opened, which needs what the weights say of it."""
    if not session.has_weights:
        _refuse_without(name)


def notes_before_build(config: Config, checked: Checked, weights: str | None) -> Mapping[str, str] | None:
    """The notes of the weights that a session will have: those named, else the published ones. None if none are
    published, or for `init`.

    Raises WeightsMissing R304 for weights that are missing, and the errors of a file that holds none: before a build,
    which takes longer."""
    from dslc.cli.compile import foreseen, project_root
    from dslc.runtime.train.files import require_weights
    from dslc.runtime.train.run_weights import weights_file
    from dslc.runtime.weights.notes import of_metadata
    from dslc.runtime.weights.safetensors_file import read_metadata

    if weights == "init":
        return None
    name = foreseen(config, checked).name
    if weights is not None:
        require_weights(Path(weights))
        file = weights_file(Path(weights), lambda text: None)  # the session says it when it takes the weights
    else:
        file = project_root(config) / "build" / name / f"{name}.safetensors"
        if not file.exists():
            return None
    return of_metadata(read_metadata(file), str(file))


def require_published(checked: Checked, notes: Mapping[str, str] | None, weights: str | None, name: str) -> None:
    """Raise WeightsMissing R304 for a model with parameters that no weights are there for."""
    if weights is None and notes is None and checked.params:
        _refuse_without(name)


def _refuse_without(name: str) -> NoReturn:
    from dslc.base.errors import WeightsMissing

    help = "train the model (`dslc train`), or name weights: --weights FILE"
    raise WeightsMissing("R304", "no weights are published next to the artifact", place=name, help=help)


def sizes_text(program: Program) -> str:
    return " ".join(f"{name}={value}" for name, value in program.sizes.items())


def ratio(planned: int, bound: int) -> float:
    """Planned bytes divided by the lower bound: 1 is optimal."""
    return planned / bound if bound else 1.0


def program_row(program: Program) -> tuple[str, ...]:
    """One row of the table with the head PROGRAM_HEAD."""
    return (
        program.title,
        sizes_text(program),
        size_text(program.io_bytes),
        size_text(program.planned),
        size_text(program.lower_bound),
        f"{ratio(program.planned, program.lower_bound):.3f}",
    )


PROGRAM_HEAD = ("entry", "sizes", "io", "work", "lower bound", "ratio")
PROGRAM_RIGHT = (2, 3, 4, 5)


def program_data(program: Program) -> dict[str, Any]:
    return {
        "entry": program.title,
        "sizes": dict(program.sizes),
        "target": program.target,
        "provider": program.provider,
        "io_bytes": program.io_bytes,
        "work_bytes": program.work_bytes,
        "carried_bytes": program.context_bytes,
        "prepared_bytes": program.prepared_bytes,
        "lower_bound": program.lower_bound,
        "planned": program.planned,
        "ratio": ratio(program.planned, program.lower_bound),
    }


def tensor_text(tensor: dict[str, Any]) -> str:
    """``image: f32[B, 1, 28, 28]``"""
    return f"{tensor['name']}: {tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]"


def state_bytes(artifact: Artifact) -> dict[str, int]:
    """Bytes of the state's tensors, by kind."""
    from math import prod

    from dslc.runtime.artifact.dtypes import ITEMSIZE

    found: dict[str, int] = {}
    for tensor in artifact.header["state"]["tensors"]:
        found[tensor["kind"]] = found.get(tensor["kind"], 0) + ITEMSIZE[tensor["dtype"]] * prod(tensor["shape"])
    return found


_FOR: Final = {
    "train": "to train and evaluate, as `dslc train`", "eval": "to evaluate", "predict": "to predict",
    "load": "for all calls, as `dslc.load`",
}  # fmt: skip


def session_lines(needs: Mapping[str, Mapping[str, int]], driver: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The memory of a session on each target, from ``opening.session_needs``, and the driver's memory next to it, from
    ``opening.driver_needs``."""
    from dslc.runtime.artifact.targets import capability_of

    lines = []
    for target, uses in needs.items():
        for use, count in uses.items():
            where = "host memory" if capability_of(target) is None else f"a GPU ({target})"
            lines.append(f"session  {size_text(count)} of {where} {_FOR[use]}")
            if target in driver:
                lines.append(f"driver   about {size_text(driver[target][use])} in addition, for code and graphs")
    return lines


def largest_buffers(plan: Plan, count: int) -> list[tuple[int, str, str]]:
    """The largest buffers of the work region: (bytes, type, the node that first writes them)."""
    from dslc.runtime.artifact.instructions import accesses

    writer: dict[int, str] = {}
    for instruction in plan.instructions:
        where = getattr(instruction, "where", None)
        for written in accesses(instruction)[1]:
            writer.setdefault(written, plan.names[where] if where is not None else "")
    found: dict[tuple[int, int], tuple[int, str, str]] = {}
    for index, buffer in enumerate(plan.buffers):
        if buffer.region == "work" and index in writer:
            shown = f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
            found.setdefault((buffer.offset, buffer.bytes), (buffer.bytes, shown, writer[index]))
    return sorted(found.values(), reverse=True)[:count]
