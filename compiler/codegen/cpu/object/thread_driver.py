"""``dslc_run2``: one call that runs a list of kernels with all threads of a team, each thread with its own call.

``void dslc_run2(command* commands, i64 count, shared* shared, i64 base, i64 lane, i64 lanes)``. A command is {kernel,
args, tasks, waits}, 32 bytes; ``waits`` is not 0 if all tasks of earlier commands must be done first.

Threads claim tasks, so a thread whose processor is busy delays the others by at most the task that it holds. Each lane
(thread) starts with its share of an even distribution, which is mostly the same in each run and so finds warm caches.
Then it takes tasks left in the others' shares (work stealing, Blumofe and Leiserson 1999). No result depends on which
thread runs a task.

``shared`` is {i64 done, void (*yield)()} and, from byte 64 on, one cache line per lane with the state of its share:
``begin << 16 | claims``. ``done`` counts all tasks ever finished. ``begin`` identifies a command: the number of tasks
before it, ``base`` of them in earlier runs. A state of an older command counts as no claims; a state of a newer command
means that all earlier tasks are claimed. So a lane may join a run late, or after its end, and finds nothing to do. Lane
0 returns when all tasks are done, the others when all are claimed. A waiting thread spins for a while, then also yields
its processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir

from dslc.compiler.codegen.cpu.llvm.writer import I32, I64, POINTER, VOID
from dslc.compiler.codegen.cpu.object.memcpy import add_memory_functions

DRIVER: Final = "dslc_run2"  # changes its number when the interface changes
_WORDS: Final = 4  # 64-bit words of a command
_LINE: Final = 64  # bytes of a cache line, so that no two lanes write one line
_CLAIM_BITS: Final = 16
_MOST_CLAIMS: Final = 15  # a share has at most about 2**15 claims, each of one task or more
_SPINS: Final = 1000
_PAUSE: Final = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}


def driver_text(architecture: str) -> str:
    """The module's IR for ``x86_64`` or ``aarch64``."""
    return _Driver(architecture).text()


