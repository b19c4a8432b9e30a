"""What the driver is said to take next to the pool: held against what it took, and against the graphs of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from fake_gpu.fake_driver import fake_cubin
from fake_gpu.gpu_pair import Pair, batch

from dslc.runtime.artifact.file import read_artifact
from dslc.runtime.artifact.instructions import EventRecord, EventWait, Kernel
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.artifact.plan import Plan
from dslc.runtime.cuda.code import cubin_code
from dslc.runtime.cuda.driver_bytes import Code, Graph, graph_of, graphs_of, taken
from dslc.runtime.session.load import load
from dslc.runtime.session.open import USES, driver_needs, loaded_programs, programs_for

MIB: Final = 1 << 20


class Taken(NamedTuple):
    """A session of all calls: of all nodes of its graphs together the arguments, calls of libraries, and chains but one
    of each graph; its kernels and the bytes of their code; libraries; pinned bytes; bytes that the driver took beyond
    the pool's."""

    arguments: int
    calls: int
    chains: int
    kernels: int
    code: int
    libraries: tuple[str, ...]
    pinned: int
    beyond: int


#: One NVIDIA H200, driver 580, 2026-11-22: cuMemGetInfo before and after ``dslc.load`` and some calls of each kind. In
#: these sessions ``init`` had a graph, too.
MEASURED: Final = {
    "densenet121": Taken(84176, 0, 284, 498, 3660928, (), 77582848, 88080384),
    "unrolled_lstm": Taken(51643, 0, 221, 100, 397824, (), 26317312, 68943872),
    "mlp": Taken(692, 0, 11, 32, 166400, (), 407040, 7602176),
    "mlp of 16 steps": Taken(6516, 0, 47, 32, 166400, (), 407040, 22806528),
    "resnet50": Taken(30319, 0, 174, 206, 1766912, (), 19780096, 31457280),
    "deep100": Taken(20087, 0, 9, 27, 129664, (), 136704, 14286848),
    "densenet121-vendor": Taken(49436, 1200, 392, 469, 3289216, ("cublaslt", "cudnn"), 77582848, 119537664),
    "unrolled_lstm-vendor": Taken(36771, 830, 219, 88, 220928, ("cublaslt",), 26317312, 66846720),
    "gpt2": Taken(26789, 0, 68, 282, 1118336, (), 6593577472, 33030144),
}


@pytest.mark.parametrize("name", [*MEASURED])
def test_what_the_driver_took_of_an_h200(name: str) -> None:
    m = MEASURED[name]
    graphs = Graph("all", 1, m.arguments, m.calls, 1 + m.chains).taken
    said = taken(Code(m.kernels, m.code), graphs, m.libraries, m.pinned)
    assert abs(said - m.beyond) <= 16 * MIB


@pytest.mark.parametrize(
    ("kernels", "code", "mib"),
    [(256, 512, 2), (2048, 512, 6), (256, 8320, 4), (256, 64384, 18), (64, 320384, 22)],
)
def test_code_on_an_h200(kernels: int, code: int, mib: int) -> None:
    assert abs(taken(Code(kernels, kernels * code), 0, (), 0) - taken(Code(0, 0), 0, (), 0) - mib * MIB) <= 2 * MIB


def test_local_memory_on_an_h200() -> None:
    assert Code(1, 1024, 1024).taken == Code(1, 1024).taken
    assert Code(1, 1024, 4096).taken - Code(1, 1024).taken == 792 * MIB


def test_code_of_a_cubin() -> None:
    assert cubin_code(fake_cubin(90, "a", "b"), "k") == (0, 0)
    assert cubin_code(fake_cubin(90, "a", "b", code=640, local=4096), "k") == (1280, 4096)


def steps(*streams: int, waits: dict[int, tuple[int, ...]] | None = None) -> Plan:
    """Kernels on these streams, each of which waits for those before it that ``waits`` names."""
    instructions: list[Any] = []
    for i, stream in enumerate(streams):
        instructions += [EventWait(other, stream) for other in (waits or {}).get(i, ())]
        instructions += [
            Kernel("k", "k", (1, 1, 1), (1, 1, 1), 0, (("i32", 1),) * 3, stream, 0),
            EventRecord(i, stream),
        ]
    return Plan((), (), (), (), (), tuple(instructions), ("k",))


def test_chains_of_graphs() -> None:
    assert graph_of("e", steps(0, 0, 0)) == Graph("e", 3, 9, 0, 1)
    assert graph_of("e", steps(0, 1, 2)).chains == 3
    assert graph_of("e", steps(0, 1, 0, 1, waits={3: (2,)})).chains == 2
    assert graph_of("e", steps(0, 1, 2), frames=4) == Graph("e", 12, 36, 0, 3)  # each frame goes on where one ended
    assert graph_of("e", steps()) == Graph("e", 0, 0, 0, 1)


@pytest.mark.parametrize("use", [*USES])
@pytest.mark.parametrize(("together", "contexts"), [(1, 1), (4, 1), (1, 2)])
def test_the_graphs_of_a_session_are_those_that_are_counted(
    pair: Callable[..., Pair], use: str, together: int, contexts: int
) -> None:
    one = pair()
    one.gpu.close()
    assert one.fake.graphs() == []
    programs = programs_for(loaded_programs(read_artifact(one.path), "sm_90"), USES[use])
    expected = [
        graph.nodes
        for listed in programs.values()
        for program in listed
        for graph in graphs_of(program, together) * contexts
    ]
    checks = Interface.of_header(read_artifact(one.path).header["interface"]).checked_dtypes
    expected += [1] * len(checks) * contexts  # a few kB, which are not counted
    given = {"calls": USES[use], "weights": "init", "contexts": contexts, "steps_per_launch": together}
    with load(one.path, device="gpu", **given) as session:
        assert one.fake.graphs() == sorted(expected)
        made = one.fake.calls["cuGraphInstantiate"]
        session.initialise()
        if "train_step" in USES[use]:
            [step.loss for step in session.train_steps([batch(i) for i in range(2 * together + 1)])]
        assert one.fake.calls["cuGraphInstantiate"] == made and one.fake.graphs() == sorted(expected)
    assert one.fake.graphs() == []


def test_what_sessions_are_said_to_make_the_driver_take(pair: Callable[..., Pair]) -> None:
    one = pair()
    needs = driver_needs(one.gpu.artifact)
    assert needs.keys() == {"sm_90"} and needs["sm_90"].keys() == set(USES)
    assert needs["sm_90"]["load"] == one.gpu._backend.driver_bytes  # type: ignore[attr-defined]
    assert driver_needs(one.gpu.artifact, contexts=9)["sm_90"]["load"] > needs["sm_90"]["load"]
