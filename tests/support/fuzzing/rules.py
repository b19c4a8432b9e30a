"""How to call each function with fitting arguments, one rule a function: pointwise, integers, reductions, losses.

``RULES`` maps what a rule is for to the rule: a function's name, or ``structure: NAME`` for what is no function
(``rules_shape.py`` adds those of shapes, layers and structure, ``rules_formulas.py`` more pointwise ones,
``rules_random.py`` the random ones, ``rules_images.py`` and ``rules_losses.py`` the rest of these, ``rules_loops.py``
loops at run time).
"""

from __future__ import annotations

from collections.abc import Callable

from fuzzing.programs import INTEGERS, Shape, Var, Writer

RULES: dict[str, Callable[[Writer], object]] = {}


def rule(*names: str) -> Callable[[Callable[[Writer], object]], Callable[[Writer], object]]:
    def add(f: Callable[[Writer], object]) -> Callable[[Writer], object]:
        for name in names:
            assert name not in RULES, f"{name} has a rule"
            RULES[name] = f
        return f

    return add


def pointwise(name: str, expression: str, limit: float, bound: float | None, diff: bool = True) -> None:
    """``expression`` of {x}, which is at most ``limit``; the result is at most ``bound``, None: as its input."""

    def write(w: Writer) -> None:
        x = w.tame(w.pick(ranks=(0, 1, 2, 3, 4)), limit)
        text = expression.format(x=x.name, f=name)
        w.write(
            name, text, [x], x.shape, bound=bound, diff=diff, also=tuple(n for n in ("abs", "clip") if f"{n}(" in text)
        )

    RULES[name] = write


for _name in ("neg", "relu", "softplus", "gelu", "silu", "hardswish", "elu", "leaky_relu", "abs"):
    pointwise(_name, "{f}({x})", 50, None)
for _name in ("sigmoid", "tanh", "sin", "cos", "erf"):
    pointwise(_name, "{f}({x})", 50, 2)
for _name in ("sign", "floor", "round"):
    pointwise(_name, "{f}({x})", 50, None, diff=False)
pointwise("stop_gradient", "stop_gradient({x})", 50, None, diff=False)
pointwise("exp", "exp({x})", 3, 25)
pointwise("expm1", "expm1({x})", 3, 25)
pointwise("log", "log(abs({x}) + 0.2)", 50, 5)
pointwise("log1p", "log1p(abs({x}))", 50, 5)
pointwise("sqrt", "sqrt(abs({x}) + 0.1)", 50, 8)
pointwise("rsqrt", "rsqrt(abs({x}) + 0.1)", 50, 4)


@rule("clip")
def _clip(w: Writer) -> None:
    x = w.pick()
    limits = w.rng.choice(["-0.5, 0.7", "low=-0.3", "high=0.4"])
    w.write("clip", f"clip({x.name}, {limits})", [x], x.shape)


@rule("power")
def _power(w: Writer) -> None:
    x = w.tame(w.pick(), 4)
    text, bound = w.rng.choice([("{x}^2", 16.0), ("{x}^3", 64.0), ("2^{x}", 16.0), ("(abs({x}) + 0.2)^0.7", 4.0)])
    w.write("power", text.format(x=x.name), [x], x.shape, bound=bound)


def _binary(name: str, sign: str, limit: float) -> None:
    def write(w: Writer) -> None:
        x = w.tame(w.pick(ranks=(0, 1, 2, 3)), limit)
        y = w.tame(w.broadcasting(x), limit)
        bound = x.bound * y.bound if name == "mul" else 25 * x.bound if name == "div" else x.bound + y.bound
        right = f"(abs({y.name}) + 0.5)" if name == "div" else y.name
        left, right = (x.name, right) if name == "div" or w.rng.random() < 0.5 else (right, x.name)
        if w.rng.random() < 0.15:
            right = w.rng.choice(["2", "0.5", "-1.5", "1"])
        text = f"{left} {sign} {right}" if sign else f"{name}({left}, {right})"
        uses = [v for v in (x, y) if v.name in text]
        if not uses or not any(v.shape == x.shape for v in uses):
            text, uses = f"{x.name} {sign or '+'} 0.5", [x]
        w.write(name if name in text or sign in text else "add", text, uses, x.shape, bound=bound)

    RULES[name] = write


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"), ("maximum", ""), ("minimum", "")):
    _binary(_name, _sign, 7)


def _comparison(name: str, sign: str) -> None:
    def write(w: Writer) -> None:
        if name in ("eq", "ne"):
            t = w.ints((1, 2, 3))
            u = w.like(t.shape, "i", max(t.high, 1))
            same = u.name if u.integer == t.integer else f'cast({u.name}, "{t.integer}")'
            w.write(name, f"{t.name} {sign} {same}", [t, u], t.shape, kind="b")
        else:
            x = w.pick()
            y = w.broadcasting(x)
            w.write(name, f"{x.name} {sign} {y.name}", [x, y], x.shape, kind="b", diff=False)

    RULES[name] = write


for _name, _sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    _comparison(_name, _sign)


