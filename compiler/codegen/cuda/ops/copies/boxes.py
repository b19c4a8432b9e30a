"""``slices`` and ``placed``: one launch copies all parts of a tensor that move as vectors of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Code, Numbered, Numbers, chosen, constants, put
from dslc.compiler.codegen.cuda.hardware import LOAD_BYTES
from dslc.compiler.codegen.cuda.llvm.division import magic_of
from dslc.compiler.codegen.cuda.region.writer import power_of_two
from dslc.compiler.codegen.launch import Launch
from dslc.compiler.codegen.lowerings import lowers
from dslc.compiler.codegen.region import pointwise
from dslc.compiler.codegen.target import Geometry
from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.index_limits import I32_ELEMENTS
from dslc.compiler.ir.types import DType
from dslc.compiler.ops.compound.boxes import MAX_AXES, Box, boxes_of, lines, places_of

_BLOCK_THREADS: Final = 256
_THREAD_BYTES: Final = 16  # that a thread copies at least
_LEAST: Final = 4  # vectors of a thread


@dataclass(frozen=True)
class Part:
    """A part of ``count`` elements that begins at ``start``: rows of ``run`` elements, ``rows`` of them ``step`` apart,
    and as many again at each ``leap``."""

    count: int
    start: int
    run: int
    rows: int
    step: int
    leap: int

    @classmethod
    def of(cls, box: Box, whole: Sequence[int]) -> Part:
        start, axes = lines(box, whole)
        (run, _), (rows, step), (_, leap) = (*axes, *[(1, 0)] * (MAX_AXES - len(axes)))
        return cls(prod(box.shape), start, run, rows, step, leap)


@dataclass(frozen=True)
class Boxes(Numbered):
    """``k(whole, parts...)``, or ``k(parts..., whole)`` if ``places``: ``parts`` of one tensor from or to tensors of
    their own. What is read has ``dtype``, what is written ``result``."""

    dtype: DType
    result: DType
    places: bool
    vector: int
    parts: tuple[Part, ...]

    @property
    def _each(self) -> int:
        """Vectors of a thread: enough of them that it takes longer to copy than to find the part."""
        return max(_LEAST, _THREAD_BYTES // (self.vector * self.dtype.itemsize))

    @property
    def blocks(self) -> tuple[int, ...]:
        """Blocks of each part."""
        return tuple(-(-part.count // (_BLOCK_THREADS * self._each * self.vector)) for part in self.parts)

    @property
    def geometry(self) -> Geometry:
        return Geometry((sum(self.blocks), 1, 1), (_BLOCK_THREADS, 1, 1))

    @property
    def _numbers(self) -> list[dict[str, int]]:
        """What a block knows about its part, for each part."""
        leaps, found = any(part.leap for part in self.parts), []
        for part in self.parts:
            each = {"count": part.count, "start": part.start, "step": part.step, **_divisor("run", part.run)}
            found.append(each | ({"leap": part.leap, **_divisor("rows", part.rows)} if leaps else {}))
        return found

    @property
    def numbers(self) -> Numbers:
        numbers = Numbers()
        for i, (part, first) in enumerate(zip(self._numbers, accumulate(self.blocks, initial=0))):
            for name, number in {**part, "first": first}.items():
                numbers.add(f"{name}{i}", number)
        return numbers

    @property
    def code(self) -> Code:
        own, whole = ("const T", "S") if self.places else ("S", "const T")
        pointers = [f"{own} *__restrict__ p{i}" for i in range(len(self.parts))]
        pointers.insert(len(pointers) if self.places else 0, f"{whole} *__restrict__ whole")
        names, cases = [*self._numbers[0]], []
        for i in range(len(self.parts)):
            numbers = "".join(f" {name} = s.{name}{i};" for name in names)
            cases.append((f"s.first{i}", f"own = p{i}; block = number - s.first{i};{numbers}"))
        pack, down = "quotient(row, rows_magic, rows_shift)", "row * step"
        if "rows" in names:
            down = f"{pack} * leap + (row - {pack} * rows) * step"
        source, target = ("own + e", "whole + at") if self.places else ("whole + at", "own + e")
        text = f"using T = {C_TYPES[self.dtype]};\nusing S = {C_TYPES[self.result]};\n" + self.numbers.text()
        text += put(self.dtype, self.result) + f"#define POINTERS {', '.join(pointers)}\n"
        text += f"#define PICK {own} *own; int block, {', '.join(names)}; {chosen('number', cases)}\n"
        text += f"#define DOWN {down}\n#define FROM {source}\n#define TO {target}\n"
        return Code("boxes.cu", text + constants(THREADS=_BLOCK_THREADS, EACH=self._each, VEC=self.vector))


def _divisor(name: str, size: int) -> dict[str, int]:
    magic, shift = magic_of(size)
    return {name: size, f"{name}_magic": magic, f"{name}_shift": shift}


@lowers("slices", target="cuda")
def slices(node: Node) -> list[Launch] | None:
    return _copies(node.inputs[0], node.outputs, boxes_of(node.attrs), places=False)


@lowers("placed", target="cuda")
def placed(node: Node) -> list[Launch] | None:
    parts = sum(prod(t.ints) for t in node.input_types)
    clear = pointwise.filled(node, 0) if parts < prod(node.types[0].ints) else []
    copies = _copies(node.out, node.inputs, places_of(node.input_types, node.attrs), places=True)
    return None if copies is None else clear + copies


def _copies(whole: Value, owns: Sequence[Value], boxes: Sequence[Box], *, places: bool) -> list[Launch] | None:
    """A launch for each size of vectors; None if a part has too many axes, or an index needs i64."""
    shape, dtypes = whole.type.ints, (whole.type.dtype, owns[0].type.dtype)
    source, target = reversed(dtypes) if places else dtypes
    largest = max(dtype.itemsize for dtype in dtypes)
    if prod(shape) >= I32_ELEMENTS or any(len(lines(box, shape)[1]) > MAX_AXES for box in boxes):
        return None
    found: dict[int, list[tuple[Part, Value]]] = {}
    for box, own in zip(boxes, owns, strict=True):
        part = Part.of(box, shape)
        if part.count:
            alike = power_of_two(part.start, part.run, part.step, part.leap)
            found.setdefault(min(LOAD_BYTES // largest, alike), []).append((part, own))
    launches = []
    for vector, members in sorted(found.items()):
        spec, values = Boxes(source, target, places, vector, tuple(p for p, _ in members)), tuple(v for _, v in members)
        reads, writes = (values, (whole,)) if places else ((whole,), values)
        launches.append(Launch(spec, reads, writes))
    return launches
