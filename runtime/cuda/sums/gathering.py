"""Adds the results of two shards, whose terms may have 16 bits and may be in another order than the sums.

The kernel is the runtime's own, as in ``addition.py``. A table says which elements each block adds and where. Terms of
16 bits are cast to f32, which is exact, and then added: the bits are those of f32 terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dslc.runtime.artifact.dtypes import ITEMSIZE
from dslc.runtime.cuda.graphs.lone_kernel import LoneKernel
from dslc.runtime.cuda.sums.addition import UNIT, Addition, entry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.owned import Owned
    from dslc.runtime.session.calls.terms import Run, Span

_THREADS: Final = 256
#: Elements that one block adds: four 16-byte units of 16 bits for each thread.
_CHUNK: Final = 4 * _THREADS * 8
ROW_BYTES: Final = 24  # of its table: where the sums, and where the terms begin, and the number of units
_BODY: Final = """	.reg .pred 	%p<3>;
	.reg .b16 	%h<5>;
	.reg .b32 	%r<13>;
	.reg .f32 	%f<13>;
	.reg .b64 	%rd<20>;

	ld.param.u64 	%rd1, [{symbol}_param_0];
	ld.param.u64 	%rd2, [{symbol}_param_1];
	ld.param.u64 	%rd3, [{symbol}_param_2];
	ld.param.u64 	%rd4, [{symbol}_param_3];
	cvta.to.global.u64 	%rd5, %rd1;
	cvta.to.global.u64 	%rd6, %rd2;
	cvta.to.global.u64 	%rd7, %rd3;
	cvta.to.global.u64 	%rd8, %rd4;
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mov.u32 	%r3, %tid.x;
	mul.wide.u32 	%rd9, %r1, {row};
	add.s64 	%rd10, %rd8, %rd9;
	ld.global.u64 	%rd11, [%rd10];
	ld.global.u64 	%rd12, [%rd10+8];
	ld.global.u64 	%rd13, [%rd10+16];
	add.s64 	%rd14, %rd5, %rd11;
	add.s64 	%rd15, %rd6, %rd12;
	add.s64 	%rd16, %rd7, %rd12;
	cvt.u64.u32 	%rd17, %r3;
	cvt.u64.u32 	%rd18, %r2;
	setp.ge.u64 	%p1, %rd17, %rd13;
	@%p1 bra 	$DONE;

