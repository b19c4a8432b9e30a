"""The small sections: `precision { ... }`, `budget { ... }` and `mesh { ... }`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dslc.base.words import BYTE_UNITS
from dslc.compiler.check.scope import ModuleScope, name_span
from dslc.compiler.check.training.section import MOST_SHARDS, TrainSection, divide_into_shards
from dslc.compiler.check.values import Problem
from dslc.compiler.ir.function import FUNCTIONS
from dslc.compiler.ir.graph import Origin
from dslc.compiler.ops.registry import family_of
from dslc.dsl import syntax
from dslc.dsl.diagnostics import did_you_mean
from dslc.dsl.dtype_names import FLOAT_TYPES, float_for

if TYPE_CHECKING:
    from dslc.compiler.check.expand import Expander

#: The groups of functions that `precision` may name, and the folders of ``compiler/ops`` that define their functions.
GROUPS: Final[Mapping[str, str]] = {"norm": "normalization", "loss": "loss", "reduction": "reduction"}


@dataclass(frozen=True)
class Precision:
    """The dtypes of floats: ``compute`` for activations, ``params`` for parameters, ``ops`` by function or group.

    ``blocks``: the dtypes of all `@precision` attributes in the model. ``nodes``: the dtype of each node inside one.
    ``functions``: the function whose call made the nodes of an origin.
    """

    compute: str = "f32"
    params: str = "f32"
    ops: Mapping[str, str] = field(default_factory=dict)
    blocks: frozenset[str] = frozenset()
    nodes: Mapping[Origin, str] = field(default_factory=dict)
    functions: Mapping[Origin, str] = field(default_factory=dict)

    def by_function(self) -> dict[str, str]:
        """``ops`` with each group replaced by its functions; a function's own entry goes before its group's."""
        groups = {g: d for g, d in self.ops.items() if g in GROUPS}
        named = {f: groups[g] for g in groups for f in FUNCTIONS if family_of(f) == GROUPS[g]}
        return named | dict(self.ops)


def sections_of(scope: ModuleScope, kind: str) -> list[syntax.Section]:
    return [i for i in scope.module.file.items if isinstance(i, syntax.Section) and i.kind == kind]


def _only(scope: ModuleScope, kind: str) -> syntax.Section | None:
    found = sections_of(scope, kind)
    if len(found) > 1:
        raise Problem("E0103", f"`{kind}` is declared twice", found[1].span, "again here")
    return found[0] if found else None


def read_precision(scope: ModuleScope, expander: Expander) -> Precision:
    """The file's `precision` section; f32 for both if it has none."""
    section = _only(scope, "precision")
    values: dict[str, str] = {}
    for entry in section.entries if section else ():
        with expander.report():
            name = entry.targets[0]
            if entry.entries is not None or len(entry.targets) != 1:
                raise Problem("E0113", "an entry of `precision` is `NAME = DTYPE`", entry.span)
            known = ("compute", "params", *GROUPS, *FUNCTIONS)
            if name not in known:
                near = did_you_mean(name, known)
                groups = ", ".join(GROUPS)
                help = f"did you mean `{near}`?" if near else f"compute, params, {groups}, or a function: softmax"
                raise Problem("E0113", f"`precision` has no entry `{name}`", entry.span, help=help)
            if name in values:
                raise Problem("E0103", f"`{name}` occurs twice in `precision`", entry.span)
            if not isinstance(entry.value, syntax.Name) or entry.value.name not in FLOAT_TYPES:
                place = entry.value.span if entry.value else entry.span
                meant = float_for(entry.value.name) if isinstance(entry.value, syntax.Name) else None
                title = f"a float type is one of {', '.join(FLOAT_TYPES)}"
                raise Problem("E0601", title, place, "not a float type",
                              help=f"did you mean `{meant}`?" if meant in FLOAT_TYPES else None)  # fmt: skip
            values[name] = entry.value.name
    compute = values.pop("compute", "f32")
    params = values.pop("params", "f64" if compute == "f64" else "f32")
    return Precision(compute, params, values, frozenset(expander.precisions), dict(expander.precision_words),
                     dict(expander.functions))  # fmt: skip


