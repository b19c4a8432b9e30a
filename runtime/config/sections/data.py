"""The section ``data``: sources, augmentation, bad samples."""

from __future__ import annotations

from typing import Any, Final

from dslc.runtime.config.policies import BadPolicy, on_bad
from dslc.runtime.config.readers import (
    ANY_NUMBER,
    Field,
    Reader,
    boolean,
    integer,
    mapping,
    number,
    refuse,
    shown,
    text,
    unknown,
)
from dslc.runtime.config.yaml import Value
from dslc.runtime.data.augment import Crop, Flip, Normalize, Step
from dslc.runtime.data.names import HELP, split


def data_source(value: Value, name: str) -> str:
    source = text(value, name)
    try:
        split(source)
    except ValueError as error:
        refuse(value, f"`{name}` is not an array in a file: {shown(value)}: {error}", HELP)
    return source


def fraction(value: Value, name: str) -> float | None:
    """A number between 0 and 1, both excluded, or null."""
    if value.data is None:
        return None
    found: float = number(0.0, 1.0)(value, name)
    if found in (0.0, 1.0):
        refuse(value, f"`{name}` = {found:g} leaves nothing to train or to evaluate", "write a fraction such as 0.1")
    return found


def _by_channel(value: Value, name: str) -> tuple[float, ...]:
    items = value.data if isinstance(value.data, list) else [value]
    if not items:
        refuse(value, f"`{name}` is empty", "write a number, or one for each channel")
    return tuple(ANY_NUMBER(item, name) for item in items)


def _normalize(value: Value, name: str) -> Normalize:
    options = {"mean": _by_channel, "std": _by_channel, "scale": ANY_NUMBER}
    found: dict[str, Any] = {}
    for key, option in mapping(value, name).items():
        if key not in options:
            unknown(option, key, options, f"`{name}`")
        found[key] = options[key](option, f"{name}.{key}")
    if "mean" not in found or "std" not in found:
        refuse(value, f"`{name}` needs `mean` and `std`", "write `{normalize: {mean: [0.5], std: [0.2], scale: 255}}`")
    if 0.0 in found["std"] or found.get("scale") == 0.0:
        refuse(value, f"`{name}` would divide by zero", "write the standard deviation of the data")
    return Normalize(**found)


def _crop(value: Value, name: str) -> Crop:
    options = mapping(value, name)
    for key, option in options.items():
        if key != "pad":
            unknown(option, key, ("pad",), f"`{name}`")
    if "pad" not in options:
        refuse(value, f"`{name}` needs `pad`", "write `{crop: {pad: 4}}`, in pixels")
    return Crop(integer(1, 4096)(options["pad"], f"{name}.pad"))


_STEPS: Final[dict[str, Reader]] = {
    "flip": lambda value, name: Flip(number(0.0, 1.0)(value, name)),
    "crop": _crop,
    "normalize": _normalize,
}


def augmentation(value: Value, name: str) -> tuple[Step, ...]:
    help = "write `[{flip: 0.5}, {crop: {pad: 2}}]`"
    if not isinstance(value.data, list) or not 0 < len(value.data) <= 16:
        refuse(value, f"`{name}` is a list of 1 to 16 steps, not {shown(value)}", help)
    found: list[Step] = []
    for item in value.data:
        if not isinstance(item.data, dict) or len(item.data) != 1:
            refuse(item, f"a step of `{name}` is one name with its value, not {shown(item)}", help)
        [(kind, inner)] = item.data.items()
        if kind not in _STEPS:
            unknown(inner, kind, _STEPS, f"`{name}`")
        found.append(_STEPS[kind](inner, f"{name}.{kind}"))
    return tuple(found)


def described(value: Value, name: str) -> Any:
    from dslc.runtime.config.sections.columns import columns  # only a configuration with this field needs it

    return columns(value, name)


FIELDS: Final[tuple[Field, ...]] = (
    Field("data.train", data_source, {}, "file of each input of the model and of train", text=True, open=True),
    Field("data.eval", data_source, {}, "the same for evaluation", text=True, open=True),
    Field("data.split", fraction, None, "fraction of the training rows reserved for evaluation, instead of data.eval"),
    Field("data.columns", described, {}, "what columns of tables become: gaps, scaling, categories, dates"),
    Field("data.augment", augmentation, {}, "augmentation steps of an input: flip, crop, normalize", open=True),
    Field(
        "data.workers", integer(0, 256), 0, "number of processes that read large files ahead; images need at least one"
    ),
    Field("data.on_bad", on_bad, BadPolicy(), "`error`, or `skip N` to tolerate N unreadable images or lines"),
    Field("data.shuffle", boolean, True, "a new order of the training rows each epoch"),
    Field("data.check_finite", boolean, True, "refuse NaN and Inf in the data when it is opened"),
)
