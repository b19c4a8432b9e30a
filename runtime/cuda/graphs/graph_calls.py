"""The driver's calls that make CUDA graphs, capture them and launch them; ``driver.py`` has the others.

Nodes are handles of the graph that they were added to; ``after`` are the nodes that a new one waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from dslc.base.errors import DslcError
from dslc.runtime.cuda.arguments import Arguments
from dslc.runtime.cuda.faults import Disturbed
from dslc.runtime.cuda.libraries.checked_calls import CheckedCalls, Noted
from dslc.runtime.session.backend import Change

_DEVICE_MEMORY: Final = 2  # CU_MEMORYTYPE_DEVICE
_CAPTURES: Final = 16  # how often a capture is tried that other threads end


class GraphCalls(CheckedCalls):
    """Calls for graphs of kernels, copies and fills, for graphs captured from a stream, and their launches."""

    def graph(self, noted: Noted) -> Any:
        return self._made(noted, "cuGraphDestroy", "cuGraphCreate", 0)

    def add_kernel(
        self,
        graph: Any,
        after: Sequence[Any],
        function: Any,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        args: Arguments,
    ) -> Any:
        node = self._kernel(function, grid, block, shared, args)
        return self._call("cuGraphAddKernelNode", graph, list(after), len(after), node)

    def set_kernel(
        self,
        executable: Any,
        node: Any,
        function: Any,
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        args: Arguments,
    ) -> None:
        """Later launches of the executable graph run a node's kernel so; ``node`` is of the graph it was made from."""
        self._call(
            "cuGraphExecKernelNodeSetParams", executable, node, self._kernel(function, grid, block, shared, args)
        )

    def _kernel(self, function: Any, grid: Sequence[int], block: Sequence[int], shared: int, args: Arguments) -> Any:
        node = self._binding.CUDA_KERNEL_NODE_PARAMS()
        node.func = function
        node.gridDimX, node.gridDimY, node.gridDimZ = grid
        node.blockDimX, node.blockDimY, node.blockDimZ = block
        node.sharedMemBytes = shared
        node.kernelParams = args.address
        return node

    def keep_together(self, kernel: Any) -> None:
        """Makes a graph's kernel one whose blocks are all on the device at once, or else the graph fails."""
        binding = self._binding
        value = binding.CUkernelNodeAttrValue()
        value.cooperative = 1
        attribute = binding.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        self._call("cuGraphKernelNodeSetAttribute", kernel, attribute, value)

    def let_begin_early(self, graph: Any, before: Any, kernel: Any) -> None:
        """Makes a kernel depend on another one that it waits for by itself: it is launched when all blocks of the other
        are finished, before all of their writes are visible."""
        edge = self._binding.CUgraphEdgeData()
        edge.from_port = self._binding.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        edge.type = self._binding.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        self._call("cuGraphAddDependencies", graph, [before], [kernel], [edge], 1)

    def add_copy(self, graph: Any, after: Sequence[Any], target: int, source: int, size: int, context: Any) -> Any:
        node = self._binding.CUDA_MEMCPY3D()
        kind = self._binding.CUmemorytype(_DEVICE_MEMORY)
        node.srcMemoryType = node.dstMemoryType = kind
        node.srcDevice, node.dstDevice = source, target
        node.WidthInBytes, node.Height, node.Depth = size, 1, 1
        return self._call("cuGraphAddMemcpyNode", graph, list(after), len(after), node, context)

    def add_fill(
        self,
        graph: Any,
        after: Sequence[Any],
        target: int,
        value: int,
        width: int,
        count: int,
        context: Any,
        pitch: int | None = None,
    ) -> Any:
        """Sets ``count`` elements of ``width`` bytes, contiguous or ``pitch`` bytes apart."""
        node = self._binding.CUDA_MEMSET_NODE_PARAMS()
        node.dst, node.value, node.elementSize = target, value, width
        node.width, node.height, node.pitch = (count, 1, 0) if pitch is None else (1, count, pitch)
        return self._call("cuGraphAddMemsetNode", graph, list(after), len(after), node, context)

    def add_record(self, graph: Any, after: Sequence[Any], event: Any) -> Any:
        """Each launch of the graph records the event where these nodes have ended."""
        return self._call("cuGraphAddEventRecordNode", graph, list(after), len(after), event)

    def capture(self, stream: Any, work: Callable[[Any], None], noted: Noted) -> Any:
        """A graph of what ``work`` enqueues on a stream that is idle, none of which runs. ``work`` is called again if
        another thread, perhaps of another library, has ended the capture: it has waited for all work of the device."""
        for _ in range(_CAPTURES - 1):
            with suppress(Disturbed):
                return self._captured(stream, work, noted)
        return self._captured(stream, work, noted)

    def _captured(self, stream: Any, work: Callable[[Any], None], noted: Noted) -> Any:
        """As ``capture``, once. Raises Disturbed where that is why the work failed."""
        # relaxed: a library may load its code at the first use of it, which the stricter modes forbid
        self._call("cuStreamBeginCapture", stream, self._binding.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            work(stream)
        except BaseException as error:
            try:
                self._made(noted, "cuGraphDestroy", "cuStreamEndCapture", stream)
            except Disturbed as why:
                if isinstance(error, DslcError):
                    raise why from error
            except DslcError:  # the error that led here is the one to tell
                pass
            raise
        return self._made(noted, "cuGraphDestroy", "cuStreamEndCapture", stream)

    def remove_fills(self, captured: Any, begin: int, size: int) -> int:
        """Removes from a captured graph the nodes that it begins with and that fill a part of ``size`` bytes from
        ``begin`` with zeros; returns how many."""
        binding = self._binding
        _, count = self._call("cuGraphGetRootNodes", captured, 0)
        roots, _ = self._call("cuGraphGetRootNodes", captured, count)
        fills = binding.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
        found = 0
        for node in (n for n in roots or () if self._call("cuGraphNodeGetType", n) == fills):
            fill = self._call("cuGraphMemsetNodeGetParams", node)
            end = int(fill.dst) + fill.elementSize * fill.width
            if fill.height == 1 and fill.value == 0 and begin <= int(fill.dst) and end <= begin + size:
                self._call("cuGraphDestroyNode", node)
                found += 1
        return found

    def add_child(self, graph: Any, after: Sequence[Any], child: Any) -> Any:
        """A copy of another graph as one node."""
        return self._call("cuGraphAddChildGraphNode", graph, list(after), len(after), child)

    def instantiate(self, graph: Any, noted: Noted) -> Any:
        return self._made(noted, "cuGraphExecDestroy", "cuGraphInstantiate", graph, 0)

    def upload(self, executable: Any, stream: Any) -> None:
        """Transfer the graph to the device, so that its first launch costs no more than later ones."""
        self._call("cuGraphUpload", executable, stream)

    def launch_graph(self, executable: Any, stream: Any, change: Change | None = None) -> None:
        """``change``: a change of the state made by this graph alone."""
        if change is None:
            self._call("cuGraphLaunch", executable, stream)
        else:
            self._call_between(change.begin, change.end, "cuGraphLaunch", executable, stream)
