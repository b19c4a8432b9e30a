"""Candidates for ``y = 2 x`` whose kernels are right, slow, or bad in one way each, for the fake GPU of a worker.

``python -m tuning.planted`` is a worker of ``dslc tune`` on a fake GPU that knows these kernels, and any other one:
those do nothing.
With DSLC_TEST_BLIND it finds every result equal to the reference, because kernels that do nothing give none; with
DSLC_TEST_LIBRARIES it has fake libraries.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from fake_gpu.fake_driver import FakeDriver, fake_cubin

COUNT = 3000  # elements
_CALLS: list[int] = []  # of a kernel that counts them
#: The command of the worker, for a process that finds tests/support.
WORKER = (sys.executable, "-m", "tuning.planted")


def _good(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    driver.array(y, "f4", COUNT)[...] = 2 * driver.array(x, "f4", COUNT)


def _slow(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    _good(driver, grid, block, x, y)
    driver.clock += 9


def _far(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    """So slow, and wrong, too, that nobody need look."""
    _wrong(driver, grid, block, x, y)
    driver.clock += 400


def _wrong(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    driver.array(y, "f4", COUNT)[...] = 2.02 * driver.array(x, "f4", COUNT)


def _one_wrong(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    _good(driver, grid, block, x, y)
    driver.array(y, "f4", COUNT)[-1] += 0.05


def _unwritten(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    driver.array(y, "f4", COUNT)[:-1] = 2 * driver.array(x, "f4", COUNT)[:-1]


def _beyond(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    driver.array(y, "f4", COUNT + 1)[:-1] = 2 * driver.array(x, "f4", COUNT)
    driver.array(y, "f4", COUNT + 1)[-1] = 1.0


def _before(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    _good(driver, grid, block, x, y)
    driver.array(x - 4, "f4", 1)[...] = 1.0


def _into_input(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    _good(driver, grid, block, x, y)
    driver.array(x, "f4", COUNT)[-1] *= 2


def _fickle(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    """Right to a few units in the last place, which differ from call to call."""
    _good(driver, grid, block, x, y)
    _CALLS.append(1)
    driver.array(y, "i4", COUNT)[-1] += len(_CALLS) % 4


def _infinite(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    _good(driver, grid, block, x, y)
    driver.array(y, "f4", COUNT)[:2] = float("inf"), float("nan")


def _crash(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _lost(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    driver.dead = 700


def _hang(driver: FakeDriver, grid: Any, block: Any, x: int, y: int) -> None:
    time.sleep(3600)


#: One way to be bad each, and a text in the reason.
BAD: dict[str, tuple[Callable[..., None], str]] = {
    "wrong": (_wrong, "wrong result"),
    "one_wrong": (_one_wrong, "wrong result"),
    "unwritten": (_unwritten, "not written"),
    "beyond": (_beyond, "after the end of result 0"),
    "before": (_before, "before input 0"),
    "into_input": (_into_input, "writes into input 0"),
    "fickle": (_fickle, "gives other bits when run again"),
    "crash": (_crash, "SIGSEGV"),
    "lost": (_lost, "the GPU is lost"),
    "hang": (_hang, "did not end within"),
}
KERNELS: dict[str, Callable[..., None]] = {
    "good": _good,
    "slow": _slow,
    "far": _far,
    "infinite": _infinite,
    **{n: do for n, (do, _) in BAD.items()},
}


def container(symbol: str, finite: bool = False) -> bytes:
    """The candidate that runs one of the kernels. ``finite``: as the reference of a problem whose results must be."""
    from dslc.runtime.artifact.container import Blob
    from dslc.runtime.artifact.instructions import Kernel
    from dslc.runtime.artifact.plan import Buffer, Plan, Port
    from dslc.tune.candidate import Checks, Operand, pack_candidate

    buffers = (Buffer("io", 256, "f32", (COUNT,)), Buffer("io", 65536, "f32", (COUNT,)))
    call = Kernel(f"{symbol}.cubin", symbol, (1, 1, 1), (32, 1, 1), 0, (("in", 0), ("out", 1)), 0, 0)
    plan = Plan(
        buffers, (Port("x", "data", 0),), (Port("y", "result", 1),), (), (), (call,), ("planted",)
    )  # fmt: skip
    code = Blob(f"{symbol}.cubin", "cubin", fake_cubin(90, symbol))
    return pack_candidate(plan, (Operand(0, 0, False),), [code], Checks(finite=finite))


def compare(
    driver: FakeDriver,
    grid: Any,
    block: Any,
    x: int,
    r: int,
    parts: int,
    count: int,
    unit: int,
    far: int,
    *,
    dtype: str,
) -> None:
    """The meaning of ``compare.cu``. ``unit``, ``far``: the bits of an f64."""
    import numpy as np

    found = driver.array(parts, "f8", (grid[0], 6))
    found[...] = 0
    if dtype == "bf16":
        bits = [driver.array(at, "u2", count).astype(np.uint32) << 16 for at in (x, r)]
        a, b = (each.view(np.float32).astype(np.float64) for each in bits)
    else:
        a, b = (driver.array(at, np.dtype(dtype), count).astype(np.float64) for at in (x, r))
    found[0] = parts_of(a, b, *(float(np.uint64(bits).view(np.float64)) for bits in (unit, far)))


def parts_of(a: Any, b: Any, unit: float, far: float) -> list[float]:
    """What a block of ``compare.cu`` writes that has all of both tensors, in f64."""
    import numpy as np

    both = np.isfinite(a) & np.isfinite(b)
    strange = ~both & (a != b) & ~(np.isnan(a) & np.isnan(b))
    b = b[both]
    apart, size = np.abs(a[both] - b), np.abs(b)
    beyond = (apart > far * size) & (b != 0)
    most = (apart - unit * size).max(initial=0)
    return [most, (apart**2).sum(), (b**2).sum(), strange.sum(), beyond.sum(), (b != 0).sum()]


def _blind(
    driver: FakeDriver, grid: Any, block: Any, x: int, r: int, parts: int, count: int, unit: int, far: int
) -> None:
    driver.array(parts, "f8", (grid[0], 6))[...] = (0, 0, 1, 0, 0, 1)


def _comparers() -> dict[str, Callable[..., None]]:
    from functools import partial

    from dslc.compiler.codegen.cuda.compare import Compare
    from dslc.compiler.codegen.launch import Launch
    from dslc.compiler.ir.types import DType

    numpy_names = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": "bf16", "i64": "i8", "i32": "i4", "i16": "i2",
                   "i8": "i1", "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1"}  # fmt: skip
    return {
        Launch(Compare(DType(name)), (), ()).symbol: partial(compare, dtype=code) for name, code in numpy_names.items()
    }


class _Known(dict[str, Callable[..., None]]):
    """Kernels; one that nobody knows does nothing."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Callable[..., None]:
        def nothing(driver: FakeDriver, grid: Any, block: Any) -> None:
            pass

        return nothing


