"""Rules for loops at run time: recurrent layers, and ``scan`` over bodies that other rules write."""

from __future__ import annotations

from fuzzing.programs import Shape, Statement, Var, Writer
from fuzzing.rules import RULES, rule

DEEPEST = 2  # loops inside of each other
CELLS = {"lstm": 2, "gru": 1, "rnn": 1}


@rule(*CELLS)
def _recurrent(w: Writer) -> None:
    name = w.rng.choice(list(CELLS))
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (3,)), 5)
    batch, steps, _ = x.shape
    hidden, layers, both = w.size(1, 3), w.rng.choice([1, 1, 2]), w.rng.random() < 0.3
    uses, text = [x], f"{name}({x.name}, {hidden}, layers={layers}"
    text += ", bidirectional=true" if both else ""
    text += w.rng.choice(["", ", bias=false", ", dropout=0.3"])
    ends: Shape = (layers * (2 if both else 1), batch, hidden)
    if w.rng.random() < 0.4:
        uses.append(w.tame(w.like(ends), 3))
        text += f", h={uses[-1].name}"
    if w.rng.random() < 0.4:
        uses.append(w.like((batch,), "i", 1 + w.count((steps,))))
        text += f", lengths={uses[-1].name}"
    shapes = [(batch, steps, hidden * (2 if both else 1))] + [ends] * CELLS[name]
    w.write(name, text + ")", uses, *shapes, bound=8, layer=True)


def _elements(w: Writer, x: Var, axis: int) -> list[tuple[str, Var]]:
    """One to three sequences along an axis of the size of the first: the names of their elements, and the tensors."""
    found = [x]
    if w.rng.random() < 0.4:
        found.append(w.like(x.shape))
    if w.rng.random() < 0.2:
        found.append(w.like(x.shape, "i", w.size(2, 4)))
    return [(w.name("e"), each) for each in found]


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _averaged(v: Var) -> str:
    return f"mean({v.name})" if v.rank else v.name


@rule("structure: scan", "structure: reverse scan", "structure: scan with carries", "structure: scan in scan")
def _scan(w: Writer) -> None:
    w.depth += 1
    if w.depth > DEEPEST:
        w.depth -= 1
        return
    x = w.tame(w.pick(ranks=(2, 3)), 10)
    axis = w.rng.randrange(x.rank)
    element = _without(x.shape, axis)
    sequences = _elements(w, x, axis)
    first = [w.tame(w.like(element), 10) for _ in range(w.rng.choice([0, 1, 1, 2]))]
    begun = [(w.name("c"), each) for each in first]
    own = [Var(name, element, v.kind, v.bound, v.high, v.layers, v.integer) for name, v in sequences]
    own += [Var(name, element, "f", max(2.0, v.bound), 0, v.layers) for name, v in begun]
    body = _body(w, own)
    made = [v for s in body for v in s.defs]
    read = {u for s in body for u in s.uses}
    sinks = [*_sinks(body), *(v for v in own[1:] if v.kind == "f" and v.name not in read)]
    total = " + ".join([f"{own[0].name} * 0.5", *map(_averaged, sinks)])
    yields, results = [total], [(w.name("v"), x.shape, x.bound + sum(v.bound for v in sinks))]
    others = [v for v in [*own, *made] if v.kind == "f" and v.rank >= axis]
    for v in w.rng.sample(others, min(len(others), w.rng.choice([0, 0, 1, 2]))):
        yields.append(v.name)
        results.append((w.name("v"), (*v.shape[:axis], x.shape[axis], *v.shape[axis:]), v.bound))
    fits = [v for v in [*own, *made] if v.kind == "f" and v.shape == element]
    after = [f"  n{name} = tanh({w.rng.choice(fits).name} + {name})" for name, _ in begun]
    after += [f"  {name} = n{name}" for name, _ in begun]
    head = f"scan {', '.join(n for n, _ in sequences)} in {', '.join(v.name for _, v in sequences)} along "
    head += f"{axis if w.rng.random() < 0.5 else axis - x.rank}" + (" reverse" if w.rng.random() < 0.4 else "")
    head += f" carry {', '.join(n for n, _ in begun)}" if begun else ""
    lines = [
        *(f"{name} = {v.name}" + w.rng.choice([" * 1", ""]) for name, v in begun),
        f"{head} into {', '.join(n for n, _, _ in results)} {{",
        *("  " + line for s in body for line in s.text.splitlines()),
        *after,
        f"  yield {', '.join(yields)}",
        "}",
    ]
    number = len(w.statements)
    inside = {v.name for v in [*own, *made]}
    outer = [u for s in body for u in s.uses if u not in inside]
    uses = tuple(dict.fromkeys([*(v.name for _, v in sequences), *(v.name for v in first), *outer]))
    layer = any(s.layer for s in body)
    layers = frozenset().union(*(v.layers for _, v in sequences), *(v.layers for v in first))
    reached = {each for v in sinks for each in v.layers if each < number}  # not statements of the body itself
    whole = layers.union(reached, [number] if layer else [])
    defs = [Var(name, shape, "f", bound, 0, layers) for name, shape, bound in results]
    defs += [Var(name, element, "f", max(1.0, v.bound), 0, frozenset()) for name, v in begun]
    defs[0] = Var(*results[0][:2], "f", results[0][2], 0, whole)  # it depends on all that a step makes
    functions = tuple(dict.fromkeys(["add", "mul", "mean", "tanh", *(f for s in body for f in s.functions)]))
    w.statements.append(Statement(number, "\n".join(lines), tuple(defs), uses, functions, layer))
    w.pool += defs
    w.depth -= 1


def _body(w: Writer, own: list[Var]) -> list[Statement]:
    """The statements of a step, by other rules; inputs of the model that they need stay in the pool."""
    pool, before, inputs = w.pool, len(w.statements), len(w.inputs)
    w.pool = [*pool, *own]
    names = sorted(RULES)
    wanted = before + w.rng.randint(1, 4)
    while len(w.statements) < wanted:
        rule = "structure: scan" if w.depth < DEEPEST and w.rng.random() < 0.15 else w.rng.choice(names)
        RULES[rule](w)
    body = w.statements[before:]
    del w.statements[before:]
    w.inside += w.pool[len(pool) :]
    w.pool = [*pool, *w.inputs[inputs:]]
    return body


def _sinks(body: list[Statement]) -> list[Var]:
    """Floats that no statement of a step reads, and the results of layers on which no such value depends."""
    read = {u for s in body for u in s.uses}
    found = [v for s in body for v in s.defs if v.kind == "f" and v.name not in read]
    covered = frozenset().union(*(v.layers for v in found))
    for s in reversed(body):
        if s.layer and s.number not in covered:
            found.append(s.defs[0])
            covered |= s.defs[0].layers
    return found
