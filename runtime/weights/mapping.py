"""The weights of a session as a mapping of copies, and their files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, DslcWarning, InputError, WeightsMissing
from dslc.base.opened import Opened
from dslc.base.publish import publish_bytes
from dslc.runtime.artifact.interface import Tensor
from dslc.runtime.session.context_pool import Pool
from dslc.runtime.session.inputs.arrays import as_numpy
from dslc.runtime.session.state import State, StateTensor
from dslc.runtime.weights import notes as notes_of_files
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.advice import next_step
from dslc.runtime.weights.safetensors_file import TensorFile
from dslc.runtime.weights.safetensors_header import Entry, Head
from dslc.runtime.weights.slots import slots_in
from dslc.runtime.weights.tensor_bytes import FileTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.config.maps import Given
    from dslc.runtime.session.context import Context

_SHOWN = 5  # names of one kind listed in a message
_COUNTER = "num_batches_tracked"  # PyTorch's batchnorm counts its batches; no op here reads the counter

_OTHER_MODEL: Final = "use weights of this model, or build the model of these weights"
_OTHER_PUBLISHED: Final = (
    "`dslc publish RUN` publishes the weights of a run of this model; `dslc runs` lists runs; or build the model "
    "of these weights"
)


class Weights(Mapping[str, "NDArray[Any]"]):
    """Parameters and buffers by name. Reading returns a copy; assignment requires the exact shape and dtype.

    With averaged weights (`ema`) these are the averages; training continues from assigned values."""

    def __init__(self, state: State, pool: Pool[Context], *, verify: bool, guard: Callable[[str], None]) -> None:
        self._state = state
        self._pool = pool
        self._verify = verify
        self._guard = guard  # raises in a forked child and after close
        self._notes: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.weights)

    def __len__(self) -> int:
        return len(self._state.weights)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A copy. KeyError for an unknown name, WeightsMissing R304 for a tensor without a value."""
        if name not in self._state.weights:
            raise KeyError(name)
        self._guard("weights")
        with self._pool.exclusive() as scope, scope:
            if name in self._state.missing:
                self._state.ensure_ready(f"weights[{name!r}]")
            return self._state.read(name)

    def __setitem__(self, name: str, value: object) -> None:
        """InputError R105 for a value that is not an array of exactly this shape and dtype."""
        if name not in self._state.weights:
            raise KeyError(name)
        self._guard("weights")
        tensor = self._state.tensors[name]
        array = as_numpy("weights", Tensor(name, tensor.dtype, tensor.shape), value)
        if array.shape != tensor.shape:
            raise InputError(
                "R105",
                f"`{name}` has the shape {list(array.shape)}, expected {tensor}",
                place=f"weights[{name!r}]",
                help=f"pass an array of shape {list(tensor.shape)}",
            )
        with self._pool.exclusive() as scope, scope:
            torn = self._state.torn
            self._state.tear()
            self._state.put(name, array)
            self._state.missing.discard(name)
            if not torn:
                self._state.settle(self._state.step)

    @property
    def notes(self) -> dict[str, str]:
        """A copy of the texts that belong to these weights, by name: those of the file that was loaded last, or those
        that were assigned. Names begin with `dslc.`. `dslc.data` holds what was fitted on the training rows."""
        return dict(self._notes)

    @notes.setter
    def notes(self, notes: Mapping[str, str]) -> None:
        """InputError R105 for a bad name or a value that is not text."""
        self._notes = notes_of_files.checked(notes, "weights.notes")

    def load(
        self,
        path: str | os.PathLike[str],
        strict: bool = True,
        *,
        map: Given | Sequence[Given] | None = None,
        replace: Sequence[str] = (),
    ) -> None:
        """Load all weights from a safetensors file or an index, a checkpoint, or the folder of a run, or none.

        Names, shapes and dtypes must be those of the artifact (R305 lists missing, extra and misshaped tensors); with
        ``strict=False``, missing and extra tensors are ignored. ``map`` renames and rearranges the file's tensors:
        rules ``{"layer{s}": "stage.{s-1}"}``, the name of a map such as ``"torchvision/resnet"``, or a list of both.
        ``replace``: names and patterns of tensors that keep their values, such as ``["head"]``. With one of these two,
        f16 and bf16 values are converted to f32, and ``strict=False`` requires half of the bytes from the file. A
        checkpoint's averages are taken, if it has some; of a run, the best checkpoint is taken, else the newest. R304
        if the file is missing, R306 if it is damaged, R307 if a folder has no checkpoint, R104 for a malformed map. The
        file's notes replace those before. The optimizer's slots are reset. A file without digests is accepted with a
        warning W004, which also names PyTorch's batch counters, if any.
        """
        self._guard("weights.load")
        if os.path.isdir(path):
            from dslc.runtime.train.run_weights import weights_file

            path = weights_file(Path(path), lambda text: None)
        place = os.fspath(path)
        if map is not None or replace:
            from dslc.runtime.weights.matching import read_matched, terms_of

            terms = terms_of(map or (), replace, partial=not strict)
            file, _, arrays = read_matched(path, self._expected(), terms, verify=self._verify)
            self._install(file, arrays, [], place)
            return
        file = tensorfile.read(path, verify=self._verify, accept=self._fitting(place, strict), only=self._known)
        self._install_all(file, place)

    def load_published(self, folder: str, name: str) -> bool:
        """``load`` from ``NAME.safetensors`` in an artifact's folder, as ``dslc train`` and ``dslc publish`` write it.

        It never follows a link. False if the file does not exist."""
        with Opened() as scope, scope as files:
            try:
                handle = files.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                raise ArtifactError(
                    "R306", f"the artifact's folder cannot be read: {error}", place=folder, help="check its permissions"
                ) from error
            try:
                base = f"{name}.safetensors"
                accept = self._fitting(os.path.join(folder, base), True, _OTHER_PUBLISHED)
                file = tensorfile.read(base, verify=self._verify, follow=False, dir_fd=handle, accept=accept)
            except WeightsMissing:
                return False
        self._install_all(file, os.path.join(folder, base))
        return True

    def save(self, path: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> None:
        """Write all weights and ``notes``, each with a SHA-256, atomically. R304 while a tensor has no value.

        ``notes`` adds to the file's notes, or replaces those of the same name; ``weights.notes`` does not change.
        InputError R105 for a bad name (they begin with `dslc.`) or a value that is not text.
        """
        self._guard("weights.save")
        texts = notes_of_files.checked({**self._notes, **(notes or {})}, "weights.save")
        with self._pool.exclusive() as scope, scope:
            self._state.ensure_ready("weights.save")
            data = tensorfile.encode(
                {name: self._state.read(name) for name in self._state.weights},
                notes_of_files.to_metadata(texts),
                dtypes={name: self._state.tensors[name].dtype for name in self._state.weights},
            )
        publish_bytes(path, data)

    def _fitting(self, place: str, strict: bool, help: str = _OTHER_MODEL) -> Callable[[Head], object]:
        """A check that rejects the tensors of another model before their bytes are read."""
        expected = self._expected()

        def accept(head: Head) -> None:
            have = head.entries
            accepted = {*_counters(have, expected), *slots_in(have, head.metadata)}
            require_fit(place, expected, have, accepted=accepted, strict=strict, help=help)

        return accept

    def _known(self, head: Head) -> set[str]:
        """The file's tensors that are read: the batch counters, too, whose names the warning lists."""
        expected = self._expected()
        return {*_counters(head.entries, expected), *(name for name in expected if name in head.entries)}

    def _expected(self) -> dict[str, StateTensor]:
        return {name: self._state.tensors[name] for name in self._state.weights}

    def _install_all(self, file: TensorFile, place: str) -> None:
        """Set the tensors that the file has under the names of the artifact."""
        expected = self._expected()
        arrays = {name: file.tensors[name].array() for name in expected if name in file.tensors}
        self._install(file, arrays, _counters(file.tensors, expected), place)

    def _install(self, file: TensorFile, arrays: Mapping[str, NDArray[Any]], counters: list[str], place: str) -> None:
        notes = notes_of_files.of_metadata(file.metadata, place)
        _announce(place, file, counters, checked=self._verify)
        with self._pool.exclusive() as scope, scope:
            # A file that lacks tensors does not repair a torn state.
            if self._state.torn and len(arrays) < len(self):
                self._state.ensure_ready("weights.load")
            self._state.tear()
            for name, array in arrays.items():
                self._state.put(name, array)
                self._state.missing.discard(name)
            self._state.optimizer_ready = self._state.without_optimizer
            self._notes = notes
            self._state.settle(self._state.step)


def _counters(have: Iterable[str], expected: Mapping[str, StateTensor]) -> list[str]:
    return [name for name in have if name not in expected and _is_counter(name, expected)]


def _is_counter(name: str, expected: Mapping[str, StateTensor]) -> bool:
    """True if the name is PyTorch's batch counter of a batchnorm of the artifact."""
    layer, _, last = name.rpartition(".")
    return last == _COUNTER and f"{layer}.running_mean" in expected


def _fits(tensor: StateTensor, have: FileTensor | Entry) -> bool:
    return have.dtype == tensor.dtype and have.shape == tensor.shape


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def require_fit(
    place: str,
    expected: Mapping[str, StateTensor],
    have: Mapping[str, FileTensor] | Mapping[str, Entry],
    *,
    accepted: Collection[str] = (),
    strict: bool = True,
    help: str = _OTHER_MODEL,
) -> list[str]:
    """Raise ArtifactError R305 with ``help`` unless the file's tensors are those of ``expected``.

    If not strict, returns the names that the file lacks. The file may also contain the tensors in ``accepted``.
    """
    missing = [n for n in expected if n not in have]
    extra = [n for n in have if n not in expected and n not in accepted]
    other = [n for n in expected if n in have and not _fits(expected[n], have[n])]
    if not other and not (strict and (missing or extra)):
        return missing
    parts = []
    if missing:
        parts.append(f"missing: {_listed(missing)}")
    if extra:
        parts.append(f"extra: {_listed([ascii(n)[1:-1][:80] for n in extra])}")
    if other:
        parts.append("misshaped: " + _listed([f"{n} is {have[n]}, not {expected[n]}" for n in other]))
    pairs = [((have[n].dtype, have[n].shape), (expected[n].dtype, expected[n].shape)) for n in other]
    step = next_step(pairs, missing=len(missing), expected=len(expected))
    raise ArtifactError(
        "R305",
        "the weights do not fit the artifact; " + "; ".join(parts),
        place=place,
        help=step or help,
    )


def _announce(place: str, file: TensorFile, counters: list[str], *, checked: bool) -> None:
    said = []
    if checked and not file.verified:
        said.append("it has no digests, so damage cannot be detected")
    if counters:
        said.append(f"PyTorch's batch counters are not used ({_listed(counters)})")
    if said:
        warnings.warn(DslcWarning("W004", f"{place}: {'; '.join(said)}"), stacklevel=4)