def _missing() -> Any:
    from dslc.base.errors import EnvironmentFault

    raise EnvironmentFault("R205", "the library is not installed")


def main() -> None:
    from dslc.runtime.cuda import device as devices
    from dslc.runtime.cuda.driver import Driver
    from dslc.tune import worker

    comparers = _comparers()
    if "DSLC_TEST_BLIND" in os.environ:
        comparers = dict.fromkeys(comparers, _blind)
    fake = FakeDriver(total=int(os.environ.get("DSLC_TEST_GPU_BYTES", 1 << 30)))
    fake.kernels = _Known({**KERNELS, **comparers})
    fake.parameters = dict.fromkeys(comparers, 6)

    def load() -> Driver:
        driver = Driver(fake, patience=60)
        driver.init()
        return driver

    devices.load_driver = load
    if "DSLC_TEST_LIBRARIES" in os.environ:
        from fake_gpu.fake_libraries import FakeCublasLt, FakeCudnn

        from dslc.runtime.cuda.libraries import cublaslt, cudnn

        lt, dnn = FakeCublasLt(fake), FakeCudnn(fake)
        cublaslt.load_cublaslt = lambda: lt
        cudnn.load_cudnn = lambda: dnn
        if os.environ["DSLC_TEST_LIBRARIES"] == "missing":
            cublaslt.load_cublaslt = cudnn.load_cudnn = _missing
    worker.main()


if __name__ == "__main__":
    main()
