"""The section ``data``: sources, augmentation, bad samples."""

from __future__ import annotations

from typing import Any, Final

from dslc.runtime.config.augmentation import augmentation, mixing
from dslc.runtime.config.policies import BadPolicy, on_bad
from dslc.runtime.config.readers import Field, boolean, integer, mapping, number, refuse, shown, text, unknown
from dslc.runtime.config.yaml import Value
from dslc.runtime.data.names import help_for, split
from dslc.runtime.data.pictures import AS_STORED, PictureOptions


def data_source(value: Value, name: str) -> str:
    source = text(value, name)
    try:
        split(source)
    except ValueError as error:
        refuse(value, f"`{name}` is not an array in a file: {shown(value)}: {error}", help_for(source))
    return source


def fraction(value: Value, name: str) -> float | None:
    """A number between 0 and 1, both excluded, or null."""
    if value.data is None:
        return None
    found: float = number(0.0, 1.0)(value, name)
    if found in (0.0, 1.0):
        refuse(value, f"`{name}` = {found:g} leaves nothing to train or to evaluate", "write a fraction such as 0.1")
    return found


def images(value: Value, name: str) -> PictureOptions:
    found: dict[str, bool] = {}
    for key, option in mapping(value, name).items():
        if key not in ("scaled", "upright"):
            unknown(option, key, ("scaled", "upright"), f"`{name}`")
        found[key] = boolean(option, f"{name}.{key}")
    return PictureOptions(**found)


def described(value: Value, name: str) -> Any:
    from dslc.runtime.config.sections.columns import columns  # only a configuration with this field needs it

    return columns(value, name)


FIELDS: Final[tuple[Field, ...]] = (
    Field("data.train", data_source, {}, "file of each input of the model and of train", text=True, open=True),
    Field("data.eval", data_source, {}, "the same for evaluation", text=True, open=True),
    Field("data.split", fraction, None, "fraction of the training rows reserved for evaluation, instead of data.eval"),
    Field("data.columns", described, {}, "what columns of tables become: gaps, scaling, categories, dates"),
    Field("data.tokenizer", text, None, "tokenizer of texts: a file of Hugging Face's tokenizers", text=True),
    Field("data.augment", augmentation, {}, "augmentation steps of an input, or the image whose mask it is", open=True),
    Field("data.mix", mixing, None, "mixup and cutmix: how the rows of a training batch are mixed"),
    Field(
        "data.images",
        images,
        AS_STORED,
        "`{scaled: true}` decodes a large JPEG at a part of its size, `{upright: true}` turns pictures as EXIF says",
    ),
    Field(
        "data.workers", integer(0, 256), 0, "number of processes that read large files ahead; images need at least one"
    ),
    Field("data.on_bad", on_bad, BadPolicy(), "`error`, or `skip N` to tolerate N unreadable images or lines"),
    Field(
        "data.shuffle", boolean, True, "a new order of the training rows each epoch; never for a model with a `state`"
    ),
    Field("data.check_finite", boolean, True, "refuse NaN and Inf in the data when it is opened"),
)
