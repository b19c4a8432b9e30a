"""Losses: of pairs of tensors, of classes, of distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from op_sweep.case import Case, Tensor, ids

if TYPE_CHECKING:
    from op_sweep.case import Sizes

#: Losses of x and t of one shape: the kinds of both, PyTorch's call.
PAIRS: Final[dict[str, tuple[str, str, Callable[..., Any]]]] = {
    "bce_with_logits": ("normal", "chance", lambda f, x, y: f.binary_cross_entropy_with_logits(x, y)),
    "bce": ("chance", "chance", lambda f, x, y: f.binary_cross_entropy(x, y)),
    "soft_margin": ("normal", "sign", lambda f, x, y: f.soft_margin_loss(x, y)),
    "multilabel_soft_margin": ("normal", "chance", lambda f, x, y: f.multilabel_soft_margin_loss(x, y)),
    "mse": ("normal", "normal", lambda f, x, y: f.mse_loss(x, y)),
    "l1": ("normal", "normal", lambda f, x, y: f.l1_loss(x, y)),
    "huber": ("normal", "normal", lambda f, x, y: f.huber_loss(x, y)),
    "smooth_l1": ("normal", "normal", lambda f, x, y: f.smooth_l1_loss(x, y)),
    "kl_div": ("normal", "chance", lambda f, x, y: f.kl_div(x, y)),
    "poisson_nll": ("normal", "positive", lambda f, x, y: f.poisson_nll_loss(x, y)),
    "hinge_embedding": ("between", "sign", lambda f, x, y: f.hinge_embedding_loss(x, y)),
}


def _focal(f: Any, x: Any, y: Any) -> Any:
    import torchvision

    return torchvision.ops.sigmoid_focal_loss(x, y, reduction="mean")


def _dice(f: Any, x: Any, y: Any) -> Any:
    return (1 - (2 * (x * y).sum(1) + 1) / (x.sum(1) + y.sum(1) + 1)).mean()


def _several(t: Any, x: Any, s: Any) -> Any:
    at = t.arange(x.shape[1], device=x.device)
    listed = at.where(s > 0, x.shape[1]).sort(1).values  # the classes of a row, then -1
    return t.nn.functional.multilabel_margin_loss(x, listed.where(listed < x.shape[1], -1))


OTHERS: Final[dict[str, tuple[str, str, Callable[..., Any]]]] = {
    "focal": ("normal", "chance", _focal),
    "dice": ("chance", "chance", _dice),
    "hinge": ("between", "sign", lambda f, x, y: (1 - y * x).clamp_min(0).mean()),
}


def cases(sizes: Sizes) -> Iterator[Case]:
    flat = sizes.flat()
    for name, (kind, target, theirs) in {**PAIRS, **OTHERS}.items():
        for shape in ("huge", "tiny", "odd", "one"):
            two = {"x": Tensor(flat[shape], kind), "y": Tensor(flat[shape], target)}
            call = lambda t, x, y, f=theirs: f(t.nn.functional, x, y)  # noqa: E731
            yield Case(name, shape, two, f"{name}(x, y)", call, ("x",), ("0",))
    for shape in ("huge", "tiny", "odd"):
        x, sign = Tensor(flat[shape]), Tensor(flat[shape], "sign")
        three = {"x": x, "y": x, "v": Tensor(flat[shape], "positive")}
        yield Case("gaussian_nll", shape, three, "gaussian_nll(x, y, v)",
                   lambda t, x, y, v: (0.5 * (t.log(v.clamp_min(1e-6)) + (x - y) ** 2 / v.clamp_min(1e-6))).mean(),
                   ("x", "v"), ("0",))  # fmt: skip
        ranked = {"x": Tensor(flat[shape], "between"), "y": Tensor(flat[shape], "whole"), "s": sign}
        yield Case("margin_ranking", shape, ranked, "margin_ranking(x, y, s)",
                   lambda t, x, y, s: t.nn.functional.margin_ranking_loss(x, y, s), ("x", "y"), ("0",))  # fmt: skip
        yield Case("triplet_margin", shape, {"x": x, "y": x, "z": x}, "triplet_margin(x, y, z)",
                   lambda t, x, y, z: t.nn.functional.triplet_margin_loss(x, y, z), ("x", "y", "z"),
                   ("0",), dtypes=("f32", "f64"))  # fmt: skip
        pair = {"x": x, "y": x, "s": Tensor(flat[shape][:1], "sign")}
        yield Case("cosine_embedding", shape, pair, "cosine_embedding(x, y, s)",
                   lambda t, x, y, s: t.nn.functional.cosine_embedding_loss(x, y, s), ("x", "y"), ("0",))  # fmt: skip
    yield from _classes(sizes)
    yield from _alignment(sizes)


def _classes(sizes: Sizes) -> Iterator[Case]:
    flat = sizes.flat()
    for shape in ("huge", "tiny", "odd", "one", "tall", "wide"):
        rows, columns = flat[shape]
        two = {"x": Tensor((rows, columns)), "i": ids((rows,), columns)}
        for name, function in (("cross_entropy", "cross_entropy"), ("nll", "nll_loss")):
            yield Case(name, shape, two, f"{name}(x, i)",
                       lambda t, x, i, f=function: getattr(t.nn.functional, f)(x, i), ("x",), ("0",))  # fmt: skip
        yield Case("multi_margin", shape, two, "multi_margin(x, i)",
                   lambda t, x, i: t.nn.functional.multi_margin_loss(x, i.long()), ("x",), ("0",),
                   dtypes=("f32", "f64"))  # fmt: skip
        yield Case("accuracy", shape, two, "accuracy(x, i)",
                   lambda t, x, i: (x.argmax(1) == i).float().mean(), out=("0",))  # fmt: skip
    for shape in ("huge", "odd"):
        b, c, h, w = sizes.images()[shape]
        two = {"x": Tensor((b, c, h, w)), "i": ids((b, h, w), c)}
        for name, function in (("cross_entropy", "cross_entropy"), ("nll", "nll_loss")):
            yield Case(name, f"{shape} images", two, f"{name}(x, i, axis=1)",
                       lambda t, x, i, f=function: getattr(t.nn.functional, f)(x, i), ("x",), ("0",))  # fmt: skip
    for shape, size in {"huge": (sizes.elements // 4096, 64), "tiny": (3, 5)}.items():
        two = {"x": Tensor(size), "s": Tensor(size, "sign")}
        yield Case("multilabel_margin", shape, two, "multilabel_margin(x, maximum(s, 0))", _several, ("x",), ("0",),
                   dtypes=("f32", "f64"))  # fmt: skip
    rows, columns = flat["huge"]
    two = {"x": Tensor((rows, columns)), "p": Tensor((rows, columns), "chance")}
    yield Case("cross_entropy", "probabilities", two, "cross_entropy(x, p)",
               lambda t, x, p: t.nn.functional.cross_entropy(x, p), ("x",), ("0",))  # fmt: skip
    top = {"x": Tensor((rows, columns)), "i": ids((rows,), columns)}
    yield Case("accuracy", "top 5", top, "accuracy(x, i, top=5)",
               lambda t, x, i: (x.topk(5, 1).indices == i[:, None]).any(1).float().mean(), out=("0",))  # fmt: skip


def _alignment(sizes: Sizes) -> Iterator[Case]:
    q = sizes.quadratic
    for shape, (b, t, c, n) in {"huge": (16, q, 64, q // 8), "tiny": (2, 8, 5, 3), "one": (1, q // 2, 29, 20)}.items():
        n = min(n, t // 4)
        four = {"x": Tensor((b, t, c)), "i": Tensor((b, n), "below", "i32", c - 1), "n": ids((b,), 1),
                "m": ids((b,), 1)}  # fmt: skip
        before = "p = log_softmax(x)"
        ours = f"ctc(p, i + 1, n + {t}, m + {n})"

        def theirs(torch: Any, x: Any, i: Any, n: Any, m: Any, long: int = t, some: int = n) -> Any:
            p = x.log_softmax(2).transpose(0, 1)
            return torch.nn.functional.ctc_loss(p, i + 1, n + long, m + some)

        yield Case("ctc", shape, four, ours, theirs, ("x",), ("0",), before=before, dtypes=("f32", "f64"))
