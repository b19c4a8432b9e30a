"""Relocations of AArch64: the instructions, decoded, name the places that the relocations name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dslc.base.errors import ArtifactError
from dslc.compiler.check.model import check_file
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.cpu.object_check import AARCH64, Code, check_object
from dslc.runtime.cpu.relocation import relocated

BASES = (0x40_0000, 0x7F12_3456_7000)
NOP, ADRP, BL, LDR_Q, LDR_D, ADD = 0xD503201F, 0x90000001, 0x94000000, 0x3DC00020, 0xFD400020, 0x91000021


def word(code: bytes, offset: int) -> int:
    [found] = struct.unpack_from("<I", code, offset)
    return int(found)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def page_of(instruction: int, address: int) -> int:
    """The page that ADRP at ``address`` names."""
    assert instruction & 0x9F000000 == 0x90000000, "not ADRP"
    return (address & -4096) + 4096 * signed((instruction >> 5 & 0x7FFFF) << 2 | instruction >> 29 & 3, 21)


def scale_of(instruction: int) -> int:
    """The unit of the offset of a load or store with an immediate offset; of ADD, 1. Arm ARM, C4.1."""
    if instruction & 0x7FC00000 == 0x11000000:
        return 1
    assert instruction >> 27 & 7 == 7 and instruction >> 24 & 3 == 1, "neither ADD nor a load or store"
    wide = instruction >> 26 & 1 and instruction >> 23 & 1  # 128 bits of a vector register
    return 16 if wide else 1 << (instruction >> 30)


def branched(instruction: int, address: int) -> int:
    assert instruction & 0x7C000000 == 0x14000000, "neither B nor BL"
    return address + 4 * signed(instruction & 0x3FFFFFF, 26)


@pytest.mark.parametrize("base", BASES)
def test_every_relocation_of_a_built_object(base: int, tmp_path: Path) -> None:
    (tmp_path / "n.nn").write_text(
        "nn 1\ndim B in 1..8 = 4\nmodel N(x: [B, 20]) -> [B, 9] { return x |> linear(31) |> gelu |> linear(9) }\n"
    )
    made = Artifact.of_bytes(build(check_file(tmp_path / "n.nn"), Options()).artifact)
    code = check_object(bytes(made.blob("code.armv8_2")), "code")
    assert code.machine == AARCH64 and {kind for _, kind, _, _ in code.relocations} >= {275, 299}
    text = relocated(code, base)
    for offset, kind, place, addend in code.relocations:
        instruction, target = word(text, offset), base + place + addend
        if kind in (282, 283):
            assert branched(instruction, base + offset) == target
        elif kind == 275:
            assert page_of(instruction, base + offset) == target & -4096
        else:
            assert (instruction >> 10 & 0xFFF) * scale_of(instruction) == target & 4095
    changed = {offset for offset, *_ in code.relocations}
    untouched = [n for n in range(0, len(text), 4) if n not in changed]
    assert all(text[n : n + 4] == code.text[n : n + 4] for n in untouched)


def one(kind: int, instruction: int, place: int, addend: int = 0, at: int = 4) -> Code:
    text = struct.pack("<4I", NOP, instruction, NOP, NOP)
    return Code(AARCH64, text + bytes(1 << 16), {}, ((at, kind, place, addend),))


@pytest.mark.parametrize(
    ("kind", "instruction", "place", "wanted"),
    [  # by the formulas of the manual, for a section at 0x400000
        (283, BL, 0x100, 0x9400003F),
        (283, BL, 0, 0x97FFFFFF),
        (275, ADRP, 0x5010, 0xB0000021),
        (299, LDR_Q, 0x5010, 0x3DC00420),
        (286, LDR_D, 0x5018, 0xFD400C20),
        (277, ADD, 0x5011, 0x91004421),
    ],
)
def test_known_words(kind: int, instruction: int, place: int, wanted: int) -> None:
    assert hex(word(relocated(one(kind, instruction, place), 0x40_0000), 4)) == hex(wanted)


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        (one(257, NOP, 0), "type 257"),
        (one(2, NOP, 0), "type 2"),
        (one(299, LDR_Q, 0x18), "not aligned"),
        (one(283, BL, 0x102), "names no instruction"),
        (one(283, BL, 0, at=6), "not at an instruction"),
        (one(283, BL, 0, 1 << 28), "too far"),
        (one(275, ADRP, 0, 1 << 33), "too far"),
    ],
)
def test_what_cannot_be_applied_is_refused(code: Code, rule: str) -> None:
    with pytest.raises(ArtifactError, match=f"R301.*{rule}"):
        relocated(code, 0x40_0000)