class _Driver:
    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self.module = ir.Module(name=DRIVER)
        type = ir.FunctionType(VOID, [POINTER, I64, POINTER, I64, I64, I64])
        self.function = ir.Function(self.module, type, DRIVER)
        self.commands, self.count, self.shared, self.base, self.lane, self.lanes = self.function.args
        self.b: Any = ir.IRBuilder(self.function.append_basic_block("entry"))
        # lives across loops; LLVM keeps it in registers
        self.begin = self._local("begin")

    def text(self) -> str:
        b = self.b
        b.store(self.base, self.begin)
        with b.if_else(b.icmp_signed("==", self.lanes, I64(1))) as (alone, together):
            with alone, self._commands() as (kernel, args, tasks, _):
                self._call(kernel, [POINTER, I64, I64], [args, I64(0), tasks])
            with together:
                with self._commands() as (kernel, args, tasks, waits):
                    with b.if_then(b.icmp_signed("!=", waits, I64(0))):
                        self._wait()
                    with self._loop(self.lanes) as number:
                        self._share(kernel, args, tasks, b.urem(b.add(self.lane, number), self.lanes))
                    b.store(b.add(b.load(self.begin, typ=I64), tasks), self.begin)
                with b.if_then(b.icmp_signed("==", self.lane, I64(0))):
                    self._wait()
        b.ret_void()
        add_memory_functions(self.module)
        return str(self.module)

    def _share(self, kernel: Any, args: Any, tasks: Any, owner: Any) -> None:
        """Claims and runs tasks of an owner's share until none is left."""
        b = self.b
        begin = b.load(self.begin, typ=I64)
        first, last = (self._dealt(tasks, lane) for lane in (owner, b.add(owner, I64(1))))
        step = b.add(b.lshr(b.sub(last, first), I64(_MOST_CLAIMS)), I64(1))
        place = b.gep(self.shared, [b.mul(b.add(owner, I64(1)), I64(_LINE // 8))], source_etype=I64)
        look, claim, work, past = (self.function.append_basic_block(n) for n in ("look", "claim", "work", "past"))
        b.branch(look)
        b.position_at_end(look)
        seen = b.load_atomic(place, "acquire", 8, typ=I64)
        command = b.lshr(seen, I64(_CLAIM_BITS))
        same = b.icmp_signed("==", command, begin)
        claims = b.select(same, b.and_(seen, I64((1 << _CLAIM_BITS) - 1)), I64(0))
        start = b.add(first, b.mul(claims, step))
        left = b.and_(b.icmp_signed("<=", command, begin), b.icmp_signed("<", start, last))
        b.cbranch(left, claim, past)
        b.position_at_end(claim)
        taken = b.or_(b.shl(begin, I64(_CLAIM_BITS)), b.add(claims, I64(1)))
        got = b.extract_value(b.cmpxchg(place, seen, taken, "acq_rel", "acquire"), 1)
        b.cbranch(got, work, look)
        b.position_at_end(work)
        end = b.add(start, step)
        stop = b.select(b.icmp_signed("<", end, last), end, last)
        self._call(kernel, [POINTER, I64, I64], [args, start, stop])
        b.atomic_rmw("add", self.shared, b.sub(stop, start), "release")
        b.branch(look)
        b.position_at_end(past)

    def _dealt(self, tasks: Any, lane: Any) -> Any:
        """The first task of a lane's share; a single task belongs to lane 0."""
        b = self.b
        return b.udiv(b.add(b.mul(tasks, lane), b.sub(self.lanes, I64(1))), self.lanes)

    def _wait(self) -> None:
        """Waits until all tasks before ``begin`` are done."""
        b = self.b
        begin = b.load(self.begin, typ=I64)
        before = b.block
        look, spin, give, again, past = (
            self.function.append_basic_block(n) for n in ("wait", "spin", "give", "again", "waited")
        )
        b.branch(look)
        b.position_at_end(look)
        turns = b.phi(I64)
        turns.add_incoming(I64(0), before)
        done = b.load_atomic(self.shared, "acquire", 8, typ=I64)
        b.cbranch(b.icmp_signed("<", done, begin), spin, past)
        b.position_at_end(spin)
        name, values = _PAUSE[self.architecture]
        pause = self.module.globals.get(name)
        if pause is None:
            pause = ir.Function(self.module, ir.FunctionType(VOID, [I32] * len(values)), name)
        b.call(pause, [I32(v) for v in values])
        b.cbranch(b.icmp_signed("<", turns, I64(_SPINS)), again, give)
        b.position_at_end(give)
        self._call(b.load(b.gep(self.shared, [I64(1)], source_etype=I64), typ=POINTER), [], [])
        b.branch(again)
        b.position_at_end(again)
        turns.add_incoming(b.add(turns, I64(1)), again)
        b.branch(look)
        b.position_at_end(past)

    @contextmanager
    def _commands(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Loops over the commands and yields kernel, args, tasks, waits."""
        with self._loop(self.count) as index:
            b = self.b
            command = b.gep(self.commands, [b.mul(index, I64(_WORDS))], source_etype=I64)
            words = [b.gep(command, [I64(i)], source_etype=I64) for i in range(_WORDS)]
            yield (*(b.load(w, typ=POINTER) for w in words[:2]), *(b.load(w, typ=I64) for w in words[2:]))

    @contextmanager
    def _loop(self, stop: Any) -> Iterator[Any]:
        b = self.b
        before = b.block
        head, body, done = (self.function.append_basic_block(n) for n in ("head", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(I64(0), before)
        b.cbranch(b.icmp_signed("<", index, stop), body, done)
        b.position_at_end(body)
        yield index
        index.add_incoming(b.add(index, I64(1)), b.block)
        b.branch(head)
        b.position_at_end(done)

    def _local(self, name: str) -> Any:
        place = self.b.alloca(I64, name=name)
        place.type = POINTER  # llvmlite still gives it a typed pointer
        return place

    def _call(self, pointer: Any, types: list[Any], args: list[Any]) -> None:
        """Calls the function at an address."""
        typed = ir.FunctionType(VOID, types).as_pointer()
        self.b.call(self.b.inttoptr(self.b.ptrtoint(pointer, I64), typed), args)
