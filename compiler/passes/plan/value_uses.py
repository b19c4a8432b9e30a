"""Which values share bytes, which nodes access them, and until when: the facts from which memory is planned.

Times are indices of nodes in the schedule; the moves follow the last node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dslc.compiler.ir.graph import Node, Value
from dslc.compiler.ir.program import Program
from dslc.compiler.ir.types import alike
from dslc.compiler.passes.plan.schedule import contents, first_bytes
from dslc.compiler.passes.plan.stream_timeline import HappensBefore


@dataclass(frozen=True)
class ValueUses:
    """Uses by content: a view counts as the value whose bytes it shares."""

    program: Program
    schedule: tuple[Node, ...]

    @cached_property
    def content(self) -> dict[Value, Value]:
        """Value -> the value whose bytes it shares."""
        return contents(self.program.graph)

    @cached_property
    def first_byte(self) -> dict[Value, int]:
        """Value -> the byte at which it begins in the bytes of its content."""
        return first_bytes(self.program.graph)

    @cached_property
    def kept(self) -> set[Value]:
        """What must exist until the end: results and new values of states."""
        return {self.content[value] for value in self.program.graph.roots}

    @property
    def end(self) -> int:
        """The time of the moves."""
        return len(self.schedule)

    def until(self, node: Node) -> int:
        """The last time at which a node may run that does not follow this one."""
        return self._happens.until[node] - 1

    @cached_property
    def last(self) -> dict[Value, int]:
        """The last time at which a content is in use: until all later nodes follow the nodes that access it."""
        last: dict[Value, int] = {}
        for node in self.schedule:
            until = self.until(node)
            for content in self._accessed(node):
                last[content] = max(last.get(content, 0), until)
        last.update(dict.fromkeys(self.kept, self.end))
        return last

    @cached_property
    def users(self) -> dict[Value, list[Node]]:
        """The nodes that access a content, in order, without views."""
        users: dict[Value, list[Node]] = {}
        for node in self.schedule:
            if not node.op.view:
                for content in self._accessed(node):
                    users.setdefault(content, []).append(node)
        return users

    def can_overwrite(self, node: Node, old: Value, new: Value) -> bool:
        """Whether a node may write its output ``new`` over the bytes of its input ``old``."""
        return self._allows(node, old, new) and self._is_last(node, old)

    def _allows(self, node: Node, old: Value, new: Value) -> bool:
        """Whether the op may do so, for each of its inputs with these bytes."""
        reads = [i for i, value in enumerate(node.inputs) if self.content[value] is old]
        return all(
            (i, new.index) in node.op.in_place(node)
            and alike(node.inputs[i].type, new.type)
            and node.inputs[i].type.bytes == old.type.bytes
            for i in reads
        )

    def _is_last(self, node: Node, old: Value) -> bool:
        """Whether ``old`` is not needed after the node, and all other nodes that access it have ended before the node
        starts."""
        return old not in self.kept and all(
            user is node or self._happens.before(user, node) for user in self.users.get(old, ())
        )

    @cached_property
    def _happens(self) -> HappensBefore:
        return HappensBefore(self.schedule, self.program.streams, self.program.waits)

    def _accessed(self, node: Node) -> dict[Value, None]:
        return dict.fromkeys(self.content[value] for value in (*node.inputs, *node.outputs))
