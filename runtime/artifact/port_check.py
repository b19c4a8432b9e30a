"""Checks the inputs and outputs of a plan against its entry: names, kinds, dtypes and shapes for the program's
sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any, Final, NoReturn

from dslc.base.errors import ArtifactError
from dslc.runtime.artifact.header_schema import SHARD
from dslc.runtime.artifact.interface import shards_of, size_value
from dslc.runtime.artifact.plan import Plan, Port
from dslc.runtime.artifact.reserved import LOSS_SCALE, LOSS_SUM

_STEP_SCALARS: Final = ("step", "seed", "row", "lr")
_PARTIALS: Final = ("partial.sum", "partial.max", "partial.min")
#: The allowed kinds of outputs of each entry.
_OUTPUT_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "init": (),
    "accumulate_step": ("loss", "metric"),
    "train_step": ("loss", "metric", "flags", "scale", "skipped"),
    "update_step": ("flags", "scale", "skipped"),
    "eval_step": (*_PARTIALS, "count"),
    "eval_finish": ("loss", "metric"),
    "prepare": (),
    "predict": ("result",),
}


def check_ports(plan: Plan, entry: str, sizes: Mapping[str, int], header: Mapping[str, Any], *, place: str) -> None:
    """Raise ArtifactError R301 with the port and the rule. The header and the plan have been checked separately."""
    _Ports(plan, entry, sizes, header, place).run()


class _Ports:
    def __init__(self, plan: Plan, entry: str, sizes: Mapping[str, int], header: Mapping[str, Any], place: str) -> None:
        self.plan, self.entry, self.sizes, self.header, self.place = plan, entry, sizes, header, place
        self.interface: Mapping[str, Any] = header["interface"]
        self.of_shard = entry == "train_step" and shards_of(self.interface) > 1
        self.train: Mapping[str, Any] = self.interface["train"] or {"inputs": [], "scalars": [], "metrics": []}

    @cached_property
    def _sums(self) -> dict[str, Mapping[str, Any]]:
        """The trained parameters and the buffers, and with a loss scale the loss, by the names of their ports."""
        tensors = self.header["state"]["tensors"]
        scaled = any(t["name"] == LOSS_SCALE for t in tensors)
        found = {f"{SHARD}{t['name']}": t for t in tensors if t["trained"] or t["kind"] == "buffer"}
        return {**found, f"{SHARD}{LOSS_SUM}": {"shape": ()}} if scaled else found

    def run(self) -> None:
        self._scalars()
        self._inputs()
        for index, port in enumerate(self.plan.outputs):
            if port.kind not in (("loss", "metric", "shard") if self.of_shard else _OUTPUT_KINDS[self.entry]):
                self._refuse("outputs", index, f"{self.entry} has no output of kind {port.kind}")
            self._output(index, port)
        if self.entry == "predict":
            promised = {t["name"] for t in self.interface["results"]}
            given = {p.name for p in self.plan.outputs}
            if promised != given:
                self._refuse("outputs", None, f"the results are {sorted(promised)}, the plan gives {sorted(given)}")

    def _refuse(self, table: str, index: int | None, rule: str) -> NoReturn:
        field = table if index is None else f"{table}[{index}]"
        raise ArtifactError("R301", rule, place=f"{self.place}: {field}", help="build the artifact again")

    def _scalars(self) -> None:
        known = {*_STEP_SCALARS, *(s["name"] for s in self.train["scalars"])}
        for index, scalar in enumerate(self.plan.scalars):
            if scalar.name not in known:
                self._refuse("scalars", index, f"{scalar.name!r} is not a scalar of the interface")

    def _inputs(self) -> None:
        if self.entry == "eval_finish":
            for index, port in enumerate(self.plan.inputs):
                self._combined("inputs", index, port)
            return
        if self.entry == "update_step":
            for index, port in enumerate(self.plan.inputs):
                whole, _, start = port.name.rpartition(".")
                if port.name not in self._sums and whole in self._sums and start.isdecimal():
                    self._piece(index, port, prod(self._sums[whole]["shape"]) - int(start))
                    continue
                if port.name not in self._sums:
                    self._refuse("inputs", index, f"{port.name!r} is not an input of {self.entry}")
                self._summed("inputs", index, port)
            return
        tensors: dict[str, Mapping[str, Any]] = {}
        if self.entry not in ("init", "prepare"):
            tensors |= {t["name"]: t for t in self.interface["inputs"]}
        if self.entry in ("accumulate_step", "train_step", "eval_step"):
            tensors |= {t["name"]: t for t in self.train["inputs"]}
        for index, port in enumerate(self.plan.inputs):
            if port.name not in tensors:
                self._refuse("inputs", index, f"{port.name!r} is not an input of {self.entry}")
            self._tensor("inputs", index, port, tensors[port.name])

    def _output(self, index: int, port: Port) -> None:
        match port.kind:
            case "result":
                results = {t["name"]: t for t in self.interface["results"]}
                if port.name not in results:
                    self._refuse("outputs", index, f"{port.name!r} is not a result")
                self._tensor("outputs", index, port, results[port.name])
            case "flags":
                buffer, count = self.plan.buffers[port.buffer], len(self.header["state"]["forward_order"])
                if port.name != "nonfinite" or buffer.dtype not in ("u8", "b1") or buffer.shape != (count,):
                    wanted = f"u8[{count}] or b1[{count}]"
                    self._refuse("outputs", index, f"the flags are `nonfinite`, {wanted}, not {port.name!r} {buffer}")
            case "metric":
                if port.name.removeprefix("metric.") not in self.train["metrics"]:
                    self._refuse("outputs", index, f"{port.name!r} is not a metric")
                self._one("outputs", index, port, ("f64", "f32"))
            case "loss":
                if port.name != "loss":
                    self._refuse("outputs", index, f"the loss must be named `loss`, not {port.name!r}")
                self._one("outputs", index, port, ("f64", "f32"))
            case "scale":
                self._one("outputs", index, port, ("f64", "f32"))
            case "shard":
                self._summed("outputs", index, port)
            case "skipped":
                self._one("outputs", index, port, ("i64",))
            case "count":
                self._one("outputs", index, port, ("f64",))
            case _:
                self._combined("outputs", index, port)

    def _tensor(self, table: str, index: int, port: Port, tensor: Mapping[str, Any]) -> None:
        buffer = self.plan.buffers[port.buffer]
        try:
            shape = tuple(size_value(size, self.sizes) for size in tensor["shape"])
        except ArtifactError as error:
            self._refuse(table, index, error.message)
        if (buffer.dtype, buffer.shape) != (tensor["dtype"], shape):
            expected = f"{tensor['dtype']}[{', '.join(map(str, shape))}]"
            self._refuse(table, index, f"{port.name!r} is {expected}, the plan has {buffer}")

    def _combined(self, table: str, index: int, port: Port) -> None:
        """Checks a partial value. It may have any shape: a reduction over the batch keeps its other axes."""
        buffer = self.plan.buffers[port.buffer]
        if buffer.dtype != "f64":
            self._refuse(table, index, f"{port.name!r} is f64, the plan has {buffer}")

    def _summed(self, table: str, index: int, port: Port) -> None:
        """Checks what shards add up: the gradient of a trained parameter, or the new value of a buffer."""
        state = self._sums
        buffer = self.plan.buffers[port.buffer]
        if port.name not in state:
            self._refuse(table, index, f"{port.name!r} names no trained parameter, no buffer and no scaled loss")
        shape = tuple(state[port.name]["shape"])
        alone = table == "outputs" and self.train.get("accumulate", 1) == 1  # not a term of micro-batches, nor a sum
        dtypes = ("f64", "f32", "bf16", "f16") if alone else ("f64", "f32")
        if buffer.shape != shape or buffer.dtype not in dtypes:
            expected = f"{' or '.join(dtypes)}[{', '.join(map(str, shape))}]"
            self._refuse(table, index, f"{port.name!r} is {expected}, the plan has {buffer}")

    def _piece(self, index: int, port: Port, most: int) -> None:
        """Checks a piece of what shards add up, which has at most so many elements."""
        buffer = self.plan.buffers[port.buffer]
        if len(buffer.shape) != 1 or not 0 < buffer.shape[0] <= most or buffer.dtype not in ("f64", "f32"):
            self._refuse("inputs", index, f"{port.name!r} is f32 or f64, up to {most} elements, the plan has {buffer}")

    def _one(self, table: str, index: int, port: Port, dtypes: tuple[str, ...]) -> None:
        buffer = self.plan.buffers[port.buffer]
        if buffer.shape != () or buffer.dtype not in dtypes:
            self._refuse(table, index, f"{port.name!r} is one {' or '.join(dtypes)}, the plan has {buffer}")
