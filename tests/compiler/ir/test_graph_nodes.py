"""A node built from another one: it is about the same place of the model unless the caller says otherwise."""

from __future__ import annotations

from graphs.random_graphs import input_of

from dslc.compiler.ir.graph import Kind, Node, Phase
from dslc.compiler.ir.op import OPS, Builder


def _node() -> Node:
    x = input_of("x", Kind.DATA, 4)
    made = Builder(name="a.b", phase=Phase.BACKWARD).node(OPS["relu"], x.value)
    return made.replaced(origins=(("a.b", None), ("c", None)))


def test_a_replaced_node_keeps_all_that_is_not_given() -> None:
    node = _node()
    same = node.replaced()
    parts = ("op", "inputs", "types", "attrs", "name", "span", "phase", "origins")
    assert same is not node and same.outputs[0] is not node.outputs[0]
    assert all(getattr(same, part) == getattr(node, part) for part in parts)
    other = input_of("y", Kind.DATA, 4).value
    given = {"op": OPS["neg"], "inputs": (other,), "phase": Phase.MIRROR, "origins": ()}
    for part, value in given.items():
        fresh = node.replaced(**{part: value})  # type: ignore[arg-type]
        assert getattr(fresh, part) == value
        assert all(getattr(fresh, each) == getattr(node, each) for each in parts if each != part)


def test_a_node_with_the_same_inputs_is_the_same_node() -> None:
    node = _node()
    assert node.with_inputs(node.inputs) is node and node.reading({}) is node
    other = input_of("y", Kind.DATA, 4).value
    assert node.reading({node.inputs[0]: other}).origins == node.origins
