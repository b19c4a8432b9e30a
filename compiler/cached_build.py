"""A finished build: its files and facts. Taken entirely from the cache if an equal build exists there.

A second build of the same model with the same options runs no pass: everything that determines the files is hashed, and
the earlier result is looked up. Cached files equal those of a new build, byte for byte. ``dslc verify --rebuild``
bypasses this cache.
"""

from __future__ import annotations

import os.path
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as once
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import dslc.base
import dslc.compiler
import dslc.dsl
import dslc.runtime
from dslc.base.cache import Cache, Counts
from dslc.base.cache_entry import Field
from dslc.base.canonical import dumps, loads
from dslc.compiler.artifact.naming import artifact_name
from dslc.compiler.lock.choices import Origins, require
from dslc.compiler.options import recorded_options
from dslc.compiler.toolchain.source_digest import digest_of
from dslc.compiler.toolchain.versions import toolchain

if TYPE_CHECKING:
    from dslc.compiler.build_result import BuildResult
    from dslc.compiler.check.model import Checked
    from dslc.compiler.options import Options
    from dslc.compiler.report.slow import Slow
    from dslc.compiler.report.unmeasured import Unmeasured
    from dslc.dsl.load import Module

REPORT: Final = "report.html"
_KIND: Final = "build"
_MADE: Final = "inputs"
_SIZE: Final = 8  # bytes of the field with the size of an entry's head
_MAX_VALUES: Final = 10_000_000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finished:
    """``files``: by name, the artifact last. ``facts``: JSON data, see ``facts_of``. ``compiled``: number of kernels
    that this build compiled; ``cache``: its cache statistics. ``result``: the build itself, None if the files are from
    the cache. ``seconds``: its duration."""

    name: str
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]
    compiled: int
    cache: Counts
    seconds: float
    result: BuildResult | None


def finished(
    checked: Checked,
    options: Options,
    progress: Progress | None = None,
    cache: Cache | None = None,
    *,
    rebuild: bool = False,
) -> Finished:
    """The finished build. ``rebuild``: run the passes even if the cache holds their result.

    Raises what ``build`` raises.
    """
    started = time.monotonic()
    options.check()
    cache = Cache.open() if cache is None else cache
    name, fields = artifact_name(checked, options.name), _fields(checked, options)
    found = None if rebuild else cache.get(_KIND, fields)
    if found is not None:
        facts, files = _unpack(found)
        if options.locked:
            chosen = {target: Origins.of_json(each) for target, each in facts["choices"].items()}
            require(chosen, options.tuned)
        return Finished(name, files, facts, 0, replace(cache.counts), time.monotonic() - started, None)
    from dslc.compiler.artifact.package import face_files
    from dslc.compiler.pipeline import build
    from dslc.compiler.report.page import report
    from dslc.compiler.report.slow import slow_lines
    from dslc.compiler.report.unmeasured import unmeasured

    result = build(checked, options, progress, cache)
    counts = replace(result.cache)
    faces = {file: text.encode() for file, text in face_files(result.header).items()}
    choices = {target: each.choices for target, each in options.tuned.items()}
    slow = slow_lines(result.programs, choices)
    page = report(result, checked.graph, slow=slow)
    files = {**faces, REPORT: page.encode(), f"{name}.dslc": result.artifact}
    facts = facts_of(result, slow, unmeasured(result.programs, choices))
    cache.put(_KIND, fields, _pack(facts, files), keep=not result.loose)
    return Finished(name, files, facts, counts.compiled, counts, time.monotonic() - started, result)


