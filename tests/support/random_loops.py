"""Random programs with loops at run time, each twice: with ``scan``, and written out with ``for``.

Both add up the terms of gradients in the same order: the first result of a step reads all its values in the order of
their statements, a carry's first value is read by nothing but its loop, and the program written out joins what a step
gives before it stacks it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ROWS, WIDTH = 3, 2
_GIVEN = ("x", "u")  # sequences without a gradient


@dataclass
class Loop:
    """A loop along axis 1 of [B, N, W] tensors. ``carries``, ``results``: names and the values of a step."""

    sequences: list[tuple[str, str]]
    carries: list[tuple[str, str]]
    results: list[tuple[str, str]]
    body: list[str | Loop]
    count: int
    reverse: bool

    def lines(self, written_out: bool) -> list[str]:
        inner = lines_of(self.body, written_out) + [f"n{name} = {value}" for name, value in self.carries]
        after = [f"{name} = n{name}" for name, _ in self.carries]
        return self._out(inner, after) if written_out else self._scan(inner, after)

    def _scan(self, inner: list[str], after: list[str]) -> list[str]:
        names, values = (", ".join(each[side] for each in self.sequences) for side in (0, 1))
        back = " reverse" if self.reverse else ""
        carry = f" carry {', '.join(name for name, _ in self.carries)}" if self.carries else ""
        head = f"scan {names} in {values} along 1{back}{carry} into {', '.join(name for name, _ in self.results)} {{"
        return [head, *inner, *after, f"yield {', '.join(value for _, value in self.results)}", "}"]

    def _out(self, inner: list[str], after: list[str]) -> list[str]:
        own, last = self.sequences[0][0], 0 if self.reverse else self.count - 1
        given = [*self.results, *((name, f"n{name}") for name, _ in self.carries)]
        at = f"{self.count} - 1 - at_{own}" if self.reverse else f"at_{own}"
        return [
            f"all_{own} = []",
            f"for at_{own} in 0..{self.count} {{",
            *(f"{name} = {value}[:, {at}]" for name, value in self.sequences),
            *inner,
            f"all_{own} = all_{own} + [concat([{', '.join(value for _, value in given)}], axis=1)]",
            *after,
            "}",
            f"whole_{own} = stack(all_{own}, axis=1){'[:, ::-1]' if self.reverse else ''}",
            *(f"{name} = whole_{own}[:, :, {i * WIDTH}:{(i + 1) * WIDTH}]" for i, (name, _) in enumerate(given)),
            *(f"{name} = {name}[:, {last}]" for name, _ in self.carries),
        ]


def lines_of(parts: list[str | Loop], written_out: bool) -> list[str]:
    """The statements of a body."""
    return [line for p in parts for line in ([p] if isinstance(p, str) else p.lines(written_out))]


@dataclass
class _Writer:
    rng: random.Random
    steps: int
    average: str
    params: list[str] = field(default_factory=list)
    names: int = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def param(self, shape: str) -> str:
        """A parameter: one that exists, or a new one."""
        found = [line.split()[1].rstrip(":") for line in self.params if f": {shape} " in line]
        if found and self.rng.random() < 0.5:
            return self.rng.choice(found)
        self.params.append(f"param {(name := self.name('w'))}: {shape} = uniform(0.9)")
        return name

    def value(self, pool: list[str]) -> str:
        """An expression of type [B, W], of bounded values."""
        a, b = (self.rng.choice(pool[-4:] if self.rng.random() < 0.6 else pool) for _ in range(2))
        return self.rng.choice([
            lambda: f"tanh({a} * {self.param('[W]')} + {b})",
            lambda: f"sin({a} @ {self.param('[W, W]')} + {b})",
            lambda: f"{a} * sigmoid({b} + {self.param('[]')})",
            lambda: f"where({a} > 0.1, {b}, tanh({a}) * {self.param('[W]')})",
            lambda: f"pair({a}, {b})",
            lambda: f"shared({a}) - {b}",
            lambda: f"softmax({a} + {b}) * {self.param('[W]')}",
        ])()  # fmt: skip

    def before(self, loop: Loop, pool: list[str], lines: list[str | Loop]) -> list[str]:
        """Writes the first values of the carries; returns the names of what they are made from."""
        for name, _ in loop.carries:
            lines += [f"first_{name} = {self.value(pool)}", f"{name} = first_{name} * 1"]
        return [f"first_{name}" for name, _ in loop.carries]

    def loop(self, pool: list[str], sequences: list[str], depth: int) -> Loop:
        """A loop over one or two of the sequences [B, N, W]; up to ``depth`` loops inside of each other in a step."""
        rng = self.rng
        elements = [(self.name("e"), each) for each in rng.sample(sequences, rng.randint(1, min(2, len(sequences))))]
        within = [each for each in sequences if each in _GIVEN or each not in (value for _, value in elements)]
        carried = [self.name("c") for _ in range(rng.randint(0, 3))]
        inside = [*pool, *(name for name, _ in elements), *carried]
        body: list[str | Loop] = []
        made: list[str] = []
        for _ in range(rng.randint(1, 3)):
            if depth and rng.random() < 0.4:
                inner = self.loop(inside, within, depth - 1)
                names = self.before(inner, inside, body)
                body.append(inner)
                names += [name for name, _ in inner.carries]
                body += [f"m{name} = {self.average}({name}, over=1)" for name, _ in inner.results]
                names += [f"m{name}" for name, _ in inner.results]
            else:
                body.append(f"{(name := self.name('v'))} = {self.value(inside)}")
                names = [name]
            inside += names
            made += names
        carries = [(name, f"tanh({rng.choice(inside)} + {name})") for name in carried]
        results = [(self.name("y"), " + ".join(made))]
        results += [(self.name("y"), f"{rng.choice(made)} * {i + 1}") for i in range(rng.randint(0, 2))]
        return Loop(elements, carries, results, body, self.steps, rng.random() < 0.4)


def random_loops(seed: int, steps: int, depth: int = 1, head: str = "") -> tuple[str, str]:
    """A model with one or two loops, with ``scan`` and written out. Its inputs are x, u: [B, steps, 2] and z: [B, 2],
    the target t: [B, 2]; ``head``: more lines of the file. The loops may be in a block, and in a ``for``."""
    average = "mean" if steps else "sum"  # the mean of nothing is nan
    writer = _Writer(random.Random(seed), steps, average)
    rng, pool, sequences = writer.rng, ["z"], list(_GIVEN)
    parts: list[str | Loop] = []
    rest = ["z", f"{average}(x, over=1)", f"{average}(u, over=1)"]
    for _ in range(rng.randint(1, 2)):
        repeated = rng.random() < 0.3
        body: list[str | Loop] = []
        state = [writer.name("s")] if repeated else []
        made = writer.loop([*pool, *state], sequences, depth)
        first = writer.before(made, [*pool, *state], body)
        body.append(made)
        ends = [
            *first,
            *(f"{average}({name}, over=1)" for name, _ in made.results),
            *(name for name, _ in made.carries),
        ]
        if repeated:
            parts += [f"{state[0]} = z", f"all_{state[0]} = []", "for again in 0..2 {", *body]
            parts += [f"{state[0]} = {' + '.join(ends)}", f"all_{state[0]} = all_{state[0]} + [{state[0]}]", "}"]
            ends, pool = [f"mean(stack(all_{state[0]}), over=0)"], [*pool, *state]
        else:
            parts += body
            pool += [*first, *(name for name, _ in made.carries)]
            sequences += [name for name, _ in made.results]
        rest += ends
    numbers = [f"param p{i}: [W] = uniform(0.9)" for i in range(len(rest))]
    result = " + ".join(f"{each} * p{i}" for i, each in enumerate(rest))
    in_block = rng.random() < 0.5
    given = "(x: [B, T, W], u: [B, T, W], z: [B, W]) -> [B, W]"
    texts = []
    for written_out in (False, True):
        lines = ["layer shared = linear(W)", "layer pair = mixed()", *writer.params, *numbers]
        text = "".join(f"  {line}\n" for line in (*lines, *lines_of(parts, written_out), f"return {result}"))
        texts.append(
            f"nn 1\ndim B in 1..8 = {ROWS}\nconst W = {WIDTH}\nconst T = {steps}\n{head}"
            "block mixed(a: [B, W], b: [B, W]) -> [B, W] {\n  layer up = linear(W)\n  return up(a) * tanh(up(b))\n}\n"
            + (f"block core{given} {{\n{text}}}\nmodel Net{given} {{\n  return core(x, u, z) as core\n}}\n"
               if in_block else f"model Net{given} {{\n{text}}}\n")
            + "train Net(t: [B, W]) {\n  loss = mse(output, t)\n  optimizer = sgd(lr=0.5)\n}\n"
        )  # fmt: skip
    return texts[0], texts[1]
