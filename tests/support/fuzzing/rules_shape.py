"""Rules for shapes, contractions, layers, and structure: blocks, loops, lists, shared layers."""

from __future__ import annotations

import math

from fuzzing.programs import Size, Var, Writer, shown
from fuzzing.rules import axis_of, rule


def _numbers(v: Var) -> bool:
    return any(isinstance(s, int) for s in v.shape)


@rule("reshape", "flatten")
def _reshape(w: Writer) -> None:
    x = w.pick(lambda v: all(isinstance(s, int) for s in v.shape[1:]), (2, 3))
    rest = math.prod(int(s) for s in x.shape[1:])
    if w.rng.random() < 0.5:
        w.write("flatten", f"flatten({x.name})", [x], (x.shape[0], rest))
        return
    a = w.rng.choice([d for d in range(1, rest + 1) if rest % d == 0])
    shape = (x.shape[0], a, rest // a)
    text = shown(shape if w.rng.random() < 0.6 else (x.shape[0], -1, rest // a))
    w.write("reshape", f"reshape({x.name}, {text})", [x], shape)


@rule("transpose")
def _transpose(w: Writer) -> None:
    x = w.pick(ranks=(2, 3, 4))
    if w.rng.random() < 0.4:
        text = w.rng.choice([f"transpose({x.name})", f"{x.name}.T"]) if x.rank == 2 else f"transpose({x.name})"
        w.write("transpose", text, [x], (*x.shape[:-2], x.shape[-1], x.shape[-2]))
        return
    perm = w.rng.sample(range(x.rank), x.rank)
    w.write("transpose", f"transpose({x.name}, {perm})", [x], tuple(x.shape[p] for p in perm))


@rule("rearrange")
def _rearrange(w: Writer) -> None:
    x = w.pick(lambda v: isinstance(v.shape[-1], int), (2, 3))
    n = int(x.shape[-1])
    h = w.rng.choice([d for d in range(1, n + 1) if n % d == 0])
    names = [f"a{i}" for i in range(x.rank - 1)]
    left = " ".join([*names, "(h d)"])
    if w.rng.random() < 0.5:
        pattern, shape = f"{left} -> h {' '.join(names)} d", (h, *x.shape[:-1], n // h)
    else:
        pattern, shape = f"{left} -> {' '.join(names)} (d h)", x.shape
    w.write("rearrange", f'rearrange({x.name}, "{pattern}", h={h})', [x], shape)


@rule("concat")
def _concat(w: Writer) -> None:
    x = w.pick(_numbers)
    a = axis_of(w, x, number=True)
    n = w.size(1, 3)
    y = w.like(tuple(n if i == a else s for i, s in enumerate(x.shape)))
    shape = tuple(int(s) + n if i == a else s for i, s in enumerate(x.shape))
    w.write("concat", f"concat([{x.name}, {y.name}], axis={a})", [x, y], shape)


@rule("stack")
def _stack(w: Writer) -> None:
    x = w.pick()
    y = w.like(x.shape)
    a = w.rng.randint(0, x.rank)
    w.write("stack", f"stack([{x.name}, {y.name}], axis={a})", [x, y], (*x.shape[:a], 2, *x.shape[a:]))


@rule("split")
def _split(w: Writer) -> None:
    x = w.pick(lambda v: any(isinstance(s, int) and s % 2 == 0 for s in v.shape))
    a = w.rng.choice([i for i, s in enumerate(x.shape) if isinstance(s, int) and s % 2 == 0])
    n = int(x.shape[a])
    cut = w.rng.choice([n // 2, w.rng.randint(1, n - 1)])
    first, second = (tuple(part if i == a else s for i, s in enumerate(x.shape)) for part in (cut, n - cut))
    how = "2" if 2 * cut == n else f"sizes=[{cut}, {n - cut}]"
    w.write("split", f"split({x.name}, {how}, axis={a})", [x], first, second)


@rule("tile", "repeat_interleave")
def _repeats(w: Writer) -> None:
    x = w.pick(_numbers)
    if w.rng.random() < 0.5:
        a, n = axis_of(w, x, number=True), w.size(1, 3)
        shape = tuple(n * int(s) if i == a else s for i, s in enumerate(x.shape))
        w.write("repeat_interleave", f"repeat_interleave({x.name}, {n}, axis={a})", [x], shape)
        return
    counts = [w.size(1, 2) if isinstance(s, int) else 1 for s in x.shape]
    shape = tuple(n * s if isinstance(s, int) else s for n, s in zip(counts, x.shape))
    w.write("tile", f"tile({x.name}, {counts})", [x], shape)


@rule("squeeze", "unsqueeze")
def _unit_axes(w: Writer) -> None:
    if w.rng.random() < 0.5:
        x = w.pick(lambda v: 1 in v.shape, (1, 2, 3))
        a = x.shape.index(1)
        w.write("squeeze", f"squeeze({x.name}, {a})", [x], (*x.shape[:a], *x.shape[a + 1 :]))
        return
    x = w.pick(ranks=(1, 2))
    a = w.rng.randint(0, x.rank)
    w.write("unsqueeze", f"unsqueeze({x.name}, {a})", [x], (*x.shape[:a], 1, *x.shape[a:]))


@rule("structure: slice")
def _slice(w: Writer) -> None:
    x = w.pick(_numbers)
    parts: list[str] = []
    shape: list[Size] = []
    for s in x.shape:
        how = w.rng.randrange(4)
        if isinstance(s, str) or how == 0:
            parts.append(w.rng.choice([":", ":", "::-1"]))
            shape.append(s)
        elif how == 1:
            parts.append(str(w.rng.randrange(s)))
        else:
            start = w.rng.randrange(s)
            end = w.rng.randint(start + 1, s)
            step = w.rng.choice([1, 1, 2, -1, -2])
            if step < 0:
                low = "" if start == 0 else start - 1
                parts.append(f"{end - 1}:{low}:{step}")
            else:
                parts.append(f"{start}:{end}" + (f":{step}" if step > 1 else ""))
            shape.append(len(range(start, end, abs(step))))
    w.write("slice", f"{x.name}[{', '.join(parts)}]", [x], tuple(shape))


@rule("roll")
def _roll(w: Writer) -> None:
    x = w.pick()
    axes = sorted(w.rng.sample(range(x.rank), w.rng.randint(1, min(2, x.rank))))
    shifts = [w.rng.randint(-7, 7) for _ in axes]
    w.write("roll", f"roll({x.name}, {shifts}, axis={axes})", [x], x.shape)


@rule("pad")
def _pad(w: Writer) -> None:
    x = w.pick(_numbers)
    before = [w.rng.randint(0, 2) if isinstance(s, int) else 0 for s in x.shape]
    after = [w.rng.randint(0, 2) if isinstance(s, int) else 0 for s in x.shape]
    shape = tuple(s if isinstance(s, str) else s + b + a for s, b, a in zip(x.shape, before, after))
    mode = w.rng.choice(["constant", "reflect", "replicate", "circular"])
    room = {"constant": 0, "reflect": 1 + max(*before, *after), "replicate": 1, "circular": max(*before, *after)}[mode]
    if any(isinstance(s, int) and s < room for s in x.shape):
        mode = "constant"
    option = f"value={w.rng.choice([0.0, 1.5])}" if mode == "constant" else f'mode="{mode}"'
    w.write("pad", f"pad({x.name}, {before}, {after}, {option})", [x], shape)


@rule("broadcast_to")
def _broadcast_to(w: Writer) -> None:
    x = w.pick(ranks=(0, 1, 2))
    shape = (w.size(1, 3), *(w.size(2, 3) if s == 1 else s for s in x.shape))
    w.write("broadcast_to", f"broadcast_to({x.name}, {shown(shape)})", [x], shape)


@rule("gather", "scatter_add")
def _gather(w: Writer) -> None:
    x = w.pick(_numbers)
    a = axis_of(w, x, number=True)
    shape = tuple(w.size(1, 3) if i == a else s for i, s in enumerate(x.shape))
    t = w.like(shape, "i", int(x.shape[a]))
    if w.rng.random() < 0.5:
        w.write("gather", f"gather({x.name}, {t.name}, axis={a})", [x, t], shape)
        return
    y = w.like(shape)
    text = f"scatter_add({x.name}, {t.name}, {y.name}, axis={a})"
    w.write("scatter_add", text, [x, t, y], x.shape, bound=x.bound + 3 * y.bound)


@rule("scatter")
def _scatter(w: Writer) -> None:
    x = w.tame(w.pick(_numbers), 3)
    a = axis_of(w, x, number=True)
    n = w.size(1, 3)
    shape = tuple(n if i == a else s for i, s in enumerate(x.shape))
    t = w.like(shape if w.rng.random() < 0.6 else (n,), "i", int(x.shape[a]))
    y = w.tame(w.like(shape), 3)
    mode = w.rng.choice(["replace", "add", "mul", "max", "min"])
    own = w.rng.choice(["", "", ", include_self=false"])
    text = f'scatter({x.name}, {t.name}, {y.name}, axis={a}, mode="{mode}"{own})'
    if mode != "mul" or w.rng.random() < 0.5:
        w.write("scatter", text, [x, t, y], x.shape, bound={"add": 12.0, "mul": 81.0}.get(mode, 3.0))
        return
    text = f"gradient(sin({text}), {y.name})"  # of the product alone it may depend on nothing that is trained
    w.write("scatter", text, [x, t, y], shape, bound=27.0, also=("gradient", "sin"))


@rule("index_put")
def _index_put(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: isinstance(v.shape[0], int)), 3)
    count = 2 if x.rank > 1 and isinstance(x.shape[1], int) and w.rng.random() < 0.6 else 1
    n = w.size(1, 3)
    ids = [w.like((n,) if i == 0 else (1,), "i", int(x.shape[i])) for i in range(count)]
    y = w.tame(w.like((n, *x.shape[count:])), 3)
    mode = w.rng.choice(["replace", "add", "mul", "max", "min"])
    text = f'index_put({x.name}, [{", ".join(i.name for i in ids)}], {y.name}, mode="{mode}")'
    w.write("index_put", text, [x, *ids, y], x.shape, bound={"add": 12.0, "mul": 81.0}.get(mode, 3.0))


@rule("structure: subscript by tensors")
def _subscript(w: Writer) -> None:
    """One or two indexed axes anywhere, next to whole axes, slices and positions."""
    x = w.pick(_numbers)
    numbers = [i for i, s in enumerate(x.shape) if isinstance(s, int)]
    indexed = sorted(w.rng.sample(numbers, min(len(numbers), w.rng.randint(1, 2))))
    ids = [w.like((w.size(1, 3),) if i == 0 else (1,), "i", int(x.shape[a])) for i, a in enumerate(indexed)]
    parts: list[str] = []
    place: list[int] = []  # of each indexed axis among the axes that are left
    kept: list[Size] = []
    for a, s in enumerate(x.shape):
        if a in indexed:
            parts.append(ids[indexed.index(a)].name)
            place.append(len(kept))
        elif isinstance(s, int) and w.rng.random() < 0.3:
            parts.append(str(w.rng.randrange(s)))
        else:
            parts.append(w.rng.choice([":", "::-1"]))
            kept.append(s)
    at = place[0] if place[0] == place[-1] else 0
    shape = (*kept[:at], ids[0].shape[0], *kept[at:])
    w.write("take", f"{x.name}[{', '.join(parts)}]", [x, *ids], shape)


@rule("tril", "triu", "tri")
def _triangle(w: Writer) -> None:
    name = w.rng.choice(["tril", "triu", "tri"])
    if name == "tri":
        n, m = w.size(1, 4), w.size(1, 4)
        w.write("tri", f"tri({n}, {m}, diagonal={w.rng.randint(-1, 1)})", [], (n, m), kind="b")
        return
    x = w.pick(ranks=(2, 3))
    w.write(name, f"{name}({x.name}, diagonal={w.rng.randint(-2, 2)})", [x], x.shape)


@rule("arange", "eye")
def _range(w: Writer) -> None:
    if w.rng.random() < 0.5:
        n, m = w.size(1, 4), w.size(1, 4)
        w.write("eye", f"eye({n}, {m})", [], (n, m), bound=1)
        return
    start, step, n = w.rng.randint(-2, 2), w.rng.choice([-2, -1, 1, 2]), w.size(1, 4)
    text = f'arange({start}, {start + step * n}, step={step}, dtype="float")'
    if w.rng.random() < 0.5:
        text = f"arange({start / 4}, {(start + step * n) / 4}, {step / 4})"
    w.write("arange", text, [], (n,), bound=2 + 2 * n)


@rule("linspace", "tensor")
def _written(w: Writer) -> None:
    if w.rng.random() < 0.5:
        start, stop, n = w.rng.uniform(-2, 2), w.rng.uniform(-2, 2), w.size(1, 4)
        w.write("linspace", f"linspace({start}, {stop}, {n})", [], (n,), bound=2)
        return
    n, m = w.rng.choice([(2, 3), (1, 4), (9, 8)])  # the last is more than is written into a kernel
    rows = ", ".join(shown([round(w.rng.uniform(-2, 2), 3) for _ in range(m)]) for _ in range(n))
    w.write("tensor", f"tensor([{rows}])", [], (n, m), bound=2)


@rule("zeros", "ones", "full")
def _constant(w: Writer) -> None:
    shape = w.shape(w.rng.randint(0, 2))
    name, more = w.rng.choice([("zeros", ""), ("ones", ""), ("full", ", -0.75")])
    w.write(name, f"{name}({shown(shape)}{more})", [], shape)


@rule("matmul")
def _matmul(w: Writer) -> None:
    x = w.tame(w.pick(ranks=(1, 2, 3)), 5)
    n = w.size(1, 4)
    k = x.shape[-1]
    batch = (x.shape[0],) if x.rank == 3 and w.rng.random() < 0.5 else ()
    y = w.tame(w.like((*batch, k, n)), 5)
    w.write("matmul", f"{x.name} @ {y.name}", [x, y], (*x.shape[:-1], n), bound=x.bound * y.bound * 5)


@rule("einsum")
def _einsum(w: Writer) -> None:
    x = w.tame(w.pick(ranks=(2,)), 5)
    i, j = x.shape
    form = w.rng.randrange(6)
    if form == 3:
        pattern, shape = w.rng.choice([("ij->ji", (j, i)), ("ij->j", (j,)), ("ij->", ())])
        w.write("einsum", f'einsum("{pattern}", {x.name})', [x], shape, bound=25.0 * w.count(x.shape))
    elif form == 4:
        n = w.size(1, 3)
        y = w.tame(w.like((n, n)), 5)
        pattern, shape = w.rng.choice([("ii->i", (n,)), ("ii->", ()), ("ii,ij->j", (n,))])
        operands = f"{y.name}, {y.name}" if "," in pattern else y.name
        w.write("einsum", f'einsum("{pattern}", {operands})', [y], shape, bound=75)
    elif form == 5:
        y, z = w.tame(w.like((w.size(), j)), 3), w.tame(w.like((i,)), 3)
        text = f'einsum("ij,kj,i->k", {x.name}, {y.name}, {z.name})'
        w.write("einsum", text, [x, y, z], (y.shape[0],), bound=45.0 * w.count(x.shape))
    elif form == 0:
        y = w.tame(w.like((w.size(), j)), 5)
        w.write("einsum", f'einsum("ij,kj->ki", {x.name}, {y.name})', [x, y], (y.shape[0], i), bound=50)
    elif form == 1:
        y = w.tame(w.like((i, j)), 5)
        w.write("einsum", f'einsum("ij,ij->j", {x.name}, {y.name})', [x, y], (j,), bound=50)
    else:
        y = w.tame(w.like((i, w.size())), 5)
        w.write("einsum", f'einsum("ij,ik->ijk", {x.name}, {y.name})', [x, y], (i, j, y.shape[1]), bound=25)


@rule("weight_norm")
def _weight_norm(w: Writer) -> None:
    x = w.pick(ranks=(2, 3))
    a = w.rng.randrange(x.rank)
    g = w.like((x.shape[a],))
    y = w.write("abs", f"abs({x.name}) + 0.5", [x], x.shape, bound=x.bound + 1)  # no length is 0
    w.write("weight_norm", f"weight_norm({y.name}, {g.name}, axis={a})", [y, g], y.shape, bound=g.bound)


@rule("dft")
def _dft(w: Writer) -> None:
    x = w.tame(w.pick(_numbers), 5)
    a = axis_of(w, x, number=True)
    n = int(x.shape[a])
    if w.rng.random() < 0.5:
        shape = tuple(n // 2 + 1 if i == a else s for i, s in enumerate(x.shape))
        w.write("dft", f"dft({x.name}, axis={a}, onesided=true)", [x], shape, shape, bound=5.0 * n)
        return
    y = w.tame(w.like(x.shape), 5)
    inverse = ", inverse=true" if w.rng.random() < 0.5 else ""
    w.write("dft", f"dft({x.name}, {y.name}, axis={a}{inverse})", [x, y], x.shape, x.shape, bound=10.0 * n)


@rule("cdist")
def _cdist(w: Writer) -> None:
    x = w.pick(lambda v: isinstance(v.shape[-1], int), (2, 3))
    y = w.like((*x.shape[:-2], w.size(), x.shape[-1]))
    p = w.rng.choice(["", ", p=1", ", p=3", ", p=inf"])
    shape = (*x.shape[:-1], y.shape[-2])
    w.write("cdist", f"cdist({x.name}, {y.name}{p})", [x, y], shape, bound=5 * (x.bound + y.bound))


@rule("pairwise_distance")
def _pairwise_distance(w: Writer) -> None:
    x = w.pick()
    y, a = w.like(x.shape), axis_of(w, x)
    keep = w.rng.random() < 0.3
    shape = tuple(1 if i == a else s for i, s in enumerate(x.shape) if keep or i != a)
    more = w.rng.choice(["", ", p=1", ", p=3", ", eps=0.1"]) + (", keep=true" if keep else "")
    text = f"pairwise_distance({x.name}, {y.name}, axis={a - x.rank if w.rng.random() < 0.5 else a}{more})"
    w.write("pairwise_distance", text, [x, y], shape, bound=5 * (x.bound + y.bound))


@rule("linear")
def _linear(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (1, 2, 3)), 20)
    out = w.size()
    bias = ", bias=false" if w.rng.random() < 0.3 else ""
    label = f" as {w.name('f')}" if w.rng.random() < 0.5 else ""
    group = w.rng.choice(["", "", "@lr(0.5) ", "@decay(0) "])
    v = f"{x.name} |> {group}linear({out}{bias}){label}"
    w.write("linear", v, [x], (*x.shape[:-1], out), bound=x.bound * 3, layer=True)


@rule("embedding")
def _embedding(w: Writer) -> None:
    t, d = w.ints(), w.size()
    text = f"embedding({t.name}, {t.high}, {d})"
    w.write("embedding", text, [t], (*t.shape, d), bound=4, layer=True)


@rule("embedding_bag")
def _embedding_bag(w: Writer) -> None:
    t, d = w.ints(), w.size()
    form, uses = w.rng.choice(["", ', mode="sum"', ', mode="max"']), [t]
    if "sum" in form and w.rng.random() < 0.6:
        uses.append(w.tame(w.like(t.shape), 5))
        form += f", weights={uses[-1].name}"
    form += f", pad={w.rng.randrange(t.high)}" if w.rng.random() < 0.5 else ""
    text = f"embedding_bag({t.name}, {t.high}, {d}{form})"
    w.write("embedding_bag", text, uses, (*t.shape[:-1], d), bound=20.0 * w.count(t.shape[-1:]), layer=True)


def image(w: Writer, low: int = 2) -> Var:
    """[N, C, *space] with fixed sizes after the batch."""
    x = w.pick(
        lambda v: all(isinstance(s, int) for s in v.shape[1:]) and all(int(s) >= low for s in v.shape[2:]), (3, 4)
    )
    return w.tame(x, 20)


def _windows(n: int, k: int, stride: int, pad: int, dilation: int = 1) -> int:
    return (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1


def _given_weight(w: Writer, name: str) -> None:
    """A convolution whose kernel is another tensor of the program."""
    x, channels = image(w), w.size(1, 2)
    k = [w.size(1, 2) for _ in x.shape[2:]]
    turned = name == "conv_transpose"
    first, second = int(x.shape[1]), channels
    kernel = w.tame(w.like((first, second, *k) if turned else (second, first, *k)), 20)
    space = [int(n) + (m - 1) * (1 if turned else -1) for n, m in zip(x.shape[2:], k)]
    bound = x.bound * kernel.bound * first * math.prod(k)
    w.write(name, f"{name}({x.name}, weight={kernel.name})", [x, kernel], (x.shape[0], channels, *space), bound=bound)


@rule("conv")
def _conv(w: Writer) -> None:
    if w.rng.random() < 0.3:
        _given_weight(w, "conv")
        return
    x = image(w)
    channels, space = int(x.shape[1]), [int(s) for s in x.shape[2:]]
    k, stride, pad, dilation = w.size(1, 2), w.size(1, 2), w.size(0, 1), w.size(1, 2)
    if any(_windows(n, k, stride, pad, dilation) < 1 for n in space):
        dilation, k = 1, 1
    groups = channels if w.rng.random() < 0.3 else 1
    out = groups * w.size(1, 2)
    more = [w.rng.choice([0, 0, 1, 2]) for _ in space]  # on one side only
    pads = str([pad] * len(space) + [pad + m for m in more]) if any(more) else str(pad)
    text = f"conv({x.name}, {out}, {k}, stride={stride}, pad={pads}, dilation={dilation}, groups={groups})"
    shape = (x.shape[0], out, *(_windows(n + m, k, stride, pad, dilation) for n, m in zip(space, more)))
    w.write("conv", text, [x], shape, bound=x.bound * 3, layer=True)


@rule("conv_transpose")
def _conv_transpose(w: Writer) -> None:
    if w.rng.random() < 0.3:
        _given_weight(w, "conv_transpose")
        return
    x = image(w, 1)
    out, k, stride = w.size(1, 3), w.size(1, 3), w.size(1, 2)
    shape = (x.shape[0], out, *((int(n) - 1) * stride + k for n in x.shape[2:]))
    text = f"conv_transpose({x.name}, {out}, {k}, stride={stride})"
    w.write("conv_transpose", text, [x], shape, bound=x.bound * 3, layer=True)


@rule("maxpool", "avgpool")
def _pool(w: Writer) -> None:
    name = w.rng.choice(["maxpool", "avgpool"])
    x = image(w)
    k, stride = 2, w.size(1, 2)
    pad = w.rng.randint(0, 1)
    counts = [_windows(int(n), k, stride, pad) for n in x.shape[2:]]
    more = ""
    if w.rng.random() < 0.3:  # a window that begins in the padding does not count
        more = ", ceil_mode=true"
        wide = [-(-(int(n) + 2 * pad - k) // stride) + 1 for n in x.shape[2:]]
        counts = [c - ((c - 1) * stride >= int(n) + pad) for c, n in zip(wide, x.shape[2:])]
    if name == "avgpool":
        more += w.rng.choice(["", ", count_include_pad=false"])
    w.write(name, f"{name}({x.name}, {k}, stride={stride}, pad={pad}{more})", [x], (*x.shape[:2], *counts))


@rule("maxunpool", "structure: pool with dilation")
def _wide_pool(w: Writer) -> None:
    """With dilation, indices, a divisor."""
    x = image(w)
    k, gap = 2, w.size(1, 2)
    if any(int(n) <= gap for n in x.shape[2:]):
        gap = 1
    counts = [_windows(int(n), (k - 1) * gap + 1, k, 0) for n in x.shape[2:]]
    match w.rng.choice(["maxpool", "avgpool", "maxunpool"]):
        case "maxpool":
            w.write("maxpool", f"maxpool({x.name}, {k}, dilation={gap})", [x], (*x.shape[:2], *counts))
        case "avgpool":
            more = w.rng.choice(["", ", divisor=3"])
            text = f"avgpool({x.name}, {k}, dilation={gap}{more})"
            w.write("avgpool", text, [x], (*x.shape[:2], *counts), bound=2 * x.bound)
        case _:
            largest, places, y = w.name("v"), w.name("v"), w.name("v")
            sizes = [int(n) for n in x.shape[2:]]
            lines = [
                f"{largest}, {places} = maxpool({x.name}, {k}, dilation={gap}, indices=true)",
                f"{y} = maxunpool({largest}, {places}, {k}, size={sizes})",
            ]
            w.write_lines("maxunpool", lines, y, [x], x.shape, bound=x.bound, layer=False)


@rule("unfold", "fold")
def _unfold(w: Writer) -> None:
    x = image(w)
    k, stride, pad = w.size(1, 2), w.size(1, 2), w.rng.randint(0, 1)
    sizes = [int(n) for n in x.shape[2:]]
    windows = math.prod(_windows(n, k, stride, pad) for n in sizes)
    form = f"{k}, stride={stride}, pad={pad}"
    shape = (x.shape[0], int(x.shape[1]) * k ** len(sizes), windows)
    columns = w.write("unfold", f"unfold({x.name}, {form})", [x], shape, bound=x.bound)
    if w.rng.random() < 0.6:
        text = f"fold({columns.name}, {sizes}, {form})"
        w.write("fold", text, [columns], x.shape, bound=columns.bound * k ** len(sizes))


@rule("adaptive_avgpool", "adaptive_maxpool", "global_avgpool", "global_maxpool")
def _adaptive(w: Writer) -> None:
    name = w.rng.choice(["adaptive_avgpool", "adaptive_maxpool", "global_avgpool", "global_maxpool"])
    x = image(w)
    if name.startswith("global"):
        w.write(name, f"{name}({x.name})", [x], x.shape[:2])
        return
    n = w.size(1, min(int(s) for s in x.shape[2:]))
    w.write(name, f"{name}({x.name}, {n})", [x], (*x.shape[:2], *(n for _ in x.shape[2:])))


@rule("batchnorm")
def _batchnorm(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: isinstance(v.shape[1], int) and v.shape[0] == "B", (2, 3)), 20)
    w.write("batchnorm", f"batchnorm({x.name}, eps=0.01)", [x], x.shape, bound=10, layer=True)


@rule("layernorm", "rmsnorm")
def _norm(w: Writer) -> None:
    name = w.rng.choice(["layernorm", "rmsnorm"])
    x = w.tame(w.pick(_numbers), 20)
    a = axis_of(w, x, number=True)
    axis = f"[{a}, {a + 1}]" if a + 1 < x.rank and isinstance(x.shape[a + 1], int) and w.rng.random() < 0.5 else a
    more = w.rng.choice(["", ", affine=false"])
    w.write(name, f"{name}({x.name}, axis={axis}, eps=0.01{more})", [x], x.shape, bound=5, layer=not more)


@rule("local_response_norm")
def _local_response_norm(w: Writer) -> None:
    x = w.tame(image(w), 5)
    w.write("local_response_norm", f"local_response_norm({x.name}, 3, alpha=0.1)", [x], x.shape)


@rule("spectral_norm")
def _spectral_norm(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: all(isinstance(s, int) for s in v.shape), (2, 3)), 5)
    w.write("spectral_norm", f"spectral_norm({x.name} + 0.3)", [x], x.shape, bound=10, also=("add",))


@rule("groupnorm", "instancenorm")
def _groupnorm(w: Writer) -> None:
    x = image(w)
    channels = int(x.shape[1])
    if w.rng.random() < 0.5:
        groups = w.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
        more = w.rng.choice(["", ", affine=false"])
        text = f"groupnorm({x.name}, {groups}, eps=0.01{more})"
        w.write("groupnorm", text, [x], x.shape, bound=5, layer=not more)
    else:
        affine = w.rng.random() < 0.5
        more = ", affine=true" if affine else ""
        w.write("instancenorm", f"instancenorm({x.name}, eps=0.01{more})", [x], x.shape, bound=5, layer=affine)


@rule("normalize")
def _normalize(w: Writer) -> None:
    x = w.pick()
    w.write("normalize", f"normalize({x.name}, mean=0.3, std=0.8)", [x], x.shape, bound=x.bound * 2)


@rule("sdpa")
def _sdpa(w: Writer) -> None:
    q = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (2, 3)), 5)
    k, v = w.tame(w.like(q.shape), 5), w.like(q.shape)
    options = w.rng.choice(["", ", causal=true", ", scale=0.3"])
    text = f"sdpa({q.name}, {k.name}, {v.name}{options})"
    w.write("sdpa", text, [q, k, v], q.shape, bound=v.bound)


@rule("structure: block")
def _block(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (2,)), 5)
    if not w.blocks:
        w.blocks += [
            "block residual(x: [N, D], hidden: int, act: bool = true) -> [N, D] {\n"
            "  h = x |> linear(hidden) as up\n"
            "  if act { h = tanh(h) } else { h = h * 0.5 }\n"
            "  return x + (h |> linear(D) as down)\n}",
            "block twice(x: [N, D], out: int) -> ([N, out], [N, out]) {\n"
            "  layer shared = linear(D)\n"
            "  param scale: [D] = uniform(0.5, 1.5)\n"
            "  y = shared(sin(shared(x)) * scale)\n"
            "  a = y |> linear(out) as a\n"
            "  b = y |> linear(out) as b\n"
            "  return a + b, relu(b)\n}",
        ]
    label = w.name("b")
    if w.rng.random() < 0.5:
        act = "" if w.rng.random() < 0.5 else ", act=false"
        text = f"{x.name} |> residual({w.size()}{act}) as {label}"
        w.write("residual", text, [x], x.shape, bound=x.bound * 6, layer=True, also=("linear", "tanh"))
    else:
        shape = (x.shape[0], w.size())
        text = f"{x.name} |> twice({shape[1]}) as {label}"
        w.write("twice", text, [x], shape, shape, bound=x.bound * 6, layer=True, also=("linear", "sin", "relu"))


@rule("structure: loop")
def _loop(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (2, 3)), 5)
    out, label, name = int(x.shape[-1]), w.name("s"), w.name("v")
    body = w.rng.choice([
        f"{name} = sin({name} |> linear({out}) as up) + {name}",
        f"{name} = ({name} |> layernorm(eps=0.01)) * (1 if i == 0 else 0.5)",
    ])  # fmt: skip
    lines = [f"{name} = {x.name}", f"for i in 0..{w.size(1, 3)} as {label} {{", "  " + body, "}"]
    w.write_lines("linear" if "linear" in body else "layernorm", lines, name, [x], x.shape, bound=x.bound + 5)


@rule("structure: list")
def _list(w: Writer) -> None:
    x = w.tame(w.pick(ranks=(1, 2)), 10)
    kept, name, count = w.name("kept"), w.name("v"), w.size(2, 3)
    lines = [
        f"{kept} = []",
        f"for i in 0..{count} {{",
        f"  {kept} = {kept} + [cos({x.name} * (i + 1))]",
        "}",
        f"{name} = stack({kept}, axis=0) * {kept}[{count - 1}]",
    ]
    w.write_lines("stack", lines, name, [x], (count, *x.shape), bound=2, layer=False)
