"""cuBLASLt's C interface and the Python package of cuDNN, made of numpy, on the memory and streams of the fake driver.

Both compute from what they were told alone, as column-major matrices and as sizes with strides, so a flag, a stride or
an operand that is wrong gives a wrong result. What is not let go of stays in ``objects``.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_gpu.fake_attention import RESULTS, attention
from fake_gpu.fake_driver import FakeDriver

from dslc.compiler.ops import registry

#: The parameters of an algorithm of cuBLASLt, by cublasLtMatmulAlgoConfigAttributes_t, and their sizes in bytes.
CONFIGURATION = ("id", "tile", "splitk", "reduction", "swizzle", "custom", "stages", "inner", "cluster")
_SIZES = (4, 4, 4, 4, 4, 4, 4, 2, 2)
_NAMES = {0: "f32", 1: "f64", 2: "f16", 14: "bf16"}
_STORED = {"f32": "<f4", "f64": "<f8", "f16": "<f2", "bf16": "<u2"}


def strided(driver: FakeDriver, address: int, dtype: str, sizes: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Device memory as an array; outside of every allocation the context is lost."""
    span = 1 + sum((size - 1) * step for size, step in zip(sizes, strides))
    flat = driver.array(address, _STORED[dtype], (span,))
    return np.lib.stride_tricks.as_strided(flat, sizes, [s * flat.itemsize for s in strides])


