"""The state region: parameters, buffers and optimizer slots in one block, and which of them have valid values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.base.errors import ArtifactError, WeightsMissing
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.header_schema import AS_PARAM, WEIGHTS
from dslc.runtime.session.backend import Change

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.artifact.share import Share
    from dslc.runtime.session.backend import StateBlock
    from dslc.runtime.session.calls.shard_sum import Exchange


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One row of the header's table of state tensors."""

    name: str
    kind: str  # param, buffer, optimizer or state
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        count = numpy_dtype(self.dtype).itemsize
        for size in self.shape:
            count *= size
        return count

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class State:
    """The block's tensors.

    ``missing``: the parameters and buffers without a value; ``optimizer_ready``: the optimizer's slots, and the states
    that training carries from step to step, have values;
    ``torn``: a change stopped midway, so that old and new values are mixed. ``prepared``: what an artifact prepares
    from the weights was computed from the values that they have now.

    ``share``: of a process that has a part of the slots alone; reading one of these is a call of all processes of the
    ``group``. A writer tears the state first, and settles it after all writes: an interrupt in between leaves it torn.
    """

    def __init__(self, table: Mapping[str, Any], block: StateBlock, share: Share | None = None) -> None:
        self._share = share
        self.group: Exchange | None = None
        self.tensors = {
            t["name"]: StateTensor(t["name"], t["kind"], t["dtype"], tuple(t["shape"]), t["offset"])
            for t in table["tensors"]
        }
        self.forward_order: tuple[str, ...] = tuple(table["forward_order"])
        self._block = block
        #: parameter -> the slot that starts as a copy of it, for averaged weights
        self.raw: dict[str, str] = {t["of"]: t["name"] for t in table["tensors"] if t["init"] == AS_PARAM}
        self.missing = set(self.weights)
        self.without_optimizer = all(t.kind in WEIGHTS for t in self.tensors.values())
        self.optimizer_ready = self.without_optimizer
        self.prepared = False
        #: The number of steps in the values; complemented (``~``) while they are torn. One number, so that no interrupt
        #: can separate the two facts.
        self.at = 0

    @property
    def step(self) -> int:
        """The number of training steps in the values; for torn values, the number of complete steps."""
        return self.at if self.at >= 0 else ~self.at

    @property
    def torn(self) -> bool:
        return self.at < 0

    @property
    def shared(self) -> bool:
        """Whether other processes update a part of it."""
        return self._share is not None

    @property
    def weights(self) -> list[str]:
        """The names of parameters and buffers, in the order of the state."""
        return [t.name for t in self.tensors.values() if t.kind in WEIGHTS]

    @property
    def carried(self) -> list[str]:
        """The names of the states that training carries from step to step."""
        return [t.name for t in self.tensors.values() if t.kind == "state"]

    def read(self, name: str) -> NDArray[Any]:
        """A copy of a tensor's value."""
        tensor = self.tensors[name]
        out = np.empty(tensor.shape, numpy_dtype(tensor.dtype))
        if self._share is None:
            self._block.read(tensor.offset, out)
        elif name in self._share.offsets:
            self._block.read(self._share.offsets[name], out)
        else:
            assert self.group is not None, "slots are read together with the other processes"
            flat, spans = out.reshape(-1), []
            for piece, offset in self._share.pieces(name):
                self._block.read(offset, flat[piece.start : piece.stop])
            for rank in range(self._share.size):
                spans.append([slice(p.start, p.stop) for p, _ in self._share.pieces(name, rank)])
            self.group.spread(flat, spans)
        return out

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Set a tensor to a value of its shape and dtype."""
        tensor = self.tensors[name]
        assert array.shape == tensor.shape and array.dtype == numpy_dtype(tensor.dtype), f"{name} is {tensor}"
        if self._share is None:
            self._block.write(tensor.offset, array)
        elif name in self._share.offsets:
            self._block.write(self._share.offsets[name], array)
        else:
            flat = array.reshape(-1)
            for piece, offset in self._share.pieces(name):
                self._block.write(offset, flat[piece.start : piece.stop])

    def clear_slots(self) -> None:
        """Set the slots of a part of the optimizer's state to 0, with which all of them start."""
        for name, tensor in self.tensors.items():
            if self._share is not None and name not in self._share.offsets:
                for piece, offset in self._share.pieces(name):
                    self._block.write(offset, np.zeros(piece.stop - piece.start, numpy_dtype(tensor.dtype)))

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Set a parameter or buffer to a value of its shape and dtype; its raw slot, which training updates, gets it,
        too."""
        self.write(name, array)
        if name in self.raw:
            self.write(self.raw[name], array)

    def restore(self, arrays: Mapping[str, NDArray[Any]], step: int) -> None:
        """Set every tensor to its value after ``step`` steps."""
        self.tear()
        for name, array in arrays.items():
            self.write(name, array)
        self.all_set(step)

    def all_set(self, step: int) -> None:
        """Record that every tensor has a value, and that the values are consistent after ``step`` steps."""
        self.missing.clear()
        self.optimizer_ready = True
        self.settle(step)

    def tear(self) -> None:
        """Record that the state may be partially updated from now on, until ``settle``."""
        self.prepared = False
        self.at = ~self.step

    def settle(self, step: int) -> None:
        """Record that the values are consistent after ``step`` steps."""
        self.at = step

    def change(self, step: int, *, last: bool = True) -> Change:
        """The functions for a run that makes the step with this number, or a part of it that is not the ``last``."""
        self.prepared = False
        begin = partial(setattr, self, "at", ~step)
        return Change(begin, partial(setattr, self, "at", step + 1) if last else begin)

    def ensure_ready(self, place: str) -> None:
        """Raise WeightsMissing R304 or ArtifactError R310 if the weights are missing or torn."""
        if self.torn:
            raise ArtifactError(
                "R310",
                "a training step or a change of the weights was interrupted: the state mixes old and new values",
                place=place,
                help="load weights or a checkpoint again",
            )
        if self.missing:
            first = min(self.missing)
            more = f" and {len(self.missing) - 1} more have" if len(self.missing) > 1 else " has"
            raise WeightsMissing(
                "R304",
                f"no weights are loaded: `{first}`{more} no value",
                place=place,
                help='train the model (`dslc train`), or load with weights=PATH or weights="init"',
            )
