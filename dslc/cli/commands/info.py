"""``dslc info``"""

from __future__ import annotations

from typing import Any

import click

from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.artifacts import (
    PROGRAM_HEAD,
    PROGRAM_RIGHT,
    artifact_to_read,
    program_data,
    program_row,
    session_lines,
    state_bytes,
    tensor_text,
)
from dslc.cli.output import emit, size_text, table


@click.command(cls=Command)
@click.argument("artifact", required=False)
@click.option("--weights", is_flag=True, help="List the tensors of the state.")
def command(artifact: str | None, weights: bool) -> None:
    """Show what an artifact holds.

    ARTIFACT is a .dslc file or its folder; without it, the artifact of ./dslc.yaml as it is on disk. Safe for files of
    unknown origin.
    """
    from dslc.runtime.session.open import driver_needs, session_needs

    found = artifact_to_read(artifact)
    header = found.header
    interface, train = header["interface"], header["interface"]["train"]
    state = state_bytes(found)
    lines = [
        f"{header['name']}: model {header['model']}, {found.id}",
        f"built by   {', '.join(f'{tool} {version}' for tool, version in header['toolchain'].items())}",
        f"source     sha256:{header['source_sha256']}",
        f"options    {_options(header['options'])}",
        *(_code(found.blobs("object"))),
        *(_package(each) for each in header.get("packages", ())),
        *(_measured(target, each) for target, each in header.get("lock", {}).items()),
        *(f"dim        {d['name']} in {d['low']}..{d['high']} = {d['default']}" for d in interface["dims"]),
        *(f"input      {tensor_text(t)}" for t in interface["inputs"]),
        *(f"result     {tensor_text(t)}" for t in interface["results"]),
    ]
    if train is not None:
        lines += [
            *(f"train on   {tensor_text(t)}" for t in train["inputs"]),
            *(f"argument   {s['name']} = {s['default']:g}" for s in train["scalars"]),
            f"metrics    {', '.join(train['metrics']) or 'none'}; lr {train['lr']:g}",
            *([f"step       {train['accumulate']} micro-batches"] if "accumulate" in train else []),
            *([f"step       {train['shards']} shards"] if "shards" in train else []),
        ]
    kinds = ", ".join(f"{kind} {size_text(count)}" for kind, count in state.items())
    needs, driver = session_needs(found), driver_needs(found)
    lines += [
        f"state      {size_text(header['state']['bytes'])} ({kinds})",
        *session_lines(needs, driver),
        "",
    ]
    lines = [one_line(line) for line in lines]
    lines.append(table(PROGRAM_HEAD, [program_row(p) for p in found.all_programs()], PROGRAM_RIGHT))
    if weights:
        rows = [
            (t["name"], t["kind"], f"{t['dtype']}[{', '.join(map(str, t['shape']))}]", t["init"])
            for t in header["state"]["tensors"]
        ]
        lines += ["", table(("tensor", "kind", "type", "starts as"), rows)]
    data = {
        "path": str(found.path),
        "id": found.id,
        "name": header["name"],
        "model": header["model"],
        "toolchain": header["toolchain"],
        "source_sha256": header["source_sha256"],
        "options": header["options"],
        "lock": header.get("lock", {}),
        "packages": header.get("packages", []),
        "interface": interface,
        "state_bytes": header["state"]["bytes"],
        "state": header["state"]["tensors"],
        "sessions": needs,
        "driver": driver,
        "programs": [program_data(p) for p in found.all_programs()],
    }
    emit(data, "\n".join(lines))


def _code(objects: tuple[str, ...]) -> list[str]:
    """The CPU levels of which the artifact holds one object each, ``code.LEVEL``."""
    return [f"CPU code   {', '.join(name.removeprefix('code.') for name in objects)}"] if objects else []


def _package(package: dict[str, str]) -> str:
    """A package whose ops are in the kernels; it is not needed to run them."""
    return f"package    entry:{package['entry']}: {package['name']} {package['version']}, sha256:{package['sha256']}"


def _measured(target: str, lock: dict[str, Any]) -> str:
    """The measurements that a target's programs obey."""
    versions = "; ".join(lock["versions"])
    return f"measured   {target}: {lock['blocks']:,} problems on {lock['gpu']}, sha256:{lock['sha256']} ({versions})"


def _options(options: dict[str, object]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in options.items() if value not in ({}, None))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
