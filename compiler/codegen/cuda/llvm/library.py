"""Maps the functions that generated kernels call (``Call``) to functions that write their LLVM IR."""

from __future__ import annotations

from functools import cache
from typing import Any

from dslc.compiler.codegen.cuda.llvm import (
    block_collectives,
    half_floats,
    indexing,
    load_store,
    lookup,
    math,
    philox,
    shared_spill,
)
from dslc.compiler.codegen.cuda.region.source import Call
from dslc.compiler.ir.scalar import FUNCTIONS


@cache
def writer_of(call: Call) -> Any:
    """The ``Writer`` of the IR of a call (``lanes.py``)."""
    head = call.head
    parameters: tuple[Any, ...] = call.parameters
    if head in FUNCTIONS:
        return math.scalar_function(head)
    if head in math.FAST:
        return math.fast_function(head)
    match head:
        case "to":
            return math.conversion(*parameters)
        case "rounded":
            return half_floats.rounding(*parameters)
        case "half":
            return half_floats.half(*parameters)
        case "load" | "load_if":
            return load_store.load(*parameters)
        case "store" | "store_if":
            return load_store.store(*parameters)
        case "load_bits" | "load_bits_if":
            return load_store.load_bits(*parameters)
        case "store_bits" | "store_bits_if":
            return load_store.store_bits(*parameters)
        case "raise_flag":
            return load_store.raise_flag
        case "thread" | "block" | "joined" | "divided" | "rest":
            return getattr(indexing, head)
        case "placed" | "chosen" | "pointer":
            return getattr(lookup, head)(*parameters)
        case "bits":
            return philox.bits(*parameters)
        case "prefetch":
            return load_store.prefetch(*parameters)
        case "keep":
            return shared_spill.spill(*parameters)
        case "kept":
            return shared_spill.reload(*parameters)
        case "barrier":
            return block_collectives.barrier
        case "group" | "across" | "warps" | "running" | "turned":
            return getattr(block_collectives, head)(*parameters)
        case "plus" | "times" | "quotient" | "remainder" | "below":
            return indexing.index_function(head)
    return getattr(indexing, head)(*parameters)
