"""``dslc verify``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK, ArtifactError
from dslc.base.schema import Mismatch
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import named_artifact
from dslc.cli.output import emit
from dslc.cli.sources import as_argument

if TYPE_CHECKING:
    from dslc.compiler.options import Options
    from dslc.runtime.artifact.file import Artifact


@click.command(cls=Command)
@click.argument("artifact")
@click.option("--digest", metavar="sha256:HEX", help="Also require this digest.")
@click.option(
    "--rebuild", metavar="FILE[:MODEL]", help="Build this source with the same options and compare the bytes."
)
@click.option("--lock", metavar="FILE", help="The lock for --rebuild; default: dslc.lock next to the source, if any.")
def command(artifact: str, digest: str | None, rebuild: str | None, lock: str | None) -> int:
    """Verify an artifact's digests, structure and plans.

    Safe for files of unknown origin. The exit code is 5 for a damaged artifact, 1 if --rebuild gives other bytes; then
    it says which digests differ: of the source, the lock, the compilers, the code.
    """
    from dslc.runtime.artifact.file import read_artifact

    if lock is not None and rebuild is None:
        raise click.UsageError("--lock needs --rebuild: a lock is an input of a build")
    path = named_artifact(artifact)
    found = read_artifact(path, digest)
    found.verify()
    count = len(found.all_programs())
    data: dict[str, Any] = {"path": str(path), "id": found.id, "programs": count, "sound": True}
    text = one_line(f"{path}: sound, {count} programs, {found.id}")
    if rebuild is None:
        emit(data, text)
        return EXIT_OK
    differences = _rebuilt(found, path, rebuild, None if lock is None else Path(lock))
    data |= {"rebuilt": not differences, "differences": differences}
    if not differences:
        emit(data, f"{text}\nrebuilt from {one_line(rebuild)}: the same bytes")
        return EXIT_OK
    emit(
        data,
        "\n".join([text, f"rebuilt from {one_line(rebuild)}: other bytes", *(f"  {one_line(d)}" for d in differences)]),
    )
    return EXIT_DIFFERENCE


def options_again(recorded: Mapping[str, Any], name: str) -> Options:
    """The options with which an artifact of this name was built. R301 if no build records such ones."""
    from dslc.cli.build_options import options_of
    from dslc.compiler.options import check_recorded

    try:
        check_recorded(recorded)
    except Mismatch as wrong:
        raise ArtifactError("R301", wrong.rule, place=f"options.{wrong.path}", help="build it again") from wrong
    compute, params = recorded["precision"]["compute"], recorded["precision"]["params"]
    by_option = "f32" if compute in ("bf16", "f16", "tf32") else compute  # the source specifies other pairs itself
    return options_of(
        {
            "target": recorded["target"],
            "cpu": recorded.get("cpu", "all"),
            "providers": recorded["providers"],
            **({"precision": compute} if params == by_option else {}),
            "sizes": recorded["sizes"],
            "fuse": recorded["fuse"],
            "mirror": recorded["mirror"],
            "prepare": recorded.get("prepare", "auto"),
            "bulk": recorded["bulk"],
            "streams": recorded["streams"],
            "steps_per_launch": recorded["steps_per_launch"],
        },
        name=name,
    )


def _rebuilt(artifact: Artifact, path: Path, source: str, lock: Path | None) -> list[str]:
    """The differences between the artifact and a build of ``source`` with its options and the project's lock; empty if
    the bytes are equal."""
    from dslc.cli.locks.find import with_lock
    from dslc.compiler.check.model import check_file, split_model
    from dslc.compiler.check.selection import Selection
    from dslc.compiler.pipeline import build
    from dslc.runtime.artifact.file import Artifact

    header = artifact.header
    recorded = header["options"]
    options = options_again(recorded, header["name"])
    file, model = split_model(source)
    options = with_lock(options, Path(file).parent, lock, gpus=_gpus(header))
    arguments = {name: as_argument(value) for name, value in recorded["args"].items()}
    checked = check_file(file, model or header["model"], arguments, Selection.of_recorded(recorded))
    result = build(checked, options)
    if result.artifact == path.read_bytes():
        return []
    now = Artifact.of_bytes(result.artifact).header
    return [*_differences(header, now), *_other_blobs(artifact, now)] or ["the container"]


def _gpus(header: Mapping[str, Any]) -> dict[str, str]:
    """The GPU whose measurements the build of each target obeyed."""
    return {target: each["gpu"] for target, each in header.get("lock", {}).items()}


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The header fields that differ; for a table its rows, so that one differing version of ten is named."""
    found = []
    for key in sorted({*old, *new} - {"blobs", "interface_sha256"}):
        before, now = old.get(key), new.get(key)
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            found += [f"{key}.{line}" for line in _differences(before, now)]
        else:
            found.append(f"{key}: {_short(before)} in the artifact, {_short(now)} now")
    return found


def _other_blobs(artifact: Artifact, new: Mapping[str, Any]) -> list[str]:
    """The blobs that differ; for a kernel also the source lines that use it."""
    from dslc.runtime.artifact.instructions import Kernel

    before, now = ({b["name"]: b for b in header["blobs"]} for header in (artifact.header, new))
    users: dict[str, dict[str, None]] = {}
    for program in artifact.all_programs():
        plan = artifact.plan(program)
        for step in plan.instructions:
            if isinstance(step, Kernel):
                users.setdefault(step.symbol, {}).setdefault(plan.names[step.where])
    found = []
    for name in sorted({*before, *now}):
        if name in before and name in now and before[name]["sha256"] == now[name]["sha256"]:
            continue
        there = "other bytes" if name in before and name in now else "not now" if name in before else "only now"
        symbol = name.partition(".")[0]
        where = f", the kernel of {_short(', '.join(users[symbol]))}" if symbol in users else ""
        found.append(f"{(before.get(name) or now[name])['kind']} {name}: {there}{where}")
    return found


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
