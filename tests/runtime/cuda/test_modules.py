"""Code on its way to the driver: what is not a whole cubin of this architecture never gets there."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from fake_gpu.fake_driver import FakeDriver, fake_cubin

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.runtime.cuda import device as devices
from dslc.runtime.cuda.code import check_cubin, check_ptx, cubin_parameters, ptx_parameters
from dslc.runtime.cuda.modules import Modules


def with_sections(count: int, offset: int, size: int, kind: int = 1) -> bytes:
    data = bytearray(fake_cubin(90, "k"))
    data += bytes(-len(data) % 8)
    struct.pack_into("<Q", data, 40, len(data))
    struct.pack_into("<HH", data, 58, 64, count)
    for _ in range(count):
        data += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, 0, 0, 0, 0)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a 64-bit ELF"),
        (fake_cubin(90, "k")[:63], "not a 64-bit ELF"),
        (b"\x7fELF\x01" + fake_cubin(90, "k")[5:], "not a 64-bit ELF"),
        (fake_cubin(90, "k")[:18] + b"\x3e\0" + fake_cubin(90, "k")[20:], "not for NVIDIA"),
        (fake_cubin(80, "k"), "for sm_80, not for sm_90"),
        (with_sections(3, 0, 64)[:-1], "table of sections"),
        (with_sections(1, 0, 1 << 40), "section 0 extends past"),
        (with_sections(2, (1 << 64) - 1, 2), "section 0 extends past"),
    ],
)
def test_a_bad_cubin(data: bytes, words: str) -> None:
    with pytest.raises(ArtifactError, match=words) as caught:
        check_cubin(data, (9, 0), "k.cubin")
    assert caught.value.code == "R301" and caught.value.place == "k.cubin"


def test_good_cubins() -> None:
    check_cubin(fake_cubin(90, "k"), (9, 0), "")
    check_cubin(with_sections(2, 0, 64), (9, 0), "")
    check_cubin(with_sections(1, 1 << 40, 1 << 40, kind=8), (9, 0), "")  # takes no bytes of the file
    old = bytearray(fake_cubin(0, "k"))
    old[8] = 7  # before version 8 of the ABI
    struct.pack_into("<I", old, 48, 0x5A055A)
    check_cubin(bytes(old), (9, 0), "")


def test_ptx_is_text() -> None:
    check_ptx(b".version 9.0\n", "k.ptx")
    for bad in (b".version\0", b"\xff"):
        with pytest.raises(ArtifactError, match="not plain text"):
            check_ptx(bad, "k.ptx")


def ptx(symbol: str) -> str:
    taken = ", ".join(f".param .u64 {symbol}_param_{i}" for i in range(2))
    return f".version 9.0\n.visible .entry {symbol}({taken})\n"


def code(arch: int, *symbols: str) -> dict[str, memoryview]:
    found = {f"{s}.cubin": memoryview(fake_cubin(arch, s)) for s in symbols}
    return found | {f"{s}.ptx": memoryview(ptx(s).encode()) for s in symbols}


def nothing(driver: Any, grid: Any, block: Any, a: int, b: int) -> None: ...


ASK = {"block": (32, 1, 1), "shared": 0, "sizes": [8, 8], "where": "fc linear.nn:3"}


def test_modules_are_loaded_when_they_are_asked_for(machine: Callable[..., FakeDriver]) -> None:
    fake = machine({"k": nothing, "other": nothing})
    modules = Modules(devices.device(0), code(90, "k", "other"), (9, 0), False)
    with devices.device(0):
        assert not fake.calls["cuModuleLoadData"]
        first = modules.function("k.cubin", "k", **ASK)
        assert modules.function("k.cubin", "k", **ASK) is first and fake.calls["cuModuleLoadData"] == 1
        modules.function("k.cubin", "k", **ASK | {"shared": 48 << 10})
        assert not fake.calls["cuFuncSetAttribute"]  # what every kernel may take
        modules.function("k.cubin", "k", **ASK | {"shared": 100 << 10})
        modules.function("k.cubin", "k", **ASK | {"shared": 64 << 10})
        assert fake.calls["cuFuncSetAttribute"] == 1 and fake.objects[int(first)].shared == 100 << 10
        assert modules.compilations == 0
        modules.close()
        assert fake.leaks() == {}


def test_ptx_for_a_newer_gpu(machine: Callable[..., FakeDriver]) -> None:
    fake = machine({"k": nothing}, capability=(10, 0))
    with devices.device(0) as device:
        direct = Modules(device, code(90, "k"), (9, 0), False)
        with pytest.raises(EnvironmentFault, match="the code is for another GPU") as caught:
            direct.function("k.cubin", "k", **ASK)
        assert caught.value.code == "R202" and "fc linear.nn:3 (k.cubin)" in str(caught.value.place)
        modules = Modules(device, code(90, "k"), (9, 0), True)
        modules.function("k.cubin", "k", **ASK)
        modules.function("k.cubin", "k", **ASK)
        assert modules.compilations == 1 and modules.seconds > 0
        modules.close()
    assert fake.leaks() == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": [8]}, r"takes arguments of \[8, 8\] bytes, the plan gives \[8\]"),
        ({"sizes": [8, 4]}, r"the plan gives \[8, 4\]"),
        ({"sizes": [8, 8, 8]}, r"the plan gives \[8, 8, 8\]"),
        ({"block": (1024, 2, 1)}, "runs at most 1024 threads a block, the plan asks for 2048"),
    ],
)
def test_a_kernel_that_is_not_what_the_plan_says(
    machine: Callable[..., FakeDriver], change: dict[str, Any], words: str
) -> None:
    machine({"k": nothing})
    with devices.device(0) as device, pytest.raises(ArtifactError, match=words):
        Modules(device, code(90, "k"), (9, 0), False).function("k.cubin", "k", **ASK | change)


def test_what_a_kernel_takes_is_read_from_its_code() -> None:
    for count in (0, 1, 7, 300):
        data = fake_cubin(90, "k", "other", parameters=count)
        check_cubin(data, (9, 0), "")
        assert cubin_parameters(data, "k", "") == cubin_parameters(data, "other", "") == [8] * count
        assert cubin_parameters(data, "elsewhere", "") == []
    text = ".visible .entry k(\n\t.param .u64 .ptr .global .align 16 k_param_0,\n\t.param .f32 k_param_1,\n"
    text += "\t.param .align 8 .b8 k_param_2[24], .param .s32 k_param_3\n)\n.maxntid 32\n{ ld.param.u64 %r; }"
    assert ptx_parameters(text.encode(), "k") == [8, 4, 24, 4]
    assert ptx_parameters(b".entry k()", "k") == [] == ptx_parameters(text.encode(), "kk")


def test_code_whose_parameters_cannot_be_read() -> None:
    good = fake_cubin(90, "k", parameters=3)
    at = good.index(struct.pack("<BBHIH", 4, 0x17, 12, 0, 1))
    lacks = good[: at + 8] + struct.pack("<H", 9) + good[at + 10 :]
    nameless = good[:62] + struct.pack("<H", 99) + good[64:]
    for bad, words in ((lacks, "lacks parameters"), (nameless, "no names")):
        check_cubin(bad, (9, 0), "k.cubin")
        with pytest.raises(ArtifactError, match=words) as caught:
            cubin_parameters(bad, "k", "k.cubin")
        assert caught.value.code == "R301" and caught.value.place == "k.cubin"
    for end in range(at, at + 40):  # whatever a section holds, it is read within its bounds
        row = len(good) - 2 * 64
        cut = good[: row + 32] + struct.pack("<Q", end - 64) + good[row + 40 :]
        try:
            assert cubin_parameters(cut, "k", "") in ([8] * n for n in range(4))
        except ArtifactError as error:
            assert error.code == "R301"


def test_code_that_is_not_there(machine: Callable[..., FakeDriver]) -> None:
    machine({"k": nothing})
    with devices.device(0) as device:
        with pytest.raises(ArtifactError, match=r"no blob 'k\.cubin'"):
            Modules(device, {}, (9, 0), False).function("k.cubin", "k", **ASK)
        with pytest.raises(EnvironmentFault, match="NOT_FOUND"):
            Modules(device, code(90, "k"), (9, 0), False).function("k.cubin", "elsewhere", **ASK)