def read_budget(scope: ModuleScope, expander: Expander) -> int | None:
    """Bytes of `budget { memory = 20 GiB }`; None without this section."""
    section = _only(scope, "budget")
    memory: int | None = None
    for entry in section.entries if section else ():
        value = entry.value
        if entry.targets != ("memory",):
            help = f"memory = {_bytes_like(value)}"
            raise Problem("E0113", f"`budget` has no entry `{entry.targets[0]}`", entry.span, help=help)
        if not isinstance(value, syntax.Number) or value.unit not in BYTE_UNITS or value.value <= 0:
            help = f"memory = {_bytes_like(value)}"
            raise Problem("E0401", "a budget is an amount of memory", entry.span, help=help)
        if memory is not None:
            raise Problem("E0103", "`memory` occurs twice in `budget`", entry.span, "again here")
        memory = int(value.value * BYTE_UNITS[value.unit])
    return memory


def _bytes_like(value: syntax.Expr | None) -> str:
    """An amount of memory for a help line: as given, with a unit."""
    if not isinstance(value, syntax.Number) or value.value <= 0:
        return "20 GiB"
    return value.span.text if value.unit in BYTE_UNITS else f"{value.value:g} GiB"


def _shards_like(count: float | None) -> int:
    """A number of shards for a help line: the power of two at or below the given one."""
    return 1 << min(int(count), MOST_SHARDS).bit_length() - 1 if count is not None and count >= 1 else 8


def read_mesh(scope: ModuleScope, train: TrainSection | None, expander: Expander) -> None:
    """Sets ``train.shards`` from `mesh { shards = 8 }`; E0509 if the rows of a step cannot be divided into shards."""
    section = _only(scope, "mesh")
    seen = False
    for entry in section.entries if section else ():
        value = entry.value
        count = value.value if isinstance(value, syntax.Number) and value.unit is None else None
        help = f"shards = {_shards_like(count)}"
        if entry.targets != ("shards",):
            raise Problem("E0113", f"`mesh` has no entry `{entry.targets[0]}`", entry.span, help=help)
        if seen:
            raise Problem("E0103", "`shards` occurs twice in `mesh`", entry.span, "again here")
        seen = True
        if type(count) is not int or not 1 <= count <= MOST_SHARDS or count & (count - 1):
            raise Problem("E0209", f"`shards` is a power of two from 1 to {MOST_SHARDS}", entry.span, help=help)
        if train is not None:
            divide_into_shards(train, count, entry, expander)


def check_sections(scope: ModuleScope, expander: Expander) -> None:
    """E0508 for a train section without a model, E0113 for an unknown kind of section."""
    known = ("train", "precision", "budget", "mesh")
    for item in scope.module.file.items:
        if not isinstance(item, syntax.Section):
            continue
        with expander.report():
            if item.kind not in known:
                if item.kind == "step":
                    raise Problem("E0113", "a step stands inside of a `train` section", item.span, "outside",
                                  help="train Model() { step critic { ... } }")  # fmt: skip
                near = did_you_mean(item.kind, known)
                help = f"did you mean `{near}`?" if near else f"known are {', '.join(known)}"
                raise Problem("E0113", f"unknown section `{item.kind}`", name_span(item, item.kind), help=help)
            if item.kind == "train" and item.target not in scope.models:
                near = did_you_mean(item.target or "", scope.models)
                help = f"did you mean `{near}`?" if near else "train MODEL(label: i32[B]) { ... }"
                place = name_span(item, item.target) if item.target else item.span
                raise Problem("E0508", f"`train {item.target or ''}` names no model of this file".replace(" `", "`"),
                              place, help=help)  # fmt: skip
