"""Layers that correspond in the order of their numbers: for families whose numbers depend on the size of the model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from dslc.base.errors import ArtifactError
from dslc.runtime.weights.names.rule import Rule

COUNTER: Final = "num_batches_tracked"  # PyTorch's batchnorm counts its batches; the model has no such tensor


def in_order(rule: Rule, rests: Mapping[str, str], models: Iterable[str] | None, place: str) -> dict[str, str]:
    """The new names of a file's tensors that a rule takes. ``rests``: what follows the pattern in each name, with its
    dot. Layers with the same endings (weight, bias, running_mean...) correspond, in the order of the numbers in their
    names. ArtifactError R305 if the model has another number of them, or ``models``, its names, is None."""
    assert rule.in_order is not None
    if models is None:
        cause = f"`{rule.pattern.text[:80]}` counts the layers of a model, and there is none"
        raise ArtifactError("R305", cause, place=place, help="use this map with --weights")
    ours: dict[str, set[str]] = defaultdict(set)
    for name in models:
        found = rule.in_order.match(name.split("."), whole=False)
        if found is not None:
            ours[name.removesuffix(found.rest)].add(found.rest)
    theirs: dict[str, set[str]] = defaultdict(set)
    for name, rest in rests.items():
        theirs[name.removesuffix(rest)].add(rest)
    sides = [_by_endings(theirs), _by_endings(ours)]
    renamed: dict[str, str] = {}
    for endings in sides[0].keys() | sides[1].keys():
        old, new = sides[0].get(endings, []), sides[1].get(endings, [])
        if len(old) != len(new):
            said = ", ".join(sorted(ending[1:] for ending in endings))[:80]
            cause = f"the file has {len(old)} layers `{rule.pattern.text[:60]}` with {said}, the model {len(new)}"
            raise ArtifactError("R305", cause, place=place, help="give the model the size of the file")
        renamed |= dict(zip(old, new))
    return {name: renamed[name.removesuffix(rest)] + rest for name, rest in rests.items()}


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts numbers by their value."""
    pieces = re.split(r"([0-9]+)", name)
    return tuple((int(piece[:18]), "") if i % 2 else (-1, piece) for i, piece in enumerate(pieces))


def _by_endings(layers: Mapping[str, set[str]]) -> dict[frozenset[str], list[str]]:
    found: dict[frozenset[str], list[str]] = defaultdict(list)
    for layer in sorted(layers, key=natural):
        found[frozenset(layers[layer]) - {f".{COUNTER}"}].append(layer)
    return found
