"""An object calls nothing outside itself: it is refused before it is linked, and gets no name of the process."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from dslc.base.errors import ArtifactError
from dslc.compiler.check.model import check_file
from dslc.compiler.codegen.cpu.levels import LEVELS
from dslc.compiler.codegen.cpu.object.compile import object_of
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.artifact import container
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.cpu import objects
from dslc.runtime.cpu.levels import machine_level
from dslc.runtime.cpu.object_check import check_object
from dslc.runtime.cpu.objects import DRIVER, Objects

REFUSED = r"R301.*(calls nothing outside itself|one loaded section|is not the code|no relocations)"
CALLS = """
target triple = "{triple}"
declare i32 @{name}()
define void @dslc_run2() {{
  %x = call i32 @{name}()
  ret void
}}
"""
RUNS_AT_LOAD = """
target triple = "{triple}"
@llvm.global_ctors = appending global
  [1 x {{ i32, ptr, ptr }}] [{{ i32, ptr, ptr }} {{ i32 1, ptr @dslc_run2, ptr null }}]
define void @dslc_run2() {{ ret void }}
"""
WRITES = """
target triple = "{triple}"
@kept = global i32 7
define void @dslc_run2() {{
  store i32 8, ptr @kept
  ret void
}}
"""


def assembled(text: str, level: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = LEVELS[level].triple
    machine = llvm.Target.from_triple(triple).create_target_machine(reloc="pic", codemodel="small")
    return bytes(machine.emit_object(llvm.parse_assembly(text)))


@pytest.fixture(scope="module", params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def sound(level: str) -> bytes:
    return object_of({}, level)


def tables(data: bytes) -> tuple[int, int, int, int]:
    """Where the table of sections begins, how many there are; where the symbols begin, how many there are."""
    [table] = struct.unpack_from("<Q", data, 40)
    [count] = struct.unpack_from("<H", data, 60)
    for n in range(count):
        row = struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * n)
        if row[1] == 2:
            return table, count, row[4], row[5] // 24
    raise AssertionError("no symbols")


def test_what_is_built_is_sound(sound: bytes) -> None:
    check_object(sound, "code")


@pytest.mark.parametrize("name", ["system", "getpid", "sched_yield", "memcpy", "PyRun_SimpleString"])
def test_a_name_that_the_object_lacks(name: str, level: str) -> None:
    with pytest.raises(ArtifactError, match=REFUSED):
        check_object(assembled(CALLS.format(name=name, triple=LEVELS[level].triple), level), "code")


@pytest.mark.parametrize("text", [RUNS_AT_LOAD, WRITES])
def test_data_and_code_that_runs_when_it_is_loaded(text: str, level: str) -> None:
    with pytest.raises(ArtifactError, match="R301"):
        check_object(assembled(text.format(triple=LEVELS[level].triple), level), "code")


def test_it_is_refused_before_it_gets_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine_level(tuple(LEVELS))
    Objects(object_of({}, here), [DRIVER])

    def never(*_: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(objects, "_Memory", never)
    with pytest.raises(ArtifactError, match=REFUSED):
        Objects(assembled(CALLS.format(name="getpid", triple=LEVELS[here].triple), here), [])
    other = next(name for name in LEVELS if LEVELS[name].triple != LEVELS[here].triple)
    with pytest.raises(ArtifactError, match=r"R301.*not for this machine"):
        Objects(object_of({}, other), [DRIVER])
    with pytest.raises(ArtifactError, match=r"R301.*lacks the kernel `k_1`"):
        Objects(object_of({}, here), ["k_1"])


def test_every_symbol_moved_out(sound: bytes) -> None:
    _, _, symbols, count = tables(sound)
    assert count > 2
    for number in range(1, count):
        for section in (0, 0xFFF1, 0xFFF2, 3):  # undefined, absolute, common, another
            changed = bytearray(sound)
            struct.pack_into("<H", changed, symbols + 24 * number + 6, section)
            with pytest.raises(ArtifactError, match="symbol"):
                check_object(changed, "code")


@pytest.mark.parametrize("kind", [6, 8, 9, 11, 14, 15, 16, 17, 0x6FFFFFFF])
def test_every_section_of_another_type(sound: bytes, kind: int) -> None:
    table, count, _, _ = tables(sound)
    for number in range(1, count):
        changed = bytearray(sound)
        struct.pack_into("<I", changed, table + 64 * number + 4, kind)
        with pytest.raises(ArtifactError, match="R301"):
            check_object(changed, "code")


def test_verify_refuses_it(dslc_artifact: Callable[[bytes], object]) -> None:
    here = machine_level(tuple(LEVELS))
    with pytest.raises(ArtifactError, match=REFUSED):
        dslc_artifact(assembled(CALLS.format(name="system", triple=LEVELS[here].triple), here))


@pytest.fixture
def dslc_artifact(tmp_path: Path) -> Callable[[bytes], object]:
    """Writes an artifact with this object, which verifies it."""
    (tmp_path / "n.nn").write_text("nn 1\nmodel N(x: [2]) -> [2] { return relu(x) }\n")

    def write(data: bytes) -> object:
        made = build(check_file(tmp_path / "n.nn"), Options())
        whole = Artifact.of_bytes(made.artifact)
        whole.verify()
        blobs = [
            container.Blob(b["name"], b["kind"], data if b["kind"] == "object" else bytes(whole.blob(b["name"])))
            for b in whole.header["blobs"]
        ]
        changed = Artifact.of_bytes(container.pack(dict(whole.header), blobs))
        changed.verify()
        return changed

    return write


def test_changed_at_random_it_is_refused_or_sound(sound: bytes, fuzz_count: Callable, fuzz_seed: int) -> None:
    draw = random.Random(fuzz_seed)
    table, count, symbols, number = tables(sound)
    places = [*range(64), *range(table, table + 64 * count), *range(symbols, symbols + 24 * number)]
    refused = 0
    for _ in range(fuzz_count(20_000)):
        changed = bytearray(sound)
        for _ in range(draw.randint(1, 4)):
            changed[draw.choice(places)] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        try:
            check_object(changed if draw.random() < 0.9 else changed[: draw.randrange(len(changed))], "code")
        except ArtifactError:
            refused += 1
    assert refused


def test_a_name_that_is_not_its_own(sound: bytes) -> None:
    _, _, symbols, count = tables(sound)
    named = [n for n in range(count) if sound[symbols + 24 * n + 4] >> 4]
    [first] = struct.unpack_from("<I", sound, symbols + 24 * named[0])
    for name in (first, 0, 1 << 30):  # another symbol's, none, outside of the table
        changed = bytearray(sound)
        struct.pack_into("<I", changed, symbols + 24 * named[-1], name)
        with pytest.raises(ArtifactError, match="no name of its own"):
            check_object(changed, "code")
