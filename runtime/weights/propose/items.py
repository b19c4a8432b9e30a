"""Tensors as the proposal compares them: kind, shape, and the numbered scopes that they are in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dslc.runtime.weights.names.ordered import COUNTER, natural
from dslc.runtime.weights.names.origin import Shaped

#: Last parts of names of constants and counters that other frameworks store next to the weights.
CONSTANTS: Final = frozenset({
    COUNTER, "position_ids", "token_type_ids", "relative_position_index", "masked_bias", "inv_freq",
})  # fmt: skip
_FLOATS: Final = ("f16", "bf16", "f32", "f64")
_NUMBER: Final = re.compile(r"[0-9]+")
_KINDS: Final = {"beta": "bias", "running_mean": "running_mean", "running_var": "running_var"}
TRANSPOSED: Final = "i o -> o i"
_LETTERS: Final = "abcdefghijklmnop"


@dataclass(frozen=True)
class Item:
    """``kind``: that of the last part of the name; weight for those that are not known. ``shape``: after ``change``, a
    rearrangement of axes, empty for none."""

    name: str
    kind: str
    shape: tuple[int, ...]
    change: str = ""

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]

    def scopes(self) -> Iterable[str]:
        """The beginnings of the name that end with a number, the longest first."""
        parts = self.name.split(".")
        for count in range(len(parts) - 1, 0, -1):
            if parts[count - 1][-1:].isdecimal():
                yield ".".join(parts[:count])


def numbers(name: str) -> tuple[str, tuple[str, ...]]:
    """The name with `#` for its numbers, and the numbers."""
    return _NUMBER.sub("#", name), tuple(_NUMBER.findall(name))


def is_constant(name: str, tensor: Shaped) -> bool:
    """True for a constant or counter that is no weight."""
    return name.rpartition(".")[2] in CONSTANTS or tensor.dtype not in _FLOATS


def items_of(tensors: Mapping[str, Shaped]) -> list[Item]:
    """In the order of names, by the values of their numbers."""
    return [Item(name, kind_of(name), tensors[name].shape) for name in sorted(tensors, key=natural)]


def kind_of(name: str) -> str:
    leaf = name.rpartition(".")[2]
    return _KINDS.get(leaf, "bias" if leaf.endswith("bias") else "weight")


def in_our_layout(items: list[Item]) -> list[Item]:
    """The items, with the matrices of linear layers transposed if the file has all of them as [in, out]: if each bias
    has the size of its matrix's last axis, and at least one matrix is not square."""
    biases = {item.module: item.shape for item in items if item.leaf == "bias"}
    matrices = [item for item in items if item.leaf == "weight" and len(item.shape) == 2 and item.module in biases]
    told = [item for item in matrices if item.shape[0] != item.shape[1]]
    if not told or any(biases[item.module] != item.shape[1:] for item in told):
        return items
    turned = {item.name for item in matrices}
    return [Item(item.name, item.kind, item.shape[::-1], TRANSPOSED) if item.name in turned else item for item in items]


def squeezed(item: Item) -> Item:
    """The item without axes of size 1."""
    return Item(item.name, item.kind, tuple(size for size in item.shape if size != 1), item.change)


def without_ones(old: tuple[int, ...], new: tuple[int, ...]) -> str:
    """The rearrangement of a shape to another one that differs in axes of size 1."""
    letters = [iter(_LETTERS), iter(_LETTERS)]
    sides = [" ".join("1" if size == 1 else next(names) for size in shape) for names, shape in zip(letters, (old, new))]
    return f"{sides[0]} -> {sides[1]}"