def numbers(stored: np.ndarray, dtype: str) -> np.ndarray:
    """In f64, bf16 from its bits."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def put(target: np.ndarray, values: np.ndarray, dtype: str) -> None:
    """Rounded to the nearest, ties to even."""
    if dtype != "bf16":
        target[...] = values
        return
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    target[...] = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16


#: A kernel that needs a workspace of at most so many bytes is persistent: it counts its tiles there.
PERSISTENT = 272


@dataclass(frozen=True)
class Algorithm:
    """An implementation with its parameters, the workspace that it needs, and the least alignment of its operands.
    ``secret``: whether it has a parameter that no attribute tells."""

    id: int = 66
    tile: int = 20
    splitk: int = 1
    reduction: int = 0
    swizzle: int = 0
    custom: int = 0
    stages: int = 35
    inner: int = 0
    cluster: int = 2
    need: int = 256
    aligned: int = 16
    secret: bool = False

    @property
    def values(self) -> tuple[int, ...]:
        """In the order of the attributes."""
        return tuple(getattr(self, name) for name in CONFIGURATION)

    @property
    def text(self) -> str:
        order = ("id", "tile", "stages", "splitk", "reduction", "swizzle", "custom", "inner", "cluster")
        return " ".join(f"{name}={getattr(self, name)}" for name in order)

    @property
    def bytes(self) -> bytes:
        return struct.pack("<9i?", *self.values, self.secret).ljust(64, b".")


def _algorithm_at(place: int) -> tuple[tuple[int, ...], bool]:
    *values, secret = struct.unpack_from("<9i?", ctypes.string_at(place, 64))
    return tuple(values), secret


class FakeCublasLt:
    """``refuses``: names of functions that fail. ``algorithms``: all that there are, best first."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.objects: dict[int, dict[Any, Any]] = {}
        self.calls: Counter[str] = Counter()
        self.refuses: set[str] = set()
        self.log: list[dict[str, Any]] = []
        self.version = 130100
        self.algorithms = [
            Algorithm(),
            Algorithm(tile=18, aligned=128, need=0),
            Algorithm(id=21, splitk=4, reduction=1, need=64),
            Algorithm(id=21, splitk=4, reduction=2, need=1 << 16),
            Algorithm(id=43, splitk=-1, reduction=2, need=0),
            Algorithm(id=24, splitk=4, reduction=4, need=0),
            Algorithm(id=67, secret=True, need=0),
            Algorithm(id=66, tile=15, cluster=3, inner=1, need=0),
        ]
        self._next = 0x1000

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublasLt"):
            raise AttributeError(name)
        kind = name.removeprefix("cublasLt")

        def call(*args: Any) -> int:
            assert all(isinstance(a, int) for a in args), name
            self.calls[name] += 1
            if name in self.refuses:
                return 15
            if hasattr(self, "do_" + kind):
                return int(getattr(self, "do_" + kind)(*args) or 0)
            if name in ("cublasLtCreate", "cublasLtDestroy"):
                self.driver.wait_for_all()
            if kind.endswith("Create"):
                out, *given = args
                self._next += 8
                self.objects[self._next] = {"kind": kind.removesuffix("Create"), "given": given}
                ctypes.c_void_p.from_address(out).value = self._next
                return 0
            if kind.endswith("Destroy"):
                assert self.objects.pop(args[0])["kind"] == kind.removesuffix("Destroy")
                return 0
            assert kind.endswith("SetAttribute"), name
            target, attribute, source, size = args
            assert self.objects[target]["kind"] == kind.removesuffix("SetAttribute")
            self.objects[target][attribute] = int.from_bytes(ctypes.string_at(source, size), "little")
            return 0

        return call

    def do_GetVersion(self) -> int:
        return self.version

    def _of(self, values: tuple[int, ...], secret: bool = False) -> Algorithm | None:
        return next((a for a in self.algorithms if (a.values, a.secret) == (values, secret)), None)

    def do_MatmulAlgoGetHeuristic(self, *args: int) -> int:
        c, d, preference, count, results, found = args[4:]
        assert c == d
        told = self.objects[preference]
        self.log.append({"preference": dict(told)})
        least = min(told[n] for n in (5, 6, 7, 8))
        good = [
            a for a in self.algorithms
            if a.need <= told[1] and a.reduction & told[3] == a.reduction and a.aligned <= least
        ]  # fmt: skip
        for number, algorithm in enumerate(good[:count]):
            row = algorithm.bytes + struct.pack("<QifQQ", algorithm.need, 0, 1.0, 0, 0)
            ctypes.memmove(results + 96 * number, row, 96)
        ctypes.c_int.from_address(found).value = len(good[:count])
        return 0 if good else 15

    def do_MatmulAlgoInit(self, handle: int, compute: int, scale: int, *rest: int) -> int:
        *types, number, place = rest
        assert handle in self.objects and len(types) == 4 and all(t in _NAMES for t in types)
        if all(a.id != number for a in self.algorithms):
            return 15
        ctypes.memmove(place, struct.pack("<9i?", number, *(0,) * 8, False).ljust(64, b"."), 64)
        return 0

    def do_MatmulAlgoConfigGetAttribute(self, place: int, attribute: int, out: int, size: int, written: int) -> int:
        assert size == _SIZES[attribute]
        value = _algorithm_at(place)[0][attribute]
        ctypes.memmove(out, value.to_bytes(size, "little", signed=value < 0), size)
        ctypes.c_size_t.from_address(written).value = size
        return 0

    def do_MatmulAlgoConfigSetAttribute(self, place: int, attribute: int, source: int, size: int) -> int:
        assert size == _SIZES[attribute] and attribute, "the id is read-only"
        values, secret = _algorithm_at(place)
        given = int.from_bytes(ctypes.string_at(source, size), "little", signed=True)
        changed = (*values[:attribute], given, *values[attribute + 1 :])
        ctypes.memmove(place, struct.pack("<9i?", *changed, secret).ljust(64, b"."), 64)
        return 0

    def do_MatmulAlgoCapGetAttribute(self, place: int, attribute: int, out: int, size: int, written: int) -> int:
        algorithm = self._of(*_algorithm_at(place))
        assert algorithm is not None and size == 4 and attribute in (16, 17, 18, 19)
        ctypes.c_uint32.from_address(out).value = algorithm.aligned
        return 0

    def do_MatmulAlgoCheck(self, *args: int) -> int:
        *_, place, result = args
        algorithm = self._of(*_algorithm_at(place))
        if algorithm is None:
            return 15
        ctypes.memmove(result, bytes(64) + struct.pack("<QifQQ", algorithm.need, 0, 1.0, 0, 0), 96)
        return 0

    def do_Matmul(self, handle: int, operation: int, *rest: int) -> int:
        alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, workspace, size, stream = rest
        assert self.objects[handle]["kind"] == "" and workspace % 256 == 0
        chosen = self._of(*_algorithm_at(algorithm))
        assert chosen is not None and chosen.need <= size and not any(x % chosen.aligned for x in (a, b, d))
        compute, scale = self.objects[operation]["given"]
        assert (compute, scale) in ((68, 0), (70, 1))
        number = ctypes.c_double if scale == 1 else ctypes.c_float
        factor, kept = number.from_address(alpha).value, number.from_address(beta).value
        assert lc == ld and (kept != 0 or c == d)
        views, types = [], []
        for address, layout in ((a, la), (b, lb), (d, ld), (c, lc)):
            described = self.objects[layout]
            kind, rows, cols, leading = described["given"]
            count, step = described.get(5, 1), described.get(6, 0)
            types.append(_NAMES[kind])
            assert step or count == 1 or layout != ld, "matrices of a result may not share bytes"
            views.append(strided(self.driver, address, types[-1], (count, rows, cols), (step, 1, leading)))
        transposes = self.objects[operation].get(3, 0), self.objects[operation].get(4, 0)
        told = self.objects[operation]
        assert told.get(7, 1) in (1, 4) and (told.get(7) == 4) == (8 in told)
        *views, added = views
        types.pop()
        bias = strided(self.driver, told[8], types[2], (1, views[2].shape[1], 1), (0, 1, 0)) if 8 in told else None
        self.log.append({"types": types, "transposes": transposes, "sizes": [v.shape for v in views]})

        def run() -> None:
            left, right = (
                numbers(v, t).swapaxes(1, 2) if turned else numbers(v, t)
                for v, t, turned in zip(views, types, transposes)
            )
            more = kept * numbers(added, types[2]) if kept else 0.0
            more = more if bias is None else more + numbers(bias, types[2])
            put(views[2], factor * np.matmul(left, right) + more, types[2])
            if size:
                self.driver.array(workspace, "u1", (size,))[4::4096] = 0xEE

        self.driver.enqueue(stream, run, workspace if 0 < chosen.need <= PERSISTENT else 0)
        return 0