def facts_of(
    result: BuildResult, slow: Sequence[Slow] = (), unmeasured: Mapping[str, Unmeasured] = MappingProxyType({})
) -> dict[str, Any]:
    """Facts of a build for people and scripts: bytes, nodes, where contractions run, the ``slow`` lines, the
    ``unmeasured`` calls of libraries, and for each program its memory in bytes and its passes. The seconds of a pass
    are those of the build that ran it."""
    from dslc.compiler.report.contractions import census

    rest: Counter[str] = Counter()  # nodes that run through numpy, by op
    for program in result.programs:
        ours = program.all_kernels
        rest.update(node.op.name for node in program.computing if node not in ours)
    calls, own = census(result.programs)
    return {
        "name": result.name,
        "bytes": len(result.artifact),
        "state_bytes": result.header["state"]["bytes"],
        "nodes": {
            "kernels": sum(len(program.all_kernels) for program in result.programs),
            "numpy": rest.total(),
            "numpy_ops": dict(sorted(rest.items())),
        },
        "contractions": {"libraries": dict(sorted(calls.items())), "own": dict(sorted(own.items()))},
        "kernels": result.kernels,
        "slow": [each.as_json() for each in slow],
        "unmeasured": {target: each.as_json() for target, each in unmeasured.items()},
        "choices": {target: each.as_json() for target, each in result.origins.items()},
        "programs": [
            {
                "entry": report.entry,
                "sizes": dict(report.sizes),
                "nodes": report.nodes,
                "io_bytes": report.io_bytes,
                "work_bytes": report.work_bytes,
                "lower_bound": report.lower_bound,
                "mirrored": None if report.mirrored is None else report.mirrored.as_json(),
                "passes": [
                    {
                        "name": p.name,
                        "seconds": p.seconds,
                        "nodes_before": p.nodes_before,
                        "nodes_after": p.nodes_after,
                        "moved_before": p.moved_before,
                        "moved_after": p.moved_after,
                    }
                    for p in report.passes
                ],
            }
            for report in result.reports
        ],
    }


def note_made(cache: Cache, checked: Checked, options: Options, id: str) -> None:
    """Record that the artifact with this id is what these inputs give, measurements included."""
    if options.tuned:
        cache.note(_MADE, (*_fields(checked, options), str(options.locked), id))


def made_from(cache: Cache, checked: Checked, options: Options, id: str) -> bool:
    """True if ``note_made`` recorded it. An artifact does not say which measurements its build looked for in vain, so
    the inputs decide."""
    return cache.knows(_MADE, (*_fields(checked, options), str(options.locked), id))


def _fields(checked: Checked, options: Options) -> tuple[Field, ...]:
    """Everything that determines the files: the compiler and its dependencies, the model's text, the options, and the
    measurements that the build may obey. Of the paths of the model's files only the names count: artifact and report
    use these to name lines."""
    versions = {**toolchain(options.targets), "numpy": version("numpy")}
    return (
        _compiler_digest(),
        dumps(versions),
        checked.digest,
        dumps(list(_file_names(checked.module))),
        checked.name,
        artifact_name(checked, options.name),
        dumps(recorded_options(checked, options)),
        dumps({target: each.choices.digest for target, each in options.tuned.items()}),
    )


def _file_names(module: Module) -> Iterator[str]:
    yield os.path.basename(module.source.path)
    for use, _ in module.tables:
        yield os.path.basename(use.path)
    for _, used in module.uses:
        yield from _file_names(used)


@once
def _compiler_digest() -> str:
    """The digest of the compiler and of the packages through which it reads and writes."""
    packages = (dslc.base, dslc.compiler, dslc.dsl, dslc.runtime)
    return digest_of(Path(package.__path__[0]) for package in packages)


def _pack(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    head = dumps({"facts": facts, "files": [[name, len(data)] for name, data in files.items()]})
    return b"".join([len(head).to_bytes(_SIZE, "big"), head, *files.values()])


def _unpack(payload: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The inverse of ``_pack``; the cache returns only its results."""
    at = _SIZE + int.from_bytes(payload[:_SIZE], "big")
    head = loads(payload[_SIZE:at], place="the cache", max_values=_MAX_VALUES)
    files = {}
    for name, size in head["files"]:
        files[name] = payload[at : at + size]
        at += size
    return head["facts"], files
