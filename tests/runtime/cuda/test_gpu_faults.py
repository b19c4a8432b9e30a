"""Faults that the other files of this folder do not cover: damaged code, odd inputs, results that are kept, close while
others call, an end of the process without close. On the fake driver."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifacts import line_model
from fake_gpu.fake_driver import FakeDriver, fake_cubin
from fake_gpu.gpu_model import write_gpu_line
from places import with_support

from dslc.base.errors import ArtifactError, DslcError, InputError
from dslc.runtime.artifact.container import Blob
from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.cuda import device as devices
from dslc.runtime.session.load import load

Machine = Callable[..., FakeDriver]
ROWS, FEATURES = line_model.BATCH, line_model.FEATURES


def rows(seed: int, count: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, FEATURES)).astype(np.float32)


def bits(results: Any) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in results]


def test_a_damaged_artifact_never_reaches_the_driver(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    data = path.read_bytes()
    at = data.index(b"\x7fELF")
    for damaged in (data[:at] + b"\x7fELG" + data[at + 4 :], data[:-9], data + b"\0", data[: at + 100]):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError) as caught:
            load(path, device="gpu", weights="init")
        assert caught.value.code == "R301" and not fake.log


def test_code_that_the_driver_could_not_read_is_refused_before_it(tmp_path: Path, machine: Machine) -> None:
    """The digests are right: whoever made the artifact put it there."""
    from dslc.runtime.artifact.file import write_artifact

    path, kernels = write_gpu_line(tmp_path, ptx=False)
    artifact = read_artifact(path)
    header = {k: v for k, v in artifact.header.items() if k not in ("blobs", "format", "interface_sha256")}
    for bad in (b"", b"MZ" + bytes(100), fake_cubin(80), fake_cubin(90)[:40]):
        blobs = [
            Blob(b["name"], b["kind"], bad if b["kind"] == "cubin" else bytes(artifact.blob(b["name"])))
            for b in artifact.header["blobs"]
        ]
        path.write_bytes(write_artifact(header, blobs))
        fake = machine(**kernels.driver())
        with pytest.raises(ArtifactError, match="a cubin") as caught:
            load(path, device="gpu", weights="init")
        assert caught.value.code == "R301" and not fake.calls["cuModuleLoadData"]
        assert devices.device(0).info().memory.used == 0


def test_inputs_as_they_come(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    machine(**kernels.driver())
    x = rows(1)
    frozen = x.copy()
    frozen.flags.writeable = False
    padded = np.zeros((2 * ROWS, FEATURES + 2), np.float32)
    padded[::2, 1:-1] = x
    raw = bytearray(x.nbytes + 1)
    unaligned = np.frombuffer(raw, np.float32, x.size, 1).reshape(x.shape)
    unaligned[...] = x
    with load(path, weights="init") as session:
        expected = session.predict(x=x)
        for given in (frozen, padded[::2, 1:-1], np.asfortranarray(x), unaligned, x[::-1][::-1]):
            before = given.copy()
            assert bits(session.predict(x=given)) == bits(expected) and (given == before).all()
        for given in (x.astype(">f4"), x.astype(np.float64), x.tolist()):
            assert bits(session.predict(x=given)) == bits(expected)
        for wrong in (
            x.astype(object),
            np.ma.masked_array(x),
            x[0],
            np.float32(1),
        ):
            with pytest.raises(InputError) as caught:
                session.predict(x=wrong)
            assert caught.value.code == "R105"
        assert np.isnan(session.predict(x=np.full_like(x, np.nan))[0]).all()  # NaN is data


def test_results_are_the_callers_own(tmp_path: Path, machine: Machine) -> None:
    path, kernels = write_gpu_line(tmp_path)
    machine(**kernels.driver())
    with load(path, weights="init") as session:
        kept = [session.predict(x=rows(i)) for i in range(5)]
        before = [bits(k) for k in kept]
        for result in kept:
            for array in result:
                array += 1  # and may be written
        assert [bits(session.predict(x=rows(i))) for i in range(5)] == before
        after = [bits(k) for k in kept]
    assert [bits(k) for k in kept] == after != before


def test_close_while_others_call(tmp_path: Path, machine: Machine) -> None:
    """Each call gives the right rows or says that the session is closed; everything is let go of."""
    path, kernels = write_gpu_line(tmp_path)
    fake = machine(**kernels.driver())
    x = rows(2)
    for _ in range(5):
        session = load(path, weights="init", contexts=2)
        expected = bits(session.predict(x=x))
        wrong: list[object] = []
        started = threading.Barrier(4)

        def work(session: Any = session, expected: Any = expected, wrong: Any = wrong, started: Any = started) -> None:
            started.wait()
            try:
                while True:
                    if bits(session.predict(x=x)) != expected:
                        wrong.append("rows")
            except DslcError as error:
                if error.code != "R309":
                    wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        session.close()
        session.close()
        for thread in threads:
            thread.join(20)
        assert not wrong and not any(t.is_alive() for t in threads)
        assert devices.device(0).info().memory.used == 0
    devices.device(0).close()
    assert fake.leaks() == {}


def test_an_end_without_close_calls_nothing_of_the_driver(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        import numpy as np
        from fake_gpu.fake_driver import FakeDriver
        from fake_gpu.gpu_model import write_gpu_line
        from dslc.runtime.cuda import device
        from dslc.runtime.cuda.driver import Driver
        path, kernels = write_gpu_line(Path(sys.argv[1]))
        class Watched(FakeDriver):
            def _called(self, name, do, args):
                if sys.is_finalizing():
                    print("called at the end:", name, flush=True)
                return super()._called(name, do, args)
        fake = Watched(**kernels.driver())
        device.load_driver = lambda: Driver(fake)
        import dslc
        first, second = (dslc.load(path, weights="init") for _ in range(2))
        result = first.train_step(x=np.zeros((4, 3), np.float32), target=np.zeros(4, np.int32))
        arrays = [second.predict(x=np.zeros((4, 3), np.float32))]
        circle = [second]
        circle.append(circle)
        del second, circle
        print("done")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, env=with_support(), timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