class NotSupported(Exception):
    pass


class FakeCudnn:
    """Each graph has ``plans``: (name, bytes of workspace, notes)."""

    cudnnGraphNotSupportedError = NotSupported
    __version__ = "1.28.0"

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.objects: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.plans = [("eng20_k2=1", 0, {"NONDETERMINISTIC"}), ("eng4_k2=3", 1 << 40, set()),
                      ("eng6", 0, {"RUNTIME_COMPILATION"}), ("eng5_k2=4_k13=0", 1 << 16, {"TENSOR_CORE"}),
                      ("eng7_k2=2_k0=1", 64, set()), ("eng7_k2=2_k0=5", 64, set()), ("eng1", 0, set())]  # fmt: skip
        self.built: list[str] = []
        self.data_type = SimpleNamespace(FLOAT="f32", HALF="f16", BFLOAT16="bf16")
        self.heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
        #: Which of the plans each mode proposes.
        self.proposes = {
            "A": ("eng20", "eng4", "eng6", "eng5", "eng1"), "B": ("eng5", "eng7"), "FALLBACK": ("eng1",),
        }  # fmt: skip
        self.knob_type = SimpleNamespace(TILE_SIZE="2", TILEK="13", EDGE="4")
        notes = ("NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT", "WINOGRAD",
                 "TENSOR_CORE")  # fmt: skip
        self.numerical_note = SimpleNamespace(**{n: n for n in notes})
        self.behavior_note = SimpleNamespace(RUNTIME_COMPILATION="RUNTIME_COMPILATION")
        self.stream = 0

    def backend_version(self) -> int:
        return 91900

    def create_handle(self) -> int:
        self.driver.wait_for_all()
        self.calls["handles"] += 1
        handle = 6 + self.calls["handles"]
        self.objects.add(handle)
        return handle

    def destroy_handle(self, handle: int) -> None:
        self.objects.remove(handle)

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle in self.objects
        self.stream = stream

    def pygraph(self, **options: Any) -> Graph:
        assert options["handle"] in self.objects and options.get("compute_data_type", "f32") == "f32"
        self.calls["graphs"] += 1
        return Graph(self)


