"""The weights in a folder: the best checkpoint of a run, else its newest one; or the file that Hugging Face wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dslc.base.errors import ArtifactError, DslcError
from dslc.runtime.train.checkpoint import FOLDER, CheckpointStore, read_checkpoint
from dslc.runtime.weights.shards import file_in
from dslc.runtime.weights.slots import averaged, slots


def weights_file(path: Path, notice: Callable[[str], None]) -> Path:
    """The file that a path names. In the folder of a run, this is the best checkpoint by the run's metric if it is
    there, else the newest; damaged ones are passed over. In a folder with ``model.safetensors``, or its index, it is
    that one. Any other path is returned as it is.

    ``notice`` gets a line that says which checkpoint, and whether its weights are averages. Raises ArtifactError R307
    for a run without a usable checkpoint."""
    folder = path.parent if path.name == FOLDER else path
    if not (folder / FOLDER).is_dir():
        return file_in(path) or path
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
