"""``dslc lock``"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from dslc.base.errors import EXIT_DIFFERENCE, EXIT_OK, BuildError
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.options import PRECISION_HELP, TARGET_HELP, define_option, size_option
from dslc.cli.output import emit, size_text, table

if TYPE_CHECKING:
    from dslc.cli.locks.check import Checkup
    from dslc.cli.requests import Request
    from dslc.compiler.lock.diff import Difference
    from dslc.compiler.lock.model import Block, Lock

_ARGUMENTS = "[FILE[:MODEL]] | A B"


@click.command(cls=Command)
@click.argument("files", metavar=_ARGUMENTS, nargs=-1)
@click.option("--check", is_flag=True, help="Compare the lock with the problems of a model; exit 1 if one is missing.")
@click.option("--upgrade", metavar="KEY", help="Measure this problem again, on the GPU; a part of its key is enough.")
@click.option("--diff", is_flag=True, help="Show how the locks A and B differ; exit 1 if their choices do.")
@click.option("--lock", "path", metavar="FILE", help="Read this lock; default: dslc.lock of the project.")
@click.option("--gpu", metavar="NAME", help="Only measurements of this GPU.")
@click.option("--device", metavar="NAME", default="gpu", help="--upgrade: gpu, or gpu:1 for the second one.")
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option("--precision", metavar="NAME", help=PRECISION_HELP)
@click.option("--providers", metavar="NAME", help="As in `dslc build`.")
@define_option
@size_option
def command(
    files: tuple[str, ...],
    check: bool,
    upgrade: str | None,
    diff: bool,
    path: str | None,
    gpu: str | None,
    device: str,
    target: str | None,
    precision: str | None,
    providers: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
) -> int:
    """Show, check or compare the measurements in dslc.lock.

    Without an option, prints each problem with the way that won, its time, and its gain over the way of an untuned
    build. The lock is that of the folder of ./dslc.yaml, or of FILE. `dslc tune` writes it; `dslc build` obeys it.
    """
    from dslc.cli.requests import requested

    if check + diff + (upgrade is not None) > 1:
        raise click.UsageError("--check, --upgrade and --diff exclude each other")
    if diff:
        if len(files) != 2:
            raise click.UsageError("--diff compares two locks: dslc lock --diff A B")
        return _diff(Path(files[0]), Path(files[1]))
    if len(files) > 1:
        raise click.UsageError("name one model: FILE.nn")
    model = files[0] if files else None
    if not check and upgrade is None:
        return _show(_lock_path(model, path), gpu)
    request = requested(model, target=target, precision=precision, defines=defines, size=size)
    if upgrade is not None:
        return _upgrade(request, path, providers, device, upgrade)
    return _check(request, path, {"providers": providers, "gpu": gpu})


def _lock_path(model: str | None, path: str | None) -> Path:
    """The file of the lock; BuildError E0607 if the project has none."""
    from dslc.compiler.check.model import split_model
    from dslc.compiler.lock.find import FILE, find_lock

    if path is not None:
        return Path(path)
    folder = Path() if model is None else Path(split_model(model)[0]).parent
    return _existing(find_lock(folder), folder / FILE)


def _existing(found: Path | None, wanted: Path) -> Path:
    if found is None:
        help = "measure the model on a GPU with `dslc tune`, which writes it"
        raise BuildError("E0607", "there is no lock", place=str(wanted), help=help)
    return found


def _show(path: Path, gpu: str | None) -> int:
    from dslc.compiler.lock.find import read_lock
    from dslc.compiler.lock.model import Lock

    whole = lock = read_lock(path)
    if gpu is not None:
        lock = Lock(tuple(block for block in lock.blocks if gpu.lower() in block.gpu.lower()))
    data = {"path": str(path), "gpus": [*lock.gpus], "problems": [_block_data(block) for block in lock.blocks]}
    none = f"{one_line(path)}: no measurements"
    if gpu is not None and whole.gpus:
        none += f" of {one_line(gpu)[:60]}; it has those of {', '.join(name.partition(',')[0] for name in whole.gpus)}"
    emit(data, "\n\n".join([_gpu_text(lock, name) for name in lock.gpus] or [none]))
    return EXIT_OK


def _block_data(block: Block) -> dict[str, Any]:
    from dslc.compiler.lock.text import format_way

    best = block.ways[0]
    return {
        "key": block.key,
        "gpu": block.gpu,
        "provider": best.choice.provider,
        "algorithm": best.choice.algorithm,
        "seconds": best.seconds,
        "workspace": best.choice.workspace,
        "gain": block.gain,
        "spread": block.spread,
        "error": block.error,
        "ways": [format_way(way) for way in block.ways],
        "default": None if block.default is None else format_way(block.default),
        "rejected": [*block.rejected],
        "versions": block.versions,
    }


def _gpu_text(lock: Lock, gpu: str) -> str:
    blocks = lock.on(gpu).blocks
    rows = [
        (
            block.key,
            str(block.ways[0].choice),
            _time(block.ways[0].seconds),
            size_text(block.ways[0].choice.workspace),
            "" if block.gain is None else f"{block.gain:.2f}x",
        )
        for block in sorted(blocks, key=lambda block: (-block.ways[0].seconds, block.key))
    ]
    head = ("problem", "best way", "time", "workspace", "gain")
    count = f"{len(blocks):,} problem{'s' if len(blocks) != 1 else ''}"
    return f"{one_line(gpu)}: {count}\n{table(head, rows, (2, 3, 4))}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.4g} us" if seconds < 0.01 else f"{seconds * 1e3:,.4g} ms"


def _diff(a: Path, b: Path) -> int:
    from dslc.compiler.lock.diff import difference
    from dslc.compiler.lock.find import read_lock

    one, other = read_lock(a), read_lock(b)
    found = difference(one, other)
    choices = [each for each in found if each.kind not in ("another time", "other notes")]
    data = {"a": str(a), "b": str(b), "differences": [each.as_json() for each in found]}
    emit(
        data,
        "\n".join(
            [_diff_text(found), *([_diff_summary(found, len({*one.by_place, *other.by_place}))] if found else [])]
        ),
    )
    return EXIT_DIFFERENCE if choices else EXIT_OK


def _diff_summary(found: list[Difference], count: int) -> str:
    """How many blocks differ in what, and by how much times do."""
    parts = []
    for kind, each in groupby(found, lambda difference: difference.kind):
        same = [*each]
        changes = sorted(one.change for one in same if one.change is not None)
        span = f" ({changes[0]:+.1%} to {changes[-1]:+.1%}, median {median(changes):+.1%})" if changes else ""
        parts.append(f"{len(same):,} {kind}{span if kind != 'other notes' else ''}")
    return f"{len(found):,} of {count:,} problems differ: {', '.join(parts)}"


def _diff_text(found: list[Difference]) -> str:
    if not found:
        return "the locks are equal"
    lines: list[str] = []
    for each in found:
        lines.append(one_line(f"{each.kind}: {each.key} on {each.gpu.partition(',')[0]}"))
        before, after = (
            "" if way is None else f"{_time(way.seconds)}, {size_text(way.choice.workspace)}: {way.choice}"
            for way in (each.before, each.after)
        )
        change = "" if each.change is None else f" ({each.change:+.1%})"
        if each.kind == "another choice":
            lines += [f"  A {before}", f"  B {after}{change}"]
        elif each.before is not None and each.after is not None and each.kind == "another time":
            lines.append(f"  {_time(each.before.seconds)} -> {_time(each.after.seconds)}{change}: {each.after.choice}")
        elif each.kind != "other notes":
            lines.append(f"  {before or after}")
    return "\n".join(lines)


def _check(request: Request, path: str | None, flags: dict[str, str | None]) -> int:
    from dslc.cli.locks.check import checkup
    from dslc.cli.locks.find import gpu_targets
    from dslc.compiler.codegen.targets import ARCHITECTURES
    from dslc.compiler.lock.find import FILE, find_lock, read_lock

    file = Path(path) if path is not None else _existing(find_lock(request.folder), request.folder / FILE)
    options = request.options(locked=False, lock=file, **flags)
    if not gpu_targets(options):
        measured = sorted({block.target for block in read_lock(file).blocks} & {*ARCHITECTURES})
        if not measured:
            help = "name a GPU: dslc lock --check --target sm_90"
            raise BuildError("E0601", "a lock holds measurements of GPUs, and the build is for none", place="--target",
                             help=help)  # fmt: skip
        options = request.options(locked=False, lock=file, target=",".join(measured), **flags)
    found = checkup(request.checked, options)
    emit({"targets": {name: each.as_json() for name, each in found.items()}}, _check_text(found))
    return EXIT_DIFFERENCE if any(each.missing for each in found.values()) else EXIT_OK


def _check_text(found: dict[str, Checkup]) -> str:
    lines: list[str] = []
    for target, each in found.items():
        on = f"{target} on {each.gpu}" if each.gpu else target
        counts = f"{each.present:,} problems in the lock, {len(each.missing):,} missing, {len(each.unused):,} unused"
        lines.append(one_line(f"{on}: {counts}"))
        lines += [one_line(f"  missing: {key}") for key in each.missing]
        lines += [one_line(f"  unused: {key}") for key in each.unused]
    if any(each.missing for each in found.values()):
        lines.append("measure what is missing with `dslc tune`")
    return "\n".join(lines)


def _upgrade(request: Request, path: str | None, providers: str | None, device: str, text: str) -> int:
    from dslc.base.cache import Cache
    from dslc.cli.build_options import options_of
    from dslc.cli.locks.providers import decided
    from dslc.cli.locks.upgrade import key_meant, measured_again
    from dslc.compiler.codegen.targets import ARCHITECTURES
    from dslc.compiler.lock.diff import difference
    from dslc.compiler.lock.find import FILE, find_lock, merge_into, read_lock
    from dslc.runtime.cuda.device import index_of

    file = _existing(Path(path) if path is not None else find_lock(request.folder), request.folder / FILE)
    before = read_lock(file)
    cache = Cache.open()
    key = key_meant(before, text)
    asked = options_of({**request.build, **({} if providers is None else {"providers": providers})})
    options = decided(asked, ARCHITECTURES, before)
    blocks, why = measured_again(request.checked, options, cache, index_of(device), before, key)
    found = difference(*merge_into(file, blocks, cache))
    data = {
        "path": str(file),
        "key": key,
        "not_measured": why,
        "differences": [each.as_json() for each in found],
    }
    changed = _diff_text(found) if found else f"{one_line(key)}: as before"
    emit(data, f"not measured: {one_line(key)}: {one_line(why)}" if why is not None else changed)
    return EXIT_DIFFERENCE if why is not None else EXIT_OK
