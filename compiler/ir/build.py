"""The options of a build: target, precision, training, offsets of the state. Frozen; every pass reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from dslc.compiler.ir.choice import NO_CHOICES, Choices, providers_of
from dslc.compiler.ir.function import Optimizer
from dslc.compiler.ir.graph import Graph, Origin
from dslc.compiler.ir.program import ALIGNMENT, Program
from dslc.compiler.ir.types import DType
from dslc.runtime.artifact.reserved import GOOD_STEPS, LOSS_SCALE, SKIPPED_STEPS
from dslc.runtime.artifact.slices import Piece, piece_name

#: Slots in addition to the optimizer's own: the raw weight, of which the parameter is the average, and the sum of the
#: gradients of the micro-batches so far, which is 0 between two steps.
RAW: Final = "raw"
GRAD_SUM: Final = "grad_sum"
#: The beginning of the names of what a shard of a step's batch gives to all of them: the gradient of a parameter, the
#: new value of a buffer. `train_step` returns the shard's own, `update_step` reads the sum over the shards.
SHARD: Final = "shard."


@dataclass(frozen=True, slots=True)
class LossScale:
    """Loss scaling keeps gradients within the range of f16 (Micikevicius et al. 2018): the loss is multiplied by a
    power of two before differentiation. The factor is halved when a gradient overflows, and doubled after ``interval``
    updates without overflow. It stays within 1 and ``most``."""

    start: float = 2.0**16
    interval: int = 2000
    most: float = 2.0**24

    @property
    def states(self) -> Mapping[str, tuple[DType, float]]:
        """The dtype and the initial value of each of its scalars in the state."""
        return {
            LOSS_SCALE: (DType.FLOAT, self.start),
            GOOD_STEPS: (DType.I32, 0),
            SKIPPED_STEPS: (DType.I64, 0),
        }


@dataclass(frozen=True, slots=True)
class Precision:
    """Storage dtypes that replace the checker's ``float``: for activations (``compute``) and for state (``params``).
    ``loss_scale``: the loss scaling of training, if needed. ``tf32``: factors of f32 products are rounded to TF32.
    ``nodes``: by origin, nodes that compute and store another dtype: f32 in a 16-bit model, bf16 in an f32 model."""

    compute: DType = DType.F32
    params: DType = DType.F32
    loss_scale: LossScale | None = None
    tf32: bool = False
    nodes: Mapping[Origin, DType] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def boundary(self) -> DType:
        """The dtype of float inputs, scalars and results of an entry: f64 if f64 is computed, else f32."""
        return DType.F64 if self.compute is DType.F64 else DType.F32

    @property
    def shared(self) -> DType:
        """The dtype in which the gradients and buffers of shards are added: f64 if f64 is computed or kept."""
        return DType.F64 if DType.F64 in (self.compute, self.params) else DType.F32


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """The training of one parameter. ``lr_factor`` multiplies the run-time ``lr``; ``weight_decay`` applies to this
    parameter. A parameter that is not ``trained`` has neither gradient nor update; ``averages``: the parameter of which
    it is a running average, and the decay."""

    name: str
    lr_factor: float = 1.0
    weight_decay: float = 0.0
    trained: bool = True
    averages: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class UpdateSpec:
    """An update of a training step. ``name``: that of a step, empty for the only update; ``trained``: the names of the
    parameters that it changes; ``rules``: the optimizer and its arguments for those of them that have another one.
    ``clip_norm``: largest norm of all its gradients together; ``clip_value``: largest
    absolute value of a gradient's element, applied first; None: no limit."""

    name: str
    optimizer: Optimizer
    args: Mapping[str, Any]
    trained: tuple[str, ...]
    clip_norm: float | None = None
    clip_value: float | None = None
    rules: Mapping[str, tuple[Optimizer, Mapping[str, Any]]] = field(default_factory=dict)

    def rule(self, name: str) -> tuple[Optimizer, Mapping[str, Any]]:
        """The optimizer of a parameter and its arguments."""
        return self.rules.get(name, (self.optimizer, self.args))


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """The train section. ``updates``: what a step does, in order; each has parameters of its own. ``params`` are in
    forward order. ``ema``: the decay of the average that each trained parameter holds; None: the parameters themselves
    are trained. ``accumulate``: micro-batches per step, whose gradients are averaged. ``loss_scale``: None if gradients
    need none. ``shards``: the parts of a step's batch, whose gradients and buffers are averaged; with several, the
    runtime adds those of the micro-batches, too."""

    updates: tuple[UpdateSpec, ...]
    params: tuple[ParamSpec, ...]
    ema: float | None = None
    accumulate: int = 1
    loss_scale: LossScale | None = None
    shards: int = 1

    @property
    def turns(self) -> tuple[str, ...]:
        """The names of the updates, if each has programs of its own: with micro-batches or shards, one update needs the
        gradients of all rows of a step before the next loss is computed. Empty if one program does all updates."""
        divided = self.accumulate > 1 or self.shards > 1
        return tuple(update.name for update in self.updates) if divided and len(self.updates) > 1 else ()

    def in_turn(self, turn: str) -> TrainSpec:
        """The section of a program's turn: with this update alone, the first for an empty name. The averages of whole
        layers follow in the last turn. The section itself without turns."""
        if not self.turns:
            return self
        [update] = [u for u in self.updates if u.name == (turn or self.turns[0])]
        last = update.name == self.turns[-1]
        params = self.params if last else tuple(replace(p, averages=None) for p in self.params)
        return replace(self, updates=(update,), params=params)

    def iterate(self, param: ParamSpec) -> str:
        """The tensor that training reads and updates for a parameter: the parameter, or the raw weight that it
        averages."""
        return self.iterate_of(param.name) if param.trained else param.name

    def iterate_of(self, trained: str) -> str:
        """``iterate`` of a parameter that is trained, by its name."""
        return trained if self.ema is None else f"{trained}.{RAW}"

    @property
    def slice_reads(self) -> Literal["own", "all"] | None:
        """The sums that the update of a slice of the parameters reads: its own, or those of all slices, of which a norm
        or a verdict is computed first; None if it reads more of the state than it changes, or if there are several
        updates."""
        if len(self.updates) > 1:
            return None
        [update] = self.updates
        if update.optimizer.of_whole_tensors or any(spec.averages is not None for spec in self.params):
            return None
        return "own" if update.clip_norm is None and self.loss_scale is None else "all"

    def slots(self, update: UpdateSpec, name: str) -> tuple[str, ...]:
        """The names of the state tensors of kind optimizer that a parameter of an update has."""
        optimizer, args = update.rule(name)
        raw = (RAW,) if self.ema is not None else ()
        grad_sum = (GRAD_SUM,) if self.accumulate > 1 and self.shards == 1 else ()
        return (*optimizer.slots(dict(args)), *raw, *grad_sum)


