"""Random, valid programs of the language, as statements that can be left out one by one.

A ``Writer`` keeps a pool of typed variables. A rule (``rules.py``) picks arguments from it that a function can take,
makes an input or a parameter where none fits, and writes a statement. ``Program`` prints them, with everything that
nobody reads as a result, and a train section whose loss depends on every parameter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

Size: TypeAlias = int | str  # a number, or a dim of the file
Shape: TypeAlias = tuple[Size, ...]

DIMS = ("B", "T")
MARK = "# case: "  # before what the runner of a program must know, in its last line
INTEGERS = ("i32", "i32", "i64", "i8", "i16", "u8", "u16", "u32", "u64")
BIG = 50.0  # values above are tamed before they go on


@dataclass(frozen=True)
class Var:
    """A variable: ``kind`` is f (float), i (``integer`` in 0..high) or b (b1). ``bound``: about its greatest magnitude.

    ``layers``: the statements with parameters that it depends on through ops with a gradient.
    """

    name: str
    shape: Shape
    kind: str = "f"
    bound: float = 2.0
    high: int = 0
    layers: frozenset[int] = frozenset()
    integer: str = "i32"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> str:
        return {"f": "", "i": self.integer, "b": "b1"}[self.kind]

    @property
    def declared(self) -> str:
        return f"{self.name}: {self.dtype}{shown(self.shape)}"


@dataclass(frozen=True)
class Statement:
    """``functions``: the names of functions that its text calls. ``layer``: it holds parameters."""

    number: int
    text: str
    defs: tuple[Var, ...]
    uses: tuple[str, ...]
    functions: tuple[str, ...]
    layer: bool = False


@dataclass(frozen=True)
class Program:
    seed: int
    sizes: tuple[tuple[str, int], ...]
    inputs: tuple[Var, ...]
    blocks: tuple[str, ...]
    statements: tuple[Statement, ...]
    optimizer: str

    @property
    def functions(self) -> set[str]:
        return {f for s in self.statements for f in s.functions} | {self.optimizer.partition("(")[0]}

    @property
    def sinks(self) -> list[Var]:
        """What must be a result: what nobody reads, and the outputs of layers that no such value depends on."""
        read = {u for s in self.statements for u in s.uses}
        found = [v for s in self.statements for v in s.defs if v.name not in read]
        covered = frozenset().union(*(v.layers for v in found if v.kind == "f"))
        for s in reversed(self.statements):
            if s.layer and s.number not in covered:
                found.append(s.defs[0])
                covered |= s.defs[0].layers
        return found

    @property
    def trained(self) -> bool:
        return any(s.layer for s in self.statements)

    def text(self) -> str:
        results, rest = self._results()
        read = {u for s in self.statements for u in s.uses} | {v.name for v in (*results, *rest)}
        given = ", ".join(v.declared for v in self.inputs if v.name in read)
        body = [s.text for s in self.statements]
        returned = [v.name for v in results]
        named = [f"r{i}: {v.dtype}{shown(v.shape)}" for i, v in enumerate(results)]
        if rest:
            body.append("rest = " + " + ".join(_mean(v) for v in rest))
            returned.append("rest")
            named.append("total: []")
        lines = [
            "nn 1",
            *(f"dim {name} in 1..8 = {size}" for name, size in self.sizes),
            *(
                b
                for b in self.blocks
                if any(b.split("(")[0].removeprefix("block ") in s.functions for s in self.statements)
            ),
            f"model M({given}) -> ({', '.join(named)}) {{",
            *("  " + line for text in body for line in text.splitlines()),
            f"  return {', '.join(returned)}",
            "}",
        ]
        integers = [v for v in self.inputs if v.kind == "i"]
        if self.trained:
            train, targets = self._train(results, bool(rest))
            lines += train
            integers += [v for v in targets if v.kind == "i"]
        lines.append(MARK + json.dumps({"seed": self.seed, "high": {v.name: v.high for v in integers}}))
        return "\n".join(lines) + "\n"

    def _results(self) -> tuple[list[Var], list[Var]]:
        sinks = self.sinks
        return sinks[:3], sinks[3:]

    def _train(self, results: list[Var], rest: bool) -> tuple[list[str], list[Var]]:
        terms, targets = ["total"] if rest else [], []
        metrics = []
        for i, v in enumerate(results):
            if v.kind != "f":
                continue
            rng = random.Random(f"{self.seed} {v.name}")
            term, target, metric = _loss(rng, replace(v, name=f"r{i}"), f"t{i}")
            terms.append(term)
            if target is not None:
                targets.append(target)
            if metric is not None:
                metrics.append(f"m{i} = {metric}")
        body = [f"  loss = {' + '.join(terms)}"]
        if metrics:
            body.append(f"  metrics {{ {'; '.join(metrics)} }}")
        given = ", ".join(v.declared for v in targets)
        body.append(f"  optimizer = {self.optimizer}")
        if random.Random(f"{self.seed} ema").random() < 0.3:
            body.append("  ema = 0.5")
        return [f"train M({given}) {{", *body, "}"], targets

    def without(self, gone: Iterable[Statement]) -> Program:
        """Without these statements and all that depend on them."""
        dropped = {v.name for s in gone for v in s.defs}
        numbers = {s.number for s in gone}
        kept = []
        for s in self.statements:
            if s.number in numbers or dropped & set(s.uses):
                dropped |= {v.name for v in s.defs}
            else:
                kept.append(s)
        return replace(self, statements=tuple(kept))

    def with_constant(self, statement: Statement) -> Program:
        """With a float that this statement makes replaced by a constant, so that what it reads can go too."""
        [var] = statement.defs
        text = f"{var.name} = full({shown(var.shape)}, 0.5)"
        fresh = Statement(statement.number, text, (replace(var, layers=frozenset()),), (), ("full",))
        return replace(self, statements=tuple(fresh if s is statement else s for s in self.statements))


def shown(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _mean(v: Var) -> str:
    x = v.name if v.kind == "f" else f'cast({v.name}, "float")'
    return f"mean({x})" if v.rank else x


def _loss(rng: random.Random, v: Var, t: str) -> tuple[str, Var | None, str | None]:
    """A term of the loss for a result, a target that it reads, and a metric."""
    same = Var(t, v.shape)
    classes = v.rank >= 2 and isinstance(v.shape[-1], int) and v.shape[-1] >= 2
    choices: list[Callable[[], tuple[str, Var | None, str | None]]] = [
        lambda: (f"mse({v.name}, {t})", same, None),
        lambda: (f"huber({v.name}, {t}, delta=0.7)", same, f"l1({v.name}, {t})"),
        lambda: (f"0.1 * {'mean' if v.rank else ''}({v.name} * {v.name})", None, None),
        lambda: (f"bce_with_logits({v.name}, sigmoid({t}))", same, None),
    ]
    if classes:
        target = Var(t, v.shape[:-1], "i", high=int(v.shape[-1]), integer=rng.choice(INTEGERS))
        choices += 3 * [
            lambda: (f"cross_entropy({v.name}, {t})", target, f"accuracy({v.name}, {t})"),
            lambda: (f"cross_entropy({v.name}, {t}, smoothing=0.1, ignore_index=1)", target, None),
        ]
    return rng.choice(choices)()


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program from which no statement can be taken, nor be made a constant, so that ``fails`` stays true."""
    changed = True
    while changed:
        changed = False
        for statement in reversed(program.statements):
            if statement not in program.statements:
                continue
            candidates = [program.without([statement])]
            if len(statement.defs) == 1 and statement.defs[0].kind == "f" and statement.functions != ("full",):
                candidates.append(program.with_constant(statement))
            for smaller in candidates:
                if smaller.statements and fails(smaller):
                    program, changed = smaller, True
                    break
    return program


