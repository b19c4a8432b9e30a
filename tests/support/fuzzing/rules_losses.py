"""How to call the losses with a margin, of probabilities, distributions and masks, as ``rules.py``."""

from __future__ import annotations

from fuzzing.programs import Writer
from fuzzing.rules import rule

SIGNS = '(2 * cast({t}, "float") - 1)'


def _reduce(w: Writer) -> str:
    return w.rng.choice(["mean", "sum", "none"])


@rule("smooth_l1", "gaussian_nll", "poisson_nll", "focal")
def _of_targets(w: Writer) -> None:
    name, form = w.rng.choice([
        ("smooth_l1", "{x}, {t}, beta=0.5"), ("gaussian_nll", "{x}, {t}, exp(0.2 * {x}), full=true"),
        ("poisson_nll", "0.3 * {x}, abs({t}), full=true"), ("focal", "{x}, sigmoid({t})"),
    ])  # fmt: skip
    x = w.tame(w.pick(), 5)
    t, reduce = w.like(x.shape), _reduce(w)
    text = f'{name}({form.format(x=x.name, t=t.name)}, reduce="{reduce}")'
    also = tuple(n for n in ("exp", "abs", "sigmoid") if f"{n}(" in text)
    shape, bound = (x.shape, 100.0) if reduce == "none" else ((), 100.0 * w.count(x.shape))
    w.write(name, text, [x, t], shape, bound=bound, also=also)


@rule("hinge", "hinge_embedding", "margin_ranking", "triplet_margin", "cosine_embedding")
def _with_margin(w: Writer) -> None:
    name = w.rng.choice(["hinge", "hinge_embedding", "margin_ranking", "triplet_margin", "cosine_embedding"])
    x = w.tame(w.pick(ranks=(2, 3)), 5)
    y, rows = w.like(x.shape), name in ("triplet_margin", "cosine_embedding")
    shape, reduce = (x.shape[:-1] if rows else x.shape), _reduce(w)
    signs = w.like_bool(shape)
    given = {
        "triplet_margin": f"{x.name}, {y.name}, 0.3 * {x.name}", "cosine_embedding": f"{x.name}, {y.name}, ",
        "margin_ranking": f"{x.name}, {y.name}, ", "hinge": f"{x.name}, ", "hinge_embedding": f"{x.name}, ",
    }[name]  # fmt: skip
    uses = [v for v in (x, y, signs) if f"{v.name}, " in given or (v is signs and name != "triplet_margin")]
    target = "" if name == "triplet_margin" else SIGNS.format(t=signs.name)
    text = f'{name}({given}{target}, margin=0.4, reduce="{reduce}")'
    bound = 50.0 if reduce == "none" else 50.0 * w.count(shape)
    w.write(name, text, uses, shape if reduce == "none" else (), bound=bound, also=("cast",) if target else ())


@rule("bce")
def _bce(w: Writer) -> None:
    x = w.tame(w.pick(), 5)
    t, reduce = w.like(x.shape), _reduce(w)
    form = w.rng.choice(["sigmoid({x})", "clip({x}, 0, 1)"])  # the second is 0 or 1 at many elements
    text = f'bce({form.format(x=x.name)}, sigmoid({t.name}), reduce="{reduce}")'
    shape, bound = (x.shape, 100.0) if reduce == "none" else ((), 100.0 * w.count(x.shape))
    w.write("bce", text, [x, t], shape, bound=bound, also=("sigmoid",) + (("clip",) if "clip" in text else ()))


@rule("soft_margin", "multi_margin", "multilabel_margin", "multilabel_soft_margin")
def _of_classes(w: Writer) -> None:
    name = w.rng.choice(["soft_margin", "multi_margin", "multilabel_margin", "multilabel_soft_margin"])
    x = w.tame(w.pick(lambda v: isinstance(v.shape[-1], int), (2, 3)), 5)
    classes, more = int(x.shape[-1]), ""
    if name in ("multi_margin", "multilabel_soft_margin") and w.rng.random() < 0.4:
        more = f", weight={[round(w.rng.uniform(0.5, 2), 2) for _ in range(classes)]}"
    if name == "multi_margin":
        t, more = w.like(x.shape[:-1], "i", classes), w.rng.choice(["", ", p=2", ", margin=0.4"]) + more
        target = t.name
    elif name == "multilabel_soft_margin":
        t = w.like(x.shape)
        target = f"sigmoid({t.name})"
    else:
        t = w.like_bool(x.shape)
        target = SIGNS.format(t=t.name) if name == "soft_margin" else f'cast({t.name}, "float")'
    reduce = _reduce(w)
    shape = () if reduce != "none" else x.shape if name == "soft_margin" else x.shape[:-1]
    also = tuple(n for n in ("cast", "sigmoid") if f"{n}(" in target)
    text = f'{name}({x.name}, {target}{more}, reduce="{reduce}")'
    w.write(name, text, [x, t], shape, bound=300.0 * (w.count(x.shape) if reduce == "sum" else 1), also=also)


@rule("dice")
def _dice(w: Writer) -> None:
    x = w.pick(ranks=(2, 3))
    t = w.like(x.shape)
    w.write("dice", f"dice(sigmoid({x.name}), sigmoid({t.name}))", [x, t], (), bound=1, also=("sigmoid",))


@rule("ctc")
def _ctc(w: Writer) -> None:
    x = w.tame(w.pick(lambda v: isinstance(v.shape[1], int) and isinstance(v.shape[2], int), (3,)), 5)
    rows, times, classes = x.shape
    slope = int(classes) > 1 and w.rng.random() < 0.5
    t = w.like((rows, w.size(1, 3)), "i", int(classes) - int(slope))
    n, m = (w.like((rows,), "i", int(high)) for high in (times, t.shape[1]))
    lengths = f'{n.name}, {m.name}, reduce="none", zero_infinity=true'
    if not slope:
        text = f"ctc(log_softmax({x.name}), {t.name}, {lengths})"
        w.write("ctc", text, [x, t, n, m], (rows,), bound=100.0, also=("log_softmax",))
        return
    # A slope that is 0 in any case, but not in its rounding, would be enlarged by Adam. So the scores are not those of
    # log_softmax, along whose sum nothing changes, and the targets are no blanks.
    text = f"gradient(ctc({x.name}, {t.name} + 1, {lengths}), {x.name}) * {x.name}"
    w.write("ctc", text, [x, t, n, m], x.shape, bound=5, also=("gradient", "mul", "add"))
