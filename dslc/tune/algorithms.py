"""The ways in which a vendor's library can compute a call, by asking it on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.cuda.libraries.registry import LIBRARIES

if TYPE_CHECKING:
    from dslc.runtime.artifact.plan import Plan
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.libraries.checked_calls import Noted
    from dslc.runtime.cuda.libraries.library import Library

_ALIGNED: Final = 256  # bytes; of operands and workspaces, in the pool and in plans
_WORKSPACES: Final = 4  # workspaces that fit into the free memory, if a way may need any


def algorithms(
    device: Device, opened: dict[str, Library[Any]], noted: Noted, plan: Plan, limit: int | None, deterministic: bool
) -> dict[str, Any]:
    """``default``: the way of a build without a lock, as (algorithm, bytes of workspace); ``ways``: those with at most
    ``limit`` bytes; ``version``: of the library. ``plan``: the one call. EnvironmentFault R202, R205."""
    [call] = plan.instructions
    assert isinstance(call, Gemm | GraphOp), "a library computes it"
    if call.provider not in opened:
        opened[call.provider] = LIBRARIES[call.provider]().open(noted)
    library = opened[call.provider]
    operands = (call.a, call.b, call.out) if isinstance(call, Gemm) else (*call.inputs, *call.outputs)
    buffers = [plan.buffers[i] for i in operands]
    room = max(0, plan.buffers[call.workspace].bytes - _ALIGNED) if call.workspace is not None else 0
    problem = library.problem(call, buffers, [_ALIGNED] * len(buffers), room)
    most = device.pool.available() // _WORKSPACES if limit is None else limit
    ways = library.candidates(problem, most, deterministic)
    return {"default": library.default(problem), "ways": ways, "version": library.version}