class Tensor:
    def __init__(self, dim: Sequence[int] = (), stride: Sequence[int] = (), data_type: str = "") -> None:
        self.dim, self.stride, self.dtype, self.is_output = list(dim), list(stride), data_type, False
        self.uid = 0

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_output(self, value: bool) -> Tensor:
        self.is_output = value
        return self

    def set_data_type(self, value: str) -> Tensor:
        self.dtype = value
        return self

    def set_dim(self, value: list[int]) -> Tensor:
        self.dim = value
        return self

    def set_stride(self, value: list[int]) -> Tensor:
        self.stride = value
        return self


class Graph:
    def __init__(self, module: FakeCudnn) -> None:
        self.module = module
        self.barred: set[str] = set()
        self.needed: set[str] = set()
        self.limit = 0
        self.chosen: int | None = None
        self.plans: list[tuple[str, int, set[str]]] = []
        self.steps: list[tuple[Any, Tensor | None]] = []
        self._cpp_plans_created = False

    def tensor(self, dim: list[int], stride: list[int], data_type: str, name: str, uid: int) -> Tensor:
        return Tensor(dim, stride, data_type).set_uid(uid)

    def conv_fprop(self, image: Tensor, weight: Tensor, **attrs: Any) -> Tensor:
        return self._made("conv", image, weight, attrs)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **attrs: Any) -> Tensor:
        return self._made("conv_dgrad", loss, filter, attrs)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **attrs: Any) -> Tensor:
        return self._made("conv_wgrad", image, loss, attrs)

    def _made(self, op: str, first: Tensor, second: Tensor, attrs: Mapping[str, Any]) -> Tensor:
        assert attrs["pre_padding"] == attrs["post_padding"]
        self.op, self.inputs, self.attrs, self.outs = op, (first, second), attrs, (Tensor(),)
        return self.outs[0]

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._after(a, b, lambda y, x: y + x)

    def bias(self, input: Tensor, bias: Tensor) -> Tensor:
        assert bias.dim == [1, input.dim[1] if input.dim else bias.dim[1], *(1 for _ in bias.dim[2:])]
        return self._after(input, bias, lambda y, x: y + x)

    def relu(self, input: Tensor) -> Tensor:
        return self._after(input, None, lambda y, _: np.maximum(y, 0))

    def _after(self, first: Tensor, other: Tensor | None, step: Any) -> Tensor:
        """A step after the convolution, in the order for which the real one has compiled plans."""
        assert first is self.outs[0], "steps follow one another"
        self.steps.append((step, other))
        order = [len(each.dim) - each.dim.count(1) if each is not None else 0 for _, each in self.steps]
        assert order == sorted(order, reverse=True), "what is like the result, then the bias, then relu"
        self.outs = (Tensor(),)
        return self.outs[0]

    def sdpa(self, **given: Any) -> tuple[Tensor, ...]:
        return self._attention("sdpa", given)

    def sdpa_backward(self, **given: Any) -> tuple[Tensor, ...]:
        return self._attention("sdpa_backward", given)

    def _attention(self, op: str, given: Mapping[str, Any]) -> tuple[Tensor, ...]:
        self.names = tuple(name for name, each in given.items() if isinstance(each, Tensor))
        self.op, self.inputs = op, tuple(given[name] for name in self.names)
        self.attrs = {name: each for name, each in given.items() if name not in self.names}
        self.outs = tuple(Tensor() for _ in range(RESULTS[op]))
        return self.outs

    def validate(self) -> None:
        assert all(out.is_output for out in self.outs)
        others = [other for _, other in self.steps if other is not None]
        assert self.op in RESULTS or len({t.dtype for t in (*self.inputs, *others, *self.outs)}) == 1

    def build_operation_graph(self) -> None:
        pass

    def create_execution_plans(self, modes: list[str]) -> None:
        self.module.calls["heuristics"] += 1
        self._cpp_plans_created = True
        for mode in modes:
            engines = self.module.proposes[mode]
            found = [p for p in self.module.plans if p[0].split("_")[0] in engines]
            # of several modes it drops plans that differ in a knob without a name only
            self.plans += found if len(modes) == 1 else {p[0].split("_k0=")[0]: p for p in reversed(found)}.values()
        if not self.plans:
            raise NotSupported("no engine for this graph")

    def create_execution_plan(self, engine: int, knobs: Mapping[str, int]) -> None:
        """Like the real one, which asks for proposals later unless it believes that it did."""
        numbers = sorted((int(knob), value) for knob, value in knobs.items())
        name = f"eng{engine}" + "".join(f"_k{knob}={value}" for knob, value in numbers)
        found = [p for p in self.module.plans if p[0] == name]
        if not found:
            raise RuntimeError("finalize(engine_config) failed with code: CUDNN_STATUS_NOT_SUPPORTED\nand more")
        self.plans += found
        self.module.calls["replays"] += 1

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self.plans
        self.barred |= set(notes)

    deselect_behavior_notes = deselect_numeric_notes

    def select_numeric_notes(self, notes: list[str]) -> None:
        assert self.plans
        self.needed |= set(notes)

    def deselect_workspace_greater_than(self, limit: int) -> None:
        self.limit = limit

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        self._believe()
        return self.plans[index][0]

    def _believe(self) -> None:
        if not self._cpp_plans_created:
            self.module.calls["heuristics"] += 1

    def build_plan_at_index(self, index: int) -> None:
        self._believe()
        name, need, notes = self.plans[index]
        if notes & self.barred or self.needed - notes or need > self.limit:
            raise NotSupported("Deselecting execution plan")
        self.chosen = index
        self.module.built.append(name)

    def get_workspace_size(self) -> int:
        assert self.chosen is not None
        return self.plans[self.chosen][1]

    def execute(self, operands: Mapping[int, int], workspace: int, handle: int) -> None:
        assert self.chosen is not None and handle in self.module.objects
        others = tuple(other for _, other in self.steps if other is not None)
        read = (*self.inputs, *others)
        tensors, driver = (*read, *self.outs), self.module.driver
        assert sorted(operands) == sorted(t.uid for t in tensors)
        views = [strided(driver, operands[t.uid], t.dtype, t.dim, t.stride) for t in tensors]

        def run() -> None:
            xs = [np.ascontiguousarray(numbers(v, t.dtype)) for v, t in zip(views, read)]
            more = dict(zip(others, xs[len(self.inputs) :]))
            results = list(self._values(xs[: len(self.inputs)]))
            for step, other in self.steps:
                results = [step(results[0], None if other is None else more[other])]
            for view, out, y in zip(views[len(xs) :], self.outs, results):
                put(view, y, out.dtype)

        driver.enqueue(self.module.stream, run, workspace if 0 < self.get_workspace_size() <= PERSISTENT else 0)

    def _values(self, xs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        if self.op in RESULTS:
            return attention(self.op, dict(zip(self.names, xs)), self.attrs)
        attrs = {"stride": tuple(self.attrs["stride"]), "pad": tuple(self.attrs["pre_padding"]),
                 "dilation": tuple(self.attrs["dilation"]), "size": tuple(self.outs[0].dim[2:]),
                 "groups": self._groups()}  # fmt: skip
        if self.op == "conv":
            del attrs["size"]
        return registry.ops()[self.op].meaning(xs, attrs)

    def _groups(self) -> int:
        """As the real one, from the channels of the image and of the weight."""
        first, second = (t.dim[1] for t in self.inputs)
        out = self.outs[0].dim[1]
        image, weight = {"conv": (first, second), "conv_dgrad": (out, second), "conv_wgrad": (first, out)}[self.op]
        return image // weight
