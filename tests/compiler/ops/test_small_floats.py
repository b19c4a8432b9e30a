"""to_small and from_small: each number of a format by hand, rounding by a search in all of them; and bitcast."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from op_laws.language import check, evaluate

import dslc
from dslc.compiler.check.model import check_file
from dslc.compiler.ops.elementwise.small_floats import FORMATS, numbers
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build
from dslc.dsl.diagnostics import CompileError

CODES = np.arange(256, dtype=np.uint8)
#: format, code -> number, from the papers
KNOWN = [
    ("e4m3", {0: 0, 1: 2**-9, 7: 7 * 2**-9, 8: 2**-6, 0x38: 1, 0x39: 1.125, 0x7E: 448, 0x7F: np.nan, 0xBC: -1.5}),
    ("e5m2", {1: 2**-16, 4: 2**-14, 0x3C: 1, 0x7B: 57344, 0x7C: np.inf, 0x7D: np.nan, 0x7F: np.nan, 0xFC: -np.inf}),
    ("e4m3fnuz", {1: 2**-10, 8: 2**-7, 0x40: 1, 0x7F: 240, 0x80: np.nan, 0xFF: -240}),
    ("e5m2fnuz", {1: 2**-17, 0x40: 1, 0x7F: 57344, 0x80: np.nan, 0xC0: -1}),
    ("e2m1", {0: 0, 1: 0.5, 2: 1, 3: 1.5, 4: 2, 5: 3, 6: 4, 7: 6, 9: -0.5, 15: -6, 0x37: 6}),
]


@pytest.mark.parametrize(("name", "known"), KNOWN, ids=[name for name, _ in KNOWN])
def test_numbers_of_a_format(name: str, known: dict[int, float]) -> None:
    table = numbers(FORMATS[name])
    np.testing.assert_array_equal(table[list(known)], list(known.values()))


def drawn() -> np.ndarray:
    """Numbers, middles between neighbours and what is next to them, of all formats; the ends of f32."""
    each = []
    for known in FORMATS.values():
        grid = numbers(known)
        grid = np.unique(grid[np.isfinite(grid)]).astype(np.float32)
        middles = (grid[1:] + grid[:-1]) / 2
        each += [grid, middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))]
    ends = [0.0, -0.0, 1e-45, -1e-38, 463.9, 464, 464.1, 61439, 61440, 61441, 3e38, -3e38, np.inf, -np.inf]
    return np.concatenate([*each, np.array(ends, np.float32), np.random.default_rng(5).normal(0, 50, 500)])


def nearest(x: np.ndarray, name: str, saturate: bool) -> np.ndarray:
    """The values that f32 numbers become in a format, by a search in all of its numbers."""
    known = FORMATS[name]
    half = numbers(known)[: known.most + 1]  # from 0 on, ascending
    step = half[-1] - half[-2]
    size = np.abs(x.astype(np.float64))
    above = np.clip(np.searchsorted(half, size), 1, len(half) - 1)
    low, high = half[above - 1], half[above]
    up = (size > (low + high) / 2) | ((size == (low + high) / 2) & (above % 2 == 0))
    beyond = np.nan if known.over == known.nan else np.inf
    limit = half[-1] + step / 2  # of the numbers that are rounded to the greatest one; a tie goes to even
    over = (size > limit) | ((size == limit) & (known.most % 2 == 1))
    found = np.where(size >= half[-1], half[-1], np.where(up, high, low))
    if not saturate and known.over is not None:
        found = np.where(over, beyond, found)
    return np.copysign(found, x)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_rounding_takes_the_nearest_number(tmp_path: Path, name: str, saturate: bool) -> None:
    x = drawn().astype(np.float32).astype(np.float64)
    body = f'  return from_small(to_small(x, "{name}", saturate={str(saturate).lower()}), "{name}")'
    checked = check(tmp_path, f"x: [{len(x)}]", body, f"[{len(x)}]")
    np.testing.assert_array_equal(evaluate(checked, {"x": x}), nearest(x, name, saturate))


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_comes_back(tmp_path: Path, name: str) -> None:
    known = FORMATS[name]
    body = f'  return cast(to_small(from_small(x, "{name}"), "{name}"), "i32")'
    got = evaluate(check(tmp_path, "x: u8[256]", body, "i32[256]"), {"x": CODES})
    table = numbers(known)
    finite = np.isfinite(table)
    np.testing.assert_array_equal(got[finite], (CODES & ((2 << known.exponent + known.digits) - 1))[finite])
    assert np.isnan(table[got[np.isnan(table)]]).all()


BUILT = """nn 1
dim B in 1..512 = 256
model M(x: [B], t: i32[B], c: u8[B])
  -> (a: u8[B], b: [B], exponent: i32[B], back: [B], f: [B], half: i16[B], s: u8[B]) {
  a = to_small(x)
  b = from_small(c, "e5m2")
  bits = bitcast(cast(x, "f32"), "i32")
  exponent = bitwise_and(bitwise_right_shift(bits, 23), 255)
  back = cast(bitcast(bits, "f32"), "float")
  f = cast(bitcast(t, "f32"), "float")
  half = bitcast(cast(t % 256, "HALF"), "i16")
  s = bitcast(bitcast(c, "i8"), "u8")
  return a, b, exponent, back, f, half, s
}
"""


@pytest.mark.parametrize(("provider", "half"), [("reference", "f16"), ("own", "f16"), ("own", "bf16")])
def test_on_the_cpu(tmp_path: Path, provider: str, half: str) -> None:
    path = tmp_path / "m.nn"
    path.write_text(BUILT.replace("HALF", half))
    made = build(check_file(path), Options(target="cpu", provider=provider, sizes={"predict": {"B": (256,)}}))
    (tmp_path / "m.dslc").write_bytes(made.artifact)
    x = np.resize(drawn().astype(np.float32), 256)
    t = np.frombuffer(struct.pack("<256f", *np.linspace(-3, 3, 256)), np.int32)
    with dslc.load(tmp_path / "m.dslc", device="cpu", weights="init") as session:
        got = session.predict(x=x, t=t, c=CODES)
    np.testing.assert_array_equal(numbers(FORMATS["e4m3"])[got.a], nearest(x, "e4m3", True))
    np.testing.assert_array_equal(got.b, numbers(FORMATS["e5m2"]).astype(np.float32))
    np.testing.assert_array_equal(got.exponent, x.view(np.int32) >> 23 & 255)
    np.testing.assert_array_equal(got.back, x)
    np.testing.assert_array_equal(got.f, np.linspace(-3, 3, 256).astype(np.float32))
    whole = (t % 256).astype(np.float16 if half == "f16" else np.float32)  # bf16 has these numbers, too
    bits = whole.view(np.int16) if half == "f16" else (whole.view(np.int32) >> 16).astype(np.int16)
    np.testing.assert_array_equal(got.half, bits)
    np.testing.assert_array_equal(got.s, CODES)


@pytest.mark.parametrize(
    ("given", "body", "words"),
    [
        ("x: [B]", 'bitcast(x, "i32")', "float, whose width"),
        ("x: i32[B]", 'bitcast(x, "float")', "float, whose width"),
        ("x: b1[B]", 'bitcast(x, "u8")', "0 or 1"),
        ("x: u8[B]", 'bitcast(x, "b1")', "0 or 1"),
        ("x: i32[B]", 'bitcast(x, "u8")', "32 bits to u8, which has 8"),
        ("x: [B]", 'to_small(x, "e3m4")', 'no format "e3m4"'),
        ("x: i32[B]", "to_small(x)", "float tensor"),
        ("x: i32[B]", "from_small(x)", "takes u8"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: str, body: str, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        check(tmp_path, given, f"  return {body}", "[B]")


def test_no_gradient_flows_through_codes(tmp_path: Path) -> None:
    body = "  y = x + stop_gradient(from_small(to_small(x)) - x)\n  return gradient(y * y, x)"
    x = np.array([0.3, -1.7, 500.0, 0.0])
    rounded = np.array([0.3125, -1.75, 448, 0])
    np.testing.assert_array_equal(evaluate(check(tmp_path, "x: [B]", body), {"x": x}, B=4), 2 * rounded)
