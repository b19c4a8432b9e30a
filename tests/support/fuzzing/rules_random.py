"""How to call the random functions, as ``rules.py``. Equal steps and rows draw equal numbers, in f32 and in f64."""

from __future__ import annotations

from fuzzing.programs import Writer, shown
from fuzzing.rules import axis_of, rule


@rule("dropout2d", "dropout3d", "stochastic_depth", "alpha_dropout")
def _dropped_together(w: Writer) -> None:
    name = w.rng.choice(["dropout2d", "dropout3d", "stochastic_depth", "alpha_dropout"])
    x = w.tame(w.pick(lambda v: v.shape[0] == "B", (4,) if name in ("dropout2d", "dropout3d") else (2, 3)), 5)
    if name == "dropout3d":
        x = w.write("stack", f"stack([{x.name}, {x.name}], axis=2)", [x], (*x.shape[:2], 2, *x.shape[2:]))
    w.write(name, f"{name}({x.name}, {w.rng.choice([0.1, 0.5])})", [x], x.shape, bound=x.bound * 3 + 5)


@rule("dropout")
def _dropout(w: Writer) -> None:
    x = w.pick()
    w.write("dropout", f"dropout({x.name}, {w.rng.choice([0.1, 0.5])})", [x], x.shape, bound=x.bound * 2)


@rule("rand", "randn", "bernoulli")
def _random(w: Writer) -> None:
    name = w.rng.choice(["rand", "randn", "bernoulli"])
    if name == "bernoulli":
        x = w.pick()
        w.write(name, f"bernoulli(sigmoid({x.name}))", [x], x.shape, bound=1, diff=False, also=("sigmoid",))
        return
    shape = w.shape(w.rng.randint(1, 2))
    w.write(name, f"{name}({shown(shape)})", [], shape, bound=4)


@rule("gumbel_softmax")
def _gumbel_softmax(w: Writer) -> None:
    x = w.tame(w.pick(), 10)
    a = axis_of(w, x)
    more = w.rng.choice(["", ", tau=0.5", ", tau=2", ", hard=true", ", tau=0.7, hard=true"])
    text = f"gumbel_softmax({x.name}{more}, axis={a - x.rank if w.rng.random() < 0.5 else a})"
    w.write("gumbel_softmax", text, [x], x.shape, bound=1)


@rule("rrelu")
def _rrelu(w: Writer) -> None:
    x = w.pick(ranks=(0, 1, 2, 3, 4))
    slopes = w.rng.choice(["", ", 0.2, 0.8", ", lower=-0.5", ", 0.3, 0.3"])
    w.write("rrelu", f"rrelu({x.name}{slopes})", [x], x.shape)
