"""The header of an artifact: whether this version reads it, its schema, and the rules between its fields."""

from __future__ import annotations

from typing import Any

from dslc.base.errors import ArtifactError
from dslc.base.schema import Mismatch, checker
from dslc.base.version import VERSION
from dslc.runtime.artifact.header_rules import check_rules
from dslc.runtime.artifact.header_schema import FEATURES, FORMAT, HEADER

_check_schema = checker(HEADER)


def check_header(header: dict[str, Any], place: str = "artifact") -> None:
    """Raise ArtifactError R301 with the field and the rule, or R302 for an artifact of an unknown version.

    For a newer minor version, unknown top-level fields are removed from ``header``: fields that a reader must
    understand are listed as required features.
    """
    _version(header, place)
    try:
        _check_schema(header)
        check_rules(header)
    except Mismatch as mismatch:
        raise ArtifactError(
            "R301", mismatch.rule, place=f"{place}: {mismatch.path}", help="build it again"
        ) from mismatch


def _version(header: dict[str, Any], place: str) -> None:
    form, features = header.get("format"), header.get("required_features")
    good = (
        isinstance(form, list)
        and len(form) == 2
        and all(type(v) is int and 0 <= v <= 65535 for v in form)
        and isinstance(features, list)
        and all(isinstance(f, str) for f in features)
    )
    if not good or not isinstance(form, list) or not isinstance(features, list):
        raise ArtifactError(
            "R301",
            "`format` is [major, minor], `required_features` a list of names",
            place=f"{place}: format",
            help="build it again",
        )
    unknown = sorted(set(features) - FEATURES)
    if form[0] == FORMAT[0] and not unknown:
        if form[1] > FORMAT[1]:
            for name in header.keys() - HEADER.fields.keys() - HEADER.optional.keys():
                del header[name]
        return

    toolchain = header.get("toolchain")
    built = toolchain.get("dslc") if isinstance(toolchain, dict) else None
    needs = f"; it needs {', '.join(unknown)[:200]}" if unknown else ""
    raise ArtifactError(
        "R302",
        f"built by dslc {str(built)[:40]} in format {form[0]}.{form[1]}, this is dslc {VERSION}, which reads "
        f"format {FORMAT[0]}.{FORMAT[1]}{needs}",
        place=place,
        help=f"build it again with dslc {VERSION} (`dslc build model.nn`), or install the dslc that built it",
    )
