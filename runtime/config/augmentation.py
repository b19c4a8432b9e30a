"""Reads ``data.augment`` and ``data.mix``. Each step declares its options (``runtime/data/augment/step.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from dslc.runtime.config.readers import (
    ANY_NUMBER,
    Reader,
    boolean,
    identifier,
    integer,
    mapping,
    number,
    refuse,
    shown,
    text,
    unknown,
)
from dslc.runtime.config.yaml import Value
from dslc.runtime.data.augment.apply import KINDS
from dslc.runtime.data.augment.mix import Mix
from dslc.runtime.data.augment.step import Option, Step

#: The steps of an input, or the name of the input whose mask it is.
Augmentation: TypeAlias = tuple[Step, ...] | str

_MOST: Final = 16  # steps of a list
_LEAST_ALPHA: Final = 0.01  # smaller ones give shares of 0 and 1 only


def _channels(value: Value, name: str) -> tuple[float, ...]:
    items = value.data if isinstance(value.data, list) else [value]
    if not items:
        refuse(value, f"`{name}` is empty", "write a number, or one for each channel")
    return tuple(ANY_NUMBER(item, name) for item in items)


def _pair(option: Option) -> Reader:
    def read(value: Value, name: str) -> tuple[float, float]:
        help = f"write two numbers from {option.low:g} to {option.high:g}, such as `[{option.low:g}, {option.high:g}]`"
        if not isinstance(value.data, list) or len(value.data) != 2:
            refuse(value, f"`{name}` is a range of two numbers, not {shown(value)}", help)
        low, high = (number(option.low, option.high)(item, name) for item in value.data)
        if low > high:
            refuse(value, f"`{name}` starts at {low:g} and ends at {high:g}", "write the smaller number first")
        return low, high

    return read


_READERS: Final[Mapping[str, Callable[[Option], Reader]]] = {
    "number": lambda option: number(option.low, option.high),
    "whole": lambda option: integer(int(option.low), int(option.high)),
    "pair": _pair,
    "channels": lambda option: _channels,
    "flag": lambda option: boolean,
}


def _step(kind: type[Step], value: Value, name: str) -> Step:
    options = {key: _READERS[option.kind](option) for key, option in kind.options().items()}
    help = f"write `{kind.example}`"
    found: dict[str, Any] = {}
    if kind.short is not None and not isinstance(value.data, dict):
        found[kind.short] = options[kind.short](value, name)
    else:
        for key, option in mapping(value, name).items():
            if key not in options:
                unknown(option, key, options, f"`{name}`")
            found[key] = options[key](option, f"{name}.{key}")
    required = kind.required()
    if not found.keys() >= set(required):
        refuse(value, f"`{name}` needs {' and '.join(f'`{each}`' for each in required)}", help)
    try:
        return kind(**found)
    except ValueError as error:
        refuse(value, f"`{name}` {error}", help)


def augmentation(value: Value, name: str) -> Augmentation:
    """The steps of an input; or the name of another input, whose mask it is."""
    help = "write `[{flip: 0.5}, {crop: {pad: 2}}]`, or for a mask the name of its image"
    if isinstance(value.data, str) and identifier(value.data):
        return value.data
    if not isinstance(value.data, list) or not 0 < len(value.data) <= _MOST:
        refuse(value, f"`{name}` is a list of 1 to {_MOST} steps, not {shown(value)}", help)
    found: list[Step] = []
    for item in value.data:
        if not isinstance(item.data, dict) or len(item.data) != 1:
            refuse(item, f"a step of `{name}` is one name with its value, not {shown(item)}", help)
        [(kind, inner)] = item.data.items()
        if kind not in KINDS:
            unknown(inner, kind, KINDS, f"`{name}`")
        found.append(_step(KINDS[kind], inner, f"{name}.{kind}"))
    return tuple(found)


def mixing(value: Value, name: str) -> Mix | None:
    if value.data is None:
        return None
    help = "write `{image: image, label: label, other: label_b, share: lam, mixup: 0.2}`"
    inputs, found = ("image", "label", "other", "share"), dict[str, Any]()
    alphas = {"mixup": number(0.0, 4.0), "cutmix": number(0.0, 4.0), "p": number(0.0, 1.0)}
    for key, option in mapping(value, name).items():
        if key in inputs:
            found[key] = text(option, f"{name}.{key}")
        elif key in alphas:
            found[key] = alphas[key](option, f"{name}.{key}")
        else:
            unknown(option, key, (*inputs, *alphas), f"`{name}`")
    if not found.keys() >= set(inputs):
        refuse(value, f"`{name}` needs {', '.join(f'`{each}`' for each in inputs)}, names of inputs", help)
    if len({found[key] for key in inputs}) < len(inputs):
        refuse(value, f"`{name}` names an input twice", help)
    alpha = {key: found.get(key, 0.0) for key in ("mixup", "cutmix")}
    if not any(alpha.values()) or any(0.0 < each < _LEAST_ALPHA for each in alpha.values()):
        refuse(value, f"`{name}` needs `mixup` or `cutmix` from {_LEAST_ALPHA:g} to 4", help)
    return Mix(**found)
