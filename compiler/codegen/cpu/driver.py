"""``dslc_run``: one call that runs a list of kernels with all threads of a team, each thread with its own call.

``void dslc_run(command* commands, i64 count, shared* shared, i64 base, i64 lane, i64 lanes)``. A command is {kernel,
args, tasks}, 24 bytes. Lane l of n runs tasks ``tasks*l/n`` to ``tasks*(l+1)/n`` of each command, then waits for the
others. ``shared`` is {i64 arrivals, void (*yield)()}: arrivals only ever grow; at the start of a run they are ``base``
and at its end ``base + count*lanes``. A waiting thread spins for a while, then gives its processor away in between.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.code import I32, I64, POINTER, VOID

SYMBOL: Final = "dslc_run"
_SPINS: Final = 1000
_PAUSE: Final = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}


def driver_text(architecture: str) -> str:
    """The module's IR for ``x86_64`` or ``aarch64``."""
    module = ir.Module(name=SYMBOL)
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER, I64, POINTER, I64, I64, I64]), SYMBOL)
    commands, count, shared, base, lane, lanes = function.args
    entry, head, body, work, after, arrive, done = (
        function.append_basic_block(n) for n in ("entry", "head", "body", "work", "after", "arrive", "done")
    )
    b = ir.IRBuilder(entry)
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(I64(0), entry)
    b.cbranch(b.icmp_signed("<", index, count), body, done)
    b.position_at_end(body)
    command = b.gep(commands, [b.mul(index, I64(3))], source_etype=I64)
    kernel = b.load(command, typ=POINTER)
    args = b.load(b.gep(command, [I64(1)], source_etype=I64), typ=POINTER)
    tasks = b.load(b.gep(command, [I64(2)], source_etype=I64), typ=I64)
    first = b.sdiv(b.mul(tasks, lane), lanes)
    last = b.sdiv(b.mul(tasks, b.add(lane, I64(1))), lanes)
    b.cbranch(b.icmp_signed("<", first, last), work, after)
    b.position_at_end(work)
    _call(b, kernel, [POINTER, I64, I64], [args, first, last])
    b.branch(after)
    b.position_at_end(after)
    following = b.add(index, I64(1))
    index.add_incoming(following, after)
    b.cbranch(b.icmp_signed(">", lanes, I64(1)), arrive, head)
    b.position_at_end(arrive)
    b.atomic_rmw("add", shared, I64(1), "acq_rel")
    _wait(b, module, function, shared, b.add(base, b.mul(following, lanes)), architecture)
    index.add_incoming(following, b.block)
    b.branch(head)
    b.position_at_end(done)
    b.ret_void()
    return str(module)


def _wait(b: Any, module: Any, function: Any, shared: Any, target: Any, architecture: str) -> None:
    """Until ``arrivals`` has reached ``target``."""
    before = b.block
    look, spin, give, again, past = (function.append_basic_block(n) for n in ("look", "spin", "give", "again", "past"))
    b.branch(look)
    b.position_at_end(look)
    turns = b.phi(I64)
    turns.add_incoming(I64(0), before)
    arrived = b.load_atomic(shared, "acquire", 8, typ=I64)
    b.cbranch(b.icmp_signed("<", arrived, target), spin, past)
    b.position_at_end(spin)
    name, values = _PAUSE[architecture]
    pause = ir.Function(module, ir.FunctionType(VOID, [I32] * len(values)), name)
    b.call(pause, [I32(v) for v in values])
    b.cbranch(b.icmp_signed("<", turns, I64(_SPINS)), again, give)
    b.position_at_end(give)
    _call(b, b.load(b.gep(shared, [I64(1)], source_etype=I64), typ=POINTER), [], [])
    b.branch(again)
    b.position_at_end(again)
    turns.add_incoming(b.add(turns, I64(1)), again)
    b.branch(look)
    b.position_at_end(past)


def _call(b: Any, pointer: Any, types: list[Any], args: list[Any]) -> None:
    """Calls a function by its address."""
    typed = ir.FunctionType(VOID, types).as_pointer()
    callee = b.inttoptr(b.ptrtoint(pointer, I64), typed)
    b.call(callee, args)
