"""Artifacts that are used as they were built; without the compiler, all are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.base.visible import one_line
from dslc.base.within import require_within
from dslc.cli.output import note

if TYPE_CHECKING:
    from dslc.base.cache import Cache
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.config.config import Config

LINK: Final = "remove the link, or build elsewhere: dslc build -o FOLDER"
#: Fields that say what is built: those of the model, its arguments and the build.
_BUILT: Final = ("model", "build.", "args.")


def artifact_as_built(config: Config, root: Path, cache: Cache, *, trust: bool) -> Artifact:
    """The artifact of the configuration's project ``root`` where nothing can be built.

    Raises what ``path_as_built`` and reading raise; EnvironmentFault R205 if somebody else may have made the artifact,
    unless ``trust``.
    """
    from dslc.runtime.artifact.file import read_artifact

    path = path_as_built(config, root)
    require_within(path.parent, root, LINK)
    found = read_artifact(path)
    foreign = None if trust else foreign_because(found, cache)
    if foreign is not None:
        raise _compiler_missing(f"the existing artifact is {foreign}", str(path))
    note(one_line(f"{path} is used as it was built: the compiler is not installed"))
    return found


def path_as_built(config: Config, root: Path) -> Path:
    """The artifact that some build has made in the configuration's project ``root``.

    A build names it by ``build.name``, else by the model's file, else, if that holds several models, by the model.
    Raises ArtifactError R311 if there is none, EnvironmentFault R205 if the command line asks for another build.
    """
    for entry in config.entries:
        if entry.origin == "flag" and entry.name.startswith(_BUILT):
            raise _compiler_missing("only a build can change this", entry.name)
    named = config.build.get("name")
    names = [str(named)] if named is not None else [config.model.stem, (config.model_name or "").lower()]
    paths = [root / "build" / name / f"{name}.dslc" for name in names if name]
    for path in paths:
        if path.is_file():
            return path
    help = "build it where the compiler is, and copy the folder build/NAME here; or: pip install dslc"
    raise ArtifactError("R311", "there is no artifact, and no compiler to build it", place=str(paths[0]), help=help)


def foreign_because(artifact: Artifact, cache: Cache) -> str | None:
    """Why an artifact must not be run without --trust; None if this user's own build made it."""
    from dslc.base.register import known

    if known(cache, artifact.id):
        return None
    if cache.folder is None:
        return "not known to be yours, because there is no cache (--trust runs it anyway)"
    return "not made by one of your builds (--trust runs it anyway)"


def _compiler_missing(why: str, place: str) -> EnvironmentFault:
    return EnvironmentFault("R205", f"this needs the compiler: {why}", place=place, help="pip install dslc")
