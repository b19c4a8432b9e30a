"""The text of a resident kernel's step: ``struct Steps`` of ``kernels/recurrent/resident.cu``.

A value of the body is an array ``v[EACH][groups]`` of a thread's elements, which stay in registers. A thread loads the
elements of the sequences for a step while its block waits for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Numbers, constants, kernel_text
from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.formulas import formula, literal
from dslc.compiler.ir.graph import Input, Node, Value
from dslc.compiler.ir.op import Pointwise
from dslc.compiler.ir.scalar import argument
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.attrs import int_tuple
from dslc.compiler.ops.constants.literal import as_number

_EACH = "#pragma unroll\n    for (int e = 0; e < EACH; ++e)"


@dataclass
class Source:
    """The kernel's pointers are the body's inputs in their order, its results, and the scratch memory."""

    cell: Cell
    division: Division

    def __post_init__(self) -> None:
        self.number = {source: n for n, source in enumerate(self.cell.graph.inputs)}
        self.text: dict[Value, list[str]] = {}  # a value -> its groups' expressions
        self.local: list[str] = []  # declarations of a step
        for source, n in self.number.items():
            kind = "h" if source in self.cell.loop.carry_inputs else "x"
            if source not in self.cell.weights:
                self.text[source.value] = [f"{kind}{n}[e][{g}]" for g in range(self._groups(source.value))]

    def __str__(self) -> str:
        cell, by = self.cell, self.division
        sizes = constants(
            THREADS=by.threads, WARPS=by.warps, J=by.columns, EACH=by.each, ROWS=cell.rows, H=cell.width,
            REVERSE=int(cell.loop.reverse), BLOCKS=by.blocks, WORD=by.word, TF32=int(cell.tf32),
        )  # fmt: skip
        pointers = f"#define POINTERS {', '.join(self._pointers)}\n#define POINTER_NAMES {', '.join(self._names)}\n"
        step = self._step()  # first: it declares
        parts = [self._members(), self._begin(), self._fetch(), step, self._end()]
        kind = f'#define MMA_TYPE "{self.cell.factor.value}"\n' if self.cell.factor.is_half else ""
        head = kind + sizes + kernel_text(self.division.file) + Numbers(COUNT=1).text()
        return head + pointers + "struct Steps {\n" + "".join(parts) + "};\n"

    @cached_property
    def _pointers(self) -> list[str]:
        """The kernel's parameters before its numbers."""
        loop = self.cell.loop
        found = [f"const {C_TYPES[i.value.type.dtype]} *__restrict__ p{n}" for i, n in self.number.items()]
        found += [f"{C_TYPES[i.value.type.dtype]} *__restrict__ last{n}" for n, i in enumerate(loop.carry_inputs)]
        found += [f"{C_TYPES[v.type.dtype]} *__restrict__ y{n}" for n, v in enumerate(self.cell.graph.outputs.values())]
        return [*found, "unsigned char *scratch"]

    @property
    def _names(self) -> list[str]:
        return [each.rpartition(" ")[2].lstrip("*") for each in self._pointers]

    @property
    def _sequences(self) -> tuple[Input, ...]:
        return self.cell.loop.sequence_inputs

    @property
    def _carried(self) -> list[tuple[int, Value]]:
        """The numbers of the shared values that are carries, with these."""
        return [(n, v) for n, v in enumerate(self.cell.shared) if self.cell.is_carry(v)]

    def _groups(self, value: Value) -> int:
        return self.cell.groups(value.type)

    def _array(self, name: str, value: Value) -> str:
        kind = "bool" if value.type.dtype is DType.B1 else "float"
        return f"  {kind} {name}[EACH][{self._groups(value)}];\n"

    def _members(self) -> str:
        lines = [f"  {each};\n" for each in self._pointers]
        lines += [
            "  float *memory;\n",
            "  bool in[EACH];\n",
            "  int row[EACH], own[EACH], col[EACH];\n",
        ]
        for n, product in enumerate(self.cell.products.values()):
            lines.append(f"  {self._product_type(product)} product{n};\n")
        for source, n in self.number.items():
            if source in self.cell.loop.carry_inputs:
                lines.append(self._array(f"h{n}", source.value))
            elif source not in self.cell.weights:
                lines.append(self._array(f"x{n}", source.value))
                lines += [self._array(f"f{n}", source.value)] * (source in self._sequences)
        return "".join(lines)

    def _product_type(self, product: Product) -> str:
        groups = product.node.types[0].ints[1] // self.cell.width
        numbers = (groups, self._groups(product.left), *self.division.constants(product))
        return f"Product<{', '.join(map(str, numbers))}, {str(product.turned).lower()}>"

    def _place(self, type: TensorType, group: int) -> str:
        """The index of a thread's element in a tensor of rows and columns."""
        shape = type.ints
        columns = shape[-1] if shape else 1
        rows = f"row[e] * {columns}" if len(shape) == 2 and shape[0] > 1 else "0"
        return f"{rows} + {group * self.cell.width} + col[e]" if columns > 1 else rows

    def _begin(self) -> str:
        lines = ["  __device__ __forceinline__ void begin(const Numbers &s, float *given, ",
                 ", ".join(each.replace(f" *__restrict__ {n}", f" *given_{n}").replace(f" *{n}", f" *given_{n}")
                            for each, n in zip(self._pointers, self._names)), ") {\n"]  # fmt: skip
        lines += [*(f"    {n} = given_{n};\n" for n in self._names), "    memory = given;\n"]
        lines.append(f"    {_EACH} {{\n      const int i = threadIdx.x + e * THREADS, slot = i % (PART * WORDS);\n"
                     "      row[e] = i / (PART * WORDS);\n      own[e] = slot / PART * WORD + slot % PART;\n"
                     "      col[e] = blockIdx.x * J + own[e];\n"
                     "      in[e] = row[e] < ROWS && slot % PART < WORD && own[e] < J && col[e] < H;\n"
                     "    }\n")  # fmt: skip
        for n, product in enumerate(self.cell.products.values()):
            lines.append(f"    product{n}.load({self._matrix(n, f'p{self.number[product.right]}')});\n")
        lines.append(f"    {_EACH} {{\n")
        for source, n in self.number.items():
            if source in self._sequences or source in self.cell.weights:
                continue
            kind = "h" if source in self.cell.loop.carry_inputs else "x"
            lines += self._loads(f"{kind}{n}", f"p{n}", source.value, "0")
        for shared, value in self._carried:
            lines += self._exchanged(shared, self.text[value], "0")
        lines.append("    }\n")
        lines.append("    all_are_put();\n" if self._carried else "")
        lines.append("    if (s.COUNT > 0) fetch(REVERSE ? s.COUNT - 1 : 0);\n  }\n")
        return "".join(lines)

    def _matrix(self, n: int, pointer: str) -> str:
        """A product's matrix as its kernel loads it: 16-bit floats as bits; f32 with the shared memory for it."""
        if self.cell.factor.is_half:
            return f"reinterpret_cast<const unsigned short *>({pointer})"
        return f"{pointer}, memory + {self.division.matrices_at + self.division.matrix_elements[n]}"

    def _loads(self, name: str, pointer: str, value: Value, start: str) -> Iterable[str]:
        nothing = "false" if value.type.dtype is DType.B1 else "0.0f"
        for g in range(self._groups(value)):
            place = f"{start} + {self._place(value.type, g)}"
            yield f"      {name}[e][{g}] = in[e] ? wide({pointer}[{place}]) : {nothing};\n"

    def _fetch(self) -> str:
        lines = ["  __device__ __forceinline__ void fetch(long long at) {\n", f"    {_EACH} {{\n"]
        for source in self._sequences:
            n = self.number[source]
            lines += self._loads(f"f{n}", f"p{n}", source.value, f"at * {prod(source.value.type.ints)}")
        return "".join([*lines, "    }\n  }\n"])

    def _exchanged(self, shared: int, texts: Sequence[str], step: str) -> Iterable[str]:
        """Writes a thread's elements of a shared value, for a step."""
        kind, pitch = C_TYPES[self.cell.factor], self.division.pitch(self.cell.shared[shared])
        for g, text in enumerate(texts):
            word = f"row[e] * {pitch} + ({g} * BLOCKS + blockIdx.x) * WORDS + own[e] / WORD"
            place = f"{self._exchange(shared, step)} + 16 * ({word})"
            yield f"      put<{kind}>({place}, in[e], row[e] < ROWS, {text}, {step});\n"

    def _exchange(self, shared: int, step: str) -> str:
        first, size = self.division.places[shared]
        return f"scratch + {first} + ({step} & 1) * {size}"

    def _multiplied(self, level: int) -> Iterable[str]:
        """The products of a level, when their left factors are there: their sums in shared memory."""
        cell = self.cell
        products = [(n, p) for n, (v, p) in enumerate(cell.products.items()) if cell.level[v] == level]
        if not products:
            return
        for n, product in products:
            x = f"reinterpret_cast<const uint4 *>({self._exchange(cell.shared.index(product.left), 'step')})"
            yield f"    product{n}.multiply_by({x}, sums + {self.division.sums[n]}, step);\n"
        yield "    __syncthreads();\n"

    def _step(self) -> str:
        cell = self.cell
        lines = []
        for n, value in enumerate(cell.graph.outputs.values()):
            self.local += [self._array(f"r{n}", value)] * (self._written(value) == cell.levels - 1)
        for source in self._sequences:
            n = self.number[source]
            lines.append(f"    {_EACH} {{\n")
            lines += [f"      x{n}[e][{g}] = f{n}[e][{g}];\n" for g in range(self._groups(source.value))]
            lines.append("    }\n")
        arrivals = [level for level in range(cell.levels) if self._leaving(level)]
        for level in range(cell.levels):
            lines += self._multiplied(level)
            lines.append(f"    {_EACH} {{\n")
            for node in cell.nodes:
                if cell.level[node.out] == level:
                    lines += self._node(node)
            lines += self._shares(level)
            if level == cell.levels - 1:
                lines += self._updates()
            lines.append("    }\n")
            if self._leaving(level):
                lines.append("    all_are_put();\n")
            if level == (arrivals[-1] if arrivals else cell.levels - 1):
                lines.append("    if (step + 1 < s.COUNT) fetch(REVERSE ? s.COUNT - 2 - step : step + 1);\n")
            if written := [*self._stores(level)]:
                lines += [f"    {_EACH} {{\n", *written, "    }\n"]
        head = "  __device__ __forceinline__ void step(const Numbers &s, int step) {\n"
        head += "    const long long at = REVERSE ? s.COUNT - 1 - step : step;\n"
        head += "    // Other warps may still read the sums of the last step.\n"
        head += f"    float *sums = memory + (step & 1) * {self.division.sums[-1]};\n"
        return head + "".join(f"  {each}" for each in self.local) + "".join(lines) + "  }\n"

    def _leaving(self, level: int) -> bool:
        """Whether blocks wait for what a level has written."""
        inner = (v for v in self.cell.shared if not self.cell.is_carry(v))
        last = level == self.cell.levels - 1
        return any(self.cell.level[v] == level for v in inner) or (last and bool(self._carried))

    def _node(self, node: Node) -> Iterable[str]:
        """The text of an element of a node, which then has its expressions."""
        value, groups = node.out, self._groups(node.out)
        name = f"v{len(self.text)}"
        if node.op.name == "slice":
            starts, stops = int_tuple(node.attrs, "starts")[1], int_tuple(node.attrs, "stops")[1]
            self.text[value] = self.text[node.inputs[0]][starts // self.cell.width : stops // self.cell.width]
            return
        if node.op.name in ("concat", "reshape"):
            self.text[value] = [each for v in node.inputs for each in self.text[v]]
            return
        if node.op.name == "full":
            self.text[value] = [self._rounded(literal(as_number(node.attrs["value"])), node)] * groups
            return
        self.local.append(self._array(name, value))
        self.text[value] = [f"{name}[e][{g}]" for g in range(groups)]
        if value in self.cell.products:
            n = list(self.cell.products).index(value)
            for g in range(groups):
                found = f"product{n}.sum(sums + {self.division.sums[n]}, row[e], {g}, own[e])"
                yield f"      {name}[e][{g}] = in[e] ? {self._rounded(found, node)} : 0.0f;\n"
            return
        assert isinstance(node.op, Pointwise)
        for g in range(groups):
            names = [texts[g if len(texts) > 1 else 0] for texts in (self.text[v] for v in node.inputs)]
            tree = node.op.scalar_of(DType.F32, node.attrs, *map(argument, range(len(names))))
            yield f"      {name}[e][{g}] = {self._rounded(formula(tree, names), node)};\n"

    def _rounded(self, text: str, node: Node) -> str:
        dtype = node.types[0].dtype
        return f"rounded_{dtype.value}({text})" if dtype.is_half else text

    def _written(self, value: Value) -> int:
        """The level after which a result is written: the first where the block then waits for others, or the last."""
        last = self.cell.levels - 1
        return next((n for n in range(self.cell.level[value], last) if self._leaving(n)), last)

    def _results(self) -> Iterable[str]:
        """Takes the results that are written at the end of a step, before carries change."""
        for n, value in enumerate(self.cell.graph.outputs.values()):
            if self._written(value) == self.cell.levels - 1:
                for g, text in enumerate(self.text[value]):
                    yield f"      r{n}[e][{g}] = {text};\n"

    def _stores(self, level: int) -> Iterable[str]:
        """Writes results after a level, while other blocks come to the barrier."""
        for n, value in enumerate(self.cell.graph.outputs.values()):
            if self._written(value) != level:
                continue
            start, last = f"at * {prod(value.type.ints)}", level == self.cell.levels - 1
            for g, text in enumerate(self.text[value]):
                taken = f"r{n}[e][{g}]" if last else text
                yield f"      if (in[e]) store(y{n} + ({start} + {self._place(value.type, g)}), {taken});\n"

    def _shares(self, level: int) -> Iterable[str]:
        """Writes the shared values of a level."""
        for shared, value in enumerate(self.cell.shared):
            if not self.cell.is_carry(value) and self.cell.level[value] == level:
                yield from self._exchanged(shared, self.text[value], "step")

    def _updates(self) -> Iterable[str]:
        """The carries after a step: all are read before any is written."""
        yield from self._results()
        after = [(self.number[source], value) for source, value in self.cell.graph.updates]
        for n, value in after:
            kind = "bool" if value.type.dtype is DType.B1 else "float"
            for g, text in enumerate(self.text[value]):
                yield f"      const {kind} t{n}_{g} = {text};\n"
        for n, value in after:
            for g in range(len(self.text[value])):
                yield f"      h{n}[e][{g}] = t{n}_{g};\n"
        for shared, value in self._carried:
            yield from self._exchanged(shared, self.text[value], "(step + 1)")

    def _end(self) -> str:
        lines = ["  __device__ __forceinline__ void end() {\n", f"    {_EACH} {{\n"]
        for n, source in enumerate(self.cell.loop.carry_inputs):
            for g, text in enumerate(self.text[source.value]):
                lines.append(f"      if (in[e]) store(last{n} + ({self._place(source.value.type, g)}), {text});\n")
        return "".join([*lines, "    }\n  }\n"])
