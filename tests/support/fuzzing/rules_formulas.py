"""How to call the pointwise functions of ``elementwise/``'s formulas, as ``rules.py``."""

from __future__ import annotations

from fuzzing.programs import Writer
from fuzzing.rules import pointwise, rule

for _name in ("mish", "selu", "celu", "logsigmoid", "hardtanh", "relu6", "hardshrink", "softshrink", "asinh"):
    pointwise(_name, "{f}({x})", 50, None)
for _name in ("softsign", "hardsigmoid", "atan", "erfc"):
    pointwise(_name, "{f}({x})", 50, 2)
for _name in ("ceil", "trunc", "frac"):
    pointwise(_name, "{f}({x})", 50, None, diff=False)
for _name in ("sinh", "cosh", "exp2"):
    pointwise(_name, "{f}({x})", 3, 11)
for _name in ("asin", "acos", "atanh"):
    pointwise(_name, "{f}(clip({x}, -0.8, 0.8))", 50, 3)
for _name in ("log2", "log10"):
    pointwise(_name, "{f}(abs({x}) + 0.2)", 50, 7)
pointwise("tan", "tan(clip({x}, -1, 1))", 50, 2)
pointwise("lgamma", "lgamma(abs({x}) + 0.5)", 50, 150)
pointwise("digamma", "digamma(abs({x}) + 0.5)", 50, 5)
pointwise("polygamma", "polygamma(abs({x}) + 0.8, 1)", 50, 3)
pointwise("acosh", "acosh(abs({x}) + 1.2)", 50, 6)
pointwise("reciprocal", "reciprocal(abs({x}) + 0.3)", 50, 4)
pointwise("square", "square({x})", 5, 25)
pointwise("threshold", "threshold({x}, 0.3, 0.1)", 50, None)
pointwise("tanhshrink", "tanhshrink({x})", 50, None)
pointwise("nan_to_num", "nan_to_num({x})", 50, None)


@rule("bitcast")
def _bitcast(w: Writer) -> None:
    x = w.tame(w.pick(ranks=(0, 1, 2, 3, 4)), 50)
    text = f'cast(bitcast(bitcast(cast({x.name}, "f32"), "{w.rng.choice(["i32", "u32"])}"), "f32"), "float")'
    w.write("bitcast", text, [x], x.shape, bound=x.bound, diff=False, also=("cast",))


@rule("to_small", "from_small")
def _small(w: Writer) -> None:
    x = w.tame(w.pick(ranks=(0, 1, 2, 3, 4)), 5)
    format = w.rng.choice(["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1"])
    text = f'from_small(to_small({x.name}, "{format}"), "{format}")'
    w.write("to_small", text, [x], x.shape, bound=6, diff=False, also=("from_small",))


@rule("isnan", "isinf", "isfinite")
def _tested(w: Writer) -> None:
    name = w.rng.choice(["isnan", "isinf", "isfinite"])
    x = w.pick()
    w.write(name, f"{name}({x.name})", [x], x.shape, kind="b", diff=False)


@rule("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift")
def _bits(w: Writer) -> None:
    t = w.ints()
    name, text = w.rng.choice([
        ("bitwise_and", "bitwise_and({t}, 3)"), ("bitwise_and", "bitwise_and({t}, {t} + 1)"),
        ("bitwise_or", "bitwise_and(bitwise_or({t}, 1), 3)"), ("bitwise_xor", "bitwise_xor({t}, bitwise_and({t}, 5))"),
        ("bitwise_not", "bitwise_and(bitwise_not({t}), 3)"),
        ("bitwise_left_shift", "bitwise_and(bitwise_left_shift({t}, 2), 15)"),
        ("bitwise_right_shift", "bitwise_right_shift({t}, 1)"),
    ])  # fmt: skip
    also = tuple(n for n in ("bitwise_and", "add") if n != name and (n in text or (n == "add" and "+" in text)))
    w.write(name, text.format(t=t.name), [t], t.shape, kind="i", high=max(t.high, 16), also=also)


@rule("fmod", "atan2")
def _of_two(w: Writer) -> None:
    name = w.rng.choice(["fmod", "atan2"])
    if name == "fmod" and w.rng.random() < 0.3:
        t = w.ints()
        n, low = w.rng.choice([2, 3] if t.integer.startswith("u") else [-3, -2, 2, 3]), w.size(0, 4)
        text = f"fmod({t.name} - {low}, {n}) + {abs(n) - 1}"
        w.write(name, text, [t], t.shape, kind="i", high=2 * abs(n) - 1, also=("add", "sub"))
        return
    x = w.pick(ranks=(0, 1, 2, 3))
    y = w.broadcasting(x)
    text = f"{name}({x.name}, abs({y.name}) + 0.7)"
    w.write(name, text, [x, y], x.shape, bound=max(x.bound, 3), diff=name == "atan2", also=("abs", "add"))


@rule("gradient")
def _gradient(w: Writer) -> None:
    x = w.tame(w.pick(ranks=(0, 1, 2, 3)), 5)
    text = f"gradient(sin({x.name}) * {x.name}, {x.name})"
    w.write("gradient", text, [x], x.shape, bound=x.bound + 1, also=("sin", "mul"))


@rule("glu")
def _glu(w: Writer) -> None:
    x = w.tame(w.pick(), 10)
    a = x.rank - 1
    w.write("glu", f"glu(concat([{x.name}, -{x.name}], axis={a}), axis={a})", [x], x.shape, also=("concat", "neg"))


@rule("prelu")
def _prelu(w: Writer) -> None:
    x = w.pick(lambda v: not isinstance(v.shape[1], str), (2, 3, 4))
    channels = w.rng.choice(["", ", channels=true"])
    w.write("prelu", f"prelu({x.name}{channels})", [x], x.shape, layer=True)
