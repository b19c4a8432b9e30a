"""The text of a resident kernel's step: ``struct Steps`` of ``kernels/recurrent/resident.cu``.

``begin`` loads matrices and the first carries, ``step`` follows the ``StepSchedule``, and ``end`` stores the last
carries. A thread loads the elements of the sequences for a step (``fetch``) while its block waits for the others.

Names in the text, by the number of an input, result or product: ``p`` and ``y`` are pointers of inputs and results,
``last`` those of the carries at the end; ``h`` holds a carry, ``x`` another input, ``f`` the next element of a
sequence, ``r`` a result until it is stored. ``row``, ``own`` and ``col`` are the places of a thread's elements: their
row, and their column in the block's and in all columns; ``in`` says which of them exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod

from dslc.compiler.codegen.cuda.cuda_cpp import C_TYPES, Numbers, constants, kernel_text
from dslc.compiler.codegen.cuda.recurrent.cell import Cell, Product
from dslc.compiler.codegen.cuda.recurrent.division import Division
from dslc.compiler.codegen.cuda.recurrent.elements import Elements, element_type
from dslc.compiler.codegen.cuda.recurrent.parameters import name_of, of_block, parameters
from dslc.compiler.codegen.cuda.recurrent.step_schedule import Level, step_schedule
from dslc.compiler.ir.graph import Input, Value
from dslc.compiler.ir.types import DType, TensorType

_EACH = "#pragma unroll\n    for (int e = 0; e < EACH; ++e)"


def step_source(cell: Cell, division: Division, reverse: Sequence[bool]) -> str:
    """The kernel's pointers are the body's inputs in their order, its results, and the scratch memory. ``reverse``: of
    each loop that the kernel runs; of several, the pointers are the inputs of each, the results of each, and the
    scratch memory of all."""
    return _Source(cell, division, reverse).text()


class _Source:
    def __init__(self, cell: Cell, division: Division, reverse: Sequence[bool]) -> None:
        self.cell, self.division, self.reverse = cell, division, reverse
        self.schedule = step_schedule(cell)
        self.products = list(cell.products.values())
        self.results = list(cell.graph.outputs.values())
        self.number = {source: n for n, source in enumerate(cell.graph.inputs)}
        self.elements = Elements(cell, division)
        for source in self.number:
            if source not in cell.weights:
                self.elements.name(source.value, self._array_of(source))

    def text(self) -> str:
        cell, by = self.cell, self.division
        one_way = {"REVERSE": int(self.reverse[0])} if len({*self.reverse}) == 1 else {}
        sizes = constants(
            THREADS=by.threads, WARPS=by.warps, J=by.columns, EACH=by.each, ROWS=cell.rows, H=cell.width,
            **one_way, BLOCKS=by.blocks, WORD=by.word.elements, PART=by.word.threads, TF32=int(cell.tf32),
        )  # fmt: skip
        kind = f'#define MMA_TYPE "{cell.factor.value}"\n' if cell.factor.is_half else ""
        head = kind + sizes + "".join(map(kernel_text, by.files)) + Numbers(COUNT=1).text()
        pointers = parameters(self._pointers, len(self.number), len(self.reverse), by.scratch_bytes)
        pointers += "" if one_way else f"#define REVERSE {of_block([str(int(each)) for each in self.reverse])}\n"
        functions = [self._members(), self._begin(), self._fetch(), self._step(), self._end()]
        return head + pointers + "struct Steps {\n" + "".join(functions) + "};\n"

    @cached_property
    def _pointers(self) -> list[str]:
        """The pointers of a loop."""
        carries = self.cell.loop.carry_inputs
        inputs = [f"const {C_TYPES[i.value.type.dtype]} *__restrict__ p{n}" for i, n in self.number.items()]
        lasts = [f"{C_TYPES[i.value.type.dtype]} *__restrict__ last{n}" for n, i in enumerate(carries)]
        results = [f"{C_TYPES[v.type.dtype]} *__restrict__ y{n}" for n, v in enumerate(self.results)]
        return [*inputs, *lasts, *results, "unsigned char *scratch"]

    @property
    def _names(self) -> list[str]:
        """Of the pointers."""
        return [*map(name_of, self._pointers)]

    @property
    def _sequences(self) -> tuple[Input, ...]:
        return self.cell.loop.sequence_inputs

    def _array_of(self, source: Input) -> str:
        """The array that holds an input's elements for the current step."""
        return f"{'h' if source in self.cell.loop.carry_inputs else 'x'}{self.number[source]}"

    # members

    def _members(self) -> str:
        lines = [f"  {each};\n" for each in self._pointers]
        lines += [
            "  float *memory;\n",
            "  bool in[EACH];\n",
            "  int row[EACH], own[EACH], col[EACH];\n",
        ]
        lines += [f"  {self._product_type(product)} product{n};\n" for n, product in enumerate(self.products)]
        for source, n in self.number.items():
            if source not in self.cell.weights:
                lines.append(self.elements.array(self._array_of(source), source.value))
            if source in self._sequences:
                lines.append(self.elements.array(f"f{n}", source.value))
        return "".join(lines)

    def _product_type(self, product: Product) -> str:
        groups = product.node.types[0].ints[1] // self.cell.width
        numbers = (groups, self.cell.groups(product.left.type), *self.division.constants(product))
        return f"Product<{', '.join(map(str, numbers))}, {str(product.turned).lower()}>"

    # before the first step

    def _begin(self) -> str:
        parameters = ", ".join(
            pointer.replace(f" *__restrict__ {name}", f" *given_{name}").replace(f" *{name}", f" *given_{name}")
            for pointer, name in zip(self._pointers, self._names)
        )
        lines = [f"  __device__ __forceinline__ void begin(const Numbers &s, float *given, {parameters}) {{\n"]
        lines += [*(f"    {name} = given_{name};\n" for name in self._names), "    memory = given;\n"]
        lines.append(f"    {_EACH} {{\n      const int i = threadIdx.x + e * THREADS, slot = i % (PART * WORDS);\n"
                     "      row[e] = i / (PART * WORDS);\n      own[e] = slot / PART * WORD + slot % PART;\n"
                     "      col[e] = blockIdx.x * J + own[e];\n"
                     "      in[e] = row[e] < ROWS && slot % PART < WORD && own[e] < J && col[e] < H;\n"
                     "    }\n")  # fmt: skip
        for n, product in enumerate(self.products):
            lines.append(f"    product{n}.load({self._matrix(n, f'p{self.number[product.right]}')});\n")
        lines.append(f"    {_EACH} {{\n")
        for source, n in self.number.items():
            if source not in self._sequences and source not in self.cell.weights:
                lines += self._loads(self._array_of(source), f"p{n}", source.value, "0")
        lines += self._sent(self.schedule.shared_carries, step="0")
        lines.append("    }\n")
        lines.append("    all_are_put();\n" if self.schedule.shared_carries else "")
        lines.append("    if (s.COUNT > 0) fetch(REVERSE ? s.COUNT - 1 : 0);\n  }\n")
        return "".join(lines)

    def _matrix(self, n: int, pointer: str) -> str:
        """A product's matrix as its kernel loads it: with the shared memory for it, if it stays there."""
        ends = self.division.matrix_elements
        return f"{pointer}, memory + {self.division.matrices_at + ends[n]}" if ends[-1] else pointer

    def _fetch(self) -> str:
        lines = ["  __device__ __forceinline__ void fetch(long long at) {\n", f"    {_EACH} {{\n"]
        for source in self._sequences:
            n = self.number[source]
            lines += self._loads(f"f{n}", f"p{n}", source.value, f"at * {prod(source.value.type.ints)}")
        return "".join([*lines, "    }\n  }\n"])

    def _loads(self, array: str, pointer: str, value: Value, start: str) -> Iterable[str]:
        nothing = "false" if value.type.dtype is DType.B1 else "0.0f"
        for g in range(self.cell.groups(value.type)):
            place = f"{start} + {self._place(value.type, g)}"
            yield f"      {array}[e][{g}] = in[e] ? wide({pointer}[{place}]) : {nothing};\n"

    def _place(self, type: TensorType, group: int) -> str:
        """The index of a thread's element in a tensor of rows and columns."""
        shape = type.ints
        columns = shape[-1] if shape else 1
        rows = f"row[e] * {columns}" if len(shape) == 2 and shape[0] > 1 else "0"
        return f"{rows} + {group * self.cell.width} + col[e]" if columns > 1 else rows

    # a step

    def _step(self) -> str:
        lines = list(self._fetched())
        for level in self.schedule.levels:
            lines += self._level(level)
        late = [self.elements.array(f"r{n}", self.results[n]) for n in self.schedule.late_results]
        head = "  __device__ __forceinline__ void step(const Numbers &s, int step) {\n"
        head += "    const long long at = REVERSE ? s.COUNT - 1 - step : step;\n"
        head += "    // Other warps may still read the sums of the last step.\n"
        head += f"    float *sums = memory + (step & 1) * {self.division.sums[-1]};\n"
        arrays = "".join(f"  {each}" for each in (*late, *self.elements.declarations))
        return head + arrays + "".join(lines) + "  }\n"

    def _fetched(self) -> Iterable[str]:
        """Takes the elements of the sequences that were loaded for this step."""
        for source in self._sequences:
            n = self.number[source]
            yield f"    {_EACH} {{\n"
            yield from (f"      x{n}[e][{g}] = f{n}[e][{g}];\n" for g in range(self.cell.groups(source.value.type)))
            yield "    }\n"

    def _level(self, level: Level) -> Iterable[str]:
        """The lines of a level, in the order in which ``Level`` lists its parts."""
        yield from self._multiplied(level.products)
        yield f"    {_EACH} {{\n"
        for node in level.nodes:
            yield from self.elements.computed(node)
        yield from self._sent(level.shares, step="step")
        if level.is_last:
            yield from self._carried_on()
        yield "    }\n"
        if level.waits:
            yield "    all_are_put();\n"
        if level.fetches:
            yield "    if (step + 1 < s.COUNT) fetch(REVERSE ? s.COUNT - 2 - step : step + 1);\n"
        if level.results:
            yield f"    {_EACH} {{\n"
            for n in level.results:
                yield from self._stored(n, is_late=level.is_last)
            yield "    }\n"

    def _multiplied(self, products: Sequence[int]) -> Iterable[str]:
        """Products whose left factors all blocks have written: their sums in shared memory."""
        for n in products:
            left = self.cell.shared.index(self.products[n].left)
            x = f"reinterpret_cast<const uint4 *>({self._exchange(left, 'step')})"
            yield f"    product{n}.multiply_by({x}, sums + {self.division.sums[n]}, step);\n"
        if products:
            yield "    __syncthreads();\n"

    def _sent(self, shared: Iterable[int], step: str) -> Iterable[str]:
        """Writes a thread's elements of shared values, which blocks read in a step."""
        kind = C_TYPES[self.cell.factor]
        for number in shared:
            value = self.cell.shared[number]
            for g, text in enumerate(self.elements.expressions[value]):
                pitch = self.division.pitch(value)
                word = f"row[e] * {pitch} + ({g} * BLOCKS + blockIdx.x) * WORDS + own[e] / WORD"
                place = f"{self._exchange(number, step)} + 16 * ({word})"
                yield f"      put<{kind}>({place}, in[e], row[e] < ROWS, {text}, {step});\n"

    def _exchange(self, shared: int, step: str) -> str:
        """Where blocks exchange a shared value in a step: in one of two places by turns."""
        exchange = self.division.exchange_memory[shared]
        return f"scratch + {exchange.begin} + ({step} & 1) * {exchange.size}"

    def _carried_on(self) -> Iterable[str]:
        """The carries of the next step: all old ones, and the results, are read before any is replaced."""
        for n in self.schedule.late_results:
            for g, text in enumerate(self.elements.expressions[self.results[n]]):
                yield f"      r{n}[e][{g}] = {text};\n"
        updates = [(self.number[source], value) for source, value in self.cell.graph.updates]
        for n, value in updates:
            for g, text in enumerate(self.elements.expressions[value]):
                yield f"      const {element_type(value)} t{n}_{g} = {text};\n"
        for n, value in updates:
            for g in range(len(self.elements.expressions[value])):
                yield f"      h{n}[e][{g}] = t{n}_{g};\n"
        yield from self._sent(self.schedule.shared_carries, step="(step + 1)")

    def _stored(self, n: int, *, is_late: bool) -> Iterable[str]:
        """Stores a result; a late one was taken before the carries changed."""
        value = self.results[n]
        for g, text in enumerate(self.elements.expressions[value]):
            place = f"at * {prod(value.type.ints)} + {self._place(value.type, g)}"
            yield f"      if (in[e]) store(y{n} + ({place}), {f'r{n}[e][{g}]' if is_late else text});\n"

    # after the last step

    def _end(self) -> str:
        lines = ["  __device__ __forceinline__ void end() {\n", f"    {_EACH} {{\n"]
        for n, source in enumerate(self.cell.loop.carry_inputs):
            for g, text in enumerate(self.elements.expressions[source.value]):
                lines.append(f"      if (in[e]) store(last{n} + ({self._place(source.value.type, g)}), {text});\n")
        return "".join([*lines, "    }\n  }\n"])
