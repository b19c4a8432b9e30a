"""Checks the programs of a training step in a header: for micro-batches, shards, and the turns of several updates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from dslc.base.schema import Mismatch

#: The entries of a training step. Each may have a program for each turn.
_OF_STEP: Final = ("train_step", "accumulate_step", "update_step")


def check_training(header: Mapping[str, Any], programs: Collection[tuple[Any, ...]]) -> None:
    """Raises Mismatch. ``programs``: the entry, turn, target and sizes of each."""
    train = header["interface"]["train"] or {}
    several, divided = train.get("accumulate", 1) > 1, train.get("shards", 1) > 1
    has_batch = any(dim.get("batch") for dim in header["interface"]["dims"])
    if divided and train["shards"] & (train["shards"] - 1):
        _refuse("interface.train.shards", "a power of two")
    if divided and not has_batch:
        _refuse("interface.train.shards", "shards need a batch dim")
    if several and not has_batch:
        _refuse("interface.train.accumulate", "micro-batches need a batch dim")
    steps, parts, updates = ({key[1:] for key in programs if key[0] == entry} for entry in _OF_STEP)
    if updates != (steps if divided else set()):
        _refuse("programs", "each `train_step` of a shard needs an `update_step`")
    if parts != (steps if several and not divided else set()):
        _refuse("programs", "each `train_step` with micro-batches and no shards needs an `accumulate_step`")
    turns = train.get("turns", [])
    if turns and (len(turns) < 2 or len(set(turns)) < len(turns) or not (several or divided)):
        _refuse("interface.train.turns", "several names, each once, with micro-batches or shards")
    if not set(turns) <= set(train.get("metrics", ())):
        _refuse("interface.train.turns", "metrics of the section")
    if ("turns" in header["required_features"]) != bool(turns):
        _refuse("required_features", "`turns` if and only if the train section has them")
    if any(key[1] and key[0] not in _OF_STEP for key in programs):
        _refuse("programs", f"only {', '.join(_OF_STEP)} have a turn")
    of_turn = {turn: {key[1:] for key in steps if key[0] == turn} for turn in ("", *(key[0] for key in steps))}
    if {*of_turn} != {"", *turns[1:]} or any(sizes != of_turn[""] for sizes in of_turn.values()):
        _refuse("programs", "a `train_step` of each turn but the first, of whose programs each has the sizes")


def _refuse(path: str, rule: str) -> NoReturn:
    raise Mismatch(rule).inside(path)