class Writer:
    """Where rules write. ``pick`` and its kin give variables of a wanted kind; they make them where there are none."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sizes = {"B": rng.randint(2, 4), "T": rng.randint(2, 4)}
        self.inputs: list[Var] = []
        self.pool: list[Var] = []
        self.statements: list[Statement] = []
        self.blocks: list[str] = []
        self.depth = 0  # of loops at run time around the next statement
        self.inside: list[Var] = []  # the variables of their bodies
        self._names = 0

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def size(self, low: int = 1, high: int = 5) -> int:
        return self.rng.randint(low, high)

    def count(self, shape: Shape) -> int:
        """Elements at the default sizes."""
        n = 1
        for s in shape:
            n *= self.sizes[s] if isinstance(s, str) else s
        return n

    def shape(self, rank: int) -> Shape:
        """A random shape: often with the batch dim in front."""
        sizes: list[Size] = [self.size() for _ in range(rank)]
        if rank and self.rng.random() < 0.7:
            sizes[0] = "B"
        if rank > 1 and self.rng.random() < 0.2:
            sizes[1] = "T"
        return tuple(sizes)

    def new(self, shape: Shape, kind: str = "f", high: int = 0) -> Var:
        """An input of the model; a float of ints alone may also be a parameter."""
        if kind == "f" and all(isinstance(s, int) for s in shape) and self.rng.random() < 0.6:
            name, number = self.name("w"), len(self.statements)
            var = Var(name, shape, layers=frozenset([number]))
            self.pool.append(var)
            text = f"param {name}: {shown(shape)} = normal(0.7)"
            self.statements.append(Statement(number, text, (var,), (), (), layer=True))
            return var
        var = Var(self.name("x"), shape, kind, 2.0, high, integer=self.rng.choice(INTEGERS) if kind == "i" else "i32")
        self.inputs.append(var)
        self.pool.append(var)
        return var

    def pick(self, fits: Callable[[Var], bool] = lambda v: True, ranks: tuple[int, ...] = (1, 2, 3)) -> Var:
        """A float variable of one of these ranks."""
        found = [v for v in self.pool if v.kind == "f" and v.rank in ranks and fits(v)]
        recent = found[-5:] if self.rng.random() < 0.7 else found
        if recent and self.rng.random() < 0.9:
            return self.rng.choice(recent)
        for _ in range(200):
            shape = self.shape(self.rng.choice(ranks))
            if fits(Var("", shape)):
                return self.new(shape)
        raise AssertionError("no shape fits")

    def like(self, shape: Shape, kind: str = "f", high: int = 0) -> Var:
        """A variable of this very shape; an integer below ``high``."""
        found = [v for v in self.pool if v.shape == shape and v.kind == kind and (kind != "i" or v.high <= high)]
        return self.rng.choice(found) if found and self.rng.random() < 0.8 else self.new(shape, kind, high)

    def broadcasting(self, v: Var) -> Var:
        """A float of a shape that broadcasts to that of ``v``."""
        if self.rng.random() < 0.4:
            return self.like(v.shape)
        shape = [1 if self.rng.random() < 0.3 else s for s in v.shape]
        while shape and self.rng.random() < 0.3:
            del shape[0]
        return self.like(tuple(shape))

    def ints(self, ranks: tuple[int, ...] = (1, 2)) -> Var:
        found = [v for v in self.pool if v.kind == "i" and v.rank in ranks]
        if found and self.rng.random() < 0.7:
            return self.rng.choice(found)
        return self.new(self.shape(self.rng.choice(ranks)), "i", self.size(2, 6))

    def bools(self) -> Var:
        found = [v for v in self.pool if v.kind == "b"]
        if found and self.rng.random() < 0.8:
            return self.rng.choice(found)
        x = self.pick()
        return self.write("gt", f"{x.name} > 0.1", [x], x.shape, kind="b", diff=False)

    def tame(self, v: Var, limit: float = BIG) -> Var:
        """``v``, or when it may be greater than ``limit``, something like it within -limit..limit."""
        if v.bound <= limit:
            return v
        return self.write("tanh", f"{limit:g} * tanh({v.name} / {v.bound:g})", [v], v.shape, bound=limit)

    def like_bool(self, shape: Shape) -> Var:
        found = [v for v in self.pool if v.kind == "b" and v.shape == shape]
        if found and self.rng.random() < 0.7:
            return self.rng.choice(found)
        x = self.like(shape)
        return self.write("lt", f"{x.name} < 0", [x], shape, kind="b", diff=False)

    def write_lines(
        self, function: str, lines: list[str], result: str, uses: list[Var], shape: Shape, bound: float,
        layer: bool = True,
    ) -> None:  # fmt: skip
        """Adds lines that assign ``result``: a loop, a list."""
        number = len(self.statements)
        layers = frozenset().union(*(v.layers for v in uses), [number] if layer else [])
        var = Var(result, shape, "f", bound, 0, layers)
        names = tuple(v.name for v in uses)
        self.statements.append(Statement(number, "\n".join(lines), (var,), names, (function,), layer))
        self.pool.append(var)

    def write(
        self,
        function: str,
        expression: str,
        uses: Iterable[Var],
        *shapes: Shape,
        kind: str = "f",
        bound: float | None = None,
        high: int = 0,
        diff: bool = True,
        layer: bool = False,
        kinds: str = "",
        also: tuple[str, ...] = (),
    ) -> Var:
        """Adds ``NAME, ... = expression``; gives the first variable. ``diff``: gradients flow through it."""
        read = list(uses)
        number = len(self.statements)
        layers = frozenset().union(*(v.layers for v in read)) if diff else frozenset()
        own = frozenset([number]) if layer else frozenset()  # the first result depends on every parameter
        if bound is None:
            bound = max([2.0, *(v.bound for v in read)])
        made = tuple(
            Var(
                self.name("v"), s, k, bound, high, (layers | own if i == 0 else layers) if k == "f" else frozenset(),
                read[0].integer if read and read[0].kind == "i" else "i32",
            )
            for i, (s, k) in enumerate(zip(shapes, kinds or kind * len(shapes), strict=True))
        )  # fmt: skip
        text = f"{', '.join(v.name for v in made)} = {expression}"
        names = tuple(dict.fromkeys(v.name for v in read))
        self.statements.append(Statement(number, text, made, names, (function, *also), layer))
        self.pool += made
        return made[0]


#: arguments of optimizers other than the learning rate, to choose from
ARGUMENTS = {
    "sgd": ("", ", momentum=0.9", ", momentum=0.9, nesterov=true, weight_decay=0.1"),
    "adamw": ("", ', decay_on="matrices", clip_norm=1.0'),
    "rmsprop": ("", ", momentum=0.5"),
}


def random_program(
    seed: int, rules: Mapping[str, Callable[[Writer], object]], optimizers: Iterable[str], statements: int = 12
) -> Program:
    """The program of this seed. ``rules``: by the function that they are for, each picked equally often."""
    rng = random.Random(seed)
    writer = Writer(rng)
    names = sorted(rules)
    wanted = rng.randint(2, statements)
    while len(writer.statements) < wanted:
        rules[rng.choice(names)](writer)
    if not any(s.layer for s in writer.statements):
        rules["linear"](writer)
    optimizer = rng.choice(sorted(optimizers))
    used = [d for d in DIMS if any(d in v.shape for v in (*writer.pool, *writer.inside))]
    return Program(
        seed,
        tuple((d, writer.sizes[d]) for d in used),
        tuple(writer.inputs),
        tuple(writer.blocks),
        tuple(writer.statements),
        f"{optimizer}(lr=0.05{rng.choice(ARGUMENTS.get(optimizer, ('',)))})",
    )
