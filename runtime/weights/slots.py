"""Checkpoints as weights: their tensors without those of the optimizer.

A checkpoint holds each parameter under its own name, with ``ema`` its running average, and the optimizer's tensors as
``PARAMETER.SLOT``. It also holds the sums of metrics over the epoch, and the states that the model carries.
``PARAMETER.raw`` are the values that training updates, if the parameter is an average.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from dslc.runtime.artifact.reserved import GOOD_STEPS, LOSS_SCALE, OF_EPOCH, OF_STATE, SKIPPED_STEPS

_POSITIONS: Final = ("dslc.position", "dslc.session")  # metadata of a checkpoint of `dslc train`, and of a session
_SCALARS: Final = (GOOD_STEPS, LOSS_SCALE, SKIPPED_STEPS)
_RAW: Final = ".raw"


class _Shaped(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


def slots_in(tensors: Mapping[str, _Shaped], metadata: Mapping[str, str]) -> frozenset[str]:
    """``slots`` of a file with this metadata; none if it is not a checkpoint."""
    return slots(tensors) if any(key in metadata for key in _POSITIONS) else frozenset()


def slots(tensors: Mapping[str, _Shaped]) -> frozenset[str]:
    """The names of the optimizer's tensors in a checkpoint. No parameter's name continues that of another one."""
    found = {name for name in tensors if name in _SCALARS or name.startswith((OF_EPOCH, OF_STATE))}
    for name, tensor in tensors.items():
        of = tensors.get(name.rpartition(".")[0])
        if of is not None and of.shape == tensor.shape:
            found.add(name)
    return frozenset(found)


def averaged(slots: frozenset[str]) -> bool:
    """True if the checkpoint's parameters are running averages (``ema``)."""
    return any(name.endswith(_RAW) for name in slots)
