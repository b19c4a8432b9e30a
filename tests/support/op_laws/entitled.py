"""What an op is entitled to lose at special values, each with its reason: the one table of exceptions to the laws of
``special_values.py``.

An op's results in f32 may differ from those in f64 by ``ULPS`` units of the result. Those that add numbers up err by
units of the sum of their sizes instead, since no order of adding saves more; what is listed here is allowed besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dslc.compiler.ops import registry
from dslc.compiler.ops.optimizer.optim import Update

#: Units in the last place of f32 that any value may be off.
ULPS: Final = 16.0

#: Sums of products of their inputs: a unit is one of the same sums of sizes. Of a zero they give, the sign is that of
#: the order of adding.
SUMS: Final = frozenset({
    "sum", "mean", "sum_to", "matmul", "contraction", "of_panels", "cumsum",
    *("conv", "conv_dgrad", "conv_wgrad", "conv_last", "conv_dgrad_last", "conv_wgrad_last"),
    *("avgpool", "avgpool_grad", "avgpool_last", "avgpool_grad_last", "maxpool_grad", "maxpool_grad_last"),
    *("adaptive_avgpool", "adaptive_avgpool_grad", "interpolate", "interpolate_grad", "fold"),
    *("adaptive_avgpool_last", "adaptive_avgpool_grad_last", "interpolate_last", "interpolate_grad_last"),
    *("border_grad", "scatter_add", "scatter_rows_add", "weighted_rows", "weighted_rows_dot", "ordered_rows"),
    "recurrence",
})  # fmt: skip

#: Ops that multiply, divide or subtract such sums. The sign of a sum that is 0 decides that of a zero they give, so it
#: is that of the order of adding, too.
SIGNED_BY_SUMS: Final = frozenset({"softmax_grad", "log_softmax_grad", "sdpa", "strided_sdpa", "few_queries_sdpa"})


@dataclass(frozen=True)
class Excuse:
    """``feeds``: words, one of which is in the names of the feeds that are excused ("": all of them). ``absolute``:
    the error there, in units of 1; None: anything."""

    feeds: tuple[str, ...]
    why: str
    absolute: float | None = None


def allowed(excuses: tuple[Excuse, ...], feed: str) -> float | None:
    """The absolute error that is excused at a feed of this name; None: any."""
    found = [e.absolute for e in excuses if any(word in feed for word in e.feeds)]
    return None if None in found else max((a for a in found if a is not None), default=0.0)


_TOP = ("larger", "most", "least")
_HUGE = ("large", *_TOP)
_SQUARES = "squares beyond 1.8e19 overflow, and below 1e-23 vanish, as in PyTorch"
_BACK = "a gradient of statistics that are given: where these fit no x, or dy has an offset, sums cancel"

#: op -> what its forward results may lose.
FORWARD: Final[dict[str, tuple[Excuse, ...]]] = {
    "gelu": (Excuse(("",), "far below 0 by 1 + erf or tanh, which cancels: an absolute error, as in PyTorch", 1e-6),),
    "gelu_grad": (Excuse(("",), "as gelu, times dy, which may be anything"),),
    "path_loss": (Excuse(_HUGE, "sums of scores of both signs cancel, or overflow, in the order of the times"),),
    "path_scan": (Excuse(_TOP, "products of both signs cancel, or overflow, in the order of the times"),),
    "recurrence": (Excuse(_TOP, "products of both signs cancel, or overflow, in the order of the elements"),),
    **dict.fromkeys(
        ("cholesky", "lu"), (Excuse(("",), "a pivot that cancels enlarges the rounding of all that follows it"),)
    ),
    "triangular_solve": (
        Excuse(("denormal", "small", *_TOP), "a quotient or a product overflows before the next makes it less"),
    ),
    "logcumsumexp_grad": (
        Excuse(("far", "saturated", *_TOP), "y need not be the sums of x: their exponentials overflow"),
    ),
    "path_loss_grad": (Excuse(("far", "saturated", *_HUGE), "an exponential enlarges the rounding of what it is of"),),
    "contraction": (Excuse((*_HUGE, "denormal"), "what becomes of its sums overflows, or divides by 0"),),
    **dict.fromkeys(
        ("lgamma", "polygamma"),
        (Excuse(("",), "sums cancel near a zero below 0 or between 1 and 2, as in PyTorch", 1e-5),),
    ),
    "silu": (Excuse(("",), "x * sigmoid(x), of which the latter is a denormal", 1e-40),),
    "hardswish": (Excuse(("",), "x * 6 overflows before the division by 6, beyond 5.6e37, as in PyTorch"),),
    "bce_with_logits": (Excuse(("",), "|x| * (1 - t), which overflows where a target is far outside of 0..1"),),
    **dict.fromkeys(
        (
            "multi_update",
            *(name for name, op in registry.ops().items() if isinstance(op, Update) and op.slots),
        ),
        (
            Excuse((*_HUGE, "denormal", "small"), _SQUARES),
            Excuse(("offset", "far"), "running means and differences of squares: errors of their greatest term"),
            Excuse(("",), "running means and differences of squares: errors of their greatest term", 1e-5),
        ),
    ),
    **dict.fromkeys(
        (
            "mean",
            *(f"{kind}avgpool{of}" for kind in ("", "adaptive_") for of in ("", "_grad", "_last", "_grad_last")),
        ),
        (Excuse(_TOP, "the sum before the division overflows"),),
    ),
    **dict.fromkeys(
        ("interpolate", "interpolate_grad", "interpolate_last", "interpolate_grad_last"),
        (
            Excuse(_TOP, "a sum of pixels overflows before those with a negative weight make it less"),
            Excuse(("large",), "weights of both signs, which are rounded, cancel in the share of a large pixel"),
            Excuse(("offset",), "weights of both signs, which are rounded, cancel an offset: its 16 units", 1e-2),
        ),
    ),
    **dict.fromkeys(
        ("batchnorm", "batchnorm_last", "groupnorm", "groupnorm_last", "layernorm"),
        (
            Excuse(_HUGE, _SQUARES),
            # of the statistics see test_moments_of_an_offset_keep_their_digits
            Excuse(("offset",), "x less the mean, which is rounded: half a unit of the offset, as in PyTorch"),
        ),
    ),
    "rmsnorm": (Excuse(_HUGE, _SQUARES),),
    "norm": (Excuse(("denormal", "small", *_HUGE), _SQUARES),),
    "global_norm": (Excuse(("denormal", *_HUGE), _SQUARES),),
    **{f"{norm}norm_grad": (Excuse(("",), _BACK),) for norm in ("batch", "group", "layer", "rms")},
    **{f"{norm}norm_grad_last": (Excuse(("",), _BACK),) for norm in ("batch", "group")},
    **dict.fromkeys(
        ("channel_sums", "group_moments", "group_slopes"), (Excuse(("",), "sums that need not be those of one tensor"),)
    ),
    "softmax_grad": (Excuse((*_TOP, "offset"), "dy - sum(y * dy), where y need not be a softmax"),),
    "log_softmax_grad": (
        Excuse(("far", *_TOP), "exp(y) * sum(dy), where y need not be a logarithm"),
        Excuse(("small", "offset"), "dy - sum(dy) of a single class cancels", 1e-6),
    ),
    "scatter_rows_add": (
        Excuse(("denormal", "small", "far", "large"), "thousands of rows of one id are added one after another"),
    ),
    "scatter_reduce": (Excuse(_TOP, "a product overflows before a factor below 1"),),
    "softmax_cross_entropy": (Excuse(("larger",), "the mean of distances near the greatest number overflows"),),
    "softmax_cross_entropy_both": (
        Excuse(("larger",), "the mean of distances near the greatest number overflows"),
        Excuse(("",), "shares less the wanted ones, which for one class are 0 but for rounding", 2e-6),
    ),
    "softmax_cross_entropy_grad": (
        Excuse(("far", "large", "denormal in input 3", *_TOP), "statistics that fit no logits: exponentials overflow"),
        Excuse(("",), "shares less the wanted ones", 2e-6),
    ),
    **dict.fromkeys(
        ("sdpa", "strided_sdpa", "few_queries_sdpa"),
        (
            Excuse(_HUGE, "scores overflow"),
            Excuse(("offset",), "scores are sums of products, whose error is one of an exponent"),
            Excuse(("saturated", "far"), "scores are sums of products, whose error is one of an exponent", 1e-4),
            Excuse(("halves",), "the logarithm of a sum near 1 is near 0", 1e-6),
        ),
    ),
    **dict.fromkeys(
        ("sdpa_grad", "strided_sdpa_grad"),
        (Excuse(("",), "a gradient of statistics that are given, through scores as sdpa's"),),
    ),
    "fused_sums": (Excuse(("",), "sums of whatever its steps make"),),
    "fused_rows": (Excuse(("",), "rows of whatever its steps make"),),
    "finished_sums": (Excuse(("",), "sums of whatever its steps make"),),
}

#: op -> where a kernel may differ from the reference, besides.
KERNELS: Final[dict[str, tuple[Excuse, ...]]] = {
    **dict.fromkeys(
        ("conv", "conv_dgrad", "conv_wgrad", "conv_last", "conv_dgrad_last", "conv_wgrad_last"),
        (
            Excuse(
                ("infinit", "nan"), "zeros around an image or between its elements, times what is not finite, are nan"
            ),
        ),
    ),
    **dict.fromkeys(
        ("interpolate", "interpolate_grad", "interpolate_last", "interpolate_grad_last", "fold"),
        (Excuse(("infinit", "nan", *_TOP), "a neighbour of weight 0 counts where it is not finite"),),
    ),
}

#: op -> what its gradients may lose.
GRADIENT: Final[dict[str, tuple[Excuse, ...]]] = {
    "sigmoid": (Excuse(("",), "y * (1 - y) from the result alone, as in PyTorch", 1e-6),),
    "tanh": (Excuse(("",), "1 - y * y from the result alone, as in PyTorch", 1e-6),),
    "mish": (Excuse(("",), "x * (1 - tanh(softplus(x))^2), as in PyTorch", 5e-6),),
    **dict.fromkeys(("atan", "atanh"), (Excuse(("",), "1 / x^2, whose square overflows beyond 1.8e19", 1e-38),)),
    **dict.fromkeys(
        ("lgamma", "polygamma"),
        (Excuse(("",), "sums cancel near a zero below 0 or between 1 and 2, as in PyTorch", 1e-5),),
    ),
    "silu": (Excuse(("",), "through 1 - sigmoid(x), as in PyTorch", 1e-6),),
    "gelu": (Excuse(("",), "1 + erf or tanh far below 0, and x^2 beyond 1.8e19, as in PyTorch"),),
    "bce_with_logits": (Excuse(("",), "sigmoid(x) - t, a difference", 1e-6),),
    "div": (Excuse(("",), "dy / y, the other input's gradient, overflows for a denormal y"),),
    "pow": (Excuse(("",), "x^(y - 1) overflows for a denormal x, and y - 1 rounds"),),
    "norm": (Excuse(("denormal", "small", *_HUGE), _SQUARES),),
    "softmax": (Excuse(("",), "y * (dy - sum(y * dy)), which is 0 for equal dy", 1e-6),),
    "log_softmax": (Excuse(("",), "dy - exp(y) * sum(dy), which cancels for one class", 2e-6),),
    "softmax_cross_entropy": (Excuse(("",), "shares less the wanted ones", 2e-6),),
    "logsumexp": (Excuse(("larger",), "distances of numbers near the greatest overflow"),),
}
