"""The weights in a folder: the best checkpoint of a run, else its newest one; or the file that Hugging Face wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dslc.base.errors import ArtifactError, DslcError, WeightsMissing
from dslc.runtime.train.checkpoint import FOLDER, CheckpointStore, read_checkpoint
from dslc.runtime.weights.shards import SINGLE, file_in
from dslc.runtime.weights.slots import averaged, slots


def _not_a_folder(path: Path) -> Path:
    """The path; WeightsMissing R304 for a folder, which has no weights that are read."""
    if not path.is_dir():
        return path
    names = sorted(each.name for each in path.iterdir())
    ours = [name for name in names if name.endswith(".safetensors")]
    others = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"))]
    if ours:
        help = f"name a file in it, such as {path / ours[0]}"
    elif others:
        help = f"write {others[0]} as safetensors: model.save_pretrained(PATH), or safetensors.torch.save_file(...)"
    else:
        help = "name a safetensors file, the folder of a run, or one that `save_pretrained` wrote"
    raise WeightsMissing("R304", f"the folder has no {SINGLE} and no checkpoints", place=str(path), help=help)


def weights_file(path: Path, notice: Callable[[str], None]) -> Path:
    """The file that a path names. In the folder of a run, this is the best checkpoint by the run's metric if it is
    there, else the newest; damaged ones are passed over. In a folder with ``model.safetensors``, or its index, it is
    that one. The path of a file is returned as it is.

    ``notice`` gets a line that says which checkpoint, and whether its weights are averages. Raises ArtifactError R307
    for a run without a usable checkpoint, WeightsMissing R304 for another folder."""
    folder = path.parent if path.name == FOLDER else path
    if not (folder / FOLDER).is_dir():
        return file_in(path) or _not_a_folder(path)
    store = CheckpointStore(folder, keep=0)
    why = "there is none"
    for step in store.steps():
        try:
            found = read_checkpoint(store.path(step))
        except DslcError as error:
            why = error.message
            notice(f"skipped a checkpoint: {store.path(step).name}: {why}")
            continue
        best = found.position.best_step
        if best is not None and best != step:
            try:
                found = read_checkpoint(store.path(best))
            except DslcError as error:
                notice(f"skipped the best checkpoint: {store.path(best).name}: {error.message}")
        kind = "the best" if found.position.step == best else "the newest"
        of = "averaged weights" if averaged(slots(found.tensors)) else "weights"
        notice(f"{path}: the {of} of {kind} checkpoint, {found.path.name}")
        return found.path
    raise ArtifactError(
        "R307",
        f"no checkpoint can be used: {why}",
        place=str(path),
        help="name a weights file, or a run that saved one",
    )
