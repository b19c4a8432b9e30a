"""epilogue: a pointwise node after a contraction becomes part of it; the same bits."""

from __future__ import annotations

import pytest
from graphs.random_graphs import assert_same_bits, evaluate, feeds_of, graph_of, input_of

from dslc.compiler.ir.build import Build, Precision
from dslc.compiler.ir.choice import Choice, Choices, Measured, key_of
from dslc.compiler.ir.graph import Graph, Kind, Phase, Value
from dslc.compiler.ir.op import OPS, Builder
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import DType
from dslc.compiler.ir.verify.graph import verify_graph
from dslc.compiler.passes.fuse.contraction.epilogue import epilogue, epilogue_rule
from dslc.compiler.passes.fuse.pointwise.pointwise import fuse_graph
from dslc.compiler.passes.order import PIPELINE
from dslc.compiler.passes.rounding import tf32_rounded
from dslc.compiler.passes.runner import pass_name

F32 = Precision()

B = Builder(name="layer")
X, W, V, BIAS, H = (
    input_of(name, Kind.DATA, *shape)
    for name, shape in (("x", (4, 8)), ("w", (8, 6)), ("v", (8, 6)), ("bias", (6,)), ("h", (4, 6)))
)


def product(x: Value = X.value, w: Value = W.value, b: Builder = B) -> Value:
    return b(OPS["matmul"], x, w, transpose_a=False, transpose_b=False)


def graph(**outputs: Value) -> Graph:
    return fuse_graph(graph_of([X, W, V, BIAS, H], outputs))


def joined(given: Graph) -> list[str]:
    """The ops after the pass, whose result has the same bits."""
    found = epilogue(given)
    verify_graph(found)
    feeds = feeds_of(given, 5)
    assert_same_bits(evaluate(given, feeds), evaluate(found, feeds))
    assert epilogue(found) is found, "a second run changes something"
    return [n.op.name for n in found.nodes]


def test_bias_and_activation_join() -> None:
    given = graph(y=B(OPS["relu"], B(OPS["add"], product(), BIAS.value)))
    assert joined(given) == ["contraction"]
    [node] = epilogue(given).nodes
    assert node.inputs == (X.value, W.value, BIAS.value) and node.attrs["product"] == "matmul"


def test_a_mask_joins_and_the_product_may_be_read_twice_by_one_node() -> None:
    mask = B(OPS["gt"], H.value, B(OPS["full"], dtype=DType.F32, shape=(), value=0.0))
    y = product()
    assert joined(graph(y=B(OPS["where"], mask, B(OPS["mul"], y, y), H.value))) == ["contraction"]


def test_of_two_products_one_joins() -> None:
    assert sorted(joined(graph(y=B(OPS["add"], product(), product(w=V.value))))) == ["contraction", "matmul"]


def test_chains_join_one_by_one() -> None:
    h = B(OPS["relu"], product())
    back = B(OPS["matmul"], h, W.value, transpose_a=False, transpose_b=True)
    again = product(x=B(OPS["neg"], back))
    assert joined(graph(y=B(OPS["mul"], again, h))) == ["contraction"] * 3


def test_what_stays_by_itself() -> None:
    y = product()
    read = B(OPS["relu"], y)
    backward = Builder(name="back", phase=Phase.BACKWARD)
    for outputs in (
        {"y": read, "raw": y},  # the product is a result
        {"y": read, "z": B(OPS["sum"], y, over=(0,), keep=False)},  # or read by another node
        {"y": B(OPS["exp"], y)},  # C++'s exp may be another one
        {"y": B(OPS["add"], B(OPS["reshape"], y, shape=(1, 4, 6)), H.value)},  # another shape
        {"y": backward(OPS["relu"], y)},  # another phase
    ):
        given = graph(**outputs)
        assert epilogue(given) is given


def test_halves_stay() -> None:
    halves = [B(OPS["cast"], i.value, dtype=DType.BF16) for i in (X, W)]
    given = graph_of([X, W], {"y": B(OPS["relu"], product(*halves))})
    assert epilogue(given) is given


def decided(provider: str, joined: float | None, apart: tuple[float, float], precision: Precision = F32) -> list[str]:
    """The ops after the pass if the product with its epilogue was measured, and both for themselves."""
    given = graph(y=B(OPS["relu"], B(OPS["add"], product(), BIAS.value)))
    [first, last], [both] = given.nodes, epilogue(given).nodes
    if precision.tf32:
        first, both = tf32_rounded(first), tf32_rounded(both)
    library = Measured(Choice("cublaslt" if provider == "vendor" else "own", "", 64), apart[0])
    ways = {key_of(first): (library,), key_of(last): (Measured(Choice("own"), apart[1]),)}
    ways |= {} if joined is None else {key_of(both): (Measured(Choice("own"), joined),)}
    asked = Build("sm_90", provider, precision, choices=Choices(ways))
    [step] = [step for step in PIPELINE if pass_name(step) == "epilogue"]
    return [n.op.name for n in step(Program("predict", {}, given, target="sm_90"), asked).graph.nodes]


@pytest.mark.parametrize("precision", [F32, Precision(tf32=True)], ids=["f32", "tf32"])
@pytest.mark.parametrize(("provider", "unmeasured"), [("vendor", False), ("own", True), ("auto", True)])
def test_measured_times_decide(provider: str, unmeasured: bool, precision: Precision) -> None:
    apart = ["matmul", "fused"]
    assert decided(provider, 2.9e-6, (2e-6, 1e-6), precision) == ["contraction"]
    assert decided(provider, 3.1e-6, (2e-6, 1e-6), precision) == apart
    assert decided(provider, None, (2e-6, 1e-6), precision) == (["contraction"] if unmeasured else apart)


def test_a_library_that_own_builds_do_not_use_does_not_decide_for_them() -> None:
    given = graph(y=B(OPS["relu"], product()))
    [first, last], [both] = given.nodes, epilogue(given).nodes
    ways = {
        key_of(first): (Measured(Choice("cublaslt"), 1e-6), Measured(Choice("own"), 9e-6)),
        key_of(last): (Measured(Choice("own"), 1e-6),),
        key_of(both): (Measured(Choice("own"), 5e-6),),
    }
    rules = [epilogue_rule(Build("sm_90", provider, choices=Choices(ways))) for provider in ("own", "vendor")]
    assert [rule(first, last, both) for rule in rules] == [True, False]
