"""The text of a chain's kernel: a namespace for each kind of stage, and the calls of all stages.

A stage's kind is its text: layers that differ only in their tensors share it. What a stage reads of tensors that are
there before the chain is on its way while the blocks still wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Final

from dslc.compiler.codegen.cuda.attention.few_queries import team_of
from dslc.compiler.codegen.cuda.chain.left_factor import left_text
from dslc.compiler.codegen.cuda.chain.stages import BLOCKS, THREADS, Attention, Product, Rows, Stage, put_of, stages_of
from dslc.compiler.codegen.cuda.contraction.epilogue import F32Epilogue
from dslc.compiler.codegen.cuda.contraction.few_rows import FewRows
from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, constants, kernel_text
from dslc.compiler.codegen.cuda.recurrent.formulas import formula
from dslc.compiler.codegen.region.ir import Let
from dslc.compiler.ir.graph import Graph, Value
from dslc.compiler.ir.sizes import ceil_div
from dslc.compiler.ir.types import DType

_WARPS: Final = THREADS // 32
_UNDER_WAY: Final = 12  # loads that a thread has in flight
_MOST_COLUMNS: Final = 4  # columns of a product that a team computes
_MOST_SUMS: Final = 16  # sums in the registers of a thread
_LINE: Final = 128  # bytes of a line of the L2 cache
_MOST_AHEAD: Final = 16 << 20  # bytes that a stage prefetches into the L2 cache, of the 50 MB of an H100 or H200
_FAR: Final = 2  # how many products later the prefetched weights are read
_ALIGNED: Final = 128  # bytes


@dataclass
class Source:
    """``text``: before ``chain.cu``; making it sets ``shared_bytes``, of a block. ``scratch_bytes``: of what stages
    leave for one another."""

    graph: Graph
    stages: Sequence[Stage] = field(init=False)
    shared_bytes: int = field(default=0, init=False)
    scratch_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.stages = stages_of(self.graph)
        self.outer = [source.value for source in self.graph.inputs]
        self.results = list(self.graph.outputs.values())
        self.names = {v: f"p{n}" for n, v in enumerate(self.outer)}
        self.names |= {v: f"y{n}" for n, v in enumerate(self.results)}
        self.parts: dict[Value, str] = {}
        self.kinds: dict[str, str] = {}  # the text of a kind of stage -> its namespace
        for stage in self.stages:
            if isinstance(stage, Product) and stage.node.out not in self.names:
                self.names[stage.node.out] = self._kept(C_TYPES[stage.spec.result], stage.node.out.type.bytes)
            elif isinstance(stage, Attention):
                size = 4 * stage.spec.stack * _splits(stage) * stage.spec.rows * (stage.spec.features + 2)
                self.parts[stage.node.out] = self._kept("float", size)

    def _kept(self, kind: str, size: int) -> str:
        """An expression for that many bytes of scratch memory."""
        at, self.scratch_bytes = self.scratch_bytes, self.scratch_bytes + ceil_div(size, _ALIGNED) * _ALIGNED
        return f"reinterpret_cast<{kind} *>(scratch + {at})"

    @cached_property
    def text(self) -> str:
        """Everything before the kernel."""
        head = constants(GRID=BLOCKS, THREADS=THREADS) + kernel_text("chain.cuh")
        ahead, calls = self._ahead(), []
        for number, stage in enumerate(self.stages):
            body, given = self._product(stage) if isinstance(stage, Product) else self._attention(stage)
            name = self.kinds.setdefault(body, f"s{len(self.kinds)}")
            brought = ahead[number]
            lines = 0 if brought is None else min(_MOST_AHEAD, brought.type.bytes) // _LINE
            turn = ["counter", str(number * BLOCKS)]
            turn += [self.names[brought] if brought is not None and lines else "nullptr", str(lines)]
            calls.append(f"{name}::run({', '.join([*turn, *given])});")
        pointers = [f"const {C_TYPES[v.type.dtype]} *{self.names[v]}" for v in self.outer]
        pointers += [f"{C_TYPES[v.type.dtype]} *{self.names[v]}" for v in self.results]
        kinds = "".join(f"namespace {name} {{\n{body}}}\n" for body, name in self.kinds.items())
        pointers += ["unsigned *counter", "unsigned char *scratch"]
        return f"{head}{kinds}#define POINTERS {', '.join(pointers)}\n#define STAGES {' '.join(calls)}\n"

    def _ahead(self) -> list[Value | None]:
        """For each stage the weights that it brings to the L2 cache: those of the next product that nobody has brought
        and that is not too far ahead."""
        products = [stage for stage in self.stages if isinstance(stage, Product)]
        found: list[Value | None] = []
        current, brought = -1, 0  # numbers of products
        for stage in self.stages:
            current += isinstance(stage, Product)
            brought = max(brought, current)
            if brought + 1 < len(products) and brought - current < _FAR:
                brought += 1
                found.append(products[brought].weights)
            else:
                found.append(None)
        return found

    def _product(self, stage: Product) -> tuple[str, list[str]]:
        """The namespace of a kind of product, and the arguments of its function after ``turn``."""
        spec, node = stage.spec, stage.node
        rows, columns, inner = spec.rows, spec.columns, spec.inner
        per, down = _division(spec)
        turns = ceil_div(inner, 32 * down * (16 // spec.dtype.itemsize))
        text = f"struct Sizes {{\nusing T = {C_TYPES[spec.dtype]};\nusing C = {C_TYPES[spec.result]};\n"
        text += "static " + constants(
            ROWS=rows, N=columns, K=inner, COLS=per, DOWN=down, AHEAD=min(turns, max(1, _UNDER_WAY // per)),
        ).rstrip("\n").replace("\n", "\nstatic ") + "\n};\n"  # fmt: skip
        given: list[tuple[str, str]] = []  # declarations and what is given
        match stage.left:
            case None:
                text += f"using Left = Rows<{C_TYPES[spec.dtype]}>;\n"
                given.append((f"const {C_TYPES[spec.dtype]} *l0", self.names[node.inputs[0]]))
            case Rows(node=made, region=region, reads=reads):
                text += left_text(region, rows, inner, [v in self.outer for v in reads])
                given += [(f"const {C_TYPES[v.type.dtype]} *l{n}", self.names[v]) for n, v in enumerate(reads)]
                self.shared_bytes = max(self.shared_bytes, made.types[0].bytes)
            case Attention(node=made) as attention:
                text += _attending(attention) + "using Left = Joined;\n"
                given.append(("const float *l0", self.parts[made.out]))
                self.shared_bytes = max(self.shared_bytes, made.types[0].bytes)
        lefts = len(given)
        last, others = self._last(stage)
        text += last
        given += [(f"const {C_TYPES[v.type.dtype]} *e{n}", self.names[v]) for n, v in enumerate(others, 1)]
        given += [(f"const {C_TYPES[spec.dtype]} *b", self.names[stage.weights])]
        given += [(f"{C_TYPES[spec.result]} *c", self.names[node.out])]
        filled = ", ".join(f"l{n}" for n in range(lefts))
        read = ", ".join(f"e{n}" for n in range(1, len(others) + 1))
        text += _function(
            [declared for declared, _ in given],
            f"  Left left{{{filled}}};\n  Last last{{{read}}};\n  product<Sizes>(turn, left, last, b, c);\n",
        )
        return text, [each for _, each in given]

    def _last(self, stage: Product) -> tuple[str, list[Value]]:
        """``struct Last``, the epilogue of each sum, and the tensors that the epilogue reads."""
        others = list(stage.node.inputs[2:])
        epilogue = stage.spec.epilogue
        if epilogue is None:
            return _last_text([], "", "", "x"), []
        reads = [v for v in dict.fromkeys(others)] if len({*others}) < len(others) else others
        assert len(reads) == len(epilogue.others), "an epilogue reads each tensor once"
        return _epilogue_text(epilogue, stage.spec.columns, [v in self.outer for v in reads]), reads

    def _attention(self, stage: Attention) -> tuple[str, list[str]]:
        """The namespace of a kind of attention, and the arguments of its function after ``turn``."""
        spec, node, made = stage.spec, stage.node, stage.put
        self.shared_bytes = max(self.shared_bytes, 4 * _WARPS * spec.rows * (2 + team_of(spec.features) * 8))
        text = _attending(stage)
        k, v = (made.inputs[node.inputs[n].index] for n in (1, 2)) if made is not None else node.inputs[1:3]
        kind, kept = C_TYPES[spec.dtype], C_TYPES[spec.kept]
        given = [(f"const {kind} *q", self.names[node.inputs[0]])]
        given += [(f"const {kept} *k", self.names[k]), (f"const {kept} *v", self.names[v])]
        mask = new_k = new_v = ids = "nullptr"
        if spec.mask:
            given.append(("const bool *mask", self.names[node.inputs[3]]))
            mask = "reinterpret_cast<const unsigned char *>(mask)"
        put = ""
        if made is not None:
            spec_of_put = put_of(made)
            assert spec_of_put is not None
            new_k, new_v, ids = "new_k", "new_v", "ids"
            first, second = node.inputs[1].index, node.inputs[2].index
            starts = [start for _, _, start in spec_of_put.views]
            sources = made.inputs[2:4]
            text += f"namespace put_rows {{\n{spec_of_put.words(THREADS)}{kernel_text('put_rows.cuh')}}}\n"
            text += "#undef SIZES\n#undef STEPS\n"
            given += [(f"const {kind} *new_k", f"{self.names[sources[first]]} + {starts[first]}")]
            given += [(f"const {kind} *new_v", f"{self.names[sources[second]]} + {starts[second]}")]
            given += [(f"const {C_TYPES[spec_of_put.ids]} *ids", self.names[made.inputs[-1]])]
            given += [
                (f"{kept} *to_k", self.names[made.outputs[first]]),
                (f"{kept} *to_v", self.names[made.outputs[second]]),
            ]
            put = "  put_rows::written(k, new_k, ids, to_k);\n  put_rows::written(v, new_v, ids, to_v);\n"
        given.append(("float *parts", self.parts[node.out]))
        body = f"  Attend attend{{q, k, v, {mask}, {new_k}, {new_v}, {ids}, parts}};\n  attend.run(turn);\n"
        text += _function([declared for declared, _ in given], body + put + "  turn.arrive();\n")
        return text, [each for _, each in given]


def _function(parameters: Sequence[str], body: str) -> str:
    head = "unsigned *arrived, unsigned target, const void *ahead, int lines"
    listed = ", ".join([head, *parameters])
    turn = "  const Turn turn{arrived, target, ahead, lines};\n"
    return f"__device__ __noinline__ void run({listed}) {{\n{turn}{body}}}\n"


def _division(spec: FewRows) -> tuple[int, int]:
    """The columns of a team, and its warps. With more columns than warps a team has several columns; with fewer,
    several warps share a column."""
    warps, per, down = BLOCKS * _WARPS, 1, 1
    turn = 32 * 16 // spec.dtype.itemsize
    while per < _MOST_COLUMNS and 2 * per * spec.rows <= _MOST_SUMS and spec.columns > per * warps:
        per *= 2
    while down < _WARPS and spec.columns * 2 * down <= warps * per and 2 * down * turn <= spec.inner:
        down *= 2
    return per, down


def _splits(stage: Attention) -> int:
    """Parts of the keys, so that there is a part for each block, of more than one key for a team."""
    spec = stage.spec
    teams = THREADS // team_of(spec.features)
    return max(1, min(BLOCKS // spec.stack, ceil_div(spec.keys, teams)))


def _attending(stage: Attention) -> str:
    """The constants of an attention and the file ``attend.cuh``, which uses them."""
    names = ("Q", "K", "V", "Y", "MASKED", "MASK", "SIZES", "STEPS")
    return _attention_head(stage) + kernel_text("attend.cuh") + "".join(f"#undef {name}\n" for name in names)


def _attention_head(stage: Attention) -> str:
    """The constants of an attention."""
    spec = stage.spec
    team = team_of(spec.features)
    teams = THREADS // team
    part = ceil_div(spec.keys, _splits(stage))
    most = 1 if spec.rows > 4 else 2
    text = f"using T = {C_TYPES[spec.dtype]};\nusing KV = {C_TYPES[spec.kept]};\n"
    text += f"constexpr float SCALE = (float){float(spec.scale).hex()};\n"
    for name, layout in zip("QKVY", spec.layouts, strict=True):
        text += f"#define {name} {{{', '.join(map(str, layout))}}}\n"
    text += f"#define MASKED {int(bool(spec.mask))}\n"
    text += f"#define MASK {{{', '.join(map(str, spec.mask))}}}\n"
    put = None if stage.put is None else put_of(stage.put)
    axes, row_step = [(1, 0)], 0
    if put is not None:
        shape, strides, _ = put.views[0]
        axes, row_step = list(zip(shape[1:], strides[1:])), strides[0]
    for name, values in (("SIZES", [size for size, _ in axes]), ("STEPS", [step for _, step in axes])):
        text += f"#define {name} {', '.join(map(str, values))}\n"
    text += f"using ID = {'int' if put is None else C_TYPES[put.ids]};\n"
    return text + constants(
        TEAM=team, TEAMS=teams, NEXT=min(most, ceil_div(part, teams)), INNER=spec.inner, SHARE=spec.share,
        HEADS=spec.stack, QUERIES=spec.queries, ROWS=spec.rows, KEYS=spec.keys, PART=part,
        SPLITS=ceil_div(spec.keys, part), FEATURES=spec.features, PUT=0 if put is None else put.put, RANK=len(axes),
        ROW_STEP=row_step,
    )  # fmt: skip


def _last_text(members: Sequence[tuple[str, str, bool, str]], values: str, body: str, result: str) -> str:
    """``struct Last`` from its parts. ``members``: for each tensor its declaration, the name of its value, whether it
    exists before the chain, and the expression that reads it. ``values``: the declarations of the values."""
    text = "struct Last {\n"
    text += "".join(f"  {declared};\n" for declared, _, _, _ in members) + values
    for when, early in (("early", True), ("late", False)):
        lines = "".join(f"    {name} = {read};\n" for _, name, there, read in members if there is early)
        text += f"  __device__ __forceinline__ void {when}(int row, int column) {{\n{_AT if lines else ''}{lines}  }}\n"
    return (
        f"{text}  __device__ __forceinline__ float finished(float x) const {{\n{body}    return {result};\n  }}\n}};\n"
    )


_AT: Final = "    const int at = row * Sizes::N + column;\n"


def _epilogue_text(epilogue: F32Epilogue, columns: int, outer: Sequence[bool]) -> str:
    """``struct Last`` of an epilogue. ``outer``: which of its further inputs exist before the chain."""
    region = epilogue.region
    own = region.inputs[0].strides
    members, values = [], []
    names = ["x"]
    for n, (access, there) in enumerate(zip(epilogue.others, outer, strict=True), 1):
        if access.strides == own:
            place = "at"
        else:
            terms = [
                f"at / {prod(region.outer[axis + 1 :])} % {region.outer[axis]} * {stride}"
                for axis, stride in enumerate(access.strides)
                if stride
            ]
            place = " + ".join(terms) or "0"
        read = f"e{n}[{place}]"
        wide = read if access.dtype is DType.B1 else f"wide({read})"
        members.append((f"const {C_TYPES[access.dtype]} *e{n}", f"v{n}", there, wide))
        values.append(f"  {'bool' if access.dtype is DType.B1 else 'float'} v{n};\n")
        names.append(f"v{n}")
    names += [""] * (region.first - len(names))
    lines = []
    for number, let in enumerate(epilogue.lets, region.first):
        assert isinstance(let, Let)
        kind = "bool" if let.dtype is DType.B1 else "float"
        lines.append(f"    const {kind} v{number} = {formula(let.expr, names)};\n")
        names.append(f"v{number}")
    [store] = region.stages[0].stores
    return _last_text(members, "".join(values), "".join(lines), names[store.value])
