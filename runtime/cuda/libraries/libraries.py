"""The vendor libraries of a session: opened when a plan first names one; each problem is prepared once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, TypeAlias

from dslc.base.cache import Cache
from dslc.base.errors import DslcWarning, EnvironmentFault
from dslc.runtime.artifact.instructions import Gemm, GraphOp
from dslc.runtime.artifact.plan import Buffer
from dslc.runtime.cuda.device import Device
from dslc.runtime.cuda.libraries import cublaslt, cudnn
from dslc.runtime.cuda.libraries.checked_calls import Noted
from dslc.runtime.cuda.libraries.choices import Prepared
from dslc.runtime.cuda.owned import Owned, let_go_of

#: Enqueues a library's kernels on the given stream.
Call: TypeAlias = Callable[[Any], None]
#: Problem -> the algorithm's bytes, or the plan's name.
Choices: TypeAlias = dict[cublaslt.Problem | cudnn.Problem, bytes | str]

_ALIGNED: Final = 256  # bytes; of a workspace
_WORTH_TELLING: Final = 1.0  # seconds


class Libraries:
    """Handles, plans and a stream of one session on one device, whose context must be current in every call.

    Equal problems share one plan: ``choices`` holds the algorithm of each, and ``seconds`` the time for choosing.
    Choices stored for ``artifact``, an artifact's id, are used without asking the library; "" for none.
    """

    def __init__(self, device: Device, owned: Owned, artifact: str = "") -> None:
        """``owned`` closes what was opened; no stream may use it any more by then."""
        self._device = device
        self._artifact = artifact
        self._prepared: dict[str, Prepared] = {}
        self._told = False  # that what was kept is of no use
        self._opened: Noted = []
        owned.on_close(self._close)
        self._lt: cublaslt.CublasLt | None = None
        self._dnn: cudnn.Cudnn | None = None
        self._recorder: Any = None
        self._products: dict[cublaslt.Problem, cublaslt.Product] = {}
        self._convolutions: dict[cudnn.Problem, cudnn.Convolution] = {}
        self.choices: Choices = {}
        self.seconds = 0.0

    def _close(self) -> None:
        if self._device.driver.lost is None:
            let_go_of(self._device.driver, self._opened)
        else:  # the context is dead and has taken all of it along; libraries fail in it
            self._opened.clear()

    def announcement(self, name: str) -> str | None:
        """A message with the time of the libraries for the artifact ``name``, if it is a second or more."""
        if self.seconds < _WORTH_TELLING:
            return None
        used = " and ".join(n for n, on in (("cuBLASLt", self._lt), ("cuDNN", self._dnn)) if on is not None)
        chosen = len(self.choices) - self.used
        more = f" and to choose {chosen} algorithms; `dslc warm` stores them for later loads" if chosen else ""
        return f"{name}: {used} took {self.seconds:.1f} s to load{more}"

    def keep(self) -> int:
        """Store all choices in the private cache; returns their number. ResourceError R402."""
        for problem, product in self._products.items():
            if not problem.algorithm:  # else the plan contains it
                self._prepared["cublaslt"].add(problem, product.choice)
        for plan, convolution in self._convolutions.items():
            self._prepared["cudnn"].add(plan, convolution.choice)
        cache = Cache.open()
        return sum(prepared.keep(cache) for prepared in self._prepared.values())

    @property
    def used(self) -> int:
        """How many stored choices were used."""
        return sum(prepared.used for prepared in self._prepared.values())

    def _open(self, library: str, version: str) -> None:
        cache = Cache.open(existing=True) if self._artifact else None
        self._prepared[library] = Prepared(cache, library, version, self._artifact, self._device)

    def _unfit(self, library: str, problem: object, error: EnvironmentFault) -> None:
        """Drop the stored choice for a problem; warn once that it is not used."""
        self._prepared[library].drop(problem)
        if not self._told:
            self._told = True
            said = f"a choice stored by `dslc warm` is ignored, and chosen again: {error.message}"
            warnings.warn(DslcWarning("W002", said), stacklevel=2)

    @property
    def recorder(self) -> Any:
        """The stream on which calls are captured as parts of graphs."""
        if self._recorder is None:
            self._recorder = self._device.driver.stream(self._opened)
        return self._recorder

    def call(self, instruction: Gemm | GraphOp, buffers: Sequence[Buffer], address: Callable[[int], int]) -> Call:
        """The library call of an instruction, on buffers at ``address``. R205 if its library is not installed, R202 for
        an unsupported operation."""
        begun = time.monotonic()
        try:
            if isinstance(instruction, Gemm):
                return self._gemm(instruction, buffers, address)
            return self._convolution(instruction, buffers, address)
        finally:
            self.seconds += time.monotonic() - begun

    def _gemm(self, gemm: Gemm, buffers: Sequence[Buffer], address: Callable[[int], int]) -> Call:
        if gemm.provider != "cublaslt" or gemm.c is not None or gemm.bias is not None or gemm.epilogue != "none":
            raise _unknown(
                f"a product by {gemm.provider} with epilogue {gemm.epilogue}, or with more operands than two"
            )
        a, b, out = (buffers[i] for i in (gemm.a, gemm.b, gemm.out))
        places = (address(gemm.a), address(gemm.b), address(gemm.out))
        room, size = _workspace(gemm.workspace, buffers, address)
        aligned_a, aligned_b, aligned_out = map(cublaslt.alignment, places)
        problem = cublaslt.Problem(
            a.shape, b.shape, out.shape, a.dtype, out.dtype, gemm.transpose_a, gemm.transpose_b, gemm.compute,
            gemm.alpha, (aligned_a, aligned_b, aligned_out), size, gemm.algorithm,
        )  # fmt: skip
        if problem not in self._products:
            self._products[problem] = self._product(problem)
            self.choices[problem] = self._products[problem].algorithm
        product = self._products[problem]
        return lambda stream: product.run(*places, room, stream)

    def _product(self, problem: cublaslt.Problem) -> cublaslt.Product:
        if self._lt is None:
            lt = cublaslt.CublasLt(cublaslt.load_cublaslt(), self._opened)
            self._open("cublaslt", lt.version)
            self._lt = lt
        kept = None if problem.algorithm else self._prepared["cublaslt"].get(problem)
        if kept is not None:
            try:
                return self._lt.product(replace(problem, algorithm=kept.data), self._opened)
            except EnvironmentFault as error:
                self._unfit("cublaslt", problem, error)
        return self._lt.product(problem, self._opened)

    def _plan(self, problem: cudnn.Problem) -> cudnn.Convolution:
        if self._dnn is None:
            dnn = cudnn.Cudnn(cudnn.load_cudnn(), self._opened)
            self._open("cudnn", dnn.version)
            self._dnn = dnn
        kept = self._prepared["cudnn"].get(problem)
        if kept is not None:
            try:
                return self._dnn.convolution(problem, kept)
            except EnvironmentFault as error:
                self._unfit("cudnn", problem, error)
        return self._dnn.convolution(problem)

    def _convolution(self, graph: GraphOp, buffers: Sequence[Buffer], address: Callable[[int], int]) -> Call:
        if graph.provider != "cudnn":
            raise _unknown(f"an operation graph of {graph.provider}")
        first, second = (buffers[i] for i in graph.inputs)
        [out] = (buffers[i] for i in graph.outputs)
        places = [address(i) for i in (*graph.inputs, *graph.outputs)]
        room, size = _workspace(graph.workspace, buffers, address)
        stride, pad, dilation = (tuple(graph.attrs[name]) for name in ("stride", "pad", "dilation"))
        problem = cudnn.Problem(
            graph.kind, (first.shape, second.shape), out.shape, out.dtype, graph.attrs["layout"] == "last",
            stride, pad, dilation, graph.engine, graph.knobs, size, graph.attrs["compute"],
        )  # fmt: skip
        if problem not in self._convolutions:
            self._convolutions[problem] = self._plan(problem)
            self.choices[problem] = self._convolutions[problem].engine
        convolution = self._convolutions[problem]
        return lambda stream: convolution.run(places[0], places[1], places[2], room, stream)


def _workspace(index: int | None, buffers: Sequence[Buffer], address: Callable[[int], int]) -> tuple[int, int]:
    """The aligned address of a call's workspace, and its size in bytes, which does not depend on the alignment."""
    if index is None:
        return 0, 0
    size = prod(buffers[index].shape) - _ALIGNED
    return (-(-address(index) // _ALIGNED) * _ALIGNED, size) if size > 0 else (0, 0)


def _unknown(what: str) -> EnvironmentFault:
    return EnvironmentFault(
        "R202",
        f"the plan holds {what}, which this runtime does not support",
        place="libraries",
        help="build it with --providers own",
    )
