"""Adds two vectors in device memory, element by element: the one sum of shards and of processes.

It is the runtime's own kernel, because no artifact knows the number of processes. The driver compiles its few lines
when a session with shards opens. Each sum is rounded to nearest, ties to even, with subnormals: numpy's bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dslc.runtime.cuda.graphs.lone_kernel import LoneKernel

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.owned import Owned

UNIT: Final = 16  # bytes that a thread adds at a time; vectors are aligned to them
_THREADS: Final = 256
_MOST_BLOCKS: Final = 2048  # a thread adds several units of a longer vector
#: dtype -> elements of a unit, the name of its registers
_KINDS: Final = {"f32": (4, "f"), "f64": (2, "fd")}
#: What both kernels of this folder have in common: four arguments of 64 bits, and the end.
_ENTRY: Final = """.version 7.0
.target sm_80
.address_size 64

.visible .entry {symbol}(
	.param .u64 {symbol}_param_0,
	.param .u64 {symbol}_param_1,
	.param .u64 {symbol}_param_2,
	.param .u64 {symbol}_param_3
)
{{
{body}

$DONE:
	ret;

}}
"""
_BODY: Final = """	.reg .pred 	%p<3>;
	.reg .b32 	%r<5>;
	.reg .{kind} 	%{reg}<{registers}>;
	.reg .b64 	%rd<16>;

	ld.param.u64 	%rd1, [{symbol}_param_0];
	ld.param.u64 	%rd2, [{symbol}_param_1];
	ld.param.u64 	%rd3, [{symbol}_param_2];
	ld.param.u64 	%rd4, [{symbol}_param_3];
	cvta.to.global.u64 	%rd5, %rd1;
	cvta.to.global.u64 	%rd6, %rd2;
	cvta.to.global.u64 	%rd7, %rd3;
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mov.u32 	%r3, %tid.x;
	mov.u32 	%r4, %nctaid.x;
	cvt.u64.u32 	%rd8, %r3;
	mul.wide.u32 	%rd9, %r1, %r2;
	add.s64 	%rd10, %rd9, %rd8;
	mul.wide.u32 	%rd11, %r4, %r2;
	setp.ge.u64 	%p1, %rd10, %rd4;
	@%p1 bra 	$DONE;

$NEXT:
	shl.b64 	%rd12, %rd10, 4;
	add.s64 	%rd13, %rd6, %rd12;
	add.s64 	%rd14, %rd7, %rd12;
	add.s64 	%rd15, %rd5, %rd12;
	ld.global.v{width}.{kind} 	{{{left}}}, [%rd13];
	ld.global.v{width}.{kind} 	{{{right}}}, [%rd14];
{sums}
	st.global.v{width}.{kind} 	[%rd15], {{{total}}};
	add.s64 	%rd10, %rd10, %rd11;
	setp.lt.u64 	%p2, %rd10, %rd4;
	@%p2 bra 	$NEXT;"""


def entry(symbol: str, body: str) -> str:
    """The text of a kernel of this name. ``body``: its declarations and statements; it may branch to ``$DONE``."""
    return _ENTRY.format(symbol=symbol, body=body)


def ptx(dtype: str) -> tuple[str, str]:
    """The kernel for a dtype, f32 or f64, and its name. Its arguments: the addresses of the total, of the left and of
    the right vector, and the number of units (u64). The total may be one of the others."""
    width, register = _KINDS[dtype]
    symbol = f"dslc_add_{dtype}"
    left, right, total = ([f"%{register}{part * width + i + 1}" for i in range(width)] for part in range(3))
    sums = "\n".join(f"	add.rn.{dtype} 	{t}, {a}, {b};" for t, a, b in zip(total, left, right))
    body = _BODY.format(
        symbol=symbol,
        kind=dtype,
        reg=register,
        registers=3 * width + 1,
        width=width,
        left=", ".join(left),
        right=", ".join(right),
        total=", ".join(total),
        sums=sums,
    )
    return entry(symbol, body), symbol


class Addition:
    """The kernel for one dtype on a device, whose context is current. ``owned`` takes its code."""

    def __init__(self, device: Device, dtype: str, owned: Owned) -> None:
        text, symbol = ptx(dtype)
        module = device.driver.load_module(text.encode("ascii") + b"\0", owned.noted)
        function = device.driver.function(module, symbol)
        self._kernel = LoneKernel(device, function, ("pointer", "pointer", "pointer", "i64"), _THREADS, owned)

    def add(self, total: int, left: int, right: int, size: int, stream: Any) -> None:
        """``total = left + right`` for vectors of ``size`` bytes, a multiple of ``UNIT``, at these addresses."""
        units = size // UNIT
        if not units:
            return
        blocks = min(-(-units // _THREADS), _MOST_BLOCKS)
        self._kernel.launch(blocks, [*(("pointer", at) for at in (total, left, right)), ("i64", units)], stream)
