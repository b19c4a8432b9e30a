"""A region that computes more than another one, with the schedule of that one."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.compiler.codegen.region.ir import Region
from dslc.compiler.ir.described import described


@described("Joined", "outer inner inputs outputs stages indices whole core")
@dataclass(frozen=True, slots=True)
class ExtendedRegion(Region):
    """``core``: the region whose schedule this one has, so that sums keep their order. The outer axes may be pieces of
    those of ``core``."""

    core: Region | None = None
