"""Parts of training steps for ``gpu_bandwidth.py``, as the compiler's passes turn them into launches for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dslc.compiler.codegen.launch import Launch

#: Batch, channels, side: block ends of ResNet-50, the first two at the sizes of peers/pointwise.py.
IMAGES = ((64, 256, 56), (256, 1024, 14), (256, 256, 56), (256, 64, 56), (256, 2048, 7))


def cases() -> Iterator[tuple[str, str, list[Launch], int]]:
    """Name, dtype, launches, and bytes that count: each input and output of the part once."""
    from dslc.compiler.ir.types import DType

    for dtype in (DType.BF16, DType.F32):
        for image in IMAGES:
            size, shown = image[0] * image[1] * image[2] ** 2 * dtype.itemsize, "b{} {}ch {}px".format(*image)
            yield f"bn_add_relu_fwd {shown}", dtype.value, block_end(dtype, *image, "FORWARD"), 3 * size
            yield f"bn_add_relu_bwd {shown}", dtype.value, block_end(dtype, *image, "BACKWARD"), 4 * size
        rows = (256 << 20) // (4096 * dtype.itemsize)
        yield "gelu_dropout_add_fwd", dtype.value, gelu_dropout_add(dtype, rows, 4096), 3 * 256 << 20
        yield "gelu_dropout_add_bwd", dtype.value, gelu_dropout_add_grad(dtype, rows, 4096), 3 * 256 << 20
        pooled = (256, 112, 112, 64)
        one = prod(pooled) * dtype.itemsize
        small = one // 4 + prod(pooled) // 4  # values, and a byte for the place of each
        yield "maxpool_fwd b256 64ch 112px", dtype.value, maxpool(dtype, pooled), one + small
        yield "maxpool_bwd b256 64ch 112px", dtype.value, maxpool_grad(dtype, pooled), one + small
        photos = (256, 224, 224, 3)
        yield (
            "pad to 8 channels, b256 224px",
            dtype.value,
            padded(dtype, photos),
            prod(photos) // 3 * 11 * dtype.itemsize,
        )
        table, ids = (50257, 768), 16384
        moved = (ids + table[0]) * table[1] * dtype.itemsize + 4 * ids
        yield "embedding_bwd 50257x768, 16384 ids", dtype.value, embedding_grad(dtype, table, ids), moved
    sizes = [prod(shape) for shape in resnet50_parameters()]
    yield f"adam, {len(sizes)} parameters", "f32", optimizer("adam_update"), 7 * 4 * sum(sizes)
    yield f"sgd momentum, {len(sizes)} parameters", "f32", optimizer("sgd_momentum_update"), 5 * 4 * sum(sizes)
    weights = [prod(s) for s in resnet50_parameters() if len(s) > 1]
    yield f"weights to bf16, {len(weights)}", "bf16", casts(), 6 * sum(weights)


def resnet50_parameters() -> list[tuple[int, ...]]:
    """The shapes of the 161 parameters."""
    found: list[tuple[int, ...]] = []

    def layer(out: int, into: int, window: int) -> None:
        found.extend([(out, into, window, window), (out,), (out,)])

    layer(64, 3, 7)
    into = 64
    for middle, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for unit in range(count):
            layer(middle, into, 1)
            layer(middle, middle, 3)
            layer(4 * middle, middle, 1)
            if unit == 0:
                layer(4 * middle, into, 1)
            into = 4 * middle
    return [*found, (1000, 2048), (1000,)]


class _Part:
    """A graph under construction; ``launches`` runs the passes that stand before the choice of kernels."""

    def __init__(self) -> None:
        from dslc.compiler.ir.op import Builder

        self.b = Builder(name="bench")
        self.inputs: list[Any] = []
        self.updates: list[tuple[Any, Any]] = []

    def input(self, dtype: Any, shape: Sequence[int], kind: str = "DATA") -> Any:
        from dslc.compiler.ir.graph import Input, Kind
        from dslc.compiler.ir.types import TensorType

        self.inputs.append(Input(f"x{len(self.inputs)}", Kind[kind], TensorType(dtype, tuple(shape))))
        return self.inputs[-1].value

    def op(self, name: str, *values: Any, **attrs: Any) -> Any:
        """The results of an op: one, or a tuple of several."""
        from dslc.compiler.ops import registry

        found = self.b.node(registry.ops()[name], *values, **attrs).outputs
        return found[0] if len(found) == 1 else found

    def update(self, old: Any, new: Any) -> None:
        self.updates.append((next(i for i in self.inputs if i.value is old), new))

    def launches(self, *results: Any, phase: str | None = None) -> list[Launch]:
        """Of all nodes, or of those of a phase."""
        from dslc.compiler.codegen.cuda.lower import lower
        from dslc.compiler.codegen.launch import Scratch
        from dslc.compiler.ir.build import Build
        from dslc.compiler.ir.graph import Graph, order
        from dslc.compiler.ir.program import Program
        from dslc.compiler.passes.order import PIPELINE
        from dslc.compiler.passes.plan.schedule import contents

        outputs = {f"y{i}": v for i, v in enumerate(results)}
        nodes = order([*results, *(v for _, v in self.updates)])
        program = Program(
            "train_step", {}, Graph(tuple(self.inputs), nodes, outputs, tuple(self.updates)), target="sm_90"
        )
        names = [step.__name__ for step in PIPELINE]  # type: ignore[attr-defined]
        for step in PIPELINE[names.index("decompose") : names.index("select")]:
            program = step(program, Build(target="sm_90", provider="own"))
        content = contents(program.graph)
        found = []
        for node in program.graph.nodes:
            if phase is not None and node.phase.name != phase:
                continue
            launches = [] if node.op.view else lower(node)
            assert launches is not None, node.op.name
            for launch in launches:
                reads, writes = (
                    tuple(v if isinstance(v, Scratch) else content.get(v, v) for v in side)
                    for side in (launch.reads, launch.writes)
                )
                found.append(replace(launch, reads=reads, writes=writes))
        return found


def _image(dtype: Any, batch: int, channels: int, side: int) -> tuple[tuple[int, ...], str]:
    """Channels last in 16 bits, as the layout pass has it."""
    if dtype.itemsize == 2:
        return (batch, side, side, channels), "_last"
    return (batch, channels, side, side), ""


def block_end(dtype: Any, batch: int, channels: int, side: int, phase: str) -> list[Launch]:
    """y = relu(batchnorm(x) + r) with the running statistics, and the gradients in x, r, weight and bias: the launches
    of one phase of a graph of both."""
    from dslc.compiler.ir.graph import Phase
    from dslc.compiler.ir.types import DType
    from dslc.compiler.ops.constants.constant import constant

    part, (shape, last) = _Part(), _image(dtype, batch, channels, side)
    x, r, dy = (part.input(dtype, shape) for _ in range(3))
    weight, bias, mean, var = (part.input(DType.F32, (channels,), "BUFFER") for _ in range(4))
    normed, *running, batch_mean, invstd = part.op(
        "batchnorm" + last, x, weight, bias, mean, var, eps=1e-5, momentum=0.1
    )
    part.update(mean, running[0])
    part.update(var, running[1])
    y = part.op("relu", part.op("add", normed, r))
    part.b.phase = Phase.BACKWARD
    zero = constant(part.b, 0.0, y)
    dz = part.op("where", part.op("le", y, zero), zero, dy)
    grads = part.op("batchnorm_grad" + last, x, weight, batch_mean, invstd, dz)
    return part.launches(y, *grads, dz, phase=phase)


def _dropped(part: _Part, x: Any) -> Callable[[Any], Any]:
    from dslc.compiler.ir.types import DType

    scalars = [part.input(DType.I64, (), "SCALAR") for _ in range(3)]
    attrs = {"p": 0.1, "key": 12345678901, "row_elements": x.type.ints[1]}
    return lambda v: part.op("dropout", v, *scalars, **attrs)


def gelu_dropout_add(dtype: Any, rows: int, columns: int) -> list[Launch]:
    """dropout(gelu(x + bias)) + r."""
    part = _Part()
    x, bias, r = part.input(dtype, (rows, columns)), part.input(dtype, (columns,)), part.input(dtype, (rows, columns))
    dropped = _dropped(part, x)(part.op("gelu", part.op("add", x, bias), approximate=True))
    return part.launches(part.op("add", dropped, r))


def gelu_dropout_add_grad(dtype: Any, rows: int, columns: int) -> list[Launch]:
    """The gradients in x and bias; that in r is dy itself."""
    part = _Part()
    x, bias, dy = part.input(dtype, (rows, columns)), part.input(dtype, (columns,)), part.input(dtype, (rows, columns))
    inside = part.op("add", x, bias)
    dx = part.op("gelu_grad", inside, _dropped(part, x)(dy), approximate=True)
    return part.launches(dx, part.op("sum_to", dx, shape=(columns,)))


def maxpool(dtype: Any, image: tuple[int, ...]) -> list[Launch]:
    part = _Part()
    return part.launches(*part.op("maxpool_last", part.input(dtype, image), k=(3, 3), stride=(2, 2), pad=(1, 1)))


def maxpool_grad(dtype: Any, image: tuple[int, ...]) -> list[Launch]:
    part = _Part()
    y, place = part.op("maxpool_last", part.input(dtype, image), k=(3, 3), stride=(2, 2), pad=(1, 1))
    attrs, part = dict(y.producer.attrs), _Part()
    dy, places = part.input(dtype, y.type.ints), part.input(place.type.dtype, place.type.ints)
    return part.launches(part.op("maxpool_grad_last", dy, places, size=image[1:3], **attrs))


def padded(dtype: Any, image: tuple[int, ...]) -> list[Launch]:
    """An image whose channels become 8."""
    part = _Part()
    x, none = part.input(dtype, image), (0, 0, 0, 0)
    return part.launches(part.op("pad", x, low=none, high=(0, 0, 0, 8 - image[3]), interior=none, value=0.0))


def embedding_grad(dtype: Any, table: tuple[int, int], ids: int) -> list[Launch]:
    """Rows added to the lines of a table by their ids, all of them 7 where ids are not drawn."""
    from dslc.compiler.ir.types import DType

    part = _Part()
    rows = part.input(dtype, (ids, table[1]))
    return part.launches(part.op("scatter_rows_add", rows, part.input(DType.I32, (ids,)), count=table[0]))


def optimizer(name: str) -> list[Launch]:
    """A step of all parameters of ResNet-50."""
    from dslc.compiler.ir.types import DType

    part = _Part()
    adam = name == "adam_update"
    rate, step = part.input(DType.F32, (), "SCALAR"), part.input(DType.I64, (), "SCALAR")
    attrs: dict[str, Any] = {"weight_decay": 5e-5}
    attrs |= (
        {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "decoupled": False}
        if adam
        else {"momentum": 0.9, "nesterov": False}
    )
    flags = []
    for shape in resnet50_parameters():
        grad, *states = (part.input(DType.F32, shape, k) for k in ("DATA", "PARAM", *["OPTIMIZER"] * (1 + adam)))
        *new, flag = part.op(name, states[0], grad, *states[1:], rate, step, **attrs)
        for old, value in zip(states, new):
            part.update(old, value)
        flags.append(part.op("reshape", flag, shape=(1,)))
    return part.launches(part.op("concat", *flags, axis=0))


def casts() -> list[Launch]:
    """The weights of ResNet-50 in bf16 with channels last, in a graph that has a backward pass."""
    from dslc.compiler.ir.graph import Phase
    from dslc.compiler.ir.types import DType

    part = _Part()
    part.b.phase = Phase.BACKWARD
    found = [part.op("neg", part.input(DType.F32, (1,)))]
    part.b.phase = Phase.FORWARD
    for shape in resnet50_parameters():
        if len(shape) > 1:
            turned = part.op("cast", part.input(DType.F32, shape, "PARAM"), dtype=DType.BF16)
            found.append(part.op("transpose", turned, perm=(0, 2, 3, 1)) if len(shape) == 4 else turned)
    return part.launches(*found)
