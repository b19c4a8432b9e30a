"""Emits a recomputed activation as a second output of a backward kernel that already loads the same tensors.

Before, x and dy are in memory and a convolution's gradient reads r::

    %7 = fused %x, %scale, %bias {relu(x * scale + bias)} : bf16[8, 14, 14, 64]  # a.relu mirror
    %8 = conv_wgrad_last %7, %dz {...} : bf16[64, 3, 3, 64]  # b.conv backward
    %9 = fused %dy, %x, ... {...} : bf16[8, 14, 14, 64]  # a.batchnorm backward

After, if no operand of %9 depends on %7::

    %8, %9 = fused %dy, %x, ..., %scale, %bias {..., relu(x * scale + bias)} : bf16[8, 14, 14, 64], bf16[8, 14, 14, 64]
    %10 = conv_wgrad_last %9, %dz {...} : bf16[64, 3, 3, 64]  # b.conv backward

The activation then costs one write and no launch. Results keep their bits. GPU only; linear in nodes and reads.
"""

from __future__ import annotations

from dslc.compiler.ir.graph import Graph, Node, Phase, Value, origins_of
from dslc.compiler.ops.compound.fused import MAX_STEPS, fused
from dslc.compiler.passes.fuse.body import Body, body_of, is_pointwise
from dslc.compiler.passes.queries import is_small
from dslc.compiler.passes.rebuild import reading


def recompute_outputs(graph: Graph) -> Graph:
    """The graph with such nodes. Deterministic and idempotent."""
    found = _pairs(graph)
    if not found:
        return graph
    instead: dict[Value, Value] = {}
    for host, guest in found.items():
        both = _with_second_output(host, guest)
        instead.update(zip((host.out, guest.out), both.outputs))
    return reading(graph, instead)


def _pairs(graph: Graph) -> dict[Node, Node]:
    """A backward node -> the recomputed node that becomes its second output."""
    guests = [n for n in graph.nodes if n.phase is Phase.MIRROR and _is_large_kernel(n)]
    if not guests:
        return {}
    readers = graph.readers()
    hosts = {n for n in graph.nodes if n.phase is Phase.BACKWARD and _is_large_kernel(n)}
    # all producers of a host or of a recomputed node: merging one that depends on the guest may create a cycle
    above: set[Node] = set()
    for node in reversed(graph.nodes):
        if (
            node in hosts
            or node.phase is Phase.MIRROR
            or any(r in above for v in node.outputs for r in readers.get(v, ()))
        ):
            above.add(node)
    found: dict[Node, Node] = {}
    for guest in guests:
        if any(r in above for r in readers[guest.out]):
            continue
        large = [v for v in guest.inputs if not is_small(v)]
        for host in readers.get(large[0], ()) if large else ():
            if host in hosts and host not in found and _fits(host, guest, large):
                found[host] = guest
                break
    return found


def _is_large_kernel(node: Node) -> bool:
    """Whether a node is one pointwise kernel with a single large result."""
    return is_pointwise(node) and len(node.outputs) == 1 and not is_small(node.out)


def _fits(host: Node, guest: Node, large: list[Value]) -> bool:
    return (
        host.types[0].shape == guest.types[0].shape
        and {*large} <= {*host.inputs}
        and len(body_of(host)) + len(body_of(guest)) <= MAX_STEPS
    )


def _with_second_output(host: Node, guest: Node) -> Node:
    """One node with the results of both."""
    body = Body((*host.inputs, *guest.inputs))
    body.add(host)
    body.add(guest)
    types = (host.types[0], guest.types[0])
    attrs = {"body": tuple(body.steps), "results": (body.number[host.out], body.number[guest.out])}
    return host.replaced(op=fused, inputs=body.inputs, types=types, attrs=attrs, origins=origins_of((host, guest)))