@rule("logical_and")
def _logical_and(w: Writer) -> None:
    a = w.bools()
    b = w.like_bool(a.shape)
    w.write("logical_and", f"logical_and({a.name}, {b.name})", [a, b], a.shape, kind="b")


@rule("logical_or")
def _logical_or(w: Writer) -> None:
    a = w.bools()
    b = w.like_bool(a.shape)
    w.write("logical_or", f"logical_or({a.name}, {b.name})", [a, b], a.shape, kind="b")


@rule("logical_not")
def _logical_not(w: Writer) -> None:
    a = w.bools()
    w.write("logical_not", f"logical_not({a.name})", [a], a.shape, kind="b")


@rule("where")
def _where(w: Writer) -> None:
    c = w.bools()
    x = w.like(c.shape)
    y = w.broadcasting(x) if w.rng.random() < 0.7 else None
    uses = [x] if y is None else [x, y]
    text = f"where({c.name}, {x.name}, {'0.5' if y is None else y.name})"
    w.write("where", text, [c, *uses], c.shape, bound=max(v.bound for v in uses))


@rule("cast")
def _cast(w: Writer) -> None:
    if w.rng.random() < 0.4:
        b = w.bools()
        w.write("cast", f'cast({b.name}, "float")', [b], b.shape, bound=1, diff=False)
    elif w.rng.random() < 0.5:
        t = w.ints((1, 2, 3))
        w.write("cast", f'cast({t.name}, "float")', [t], t.shape, bound=float(t.high), diff=False)
    else:
        x = w.pick()
        made = w.write(
            "cast", f'cast(clip({x.name} + 2, 0, 3.5), "i32")', [x], x.shape, kind="i", high=4, diff=False,
            also=("clip", "add"),
        )  # fmt: skip
        if w.rng.random() < 0.5:
            sums = f'sum(cast({made.name}, "{w.rng.choice(INTEGERS)}"))'
            w.write(
                "cast", f'cast({sums}, "float")', [made], (), bound=4.0 * w.count(x.shape), diff=False, also=("sum",)
            )


@rule("floordiv")
def _floordiv(w: Writer) -> None:
    t = w.ints()
    w.write("floordiv", f"floordiv({t.name}, 2)", [t], t.shape, kind="i", high=t.high // 2 + 1)


@rule("mod")
def _mod(w: Writer) -> None:
    t = w.ints()
    w.write("mod", f"mod({t.name} + 1, 3)", [t], t.shape, kind="i", high=3, also=("add",))


@rule("one_hot")
def _one_hot(w: Writer) -> None:
    t = w.ints()
    w.write("one_hot", f"one_hot({t.name}, {t.high})", [t], (*t.shape, t.high), bound=1, diff=False)


def reduced(w: Writer, x: Var) -> tuple[str, Shape, int]:
    """Arguments for some axes, the shape that they leave, and about how many elements meet."""
    form = w.rng.randrange(4)
    axes = sorted(w.rng.sample(range(x.rank), w.rng.randint(1, x.rank)))
    keep = w.rng.random() < 0.3
    if form == 0:
        axes, text = list(range(x.rank)), ""
    elif form == 1 or len(axes) == 1:
        axes = axes[:1]
        text = f", over={axes[0] if w.rng.random() < 0.5 else axes[0] - x.rank}"
    else:
        text = f", over=[{', '.join(map(str, axes))}]"
    shape = tuple(1 if i in axes else s for i, s in enumerate(x.shape) if keep or i not in axes)
    return text + (", keep=true" if keep else ""), shape, w.count(tuple(x.shape[a] for a in axes))


def _reduction(name: str) -> None:
    def write(w: Writer) -> None:
        x = w.tame(w.pick(), 1.3 if name == "prod" else 10 if name == "sum" else 50)
        text, shape, count = reduced(w, x)
        if name == "prod" and count > 12:
            x = w.write("tanh", f"tanh({x.name})", [x], x.shape, bound=1)
        bound = {"sum": x.bound * count, "prod": 20.0, "norm": x.bound * count, "var": x.bound**2}
        if name == "norm" and w.rng.random() < 0.3:
            text = ", p=3" + text
        w.write(name, f"{name}({x.name}{text})", [x], shape, bound=bound.get(name, x.bound + 5))

    RULES[name] = write


for _name in ("sum", "mean", "max", "min", "prod", "var", "std", "norm", "logsumexp"):
    _reduction(_name)


@rule("any", "all")
def _of_bools(w: Writer) -> None:
    name, x = w.rng.choice(["any", "all"]), w.bools()
    axes = f", over={x.rank - 1}" if x.rank and w.rng.random() < 0.7 else ""
    w.write(name, f"{name}({x.name}{axes})", [x], x.shape[:-1] if axes else (), kind="b", diff=False)


def axis_of(w: Writer, x: Var, number: bool = False) -> int:
    """A random axis; with ``number``, one whose size is a number."""
    return w.rng.choice([a for a, s in enumerate(x.shape) if isinstance(s, int) or not number])


@rule("argmax", "argmin")
def _arg(w: Writer) -> None:
    name = w.rng.choice(["argmax", "argmin"])
    x = w.pick(lambda v: any(isinstance(s, int) for s in v.shape), (2, 3))
    a = axis_of(w, x, number=True)
    high = x.shape[a]
    assert isinstance(high, int)
    left = tuple(s for i, s in enumerate(x.shape) if i != a)
    w.write(name, f"{name}({x.name}, axis={a})", [x], left, kind="i", high=high, diff=False)


@rule("cumprod")
def _cumprod(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: any(isinstance(s, int) for s in v.shape)), 1.3)
    text = w.rng.choice(["", ", reverse=true", ", exclusive=true", ", reverse=true, exclusive=true"])
    w.write("cumprod", f"cumprod({x.name}, axis={axis_of(w, x, number=True)}{text})", [x], x.shape, bound=20)


