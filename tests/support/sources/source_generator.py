"""Random sources that the grammar admits: every kind of tree, odd layout, comments everywhere."""

from __future__ import annotations

import random

NAMES = ["x", "y", "h0", "width", "B", "nn", "dim", "along", "carry", "into", "s", "f32", "int", "train", "steps", "_a"]
DTYPES = ["", "", "f32", "i32", "u8", "b1", "bf16"]
UNITS = ["epochs", "step", "s", "ms", "GiB", "tokens"]
BINARY = ["+", "-", "*", "/", "//", "%", "@", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
TEXTS = ['""', '"a b"', r'"q \" \\ \n"', '"{ ( # |>"', '"größe"']


class Generator:
    """Text of a file, a declaration, a statement, an expression; each call draws again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def count(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    # --- layout ---------------------------------------------------------------------------------------------

    def gap(self, breakable: bool = False) -> str:
        """White space, with a line end or a comment where a line may be broken."""
        if breakable and self.chance(0.15):
            return self.pick(["\n", "\r\n", "\n\n", " # why\n", "\n  # why (not\n  ", "  ## doc?\n\n\n"])
        return self.pick(["", " ", " ", " ", "  ", "\t"])

    def op(self, sign: str) -> str:
        return f" {self.gap()}{sign} {self.gap(True)}" if sign.isalpha() or self.chance(0.7) else sign

    def end(self) -> str:
        return self.pick(
            ["\n", "\n", "\n", "\n\n", "\n\n\n", ";", " ; ", " # end\n", "\n# alone\n", "\n\n  ## doc\n\n", "\r\n"]
        )

    def bracket(self, left: str, parts: list[str], right: str) -> str:
        inner = f"{self.gap(True)},{self.gap(True)}".join(parts)
        comma = "," if parts and self.chance(0.1) else ""
        return f"{left}{self.gap(True)}{inner}{comma}{self.gap(True)}{right}"

    # --- expressions ----------------------------------------------------------------------------------------

    def name(self) -> str:
        return self.pick(NAMES)

    def exprs(self, depth: int, low: int, high: int) -> list[str]:
        return [self.expr(depth) for _ in range(self.count(low, high))]

    def number(self) -> str:
        digits = self.pick(["0", "7", "1_000", "0.5", "1e-3", "2.5E+3", "9223372036854775807"])
        return digits + (f" {self.pick(UNITS)}" if self.chance(0.15) else "")

    def atom(self, depth: int) -> str:
        kind = self.count(0, 9 if depth > 0 else 3)
        if kind <= 1:
            return self.name()
        if kind == 2:
            return self.number()
        if kind == 3:
            return self.pick([*TEXTS, "true", "false"])
        if kind == 4 and self.chance(0.3):
            return self.comprehension(depth)
        if kind == 4:
            return self.bracket("[", self.exprs(depth - 1, 0, 3), "]")
        if kind == 5:
            parts = self.exprs(depth - 1, 0, 3)
            return self.bracket("(", parts, ")") if len(parts) != 1 else f"({parts[0]},)"
        return f"({self.gap(True)}{self.expr(depth - 1)}{self.gap(True)})"

    def comprehension(self, depth: int) -> str:
        clauses = [self.clause(depth) for _ in range(self.pick([1, 1, 2]))]
        return f"[{self.gap(True)}{self.expr(depth - 1)}{self.gap(True)} {' '.join(clauses)}{self.gap(True)}]"

    def clause(self, depth: int) -> str:
        names = self.bracket("(", [self.name(), self.name()], ")") if self.chance(0.3) else self.name()
        rest = f" if{self.gap(True)} {self.operand(depth - 1)}" if self.chance(0.3) else ""
        return f"for {names} in{self.gap(True)} {self.operand(depth - 1)}{rest}"

    def args(self, depth: int) -> str:
        parts = []
        for _ in range(self.count(0, 3)):
            key = f"{self.name()}{self.gap()}={self.gap(True)}" if self.chance(0.3) else ""
            parts.append(key + self.expr(depth - 1))
        return self.bracket("(", parts, ")")

    def index(self, depth: int) -> str:
        def part() -> str:
            return self.expr(depth - 1) if self.chance(0.6) else ""

        items = []
        for _ in range(self.count(1, 2)):
            step = f":{part()}" if self.chance(0.3) else ""
            items.append(
                f"{part()}{self.gap()}:{self.gap()}{part()}{step}" if self.chance(0.5) else self.expr(depth - 1)
            )
        if self.chance(0.2):
            items.insert(self.count(0, len(items)), "...")
        return self.bracket("[", items, "]")

    def postfix(self, depth: int) -> str:
        text = self.name() if self.chance(0.6) else f"({self.expr(depth - 1)})" if depth > 0 else self.name()
        for _ in range(self.count(0, 2) if depth > 0 else 0):
            text += self.pick([lambda: self.args(depth), lambda: f".{self.name()}", lambda: self.index(depth)])()
        return text

    def attr(self, depth: int) -> str:
        return f"@{self.name()}" + (self.args(depth) if self.chance(0.5) else "")

    def stage(self, depth: int) -> str:
        attrs = "".join(f"{self.attr(depth)} " for _ in range(self.count(1, 2))) if self.chance(0.1) else ""
        callee = self.name() + (f".{self.name()}" if self.chance(0.2) else "")
        return attrs + callee + (self.args(depth) if self.chance(0.7) else "") + self.label()

    def label(self) -> str:
        return f" as {self.name()}" if self.chance(0.3) else ""

    def operand(self, depth: int) -> str:
        """Something any operator can be applied to without parentheses."""
        return self.pick([self.atom, self.postfix])(depth)

    def expr(self, depth: int) -> str:
        if depth <= 0:
            return self.atom(0)
        kind = self.count(0, 11)
        if kind <= 3:
            return self.operand(depth)
        if kind <= 6:
            return f"{self.operand(depth - 1)}{self.op(self.pick(BINARY))}{self.operand(depth - 1)}"
        if kind == 7:
            return self.pick(["-", "- ", "not "]) + self.operand(depth - 1)
        if kind == 8:
            parts = [self.operand(depth - 1), self.operand(depth - 1), self.expr(depth - 1)]
            return f"{parts[0]} if {parts[1]}{self.pick([' ', chr(10)])}else {parts[2]}"
        if kind == 9:
            return f"{self.operand(depth - 1)}{self.gap()}..{self.gap(True)}{self.operand(depth - 1)}"
        if kind == 10:
            return f"({self.name()}{self.args(depth - 1)} as {self.name()})"
        stages = [f"{self.gap(True)}|>{self.gap(True)}{self.stage(depth - 1)}" for _ in range(self.count(1, 4))]
        return self.operand(depth - 1) + "".join(stages)

    def values(self, depth: int) -> str:
        return f",{self.gap(True)}".join(self.exprs(depth, 1, 3 if self.chance(0.2) else 1))

    # --- types and statements -------------------------------------------------------------------------------

    def tensor(self) -> str:
        return self.pick(DTYPES) + self.bracket("[", self.exprs(1, 0, 3), "]")

    def params(self) -> str:
        parts = []
        for _ in range(self.count(0, 4)):
            type = self.tensor() if self.chance(0.5) else self.pick(["int", "float", "bool", "str", "list"])
            default = f"{self.gap()}={self.gap(True)}{self.expr(1)}" if self.chance(0.4) else ""
            parts.append(f"{self.name()}{self.gap()}:{self.gap()}{type}{default}")
        return self.bracket("(", parts, ")")

    def braces(self, parts: list[str]) -> str:
        text = self.gap() + "{" + self.pick(["", " ", "\n", " # first\n", "\n\n# alone\n"])
        return text + self.end().join(parts) + self.pick(["", " ", "\n", " # last\n", "\n## end\n"]) + "}"

    def body(self, depth: int) -> str:
        return self.braces([self.stmt(depth - 1) for _ in range(self.count(0, 3) if depth > 0 else 1)])

    def attrs(self) -> str:
        return "".join(self.attr(1) + self.pick([" ", "\n", "\n## about\n"]) for _ in range(self.count(0, 2)))

    def stmt(self, depth: int) -> str:
        simple = [
            lambda: f"{self.name()}{self.gap()}={self.gap(True)}{self.values(3)}",
            lambda: f"{self.name()}, {self.name()}{self.index(1)} = {self.values(2)}",
            lambda: f"layer {self.name()} = {self.expr(2)}",
            lambda: f"param {self.name()}: {self.tensor()}" + (f" = {self.expr(1)}" if self.chance(0.5) else ""),
            lambda: f"{self.pick(['state', 'buffer'])} {self.name()}: {self.tensor()} = {self.expr(1)}",
            lambda: f"return {self.values(3)}",
            lambda: f"yield {self.values(2)}",
            lambda: f"check {self.expr(2)}" + (f",{self.gap(True)}{self.pick(TEXTS)}" if self.chance(0.5) else ""),
        ]
        deep = [lambda: self.loop(depth), lambda: self.scan(depth), lambda: self.choice(depth)]
        text = self.pick(simple + deep * 2 if depth > 0 else simple)()
        return (self.attrs() if self.chance(0.2) else "") + text

    def loop(self, depth: int) -> str:
        names = self.name() if self.chance(0.6) else self.bracket("(", [self.name(), self.name()], ")")
        return f"for {names} in {self.operand(2)}{self.label()}{self.body(depth)}"

    def scan(self, depth: int) -> str:
        head = f"scan {self.name()} in {self.operand(1)} along {self.operand(1)}"
        placed = f" along {self.operand(1)}" if self.chance(0.3) else ""
        return f"{head} carry {self.name()}, {self.name()} into {self.name()}{placed}{self.body(depth)}"

    def choice(self, depth: int) -> str:
        text = f"if {self.operand(2)}{self.body(depth)}"
        if self.chance(0.5):
            text += self.pick(["", " ", "\n", " # so\n"]) + "else "
            text += self.body(depth) if self.chance(0.5) else self.choice(depth - 1)
        return text

    # --- declarations ---------------------------------------------------------------------------------------

    def entry(self, depth: int) -> str:
        if depth > 0 and self.chance(0.3):
            label = f" {self.name()}" if self.chance(0.3) else ""
            return self.name() + label + self.braces([self.entry(depth - 1) for _ in range(self.count(0, 3))])
        names = self.name() if self.chance(0.8) else f"{self.name()}, {self.name()}"
        return f"{names}{self.gap()}={self.gap(True)}{self.values(2)}"

    def section(self) -> str:
        target = f" {self.name()}" + (self.params() if self.chance(0.5) else "") if self.chance(0.5) else ""
        entries = [self.entry(2) for _ in range(self.count(0, 5))]
        return self.pick(["precision", "train", "budget"]) + target + self.braces(entries)

    def block(self) -> str:
        results = ""
        if self.chance(0.8):
            parts = [(f"{self.name()}: " if self.chance(0.5) else "") + self.tensor() for _ in range(self.count(1, 3))]
            results = f"{self.gap(True)}-> {parts[0] if len(parts) == 1 else self.bracket('(', parts, ')')}"
        return f"{self.pick(['block', 'model'])} {self.name()}{self.params()}{results}{self.body(3)}"

    def item(self) -> str:
        kind = self.count(0, 7)
        if kind == 0:
            names = " " + self.bracket("(", [self.name(), self.name()], ")") if self.chance(0.5) else ""
            return "use " + self.pick(["a", "a.b.c", '"lib/x.nn"']) + names
        if kind == 1:
            return f"const {self.name()} = {self.expr(3)}"
        if kind == 2:
            bounds = f" in {self.atom(1)}..{self.atom(1)}" if self.chance(0.7) else ""
            return f"dim {self.name()}{bounds}" + (f" = {self.expr(1)}" if self.chance(0.7) else "")
        return (self.attrs() if self.chance(0.2) else "") + (self.section() if kind == 3 else self.block())

    def file(self) -> str:
        items = [self.item() for _ in range(self.count(0, 5))]
        head = self.pick(["", "", "\ufeff", "## About.\n\n", "# first\n"])
        return head + self.end().join(["nn 1", *items]) + self.pick(["", "\n", "\n\n# last"])
