"""The field ``data.columns``: what each column of the tables becomes."""

from __future__ import annotations

import math
from typing import Any, Final

from dslc.runtime.config.readers import boolean, integer, mapping, refuse, shown, text, unknown
from dslc.runtime.config.yaml import Value
from dslc.runtime.data.columns.category import FORMS, MOST
from dslc.runtime.data.columns.date import PARTS
from dslc.runtime.data.columns.encoder import MISSING_VALUES
from dslc.runtime.data.columns.raw import raw_objects
from dslc.runtime.data.columns.scale import LOG, SCALES
from dslc.runtime.data.columns.typed import LONGEST_TEXT, category_text, moments

Options = dict[str, Any]
_MOST_COLUMNS: Final = 10_000
_MOST_GAPS: Final = 100
_NUMBER: Final = ("missing", "missing_values", "missing_flag", "scale")
_CATEGORY: Final = ("categories", "unknown", "rare", "missing", "missing_values", "values")
_DATE: Final = ("date", "format", "missing", "missing_values", "missing_flag", "scale")


def columns(value: Value, name: str) -> dict[str, tuple[str, Options]]:
    """The kind and the options of each column, by name."""
    found = mapping(value, name)
    if len(found) > _MOST_COLUMNS:
        refuse(value, f"`{name}` describes more than {_MOST_COLUMNS} columns", "describe those that need it")
    return {key: _column(item, f"{name}.{key[:40]}") for key, item in found.items() if _named(key, item, name)}


def _named(key: str, value: Value, name: str) -> bool:
    if not 0 < len(key) <= LONGEST_TEXT:
        refuse(value, f"a name in `{name}` has {len(key)} characters", f"write 1 to {LONGEST_TEXT}")
    return True


def _column(value: Value, name: str) -> tuple[str, Options]:
    options = mapping(value, name)
    both = "categories" in options and "date" in options
    kind = "category" if "categories" in options else "date" if "date" in options else "number"
    known = {"category": _CATEGORY, "date": _DATE, "number": _NUMBER}[kind]
    for key, option in options.items():
        if key not in known or both:
            every = (*_NUMBER, "categories", "date") if kind == "number" else known
            unknown(option, key, every, f"`{name}`, a column of {'categories' if kind == 'category' else kind + 's'}")
    if not options:
        refuse(value, f"`{name}` is empty", "write for example `{missing: median, scale: standard}`")
    found = {"category": _category, "date": _date, "number": _number}[kind](options, name)
    return kind, found | _missing_values(options, name)


def _missing_values(options: dict[str, Value], name: str) -> Options:
    """What stands for a gap: texts and numbers, as texts."""
    if MISSING_VALUES not in options:
        return {}
    given = options[MISSING_VALUES]
    items = given.data if isinstance(given.data, list) else [given]
    if not 0 < len(items) <= _MOST_GAPS:
        refuse(
            given, f"`{name}.{MISSING_VALUES}` is a list of texts and numbers", 'write `missing_values: ["?", -999]`'
        )
    found = [_category_name(item, f"{name}.{MISSING_VALUES}").strip() for item in items]
    if "" in found or len(set(found)) < len(found):
        refuse(given, f"`{name}.{MISSING_VALUES}` names a gap twice, or spaces", "an empty field is always a gap")
    return {MISSING_VALUES: found}


def _number(options: dict[str, Value], name: str) -> Options:
    scale = _scale(options, name, (LOG, *SCALES))
    missing, value = "error", None
    if "missing" in options:
        said = options["missing"]
        if isinstance(said.data, int | float) and not isinstance(said.data, bool) and math.isfinite(said.data):
            missing, value = "value", float(said.data)
        elif said.data in ("error", "mean", "median"):
            missing = str(said.data)
        else:
            refuse(said, f"`{name}.missing` is {shown(said)}", "write `error`, `mean`, `median` or a number")
    if value is not None and LOG in scale and value <= -1.0:
        refuse(options["missing"], f"`{name}.missing` has no logarithm ln(1 + x)", "write a number above -1")
    return {"missing": missing, "value": value, "flag": _flag(options, name), "scale": scale}


def _category(options: dict[str, Value], name: str) -> Options:
    form = _word(options["categories"], f"{name}.categories", FORMS)
    unknown_ = _word(options["unknown"], f"{name}.unknown", ("error", "other")) if "unknown" in options else "error"
    rare = integer(0, 10**9)(options["rare"], f"{name}.rare") if "rare" in options else 0
    missing, value = "error", None
    if "missing" in options:
        said = _category_name(options["missing"], f"{name}.missing")
        missing, value = (said, None) if said in ("error", "mode") else ("value", said)
    listed = None
    if "values" in options:
        items = options["values"].data
        if not isinstance(items, list) or not 0 < len(items) <= MOST:
            refuse(options["values"], f"`{name}.values` is a list of categories", "write `values: [small, large]`")
        listed = [_category_name(item, f"{name}.values") for item in items]
        if len(set(listed)) < len(listed) or rare:
            refuse(options["values"], f"`{name}.values` lists a category twice, or excludes `rare`", "list each once")
    return {
        "categories": form, "unknown": unknown_, "rare": rare, "missing": missing, "value": value, "listed": listed,
    }  # fmt: skip


def _category_name(value: Value, name: str) -> str:
    """A category as the user wrote it: a text, a number or a truth value."""
    if isinstance(value.data, str | bool | int | float):
        try:
            found = category_text(value.data)
        except ValueError as error:
            refuse(value, f"`{name}`: {error}", "write a shorter text")
        if found:
            return found
    refuse(value, f"`{name}` is a text, not {shown(value)}", "write the category in quotes")


def _date(options: dict[str, Value], name: str) -> Options:
    said = options["date"]
    items = said.data if isinstance(said.data, list) else [said]
    parts = [_word(item, f"{name}.date", tuple(PARTS)) for item in items]
    if not parts or len(set(parts)) < len(parts):
        refuse(said, f"`{name}.date` names each part once, not {shown(said)}", "write `date: [year, month, day]`")
    missing = None
    if "missing" in options and options["missing"].data != "error":
        missing = str(options["missing"].data)[:40]
        if moments(raw_objects([missing]), None).errors:
            iso = 'write `error`, or the date as "1970-01-01", also if the column has a `format`'
            refuse(options["missing"], f"`{name}.missing` is no date", iso)
    return {
        "date": parts,
        "format": text(options["format"], f"{name}.format")[:100] if "format" in options else None,
        "missing": missing,
        "flag": _flag(options, name),
        "scale": _scale(options, name, SCALES),
    }


def _scale(options: dict[str, Value], name: str, known: tuple[str, ...]) -> list[str]:
    if "scale" not in options or options["scale"].data == "none":
        return []
    value = options["scale"]
    items = value.data if isinstance(value.data, list) else [value]
    steps = [_word(item, f"{name}.scale", known) for item in items]
    if len(steps) != 1 and (len(steps) != 2 or steps[0] != LOG or steps[1] == LOG):
        refuse(value, f"`{name}.scale` is {shown(value)}", f"write one of {', '.join(known)}, or `[log, standard]`")
    return steps


def _flag(options: dict[str, Value], name: str) -> bool:
    return "missing_flag" in options and boolean(options["missing_flag"], f"{name}.missing_flag")


def _word(value: Value, name: str, known: tuple[str, ...]) -> str:
    if not isinstance(value.data, str) or value.data not in known:
        refuse(value, f"`{name}` is {shown(value)}", f"write one of {', '.join(known)}")
    return value.data
