"""Maps the functions that generated kernels call (``Call``) to functions that write their LLVM IR."""

from __future__ import annotations

from functools import cache
from typing import Any

from dslc.compiler.codegen.cuda.llvm import block_collectives as exchange
from dslc.compiler.codegen.cuda.llvm import half_floats as halves
from dslc.compiler.codegen.cuda.llvm import indexing as groups
from dslc.compiler.codegen.cuda.llvm import load_store as memory
from dslc.compiler.codegen.cuda.llvm import lookup as choose
from dslc.compiler.codegen.cuda.llvm import math as functions
from dslc.compiler.codegen.cuda.llvm import philox
from dslc.compiler.codegen.cuda.llvm import shared_spill as own
from dslc.compiler.codegen.cuda.region.source import Call
from dslc.compiler.ir.scalar import FUNCTIONS


@cache
def writer_of(call: Call) -> Any:
    """The ``Writer`` of the IR of a call (``lanes.py``)."""
    head = call.head
    given: tuple[Any, ...] = call.parameters
    if head in FUNCTIONS:
        return functions.scalar_function(head)
    if head in functions.FAST:
        return functions.fast_function(head)
    match head:
        case "to":
            return functions.conversion(*given)
        case "rounded":
            return halves.rounding(*given)
        case "half":
            return halves.half(*given)
        case "load" | "load_if":
            return memory.load(*given)
        case "store" | "store_if":
            return memory.store(*given)
        case "load_bits" | "load_bits_if":
            return memory.load_bits(*given)
        case "store_bits" | "store_bits_if":
            return memory.store_bits(*given)
        case "raise_flag":
            return memory.raise_flag
        case "thread" | "block" | "joined" | "divided" | "rest":
            return getattr(groups, head)
        case "placed" | "chosen" | "pointer":
            return getattr(choose, head)(*given)
        case "bits":
            return philox.bits(*given)
        case "prefetch":
            return memory.prefetch(*given)
        case "keep" | "kept":
            return getattr(own, head)(*given)
        case "barrier":
            return exchange.barrier
        case "group" | "across" | "warps" | "running" | "turned":
            return getattr(exchange, head)(*given)
        case "plus" | "times" | "quotient" | "remainder" | "below":
            return groups.index_function(head)
    return getattr(groups, head)(*given)