@rule("softmax", "log_softmax", "cumsum", "logcumsumexp", "flip")
def _along(w: Writer) -> None:
    name = w.rng.choice(["softmax", "log_softmax", "cumsum", "logcumsumexp", "flip"])
    x = w.tame(w.pick(), 10)
    a = axis_of(w, x)
    text = f", over={a}" if name == "flip" else f", axis={a - x.rank if w.rng.random() < 0.5 else a}"
    if name == "cumsum":
        text += w.rng.choice(["", ", reverse=true", ", exclusive=true", ", reverse=true, exclusive=true"])
    if name == "logcumsumexp":
        text += w.rng.choice(["", ", reverse=true"])
    bounds = {"softmax": 1.0, "log_softmax": 25.0, "cumsum": x.bound * 5, "logcumsumexp": x.bound + 4, "flip": x.bound}
    w.write(name, f"{name}({x.name}{text})", [x], x.shape, bound=bounds[name])


@rule("topk")
def _topk(w: Writer) -> None:
    x = w.pick(lambda v: any(isinstance(s, int) for s in v.shape))
    a = axis_of(w, x, number=True)
    k = w.rng.randint(1, int(x.shape[a]))
    shape = tuple(k if i == a else s for i, s in enumerate(x.shape))
    least = ", largest=false" if w.rng.random() < 0.4 else ""
    text = f"topk({x.name}, {k}, axis={a}{least})"
    w.write("topk", text, [x], shape, shape, kinds="fi", high=int(x.shape[a]))


@rule("sort", "argsort")
def _sort(w: Writer) -> None:
    x = w.pick(lambda v: any(isinstance(s, int) for s in v.shape))
    a = axis_of(w, x, number=True)
    way = w.rng.choice(["", ", descending=true"])
    if w.rng.random() < 0.3:
        w.write(
            "argsort", f"argsort({x.name}, axis={a}{way})", [x], x.shape, kind="i", high=int(x.shape[a]), diff=False
        )
        return
    w.write("sort", f"sort({x.name}, axis={a}{way})", [x], x.shape, x.shape, kinds="fi", high=int(x.shape[a]))


def _loss(name: str, target: str) -> None:
    def write(w: Writer) -> None:
        x = w.tame(w.pick(), 8)
        t = w.like(x.shape)
        reduce = w.rng.choice(["mean", "sum", "none"])
        shape = x.shape if reduce == "none" else ()
        bound = 100.0 if reduce == "none" else 100.0 * w.count(x.shape)
        left = f"log_softmax({x.name})" if name == "kl_div" else x.name
        text = f'{name}({left}, {target.format(t=t.name)}, reduce="{reduce}")'
        w.write(name, text, [x, t], shape, bound=bound)

    RULES[name] = write


_loss("mse", "{t}")
_loss("l1", "{t}")
_loss("huber", "{t}")
_loss("bce_with_logits", "sigmoid({t})")
_loss("kl_div", "softmax({t})")


@rule("cross_entropy", "nll", "accuracy")
def _classes(w: Writer) -> None:
    name = w.rng.choice(["cross_entropy", "nll", "accuracy"])
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int) and v.shape[-1] > 1, (2, 3)), 8)
    classes = x.shape[-1]
    assert isinstance(classes, int)
    t = w.like(x.shape[:-1], "i", classes)
    if name == "accuracy":
        w.write(name, f"accuracy({x.name}, {t.name}, top={w.rng.randint(1, classes)})", [x, t], (), diff=False)
        return
    logits = f"log_softmax({x.name})" if name == "nll" else x.name
    reduce = w.rng.choice(["mean", "sum", "none"])
    extra = w.rng.choice(["", ", ignore_index=0", ", smoothing=0.2" if name == "cross_entropy" else ""])
    target = t.name
    if name == "cross_entropy" and "ignore" not in extra and w.rng.random() < 0.3:
        t = w.like(x.shape)
        target = f"softmax({t.name})"
    text = f'{name}({logits}, {target}{extra}, reduce="{reduce}")'
    w.write(name, text, [x, t], x.shape[:-1] if reduce == "none" else (), bound=500)


@rule("cosine_similarity")
def _cosine(w: Writer) -> None:
    x = w.pick(lambda v: v.shape[-1] != 1)
    y = w.like(x.shape)
    w.write("cosine_similarity", f"cosine_similarity({x.name}, {y.name})", [x, y], x.shape[:-1], bound=1)
