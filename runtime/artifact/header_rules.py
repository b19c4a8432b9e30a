"""The rules between the fields of a header that has the right schema: names, offsets, sizes and programs that agree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import prod
from typing import Any, NoReturn

from dslc.base import canonical
from dslc.base.schema import Mismatch
from dslc.runtime.artifact.dtypes import ITEMSIZE, MOST_ELEMENTS, elements_of_axes
from dslc.runtime.artifact.header_schema import (
    AS_PARAM,
    CARRYING,
    FORMAT,
    KINDS,
    PREPARE,
    PREPARED,
    STATE_ALIGNMENT,
    WITH_EXTENTS,
    WITH_LOCK,
    WITH_PACKAGES,
)
from dslc.runtime.artifact.interface import size_value
from dslc.runtime.artifact.plan_schema import MAX_BYTES
from dslc.runtime.artifact.reserved import EPOCH_STEPS, OF_EPOCH, OF_STATE, SCALING
from dslc.runtime.artifact.training_check import check_training
from dslc.runtime.extents import key_of


def interface_sha256(interface: Mapping[str, Any]) -> str:
    """The digest that an importable module stores: SHA-256 of the interface's canonical text."""
    return hashlib.sha256(canonical.dumps(interface)).hexdigest()


def check_rules(header: dict[str, Any]) -> None:
    """Raise Mismatch with the field and the rule that it breaks."""
    _check_dims(header)
    _check_names(header["interface"])
    _check_state(header["state"])
    _check_programs(header)
    _check_states(header)
    _check_prepared(header)
    _check_kernels(header)
    _check_lock(header)
    _check_packages(header)


def _refuse(path: str, rule: str) -> NoReturn:
    raise Mismatch(rule).inside(path)


