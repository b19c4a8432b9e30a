"""An allocator whose memory is at a fixed address, as LLVM IR.

The k-th request of a library gets the same address in every process, whatever else the process does. Block sizes are
powers of two; a freed block is reused by the next request of its size. The C library frees its own allocations.
"""

from __future__ import annotations

from typing import Final

SPAN: Final = 2 << 30  # largest number of bytes of one allocator
_STEP: Final = 16 << 20  # bytes requested from the system at once

#: Functions of the C library that the IR defines, each as ``arena_NAME``.
DEFINED: Final = ("malloc", "calloc", "realloc", "free", "posix_memalign")


def allocator(base: int, free: int, realloc: int, mprotect: int) -> str:
    """The IR of a module. ``base``: the first address of SPAN reserved bytes; the others: addresses of functions."""
    numbers = {"BASE": base, "LIMIT": base + SPAN, "SPAN": SPAN, "STEP": _STEP, "STEP_LESS_1": _STEP - 1}
    functions = {"C_FREE": free, "C_REALLOC": realloc, "MPROTECT": mprotect}
    text = _TEXT
    for name, value in {**numbers, **functions}.items():
        text = text.replace(f"<{name}>", str(value))
    return text


# A block begins with its own address and the binary logarithm of its size, 16 bytes before the address that the caller
# gets. A caller that requested a larger alignment gets an address further inside the block.
_TEXT: Final = """
@unused = internal global i64 <BASE>
@opened = internal global i64 <BASE>
@returned = internal global [64 x i64] zeroinitializer
@busy = internal global i32 0

declare i64 @llvm.ctlz.i64(i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define internal void @lock() {
entry:
  br label %try
try:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %got = extractvalue {i32, i1} %pair, 1
  br i1 %got, label %done, label %try
done:
  ret void
}

define internal void @unlock() {
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

define internal i64 @block(i64 %log) {
entry:
  %head = getelementptr [64 x i64], ptr @returned, i64 0, i64 %log
  %last = load i64, ptr %head
  %found = icmp ne i64 %last, 0
  br i1 %found, label %again, label %fresh
again:
  %link = inttoptr i64 %last to ptr
  %next = load i64, ptr %link
  store i64 %next, ptr %head
  ret i64 %last
fresh:
  %start = load i64, ptr @unused
  %bytes = shl i64 1, %log
  %end = add i64 %start, %bytes
  %fits = icmp ule i64 %end, <LIMIT>
  br i1 %fits, label %room, label %none
room:
  %open = load i64, ptr @opened
  %enough = icmp ule i64 %end, %open
  br i1 %enough, label %take, label %grow
grow:
  %lacking = sub i64 %end, %open
  %up = add i64 %lacking, <STEP_LESS_1>
  %steps = udiv i64 %up, <STEP>
  %more = mul i64 %steps, <STEP>
  %from = inttoptr i64 %open to ptr
  %status = call i32 inttoptr (i64 <MPROTECT> to ptr)(ptr %from, i64 %more, i32 3)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %grown, label %none
grown:
  %wider = add i64 %open, %more
  store i64 %wider, ptr @opened
  br label %take
take:
  store i64 %end, ptr @unused
  ret i64 %start
none:
  ret i64 0
}

define internal ptr @aligned(i64 %bytes, i64 %alignment) {
entry:
  %large = icmp ugt i64 %bytes, <SPAN>
  %coarse = icmp ugt i64 %alignment, <SPAN>
  %refused = or i1 %large, %coarse
  br i1 %refused, label %none, label %search
search:
  %wanted = add i64 %bytes, %alignment
  %less = sub i64 %wanted, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %less, i1 false)
  %log = sub i64 64, %zeros
  call void @lock()
  %start = call i64 @block(i64 %log)
  call void @unlock()
  %found = icmp ne i64 %start, 0
  br i1 %found, label %place, label %none
place:
  %mask = sub i64 0, %alignment
  %past = add i64 %start, 15
  %over = add i64 %past, %alignment
  %at = and i64 %over, %mask
  %result = inttoptr i64 %at to ptr
  %own = getelementptr i64, ptr %result, i64 -2
  store i64 %start, ptr %own
  %size = getelementptr i64, ptr %result, i64 -1
  store i64 %log, ptr %size
  ret ptr %result
none:
  ret ptr null
}

define internal i1 @foreign(ptr %given) {
  %at = ptrtoint ptr %given to i64
  %inside = sub i64 %at, <BASE>
  %result = icmp uge i64 %inside, <SPAN>
  ret i1 %result
}

define ptr @arena_malloc(i64 %bytes) {
  %result = call ptr @aligned(i64 %bytes, i64 16)
  ret ptr %result
}

define ptr @arena_calloc(i64 %count, i64 %each) {
entry:
  %product = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %over = extractvalue {i64, i1} %product, 1
  br i1 %over, label %none, label %take
take:
  %bytes = extractvalue {i64, i1} %product, 0
  %result = call ptr @aligned(i64 %bytes, i64 16)
  %found = icmp ne ptr %result, null
  br i1 %found, label %clear, label %none
clear:
  call void @llvm.memset.p0.i64(ptr %result, i8 0, i64 %bytes, i1 false)
  ret ptr %result
none:
  ret ptr null
}

define i32 @arena_posix_memalign(ptr %out, i64 %alignment, i64 %bytes) {
entry:
  %least = call i64 @llvm.umax.i64(i64 %alignment, i64 16)
  %result = call ptr @aligned(i64 %bytes, i64 %least)
  %found = icmp ne ptr %result, null
  br i1 %found, label %good, label %none
good:
  store ptr %result, ptr %out
  ret i32 0
none:
  ret i32 12
}

define void @arena_free(ptr %given) {
entry:
  %strange = call i1 @foreign(ptr %given)
  br i1 %strange, label %theirs, label %ours
theirs:
  call void inttoptr (i64 <C_FREE> to ptr)(ptr %given)
  ret void
ours:
  %own = getelementptr i64, ptr %given, i64 -2
  %start = load i64, ptr %own
  %size = getelementptr i64, ptr %given, i64 -1
  %log = load i64, ptr %size
  %head = getelementptr [64 x i64], ptr @returned, i64 0, i64 %log
  call void @lock()
  %next = load i64, ptr %head
  %link = inttoptr i64 %start to ptr
  store i64 %next, ptr %link
  store i64 %start, ptr %head
  call void @unlock()
  ret void
}

define ptr @arena_realloc(ptr %given, i64 %bytes) {
entry:
  %nothing = icmp eq ptr %given, null
  br i1 %nothing, label %first, label %held
first:
  %new = call ptr @aligned(i64 %bytes, i64 16)
  ret ptr %new
held:
  %strange = call i1 @foreign(ptr %given)
  br i1 %strange, label %theirs, label %ours
theirs:
  %moved = call ptr inttoptr (i64 <C_REALLOC> to ptr)(ptr %given, i64 %bytes)
  ret ptr %moved
ours:
  %own = getelementptr i64, ptr %given, i64 -2
  %start = load i64, ptr %own
  %size = getelementptr i64, ptr %given, i64 -1
  %log = load i64, ptr %size
  %whole = shl i64 1, %log
  %end = add i64 %start, %whole
  %at = ptrtoint ptr %given to i64
  %room = sub i64 %end, %at
  %fits = icmp ule i64 %bytes, %room
  br i1 %fits, label %stay, label %move
stay:
  ret ptr %given
move:
  %wider = call ptr @aligned(i64 %bytes, i64 16)
  %found = icmp ne ptr %wider, null
  br i1 %found, label %copy, label %none
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %wider, ptr %given, i64 %room, i1 false)
  call void @arena_free(ptr %given)
  ret ptr %wider
none:
  ret ptr null
}
"""
