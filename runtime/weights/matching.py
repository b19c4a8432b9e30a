"""Which tensors of a file become which weights of a model: names mapped, heads replaced, everything else accounted for.

Nothing is left out silently. A tensor that the model lacks or needs is an error unless the terms allow it, and weights
that mostly do not come from the file are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from dslc.base.errors import ArtifactError, DataError
from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.nearest import nearest
from dslc.runtime.session.state import StateTensor
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.advice import Typed, next_step
from dslc.runtime.weights.files import WIDER, widened
from dslc.runtime.weights.names.name_map import NameMap, Naming
from dslc.runtime.weights.names.origin import Shaped
from dslc.runtime.weights.names.pattern import BadRule, Pattern
from dslc.runtime.weights.safetensors_file import TensorFile
from dslc.runtime.weights.safetensors_header import Head
from dslc.runtime.weights.slots import slots_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.config.maps import Given

HALF: Final = 0.5
_SHOWN: Final = 4  # names listed in a message
_COUNTER: Final = "num_batches_tracked"  # PyTorch's batchnorm counts its batches; no op here reads the counter


@dataclass(frozen=True)
class Terms:
    """``replace``: patterns of names of the model whose tensors keep their values. ``partial``: so do those that the
    file lacks or has in another shape, and further tensors of the file are not used. ``least``: the fraction of the
    bytes of all weights, but the replaced ones, that must come from the file."""

    map: NameMap
    replace: tuple[Pattern, ...] = ()
    partial: bool = False
    least: float = HALF


@dataclass(frozen=True)
class Row:
    """One weight, or one tensor of the file. ``files``: its names in the file; ``have`` and ``want``: the types there
    and in the model; ``rule``: the rule that named it, empty for none. ``action``: ``taken``, ``replaced``,
    ``missing``, ``misshaped``, ``ignored``, ``unused``."""

    files: tuple[str, ...]
    name: str | None
    have: str | None
    want: str | None
    action: str
    rule: str = ""
    change: str = ""
    bytes: int = 0


@dataclass(frozen=True)
class Matching:
    rows: tuple[Row, ...]
    naming: Naming


def terms_of(map: Given | Sequence[Given], replace: Sequence[str], *, partial: bool) -> Terms:
    """The terms of plain data. DataError R104 for a malformed map or pattern."""
    from dslc.runtime.config.maps import map_of

    try:
        patterns = tuple(Pattern(text, stars=4) for text in replace)
    except BadRule as bad:
        raise DataError("R104", str(bad), place="replace=...", help=bad.help) from bad
    return Terms(map_of(map, "map=..."), patterns, partial)


def read_matched(
    path: str | os.PathLike[str], expected: Mapping[str, StateTensor], terms: Terms, *, verify: bool = True
) -> tuple[TensorFile, Matching, dict[str, NDArray[Any]]]:
    """Read a file and match it before its values are read: the file with the tensors that are taken, what became of
    each tensor, and the values to set by the model's names. Raises the errors of ``safetensors_file.read`` and
    ArtifactError R305."""
    place = os.fspath(path)
    matchings: list[Matching] = []

    def accept(head: Head) -> None:
        matchings.append(match(expected, head.entries, terms, place, slots_in(head.entries, head.metadata)))

    def needed(head: Head) -> set[str]:
        [matching] = matchings
        return {piece for row in matching.rows if row.action == "taken" for piece in row.files}

    file = tensorfile.read(path, verify=verify, accept=accept, only=needed)
    [matching] = matchings
    arrays = {}
    for row in matching.rows:
        if row.action == "taken" and row.name is not None:
            array = widened(matching.naming.made[row.name].tensor(file.tensors, place), expected[row.name].dtype)
            assert array is not None
            arrays[row.name] = array
    return file, matching, arrays


def require_match(path: str | os.PathLike[str], expected: Mapping[str, StateTensor], terms: Terms) -> None:
    """Match a file without reading values. Raises the errors of ``read_matched``, but for damaged values."""
    place = os.fspath(path)

    def accept(head: Head) -> None:
        match(expected, head.entries, terms, place, slots_in(head.entries, head.metadata))

    tensorfile.read(path, verify=False, accept=accept, only=lambda head: ())


def match(
    expected: Mapping[str, StateTensor], have: Mapping[str, Shaped], terms: Terms, place: str, optimizer: Iterable[str]
) -> Matching:
    """Match a file's tensors with the weights of a model, without reading values; ``optimizer`` are names in the file
    that are no weights. Raises ArtifactError R305."""
    left_out = frozenset(optimizer)
    have = {name: tensor for name, tensor in have.items() if name not in left_out}
    naming = terms.map.naming(have, place, expected)
    replaced = selected(terms.replace, expected, place, "start.replace")
    rows = [_row(tensor, naming, have, name in replaced, place) for name, tensor in expected.items()]
    known = {name for name in naming.made if name in expected}
    for name, origin in naming.made.items():
        if name not in known:
            action = "ignored" if name.rpartition(".")[2] == _COUNTER else "unused"
            rows.append(Row(origin.pieces, None, _type(origin.described(have, place)), None, action,
                            naming.used.get(origin.pieces[0], "")))  # fmt: skip
    rows += [Row((n,), None, _type((have[n].dtype, have[n].shape)), None, "ignored", naming.used[n])
             for n in naming.ignored]  # fmt: skip
    other = [row.name for row in rows if row.action == "misshaped" and row.name is not None]
    pairs = [(naming.made[n].described(have, place), (expected[n].dtype, expected[n].shape)) for n in other]
    _require_fit(rows, terms, place, pairs)
    return Matching(tuple(rows), naming)


def selected(patterns: Iterable[Pattern], names: Iterable[str], place: str, field: str) -> set[str]:
    """The names that patterns select, or continue after a dot. ArtifactError R305 for a pattern that selects none."""
    names = list(names)
    parts = {name: name.split(".") for name in names}
    found: set[str] = set()
    for pattern in patterns:
        fits = {name for name in names if pattern.match(parts[name], whole=False) is not None}
        if not fits:
            raise ArtifactError(
                "R305",
                f"`{field}`: no tensor of the model is named `{pattern.text[:80]}`",
                place=place,
                help=_closest(pattern.text, names),
            )
        found |= fits
    return found


def _closest(text: str, names: Iterable[str]) -> str:
    near = nearest(text.removesuffix(".*"), (part for name in names for part in (name.rpartition(".")[0], name)))
    return f"did you mean `{near}`?" if near else "`dslc info` lists the names of the model"


def _row(tensor: StateTensor, naming: Naming, have: Mapping[str, Shaped], replaced: bool, place: str) -> Row:
    want, size = str(tensor), ITEMSIZE[tensor.dtype] * prod(tensor.shape)
    origin = naming.made.get(tensor.name)
    if origin is None:
        return Row((), tensor.name, None, want, "replaced" if replaced else "missing", bytes=size)
    rule = naming.used.get(origin.pieces[0], "")
    if replaced:
        types = [_type((have[n].dtype, have[n].shape)) for n in origin.pieces]
        return Row(origin.pieces, tensor.name, types[0], want, "replaced", rule, bytes=size)
    dtype, shape = origin.described(have, place)
    fits = shape == tensor.shape and (dtype == tensor.dtype or tensor.dtype in WIDER.get(dtype, ()))
    action = "taken" if fits else "misshaped"
    cast = f"{dtype} to {tensor.dtype}" if action == "taken" and dtype != tensor.dtype else ""
    change = ", ".join(part for part in (origin.action, cast) if part)
    return Row(origin.pieces, tensor.name, _type((dtype, shape)), want, action, rule, change, size)


def _type(found: tuple[str, tuple[int, ...]]) -> str:
    return f"{found[0]}[{', '.join(map(str, found[1]))}]"


def _require_fit(rows: list[Row], terms: Terms, place: str, pairs: Sequence[tuple[Typed, Typed]]) -> None:
    by = {action: [r for r in rows if r.action == action] for action in ("taken", "missing", "misshaped", "unused")}
    said: list[tuple[str, list[Row], Callable[[Row], str]]] = [
        ("missing", by["missing"], lambda r: f"{r.name} ({r.want})"),
        ("extra", by["unused"], lambda r: ascii(r.files[0])[1:-1][:80]),
        ("misshaped", by["misshaped"], lambda r: f"{r.name} is {r.have}, not {r.want}"),
    ]
    parts = [f"{word}: {_listed([show(r) for r in found])}" for word, found, show in said if found]
    need = sum(row.bytes for row in rows if row.name is not None and row.action != "replaced")
    share = sum(row.bytes for row in by["taken"]) / need if need else 0.0
    count = f"{len(by['taken'])} of {sum(row.name is not None for row in rows)} tensors"
    if parts and not terms.partial:
        help = "rename tensors with --map OLD=NEW; keep the model's own values of a new head with --replace 'head.*'"
        named = [row for row in rows if row.name is not None and row.action != "replaced"]
        help = next_step(pairs, missing=len(by["missing"]), expected=len(named)) or help
        if not by["missing"] and not by["misshaped"]:
            help = "leave tensors out with a rule `name: null` in start.map"
        raise ArtifactError("R305", f"the weights do not fit the model; {'; '.join(parts)}", place=place, help=help)
    if not by["taken"] or share < terms.least:
        raise ArtifactError(
            "R305",
            f"{count}, {share:.0%} of the bytes of the weights, come from the file; at least {terms.least:.0%} and one "
            "tensor must" + (f"; {'; '.join(parts)}" if parts else ""),
            place=place,
            help="rename tensors with --map; if so few are right, say it: --set start.least=0.1",
        )


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