def _unique(path: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _refuse(path, f"{name!r} occurs twice")
        seen.add(name)


def _check_dims(header: dict[str, Any]) -> None:
    interface = header["interface"]
    if header["name"] != interface["name"] or header["model"] != interface["model"]:
        _refuse("interface", "name and model must equal those of the header")
    if header["interface_sha256"] != interface_sha256(interface):
        _refuse("interface_sha256", "not the SHA-256 of the interface")
    _unique("interface.dims", [d["name"] for d in interface["dims"]])
    for index, dim in enumerate(interface["dims"]):
        if not dim["low"] <= dim["default"] <= dim["high"]:
            _refuse(f"interface.dims[{index}]", "low <= default <= high")
    if sum(bool(d.get("batch")) for d in interface["dims"]) > 1:
        _refuse("interface.dims", "at most one batch dim")


def _check_names(interface: dict[str, Any]) -> None:
    train = interface["train"] or {"inputs": [], "scalars": [], "metrics": []}
    inputs = [t["name"] for t in [*interface["inputs"], *train["inputs"], *train["scalars"]]]
    _unique("interface.inputs", inputs)
    _unique("interface.results", [t["name"] for t in interface["results"]])
    _unique("interface.train.metrics", train["metrics"])
    running = train.get("epoch_metrics", [])
    _unique("interface.train.epoch_metrics", running)
    if not set(running) <= set(train["metrics"]) or (running and EPOCH_STEPS not in inputs):
        _refuse("interface.train.epoch_metrics", f"metrics of the section, with a scalar `{EPOCH_STEPS}`")
    for holder in (interface, train):
        for name, (low, end) in holder.get("ranges", {}).items():
            if name not in inputs or low > end:
                _refuse("interface.ranges", f"{name!r}: a range [low, end) of an input")
        if not set(holder.get("limits", {})) <= set(inputs):
            _refuse("interface.limits", "sizes for inputs")


def _check_state(state: dict[str, Any]) -> None:
    tensors = state["tensors"]
    _unique("state.tensors", [t["name"] for t in tensors])
    params = {t["name"]: t for t in tensors if t["kind"] == "param"}
    order, end = (0, ""), 0
    for index, tensor in enumerate(tensors):
        path = f"state.tensors[{index}]"
        if elements_of_axes(tensor["shape"]) > MOST_ELEMENTS:
            _refuse(path, f"the product of its axes is more than {MOST_ELEMENTS} elements")
        key = (KINDS.index(tensor["kind"]), tensor["name"])
        if key < order:
            _refuse(path, "params, then buffers, then optimizer, then state, each sorted by name")
        if tensor["offset"] % STATE_ALIGNMENT or tensor["offset"] < end:
            _refuse(path, f"offset {tensor['offset']} must be a multiple of 64 and at least {end}")
        order, end = key, tensor["offset"] + ITEMSIZE[tensor["dtype"]] * prod(tensor["shape"])
        if end > state["bytes"]:
            _refuse(path, f"ends at {end}, the state has {state['bytes']} bytes")
        alone = tensor["name"] in SCALING or tensor["name"].startswith(OF_EPOCH)
        owned = tensor["kind"] == "optimizer" and not alone
        if (tensor["of"] is not None) != owned or (owned and tensor["of"] not in params):
            _refuse(path, "`of` is a parameter's name for optimizer slots, else null")
        if tensor["trained"] and tensor["kind"] != "param":
            _refuse(path, "only parameters can be trained")
        if owned and tensor["init"] == AS_PARAM:
            param = params[tensor["of"]]
            if (tensor["dtype"], tensor["shape"]) != (param["dtype"], param["shape"]):
                _refuse(path, f"it starts as {tensor['of']!r}, which has another dtype or shape")
    trained = sorted(t["name"] for t in tensors if t["trained"])
    if sorted(state["forward_order"]) != trained:
        _refuse("state.forward_order", "each trained parameter once")


def _check_states(header: dict[str, Any]) -> None:
    """The tensors that last from call to call: those of training in the state, those of other entries in contexts."""
    interface, state = header["interface"], header["state"]["tensors"]
    states = {s["name"]: s for s in interface.get("states", ())}
    _unique("interface.states", [s["name"] for s in interface.get("states", ())])
    of_training = {t["name"]: t["dtype"] for t in state if t["kind"] == "state"}
    wanted = {OF_STATE + name: s["dtype"] for name, s in states.items()} if interface["train"] is not None else {}
    if of_training != wanted:
        _refuse("state.tensors", "those of kind state are the states of the interface, if there is a train section")
    for index, program in enumerate(header["programs"]):
        path, end = f"programs[{index}].context", 0
        offsets = program.get("context", {})
        if offsets and program["entry"] not in CARRYING:
            _refuse(path, f"only {' and '.join(CARRYING)} have a context")
        for name, offset in sorted(offsets.items(), key=lambda each: each[1]):
            if name not in states:
                _refuse(path, f"{name!r} is not a state of the interface")
            if offset % STATE_ALIGNMENT or offset < end:
                _refuse(path, f"offset {offset} must be a multiple of 64 and at least {end}")
            shape = [size_value(size, program["sizes"]) for size in states[name]["shape"]]
            if min(shape, default=0) < 0 or elements_of_axes(shape) > MOST_ELEMENTS:
                _refuse(path, f"{name!r} has more than {MOST_ELEMENTS} elements, or a size below 0")
            end = offset + ITEMSIZE[states[name]["dtype"]] * prod(shape)
        if end > program["context_bytes"]:
            _refuse(path, f"ends at {end}, the context has {program['context_bytes']} bytes")


def _check_prepared(header: dict[str, Any]) -> None:
    """The region ``prepared``: one program of a target writes it, and it has one size for all that use it."""
    sizes: dict[str, int] = {}
    for index, program in enumerate(header["programs"]):
        path, size = f"programs[{index}].prepared_bytes", program.get("prepared_bytes")
        if size is not None and program["entry"] not in PREPARED:
            _refuse(path, f"only {' and '.join(PREPARED)} have this region")
        if program["entry"] == PREPARE:
            if program["target"] in sizes or size is None:
                _refuse(path, "a target has one program `prepare`, which has this region")
            sizes[program["target"]] = size
    for index, program in enumerate(header["programs"]):
        size = program.get("prepared_bytes")
        if size is not None and size != sizes.get(program["target"]):
            _refuse(f"programs[{index}].prepared_bytes", "the size of the region that the target's `prepare` writes")
    if ("prepared" in header["required_features"]) != bool(sizes):
        _refuse("required_features", "`prepared` if and only if there is a program `prepare`")


def _check_programs(header: dict[str, Any]) -> None:
    dims = {d["name"]: d for d in header["interface"]["dims"]}
    plans = {b["name"]: b["bytes"] for b in header["blobs"] if b["kind"] == "plan"}
    if sum(plans.values()) > MAX_BYTES:
        _refuse("blobs", f"plans of more than {MAX_BYTES} bytes together")
    seen: set[tuple[Any, ...]] = set()
    for index, program in enumerate(header["programs"]):
        path = f"programs[{index}]"
        key = (program["entry"], program.get("turn", ""), program["target"], *sorted(program["sizes"].items()))
        if key in seen:
            _refuse(path, "each combination of entry, turn, target and sizes may occur only once")
        seen.add(key)
        for name, size in program["sizes"].items():
            if name not in dims or not dims[name]["low"] <= size <= dims[name]["high"]:
                _refuse(f"{path}.sizes", f"{name!r} = {size} is not a dim within its bounds")
        if program["plan"] not in plans:
            _refuse(f"{path}.plan", f"the plan {program['plan']!r} does not exist, or belongs to another program")
        del plans[program["plan"]]
        if header["interface"]["train"] is None and program["entry"] not in ("init", *PREPARED):
            _refuse(f"{path}.entry", "a model without a train section has only init, prepare and predict")
    if plans:
        _refuse("blobs", f"no program has the plan {min(plans)!r}")
    check_training(header, seen)


def _check_kernels(header: dict[str, Any]) -> None:
    if "kernels" not in header and header["format"][1] >= WITH_EXTENTS:
        _refuse("kernels", f"is missing; format {FORMAT[0]}.{WITH_EXTENTS} requires it")
    seen = set()
    for index, row in enumerate(header.get("kernels", ())):
        letters, values, touched = row[4:]
        if len(values) != letters.count("v") or len(values) + len(touched) != len(letters):
            _refuse(f"kernels[{index}]", "a value for each v among the letters, and bytes for each other")
        key = key_of(row)
        if key in seen:
            _refuse(f"kernels[{index}]", f"a launch of {key[0]} occurs twice")
        seen.add(key)


def _check_packages(header: dict[str, Any]) -> None:
    if "packages" in header and header["format"][1] < WITH_PACKAGES:
        _refuse("packages", f"format {FORMAT[0]}.{header['format'][1]} has no such field")
    _unique("packages", [each["entry"] for each in header.get("packages", ())])


def _check_lock(header: dict[str, Any]) -> None:
    if "lock" in header and header["format"][1] < WITH_LOCK:
        _refuse("lock", f"format {FORMAT[0]}.{header['format'][1]} has no such field")
    for target in header.get("lock", ()):
        if all(program["target"] != target for program in header["programs"]):
            _refuse(f"lock.{target}", "no program has this target")