def _nowhere() -> Mapping[str, int]:
    return MappingProxyType({})


def _nowhere_said() -> Mapping[Origin, str]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Build:
    """The options of one build. ``state``: name of a state tensor -> its offset in the state region of ``state_bytes``
    bytes, the same for all entries. ``mirror``: whether values may be recomputed in the backward pass (``auto``,
    ``never``); ``mirror_words`` overrides it for single nodes (``always`` or ``never``). ``budget``: the target for the
    bytes of a program's io and work, as far as recomputation can reach it. ``streams``: the number of GPU streams for
    nodes. ``choices``: the measured ways to compute nodes on the target's GPU. ``prepare``: whether ``predict`` may
    read values that another entry computes from the weights. ``pieces``: those of each trained parameter, if the step
    has shards: `update_step` updates each of them by nodes of its own."""

    target: str = "cpu"
    provider: str = "reference"
    precision: Precision = Precision()
    fuse: bool = True
    mirror: str = "auto"
    mirror_words: Mapping[Origin, str] = field(default_factory=_nowhere_said)
    budget: int | None = None
    streams: int | Literal["auto"] = 1
    choices: Choices = NO_CHOICES
    prepare: bool = False
    train: TrainSpec | None = None
    state: Mapping[str, int] = field(default_factory=_nowhere)
    state_bytes: int = 0
    pieces: Mapping[str, tuple[Piece, ...]] = field(default_factory=dict)

    @cached_property
    def slices(self) -> Mapping[str, int]:
        """The slice of each tensor of the state that the update of a step with shards changes, and of each piece."""
        found = {
            name if len(pieces) == 1 else piece_name(name, piece): piece.slice
            for name, pieces in self.pieces.items()
            for piece in pieces
        }
        slots = {name: found[of] for name in self.state if (of := name.rpartition(".")[0]) in found}
        return slots | found

    @property
    def providers(self) -> Collection[str]:
        """The providers whose measured ways the build may use."""
        return providers_of(self.provider == "vendor")


def build_of_body(graph: Graph, build: Build) -> Build:
    """The build of a loop's body, whose state is its carries."""
    offsets: dict[str, int] = {}
    end = 0
    for source, _ in graph.updates:
        offsets[source.name] = end
        end += -(-source.value.type.bytes // ALIGNMENT) * ALIGNMENT
    return replace(build, state=offsets, state_bytes=end, streams=1)


Pass: TypeAlias = Callable[[Program, Build], Program]
