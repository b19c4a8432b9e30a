"""The inputs and results of a model: the header's ``interface`` as dataclasses, and sizes that depend on dims.

A size is an int, or text such as ``B``, ``2*B`` or ``(T + 3)//4``: sums of products of ints, dims and floor
divisions by an int.
"""

from __future__ import annotations

import ast
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from dslc.base.errors import ArtifactError

Size: TypeAlias = int | str
_LONGEST_SIZE = 400  # characters; checked before the text is parsed


@dataclass(frozen=True, slots=True)
class Dim:
    """A dim with its inclusive bounds. ``batch``: the dim of which calls may have any number of rows."""

    name: str
    low: int
    high: int
    default: int
    batch: bool


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or a result. ``range``: an integer input's values lie in [range[0], range[1]). ``limits``: they are
    indices of axes of these sizes."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    range: tuple[int, int] | None = None
    limits: tuple[Size, ...] = ()

    @property
    def is_index(self) -> bool:
        """Whether its values are checked."""
        return self.range is not None or bool(self.limits)

    def range_at(self, dims: Mapping[str, int]) -> tuple[int, int] | None:
        """The range of its values for these dims."""
        ends = [size_value(size, dims) for size in self.limits]
        if self.range is None:
            return (0, min(ends)) if ends else None
        return max([self.range[0], *(0 for _ in ends)]), min([self.range[1], *ends])

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that lasts from call to call. All its elements are ``start`` at first."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    start: float


@dataclass(frozen=True, slots=True)
class Carried:
    """A state of a program, at ``offset`` in its context."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    start: float


@dataclass(frozen=True, slots=True)
class Train:
    """The train section: inputs in addition to the model's, float arguments with defaults, the base learning rate.

    ``accumulate``: micro-batches per step; the batch of a step has so many times the built rows. ``epoch_metrics``:
    those of the metrics that training combines over the steps of an epoch, of which its scalar ``epoch_steps`` says how
    many there are. ``shards``: the parts of a step's batch, of the built rows each. ``turns``: the names of a step's
    updates, if each has programs of its own, which run in turn; empty if one program does all."""

    inputs: tuple[Tensor, ...]
    scalars: Mapping[str, float]
    lr: float
    metrics: tuple[str, ...]
    accumulate: int = 1
    epoch_metrics: tuple[str, ...] = ()
    shards: int = 1
    turns: tuple[str, ...] = ()

    @property
    def parts(self) -> int:
        """How many times the built rows a step's batch has."""
        return self.accumulate * self.shards


def shards_of(interface: Mapping[str, Any]) -> int:
    """The parts of a step's batch that the ``interface`` of a header says; 1 if nothing is trained."""
    return int((interface["train"] or {}).get("shards", 1))


def micro_batches_of(interface: Mapping[str, Any]) -> int:
    """The micro-batches of a step that the ``interface`` of a header says; 1 if nothing is trained."""
    return int((interface["train"] or {}).get("accumulate", 1))


