"""What to write here for calls as other frameworks write them: methods of tensors, functions with the prefix of a
library, layers that are made and then called. Only the text of a call is known, no value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dslc.dsl import syntax
from dslc.dsl.other_names import FUNCTIONS, WORDS_HERE, argument_hint, key_of, short
from dslc.dsl.span import Span

#: The names before the dot of a library's functions.
LIBRARIES: Final = frozenset(
    ("torch", "nn", "F", "np", "numpy", "tf", "jax", "jnp", "lax", "keras", "layers", "flax", "math", "einops", "ops")
    + ("functional", "torchvision", "optim", "K", "mx", "paddle")
)
_OBJECTS: Final = frozenset(("self", "cls"))
PREFIXES: Final = LIBRARIES | _OBJECTS
_LAYER: Final = "name a layer in its call, `linear(x, 8) as fc`, or declare `layer fc = linear(8)` and call `fc(x)`"

_SHAPE: Final = "sizes are known here: write the size itself, such as `B`, or `x.shape[0]`"
_PLACE: Final = "leave it out: the compiler decides where and how tensors are stored"
_VALUE: Final = "leave it out: a model has no values; `predict` returns numpy arrays"
_CAST: Final = {
    "float": "float", "double": "f64", "half": "f16", "bfloat16": "bf16", "long": "i64", "int": "i32", "short": "i16",
    "char": "i8", "byte": "u8", "bool": "b1",
}  # fmt: skip

#: Methods of tensors that no function here has the name of, in lower case without underscores.
METHODS: Final[Mapping[str, str]] = {
    **{name: f'write `cast(x, "{dtype}")`' for name, dtype in _CAST.items()},
    **dict.fromkeys(("to", "type", "astype", "typeas"), 'write `cast(x, "i32")` for a dtype; the build has the device'),
    **dict.fromkeys(("cuda", "cpu", "contiguous", "clone", "copy", "requiresgrad", "pinmemory", "eval", "train"),
                    _PLACE),
    **dict.fromkeys(("item", "numpy", "tolist", "data"), _VALUE),
    **dict.fromkeys(("size", "dim", "ndim", "numel", "nelement", "shape"), _SHAPE),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"),
                    "write `transpose(x, [0, 2, 1])` with the new order of all axes; `x.T` swaps the last two"),
    "t": "write `x.T`",
    "multiply": "write `x * y`",
    "subtract": "write `x - y`",
    "backward": "leave it out: `loss = ...` in the train section is differentiated",
    **dict.fromkeys(("forward", "apply", "call"), "call it by its name, as `fc(x)`"),
    "append": "write `values = values + [x]`, or `[f(x) for i in 0..4]`",
}  # fmt: skip

#: Words that declare a tensor, and the initial value of an example.
_DECLARED: Final = {"param": "normal(0.02)", "buffer": "0", "state": "0"}

#: Methods whose arguments suit a function of another name.
_RENAMED: Final = {"view": "reshape", "permute": "transpose", "expand": "broadcast_to"}

#: What is written after a dot without being called.
FIELDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("size", "ndim", "rank"), _SHAPE),
    **dict.fromkeys(("mt", "h", "mh"), "write `x.T`, which swaps the last two axes"),
    "dtype": 'write the dtype itself, such as `"f32"`; `dslc check` prints that of each value',
    "device": _PLACE,
    "grad": "write `gradient(y, x)`",
    "data": "write `stop_gradient(x)`",
}


def not_a_name(
    function: syntax.Expr, args: tuple[syntax.Arg, ...], known: Mapping[str, tuple[str, ...]]
) -> tuple[str, str]:
    """The title and the help of the error for a call of something that is no name. ``known``: the built-in functions,
    with the names of their arguments."""
    if isinstance(function, syntax.Call):
        return "the result of a call cannot be called", _in_one(function, args, known)
    if isinstance(function, syntax.Index):
        first = f"f = {short(function.span.text, 'fs[0]')}"
        call = f"f({short(', '.join(arg.span.text for arg in args), '...')})"
        return "only a name can be called", f"give it a name first: `{first}`, then `{call}`"
    if not isinstance(function, syntax.Field):
        return "only a name can be called", "functions are called by name: `f(x)`, or `x |> f`"
    name, before = function.name, function.value
    if prefix_of(function) in _OBJECTS:
        return f"`{short(function.span.text, name)}`: there are no objects", _LAYER
    if prefix_of(function) in LIBRARIES:
        own = _own(name, known)
        help = f"write `{own}`" if own else FUNCTIONS.get(key_of(name), "`dslc ops` lists the built-in functions")
        return f"`{short(function.span.text, name)}`: functions have no prefix", help
    return f"`{name}` is not a method: functions are called by name", _method(name, before, args, known)


def prefix_of(function: syntax.Expr) -> str | None:
    """The first name of ``a.b.c``; None for another expression."""
    while isinstance(function, syntax.Field):
        function = function.value
    return function.name if isinstance(function, syntax.Name) else None


def assigned_name(span: Span, other: str) -> str:
    """The name to which the expression at ``span`` is assigned, as in ``w = f(x)``; ``other`` if it is none."""
    line = span.source.text[: span.start].rpartition("\n")[2]
    found = re.fullmatch(r"(?:.*[{;])?\s*([A-Za-z_]\w*)\s*=\s*", line)
    return found[1] if found else other


def declaration(word: str, args: tuple[syntax.Arg, ...], span: Span) -> str | None:
    """What to write for a call of a word that declares, as ``w = param([4, 8])``."""
    texts = [(arg.name, short(arg.value.span.text, "...")) for arg in args]
    if word == "layer":
        made = next((text for _, text in texts if text.endswith(")")), "linear(8)")
        return f"a layer is declared: write `layer {assigned_name(span, 'fc')} = {made}` as a statement"
    if word not in _DECLARED:
        return None
    shape = next((text for _, text in texts if text.startswith("[")), None)
    if shape is None:
        sizes = [text for name, text in texts if name is None and re.fullmatch(r"[\w+*/ -]+", text)]
        shape = f"[{', '.join(sizes) or 'D, H'}]"
    init = next((text for name, text in texts if name in ("init", "value")), _DECLARED[word])
    name = assigned_name(span, "w" if word == "param" else "h")
    return f"a {word} is declared: write `{word} {name}: {shape} = {init}` as a statement"


def field_hint(name: str) -> str | None:
    """The help for ``x.name``."""
    return FIELDS.get(key_of(name))


def method_hint(name: str) -> str | None:
    """The help for ``x.name()`` if no function here has that name."""
    return METHODS.get(key_of(name))


def as_list(name: str, args: list[str]) -> str:
    """``reshape(x, [B, 4])`` for a function whose second argument is a list, which was given as several."""
    return f"write `{name}({args[0]}, [{', '.join(args[1:])}])`"


def _in_one(made: syntax.Call, args: tuple[syntax.Arg, ...], known: Mapping[str, tuple[str, ...]]) -> str:
    """The help for a layer that is made and then called: ``nn.Linear(4)(x)``."""
    called = made.function.name if isinstance(made.function, syntax.Name | syntax.Field) else ""
    own = _own(called, known)
    if own is None and (hint := FUNCTIONS.get(key_of(called))):
        return hint
    first = short(args[0].value.span.text, "x") if args else "x"
    names = known.get(own or "", ())
    args_made = made.args[_sizes_of_input(own or "", made.args, names) :]
    texts = ", ".join(_argument(arg, names) for arg in args_made)
    return f"the tensor is its first argument: write `{first} |> {own or called or 'f'}({texts})`"


def _sizes_of_input(own: str, args: tuple[syntax.Arg, ...], names: tuple[str, ...]) -> int:
    """How many of a layer's first arguments are the size of its input, which is known here: the first of two numbers of
    `nn.Linear(8, 4)`, the only one of `nn.LayerNorm(8)`."""
    numbers = [arg.name is None and isinstance(_number(arg.value), int) for arg in args]
    two = numbers[:2] == [True, True] and names[1:2] in (("out",), ("hidden",))
    return int(two or (numbers[:1] == [True] and own in ("layernorm", "rmsnorm", "batchnorm", "instancenorm")))


def _method(name: str, before: syntax.Expr, args: tuple[syntax.Arg, ...], known: Mapping[str, tuple[str, ...]]) -> str:
    x, key = short(before.span.text, "x"), key_of(name)
    if key in METHODS:
        return METHODS[key]
    own = _RENAMED.get(key) or _own(name, known)
    if own is None:
        return FUNCTIONS.get(key) or f"write `{x} |> f`, where `f` is a function or a block; `dslc ops` lists them"
    names = known[own]
    if names[1:2] and names[1] in ("shape", "perm", "counts") and len(args) > 1:
        return as_list(own, [x, *(short(arg.value.span.text, "...") for arg in args)])
    texts = [_argument(arg, names) for arg in args]
    return f"write `{x} |> {own}{'(' + ', '.join(texts) + ')' if texts else ''}`"


def _argument(arg: syntax.Arg, names: tuple[str, ...]) -> str:
    """An argument, with the name that it has here."""
    text = short(arg.value.span.text, "...")
    text = WORDS_HERE.get(text, text)
    if arg.name is None or arg.name in names:
        return text if arg.name is None else f"{arg.name}={text}"
    hint = (argument_hint(arg.name, names, text, _number(arg.value)) or "").split("`")
    return hint[1] if len(hint) == 3 else f"{arg.name}={text}"


def _number(expr: syntax.Expr) -> object:
    """The value of a number or a list of numbers, as written."""
    match expr:
        case syntax.Number(value=value):
            return value
        case syntax.Unary(op="-", value=syntax.Number(value=value)):
            return -value
        case syntax.List(items=items) | syntax.Tuple(items=items):
            return [_number(item) for item in items]
    return None


def _own(name: str, known: Mapping[str, tuple[str, ...]]) -> str | None:
    """The built-in function of this name, however it is written: `LayerNorm`, `layer_norm`."""
    return next((each for each in known if key_of(each) == key_of(name)), None)


def adds_axis(item: syntax.Expr) -> bool:
    """True for an item of an index by which numpy adds an axis: `x[:, None]`, `x[np.newaxis]`."""
    if isinstance(item, syntax.Field):
        return item.name == "newaxis" and prefix_of(item) in LIBRARIES
    return isinstance(item, syntax.Name) and item.name in ("None", "none")


def unsqueezed(expr: syntax.Index) -> str:
    """What to write for an index that adds axes: `unsqueeze(x, 1)` for `x[:, None]`."""
    counts = [_axes_of(item) for item in expr.items if not isinstance(item, syntax.Rest)]
    if None in counts:
        return "write `unsqueeze(x, axis)`, whose axis counts in the result"
    rests = [i for i, item in enumerate(expr.items) if isinstance(item, syntax.Rest)]
    after = rests[0] if rests else len(expr.items)  # from here on, axes are counted from the last one
    places = []
    for at, item in enumerate(expr.items):
        if adds_axis(item):
            others = expr.items[:at] if at < after else expr.items[at + 1 :]
            count = sum(_axes_of(other) or 0 for other in others)
            places.append(count if at < after else -1 - count)
    kept = [item.span.text for item in expr.items if not adds_axis(item)]
    part = "" if all(text in (":", "...") for text in kept) else f"[{', '.join(kept)}]"
    value = short(expr.value.span.text + part, "x")
    return f"write `unsqueeze({value}, {places[0] if len(places) == 1 else places})`"


def _axes_of(item: syntax.Expr) -> int | None:
    """How many axes an item of an index gives to the result; None if its text does not tell."""
    if isinstance(item, syntax.Slice) or adds_axis(item):
        return 1
    number = item.value if isinstance(item, syntax.Unary) else item
    return 0 if isinstance(number, syntax.Number) else None
