"""A kernel that the runtime launches between graphs, itself as a graph of one node.

An ordinary launch between two graphs makes the second one slower, on whichever stream it is: by 0.05 ms a step of
PointNet with 274 kernels and 0.25 ms one of ResNet-50 with 571 (H200, driver 580). A graph costs it nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dslc.runtime.cuda.arguments import Arguments

if TYPE_CHECKING:
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.owned import Owned

Values = Sequence[tuple[str, int | float]]


class LoneKernel:
    """``function``: a kernel of ``kinds``, its arguments as for ``Arguments``, in blocks of so many ``threads``.
    ``owned`` takes the graph. One thread at a time launches it. The device's context is current."""

    def __init__(self, device: Device, function: Any, kinds: Sequence[str], threads: int, owned: Owned) -> None:
        self._driver, self._function, self._threads = device.driver, function, (threads, 1, 1)
        nothing = [(kind, 0) for kind in kinds]
        self._set: tuple[int, Values] = 1, nothing
        graph = self._driver.graph(owned.noted)  # the driver finds the node by it
        self._node = self._driver.add_kernel(graph, [], function, (1, 1, 1), self._threads, 0, Arguments(nothing))
        self._executable = self._driver.instantiate(graph, owned.noted)

    def launch(self, blocks: int, values: Values, stream: Any) -> None:
        """With these arguments; runs that were launched before keep theirs."""
        wanted = blocks, values
        if wanted != self._set:
            grid, arguments = (blocks, 1, 1), Arguments(values)
            self._set = 0, ()  # if the call is interrupted
            self._driver.set_kernel(self._executable, self._node, self._function, grid, self._threads, 0, arguments)
            self._set = wanted
        self._driver.launch_graph(self._executable, stream)
