"""``dslc new``"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import click

from dslc.base.errors import BuildError, ResourceError
from dslc.base.module_name import module_name_problem
from dslc.base.visible import one_line
from dslc.cli.app import Command
from dslc.cli.output import emit

SCAFFOLD: Final = Path(__file__).resolve().parent.parent / "scaffold"
#: File of the project -> file of the scaffold. ``NAME`` stands for the project's name, in names and in texts.
FILES: Final = {
    "NAME.nn": "model.nn.txt",
    "dslc.yaml": "dslc.yaml.txt",
    "README.md": "README.md.txt",
    "make_data.py": "make_data.py.txt",
    ".gitignore": "gitignore.txt",
    "spirals.npz": "spirals.npz",
}


@click.command(cls=Command)
@click.argument("path", metavar="NAME")
def command(path: str) -> None:
    """Make a project that trains at once.

    NAME is the new folder, and the name of the model's file and module; `.` is the current folder, which must be empty.
    """
    folder = Path(path)
    name = folder.resolve().name
    _check_name(name)
    written = _write(folder, name)
    there = [] if folder.resolve() == Path.cwd() else [f"  cd {one_line(folder)}"]
    emit(
        {"folder": str(folder), "files": written},
        "\n".join(
            [f"made {one_line(folder)}/", *(f"  {file}" for file in written), "", "next:", *there, "  dslc train"]
        ),
    )


def _check_name(name: str) -> None:
    problem = module_name_problem(name)
    if problem is None:
        return
    other = f"{name}_net"
    good = module_name_problem(other) is None
    help = (
        f"choose another name, such as `{other}`" if good else "use letters of ASCII, digits and `_`, no leading digit"
    )
    raise BuildError("E0604", f"`{name[:80]}` {problem}", place=name, help=help)


def _write(folder: Path, name: str) -> list[str]:
    """Writes the files into a new or empty folder; removes all of them if that fails."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ResourceError(
            "R403", "the folder exists already", place=str(folder), help="choose another name, or remove it"
        )
    from dslc.base.publish import publish_bytes

    made = not folder.exists()
    written: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, source in FILES.items():
            content = (SCAFFOLD / source).read_bytes()
            if source.endswith(".txt"):
                content = content.replace(b"NAME", name.encode())
            target = target.replace("NAME", name)
            publish_bytes(folder / target, content)
            written.append(target)
    except (OSError, ResourceError) as error:
        for file in written:
            (folder / file).unlink(missing_ok=True)
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ResourceError):
            raise
        raise ResourceError(
            "R402", f"the project cannot be written: {error.strerror}", place=str(folder), help="choose another folder"
        ) from error
    return written