$NEXT:
	shl.b64 	%rd19, %rd17, 4;
	add.s64 	%rd1, %rd15, %rd19;
	add.s64 	%rd2, %rd16, %rd19;
	shl.b64 	%rd19, %rd17, {shift};
	add.s64 	%rd3, %rd14, %rd19;
	ld.global.v4.u32 	{{%r5, %r6, %r7, %r8}}, [%rd1];
	ld.global.v4.u32 	{{%r9, %r10, %r11, %r12}}, [%rd2];
{sums}
	add.s64 	%rd17, %rd17, %rd18;
	setp.lt.u64 	%p2, %rd17, %rd13;
	@%p2 bra 	$NEXT;"""
#: For each dtype of 16 bits: the two elements of the register %r0 as the f32 registers %f1 and %f2.
_WIDENED: Final = {
    "bf16": (
        "shl.b32 	%r4, {r}, 16;",
        "mov.b32 	{low}, %r4;",
        "and.b32 	%r4, {r}, -65536;",
        "mov.b32 	{high}, %r4;",
    ),
    "f16": ("mov.b32 	{{%h1, %h2}}, {r};", "cvt.f32.f16 	{low}, %h1;", "cvt.f32.f16 	{high}, %h2;"),
}


def gathering_ptx(dtype: str) -> tuple[str, str]:
    """The kernel that adds terms of a dtype, f32, bf16 or f16, and its name. Its arguments: the addresses of the total,
    f32, of the left and of the right terms, and of the table, of which each block has a row."""
    symbol = f"dslc_gather_{dtype}"
    lines: list[str] = []
    for half in range(1 if dtype == "f32" else 2):
        found = [f"%f{9 + i}" for i in range(4)]
        for side, first in ((0, 5), (1, 9)):
            for i in range(4):
                if dtype == "f32":
                    lines.append(f"mov.b32 	%f{1 + side * 4 + i}, %r{first + i};")
                elif i % 2 == 0:
                    names = {"r": f"%r{first + half * 2 + i // 2}", "low": f"%f{1 + side * 4 + i}"}
                    names["high"] = f"%f{2 + side * 4 + i}"
                    lines += [line.format(**names) for line in _WIDENED[dtype]]
        lines += [f"add.rn.f32 	{total}, %f{1 + i}, %f{5 + i};" for i, total in enumerate(found)]
        lines.append(f"st.global.v4.f32 	[%rd3+{16 * half}], {{{', '.join(found)}}};")
    sums = "\n".join(f"	{line}" for line in lines)
    shift = 4 if dtype == "f32" else 5
    return entry(symbol, _BODY.format(symbol=symbol, row=ROW_BYTES, shift=shift, sums=sums)), symbol


def table_of(runs: Iterable[Run], dtype: str) -> NDArray[np.uint64]:
    """The table for runs whose terms have a dtype: u64[rows, 3]."""
    item, rows = ITEMSIZE[dtype], list[tuple[int, int, int]]()
    for run in runs:
        for start in range(0, run.elements, _CHUNK):
            count = min(_CHUNK, run.elements - start)
            rows.append((run.at + 4 * start, run.given + item * start, -(-count * item // UNIT)))
    return np.array(rows, np.uint64).reshape(-1, 3)


class Gathering:
    """The kernel for terms of one dtype. ``owned`` takes its code."""

    def __init__(self, device: Device, dtype: str, owned: Owned) -> None:
        text, symbol = gathering_ptx(dtype)
        module = device.driver.load_module(text.encode("ascii") + b"\0", owned.noted)
        self._kernel = LoneKernel(device, device.driver.function(module, symbol), 4 * ("pointer",), _THREADS, owned)

    def add(self, total: int, left: int, right: int, table: int, rows: int, stream: Any) -> None:
        """The sums of a table of so many rows, which begins at an address."""
        if rows:
            self._kernel.launch(rows, [("pointer", at) for at in (total, left, right, table)], stream)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What two vectors give of a span, ``given`` bytes after their beginnings."""

    kernel: Gathering
    given: int
    table: int
    rows: int

    def add(self, total: int, left: int, right: int, stream: Any) -> None:
        """``left`` and ``right``: the addresses of the span."""
        self.kernel.add(total, left, right, self.table, self.rows, stream)


class Tables:
    """The tables of several spans, side by side from ``address`` on."""

    def __init__(self, kernels: Kernels, address: int) -> None:
        self._kernels, self._address = kernels, address
        self._tables: list[NDArray[np.uint64]] = []

    def of(self, span: Span) -> Gathered:
        table = table_of(span.runs, span.dtype)
        at = self._address + sum(each.nbytes for each in self._tables)
        self._tables.append(table)
        return Gathered(self._kernels.gathering(span.dtype), span.given, at, len(table))

    def send(self, device: Device) -> None:
        """Copy them to the device, and wait."""
        if self._tables:
            whole = np.concatenate(self._tables)
            device.driver.copy_in(self._address, whole.ctypes.data, whole.nbytes, device.inbox)
            device.driver.synchronise(device.inbox)


class Kernels:
    """The runtime's own kernels on a device, whose context is current where one is asked for."""

    def __init__(self, device: Device, owned: Owned) -> None:
        self._device, self._owned = device, owned
        self._additions: dict[str, Addition] = {}
        self._gatherings: dict[str, Gathering] = {}

    def addition(self, dtype: str) -> Addition:
        if dtype not in self._additions:
            self._additions[dtype] = Addition(self._device, dtype, self._owned)
        return self._additions[dtype]

    def gathering(self, dtype: str) -> Gathering:
        if dtype not in self._gatherings:
            self._gatherings[dtype] = Gathering(self._device, dtype, self._owned)
        return self._gatherings[dtype]