@dataclass(frozen=True)
class Interface:
    """The whole interface; ``of_header`` creates one from an artifact's header."""

    name: str
    model: str
    dims: tuple[Dim, ...]
    inputs: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    train: Train | None
    states: tuple[State, ...] = ()

    @classmethod
    def of_header(cls, data: Mapping[str, Any]) -> Interface:
        """The interface in a header's ``interface``, whose schema has been checked."""
        train = data["train"]
        ranges = dict(data.get("ranges", {})) | dict((train or {}).get("ranges", {}))
        limits = dict(data.get("limits", {})) | dict((train or {}).get("limits", {}))
        return cls(
            name=data["name"],
            model=data["model"],
            dims=tuple(
                Dim(d["name"], d["low"], d["high"], d["default"], bool(d.get("batch", False))) for d in data["dims"]
            ),
            inputs=_tensors(data["inputs"], ranges, limits),
            results=_tensors(data["results"], {}, {}),
            train=None
            if train is None
            else Train(
                inputs=_tensors(train["inputs"], ranges, limits),
                scalars={s["name"]: float(s["default"]) for s in train["scalars"]},
                lr=float(train["lr"]),
                metrics=tuple(train["metrics"]),
                accumulate=micro_batches_of(data),
                epoch_metrics=tuple(train.get("epoch_metrics", ())),
                shards=shards_of(data),
                turns=tuple(train.get("turns", ())),
            ),
            states=tuple(
                State(s["name"], s["dtype"], tuple(s["shape"]), float(s["start"])) for s in data.get("states", ())
            ),
        )

    def carried(self, offsets: Mapping[str, int], sizes: Mapping[str, int]) -> tuple[Carried, ...]:
        """The states of a program that has them at these offsets, for its sizes."""
        return tuple(
            Carried(s.name, s.dtype, tuple(size_value(n, sizes) for n in s.shape), offsets[s.name], s.start)
            for s in self.states
            if s.name in offsets
        )

    @cached_property
    def batch(self) -> str | None:
        """The name of the batch dim, or None."""
        return next((d.name for d in self.dims if d.batch), None)

    @cached_property
    def train_inputs(self) -> tuple[Tensor, ...]:
        """Inputs of train and eval: the model's, then the train section's."""
        return self.inputs + (self.train.inputs if self.train is not None else ())

    @cached_property
    def checked_dtypes(self) -> tuple[str, ...]:
        """The dtypes of inputs whose values have a range, sorted."""
        return tuple(sorted({tensor.dtype for tensor in self.train_inputs if tensor.is_index}))

    def rows_of(self, tensor: Tensor) -> bool:
        """True if axis 0 of the tensor is the batch dim."""
        return bool(tensor.shape) and self.batch is not None and tensor.shape[0] == self.batch

    def cuttable(self, tensors: tuple[Tensor, ...]) -> bool:
        """True if a call can be split along the batch dim: in each tensor it is axis 0 or absent."""
        return self.batch is not None and all(
            self.batch not in dims_of(size) for t in tensors for size in (t.shape[1:] if self.rows_of(t) else t.shape)
        )

    @cached_property
    def result_type(self) -> type[tuple[Any, ...]]:
        """The named tuple type that ``predict`` returns if the model has several results."""
        try:
            return namedtuple(f"{self.model}Results", [r.name for r in self.results])
        except ValueError as error:
            raise ArtifactError("R301", f"the results cannot be named so: {error}", place="interface") from error


def _tensors(listed: list[dict[str, Any]], ranges: Mapping[str, Any], limits: Mapping[str, Any]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            t["name"],
            t["dtype"],
            tuple(t["shape"]),
            (ranges[t["name"]][0], ranges[t["name"]][1]) if t["name"] in ranges else None,
            tuple(limits.get(t["name"], ())),
        )
        for t in listed
    )


def size_value(size: Size, dims: Mapping[str, int]) -> int:
    """The value of a size for these values of the dims. ArtifactError R301 for a malformed text."""
    if size in dims:  # a dim alone, the usual case
        return dims[size]  # type: ignore[index]  # an int is no dim's name
    return size if isinstance(size, int) else _evaluate(_parsed(size), dims, size)


@lru_cache(maxsize=1024)
def dims_of(size: Size) -> frozenset[str]:
    """The dims that a size depends on."""
    if isinstance(size, int):
        return frozenset()
    return frozenset(node.id for node in ast.walk(_parsed(size)) if isinstance(node, ast.Name))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    # Python's parser reads the text, but nothing executes it; its length bounds the depth of the tree.
    if len(text) > _LONGEST_SIZE:
        raise _no_size(text[:40] + "...")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _no_size(text) from error


def _no_size(text: str) -> ArtifactError:
    return ArtifactError("R301", f"{text!r} is not a size", place="interface")


def _evaluate(node: ast.expr, dims: Mapping[str, int], text: str) -> int:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in dims:
            return dims[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, dims, text)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, dims, text), _evaluate(right, dims, text)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() if b > 0:
                    return a // b
    raise _no_size(text)
