"""The ``build:`` section of a configuration as the compiler's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from dslc.base.errors import BuildError
from dslc.cli.options import byte_count, sizes_by_entry
from dslc.runtime.artifact.header_schema import MOST_STEPS_PER_LAUNCH

if TYPE_CHECKING:
    from dslc.compiler.options import Options

_LARGEST_BULK: Final = 1 << 20  # instructions; more than any plan may hold

_MOST_STREAMS: Final = 8


def options_of(build: Mapping[str, Any], name: str | None = None, *, cpu: str = "all") -> Options:
    """The ``build:`` section of a configuration as the compiler's options; ``cpu`` if the section does not say it.
    Raises BuildError E0603, and EnvironmentFault R202 for ``native`` if this CPU can run no code."""
    from dslc.compiler.codegen.targets import TARGETS
    from dslc.compiler.options import Options

    known = ("target", "precision", "sizes", "providers", "fuse", "name", "bulk", "streams", "mirror",
             "steps_per_launch", "locked", "gpu", "cpu", "prepare")  # fmt: skip
    for key, value in build.items():
        if key not in known:
            from dslc.dsl.diagnostics import did_you_mean
            from dslc.runtime.config.habits import key_hint

            if key in TARGETS:  # from `{target: cpu,sm_90}`, which YAML reads as two entries
                _refuse(f"`{key}` is not a build option", key, f"write target: [{build.get('target', 'cpu')}, {key}]")
            close = did_you_mean(key, known)
            help = f"did you mean `{close}`?" if close else key_hint(key) or ", ".join(known)
            _refuse(f"`{key}` is not a build option", key, help)
        if key in ("fuse", "locked") and not isinstance(value, bool):
            _refuse(f"`{key}` is true or false, not `{value}`", key, f"write {key}: true")
        if key == "prepare" and value not in ("auto", "never"):
            _refuse(f"`prepare: {value}` is not known", key, "write prepare: auto, or never")
        if key in ("precision", "providers", "name", "gpu", "cpu") and not isinstance(value, str):
            _refuse(f"`{key}` is a name, not `{value}`", key, f"write {key}: NAME")
    options = Options(
        target=_target(build.get("target", "cpu")),
        level=build.get("cpu", cpu),
        provider=build.get("providers", "auto"),
        precision=build.get("precision"),
        sizes=_sizes(build.get("sizes") or {}),
        name=name if name is not None else build.get("name"),
        fuse=build.get("fuse", True),
        bulk=_bulk(build.get("bulk", "auto")),
        streams=_streams(build.get("streams", "auto")),
        steps_per_launch=_steps(build.get("steps_per_launch", 1)),
        mirror=_mirror(build.get("mirror", "auto")),
        prepare=build.get("prepare", "auto"),
        locked=build.get("locked", False),
        gpu=build.get("gpu"),
    )
    return replace(options, level=_native(options)) if options.level == "native" else options


def _native(options: Options) -> str:
    """This machine's CPU level; ``all`` if the build has no code for a CPU."""
    from dslc.compiler.codegen.cpu.levels import ALL, LEVELS
    from dslc.runtime.cpu.levels import machine_level

    return machine_level(LEVELS) if options.provider != "reference" and "cpu" in options.targets else ALL


def _target(value: object) -> str:
    """Target names joined by commas, from one name or a list of names."""
    listed = value if isinstance(value, list) else [value]
    names = [name for name in listed if isinstance(name, str)]
    if not names or len(names) < len(listed):
        _refuse(f"`target` is a name, or a list of names, not `{value}`", "target", "write target: [cpu, sm_90]")
    return ",".join(names)


def _mirror(value: object) -> str | int:
    """``auto``, ``never``, or a budget in bytes, given as a number or as text with a unit."""
    if value in ("auto", "never"):
        return str(value)
    count = byte_count(str(value)) if isinstance(value, str) else value
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        _refuse(f"`mirror: {value}` is not known", "mirror", "write mirror: auto, never, or a budget: 20 GiB")
    return count


def _streams(value: object) -> int | Literal["auto"]:
    """``auto``, or a number of streams, as a number or as text."""
    if value == "auto":
        return "auto"
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MOST_STREAMS:
        _refuse(f"kernels run on 1 to {_MOST_STREAMS} streams, not `streams: {value}`", "streams", "write streams: 2")
    return number


def _steps(value: object) -> int:
    """A number of steps, as a number or as text."""
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_STEPS_PER_LAUNCH:
        _refuse(
            f"`steps_per_launch` is a number from 1 to {MOST_STEPS_PER_LAUNCH}, not `{value}`",
            "steps_per_launch",
            "write steps_per_launch: 16",
        )
    return number


def _bulk(value: object) -> int | None:
    """None for ``all`` and ``auto``, else the number."""
    if value in ("auto", "all"):
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _LARGEST_BULK:
        _refuse(f"`bulk` is a number of kernels or all, not `{value}`", "bulk", "write bulk: all, or bulk: 15")
    return number


def _sizes(sizes: object) -> dict[str, dict[str, tuple[int, ...]]]:
    help = "write sizes: {train: {B: 64}, predict: {B: [1, 64]}}, or {S: 160} for a dim of all entries"
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    if not isinstance(sizes, Mapping):
        _refuse(f"`sizes` is a mapping, not `{sizes}`", "sizes", help)
    for entry, dims in sizes_by_entry(sizes).items():
        if not isinstance(dims, Mapping):
            _refuse(f"`sizes.{entry}` is a mapping of dims, not `{dims}`", f"sizes.{entry}", help)
        for dim, value in dims.items():
            values = value if isinstance(value, list | tuple) else [value]
            if not values or any(isinstance(v, bool) or not isinstance(v, int) for v in values):
                _refuse(f"a size is an integer, or a list of them, not `{value}`", f"sizes.{entry}.{dim}", help)
            found.setdefault(str(entry), {})[str(dim)] = tuple(values)
    return found


def _refuse(cause: str, place: str, help: str) -> NoReturn:
    raise BuildError("E0603", cause, place=f"build.{place}", help=help)
