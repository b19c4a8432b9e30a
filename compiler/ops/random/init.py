"""Initialisers of parameters, with PyTorch's formulas, fans and defaults.

The language writes ``init=normal(0.02)``; ``initialiser`` converts it to an ``Init``, ``from_tensor`` makes one of
constants, and ``resolve`` turns a scheme that depends on the shape (xavier, kaiming, lecun) into ``constant``,
``uniform``, ``normal`` or ``trunc_normal``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dslc.compiler.ir.function import Init
from dslc.compiler.ir.graph import Body, Input, Kind, Value, order
from dslc.compiler.ir.op import OPS, Builder, Mismatch
from dslc.compiler.ir.sizes import Poly, Size, to_fix
from dslc.compiler.ir.types import DType, TensorType
from dslc.compiler.ops.random.quantile import normal_probability


@dataclass(frozen=True, slots=True)
class Initialiser:
    """An initialiser of the language. ``forms`` are its argument lists; a form's last arguments may be
    omitted if ``defaults`` has them. ``page`` is its documentation."""

    name: str
    forms: tuple[tuple[str, ...], ...]
    defaults: Mapping[str, float]
    page: str


INITIALISERS: Final[dict[str, Initialiser]] = {
    i.name: i
    for i in (
        Initialiser("zeros", ((),), {}, "zeros: every element 0."),
        Initialiser("ones", ((),), {}, "ones: every element 1."),
        Initialiser("constant", (("value",),), {}, "constant(value): every element this value, like a plain number."),
        Initialiser(
            "uniform", (("a",), ("low", "high")), {}, "uniform(a): uniform between -a and a. uniform(low, high)."
        ),
        Initialiser(
            "normal", (("std",), ("mean", "std")), {}, "normal(std): Gaussian with mean 0. normal(mean, std)."
        ),
        Initialiser(
            "trunc_normal",
            (("std",), ("mean", "std"), ("mean", "std", "a", "b")),
            {},
            "trunc_normal(std): Gaussian with mean 0, truncated at 2 std on both sides. trunc_normal(mean, std). "
            "trunc_normal(mean, std, a, b): truncated at a and b.",
        ),
        Initialiser("lecun_uniform", ((),), {}, "lecun_uniform: uniform between -a and a, a = sqrt(3 / fan_in)."),
        Initialiser("lecun_normal", ((),), {}, "lecun_normal: Gaussian with std = sqrt(1 / fan_in)."),
        Initialiser(
            "xavier_uniform",
            (("gain",),),
            {"gain": 1.0},
            "xavier_uniform(gain=1): uniform between -a and a, a = gain * sqrt(6 / (fan_in + fan_out)).",
        ),
        Initialiser(
            "xavier_normal",
            (("gain",),),
            {"gain": 1.0},
            "xavier_normal(gain=1): Gaussian with std = gain * sqrt(2 / (fan_in + fan_out)).",
        ),
        Initialiser(
            "kaiming_uniform",
            (("a", "mode"),),
            {"a": 0.0, "mode": 0.0},
            'kaiming_uniform(a=0, mode="fan_in"): uniform between -b and b, b = sqrt(6 / ((1 + a^2) * fan_in)); a: the '
            'leaky slope; mode="fan_out": fan_out in the place of fan_in.',
        ),
        Initialiser(
            "kaiming_normal",
            (("a", "mode"),),
            {"a": 0.0, "mode": 0.0},
            'kaiming_normal(a=0, mode="fan_in"): Gaussian with std = sqrt(2 / ((1 + a^2) * fan_in)); a: the leaky '
            'slope; mode="fan_out": fan_out in the place of fan_in.',
        ),
        Initialiser(
            "orthogonal",
            (("gain",),),
            {"gain": 1.0},
            "orthogonal(gain=1): gain times a random matrix [out, rest] with orthonormal rows, or columns if fewer.",
        ),
    )
}  # fmt: skip

_NOT_NEGATIVE: Final = {"std", "gain"}

#: The kinds that ``resolve`` returns.
RESOLVED: Final = ("constant", "uniform", "normal", "trunc_normal", "orthogonal", "values")


#: the values of the argument ``mode``, as numbers of an ``Init``
MODES: Final = {"fan_in": 0.0, "fan_out": 1.0}


def initialiser(name: str, positional: Sequence[float] = (), named: Mapping[str, float] | None = None) -> Init:
    """The ``Init`` that ``name(*positional, **named)`` means.

    Raises Mismatch: E0101 for an unknown name, E0201 for arguments that match no form, E0209 for one out of range.
    """
    if name not in INITIALISERS:
        raise Mismatch(f"`{name}` is not an initialiser", "one of " + ", ".join(sorted(INITIALISERS)), "E0101")
    known, named = INITIALISERS[name], dict(named or {})
    args = _bound(known, positional, named)
    if args is None:
        shown = " or ".join(f"{name}({', '.join(form)})" for form in known.forms)
        raise Mismatch(f"the arguments do not fit `{name}`", f"write {shown}", "E0201")
    for argument, value in args.items():
        if argument == "mode" and value not in MODES.values():
            raise Mismatch(f"`mode` of `{name}` is {value:g}", 'mode="fan_in" or mode="fan_out"', "E0209")
        if not math.isfinite(value) or (argument in _NOT_NEGATIVE and value < 0):
            raise Mismatch(f"`{argument}` of `{name}` is {value:g}", "a finite number, at least 0", "E0209")
    match name:
        case "zeros":
            return Init("constant", (0.0,))
        case "ones":
            return Init("constant", (1.0,))
        case "uniform":
            low, high = (args["low"], args["high"]) if "low" in args else (-abs(args["a"]), abs(args["a"]))
            if low > high:
                raise Mismatch(f"`uniform` from {low:g} to {high:g}", f"uniform({high:g}, {low:g})", "E0209")
            return Init("uniform", (low, high))
        case "normal":
            return Init("normal", (args.get("mean", 0.0), args["std"]))
        case "trunc_normal":
            return _truncated(args)
        case _:
            return Init(name, tuple(args.values()))


#: the least probability mass that a truncation may leave
_LEAST_SHARE: Final = 1e-3


def _truncated(args: Mapping[str, float]) -> Init:
    mean, std = args.get("mean", 0.0), args["std"]
    a, b = args.get("a", mean - 2 * std), args.get("b", mean + 2 * std)
    if a > b or (std == 0 and not a <= mean <= b):
        raise Mismatch(
            f"`trunc_normal` truncated at {a:g} and {b:g}", "the lower bound first, the mean inside", "E0209"
        )
    if std:
        low, high = (normal_probability((bound - mean) / std) for bound in (a, b))
        if high - low < _LEAST_SHARE:
            why = f"`trunc_normal` with mean {mean:g}, std {std:g} has almost no values between {a:g} and {b:g}"
            raise Mismatch(why, f"bounds around the mean, or uniform({a:g}, {b:g})", "E0209")
    return Init("trunc_normal", (mean, std, a, b))


def complete(name: str) -> bool:
    """True for an initialiser that needs no argument, so that it may be written without parentheses."""
    known = INITIALISERS.get(name)
    return known is not None and any(all(a in known.defaults for a in form) for form in known.forms)


def _bound(known: Initialiser, positional: Sequence[float], named: dict[str, float]) -> dict[str, float] | None:
    for form in known.forms:
        if len(positional) > len(form) or set(named) - set(form[len(positional) :]):
            continue
        given = dict(zip(form, positional)) | named
        if all(a in given or a in known.defaults for a in form):
            return {a: float(given.get(a, known.defaults.get(a, 0.0))) for a in form}
    return None


def constant(value: float) -> Init:
    """Every element is ``value``: the initialiser that a plain number denotes."""
    return Init("constant", (float(value),))


def from_tensor(value: Value) -> Init:
    """The elements of a float tensor that is computed from constants alone.

    Raises Mismatch: E0202 for integers, and for a tensor that anything but constants determines; E0307 for one that
    depends on a dim.
    """
    if value.type.dtype is not DType.FLOAT:
        raise Mismatch(f"initial values are floats, this is {value.type}", 'convert it: `cast(x, "float")`', "E0202")
    nodes = order([value])
    for each in (value, *(v for node in nodes for v in node.inputs)):
        source = each.producer
        if isinstance(source, Input) and source.kind is not Kind.CONSTANT:
            what = "random draws" if source.kind is Kind.SCALAR else f"`{source.name}`"
            why = f"initial values are computed from constants alone, these depend on {what}"
            raise Mismatch(why, "an initialiser such as `normal(0.02)`, or a tensor of constants", "E0202")
    if any(_symbolic((node.types, *node.attrs.values())) for node in nodes):
        raise Mismatch(
            "these initial values depend on a dim",
            "initial values are the same for every built size: use a constant",
            "E0307",
        )
    return Init("values", values=value)


def _symbolic(attr: object) -> bool:
    """True if a size in an attribute, or in a type, is not known."""
    if isinstance(attr, TensorType):
        return _symbolic(attr.shape)
    if isinstance(attr, Body):
        return any(_symbolic((node.types, *node.attrs.values())) for node in attr.graph.nodes)
    return isinstance(attr, Poly) or (isinstance(attr, tuple) and any(map(_symbolic, attr)))


def fan_in_uniform(fan_in: Size) -> Init:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default for weight and bias of linear and convolutions.

    Raises Mismatch E0307 if the fan contains a dim: parameters have fixed shapes.
    """
    if not isinstance(fan_in, int):
        raise Mismatch(f"the weight's shape would contain the dim in {fan_in}", to_fix(fan_in), "E0307")
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Init("uniform", (-bound, bound))


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight ``[out, in, *k]``: the number of inputs and outputs of an element.

    Raises Mismatch E0203 for a rank below 2.
    """
    if len(shape) < 2:
        raise Mismatch(
            f"xavier, kaiming, lecun and orthogonal need a weight of rank 2 or more, got rank {len(shape)}",
            "`normal(0.02)` or `zeros`",
        )
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive


def _broadcasts(own: Sequence[int], shape: Sequence[int]) -> bool:
    pairs = zip(reversed(own), reversed(shape))
    return len(own) <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def resolve(init: Init, shape: Sequence[int]) -> Init:
    """``init`` for a parameter of this shape, as one of ``RESOLVED``: ``constant(value)``, ``uniform(low, high)``,
    ``normal(mean, std)``, ``trunc_normal(mean, std, a, b)``, for a rank of 2 or more ``orthogonal(gain)``, or
    ``values`` that broadcast to the shape.

    Formulas: LeCun et al. 1998, Glorot and Bengio 2010, He et al. 2015, with PyTorch's fans. Raises Mismatch.
    """
    if init.kind == "orthogonal":
        fans(shape)  # Mismatch for a vector
        return init if math.prod(shape) else constant(0)
    if init.values is not None and not _broadcasts(init.values.type.ints, shape):
        why = f"initial values of the shape {list(init.values.type.ints)} for the shape {list(shape)}"
        raise Mismatch(why, "a shape that broadcasts to it, as in numpy", "E0302")
    if init.kind in RESOLVED:
        return init
    fan_in, fan_out = fans(shape)
    if not math.prod(shape):
        return constant(0)
    match init.kind:
        case "lecun_uniform" | "lecun_normal":
            std = math.sqrt(1 / fan_in)
        case "xavier_uniform" | "xavier_normal":
            std = init.args[0] * math.sqrt(2 / (fan_in + fan_out))
        case "kaiming_uniform" | "kaiming_normal":
            slope, mode = init.args
            std = math.sqrt(2 / ((1 + slope**2) * (fan_out if mode else fan_in)))
        case _:
            raise AssertionError(f"no such initialiser: {init}")
    if init.kind.endswith("uniform"):
        bound = math.sqrt(3) * std
        return Init("uniform", (-bound, bound))
    return Init("normal", (0.0, std))


#: the attributes of ops that draw initial values
_NUMBERS: Final = {
    "uniform": ("low", "high"),
    "normal": ("mean", "std"),
    "trunc_normal": ("mean", "std", "a", "b"),
    "orthogonal": ("gain",),
}


def initial_value(b: Builder, start: Init, seed: Value, key: int, shape: tuple[int, ...]) -> Value:
    """The tensor of this shape that a resolved ``Init`` makes; draws depend on ``seed`` and ``key``."""
    if start.values is not None:
        return b(OPS["expand"], start.values, shape=shape)
    if start.kind == "constant":
        return b(OPS["full"], value=start.args[0], dtype=DType.FLOAT, shape=shape)
    attrs = dict(zip(_NUMBERS[start.kind], start.args, strict=True))
    return b(OPS[f"init_{start.kind}"], seed, key=key, shape=shape, dtype=DType.FLOAT, **attrs)
