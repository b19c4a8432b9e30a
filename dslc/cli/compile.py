"""From a model's file to a published artifact: options, the check for stale builds, the output folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dslc.base.errors import ArtifactError, DslcError, ResourceError
from dslc.base.version import has_compiler
from dslc.base.visible import one_line
from dslc.base.within import require_within
from dslc.cli.as_built import LINK, artifact_as_built, foreign_because, path_as_built
from dslc.cli.build_options import options_of
from dslc.cli.locks.find import advice_lines, choices_lines, with_lock
from dslc.cli.locks.providers import needs_line
from dslc.cli.origins import placed
from dslc.cli.output import note, tell_slow, tell_warnings
from dslc.cli.progress import build_progress
from dslc.cli.sources import as_argument
from dslc.cli.targets import for_device, require_target

if TYPE_CHECKING:
    from dslc.base.cache import Cache
    from dslc.compiler.cached_build import Finished
    from dslc.compiler.check.model import Checked
    from dslc.compiler.foreseen import Foreseen
    from dslc.compiler.options import Options
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.config.config import Config

#: The warnings about a model that a build tells: of what trains otherwise than meant. `check` tells the others, too.
_OF_A_BUILD: Final = ("W008", "W013", "W014")

Progress = Callable[[str, int, int], None]

#: The first bytes of the files that a build writes.
_FACE: Final = b'"""Written by `dslc build`'
_PAGE: Final = b"<!doctype html>\n<!-- Written by dslc build -->"


def check_config(config: Config) -> Checked:
    """The checked model that a configuration names, with its arguments."""
    from dslc.compiler.check.model import check_file
    from dslc.compiler.check.selection import Selection

    path = os.path.relpath(config.model)
    args = {name: as_argument(value) for name, value in config.args.items()}
    with placed(config):
        return check_file(path, config.model_name, args, Selection(config.train.freeze, config.train.lr_scale))


def project_root(config: Config) -> Path:
    """The folder that holds ``build/``: the configuration's folder, else the working folder."""
    return config.path.parent if config.path is not None else Path()


def artifact_path(config: Config) -> Path:
    """The path of the configuration's artifact, whether or not it exists. Without the compiler, R311 if it does not."""
    if not has_compiler():
        return path_as_built(config, project_root(config))
    checked = check_config(config)
    with placed(config):
        options = options_of(config.build)
        return _place(config, checked, options)


def foreseen(config: Config, checked: Checked) -> Foreseen:
    """Interface and sizes of the artifact that a build of the configuration makes; compiles nothing."""
    from dslc.compiler.foreseen import foresee_interface

    with placed(config):
        return foresee_interface(checked, options_of(config.build))


def artifact_of(
    config: Config, *, as_built: bool = False, trust: bool = False, checked: Checked | None = None, device: str = "cpu"
) -> Artifact:
    """The configuration's artifact, built if it is stale or if none of this user's builds made it. A line on stderr
    reports a build and its reason.

    Unless the configuration says otherwise, a build compiles for this machine's CPU only, and for its GPU, too, if
    ``device``, where it will run, names that; an existing artifact for all CPUs is as good. ``as_built``: accept an
    existing artifact of this model, whatever options it was built with. ``trust``: accept it from any builder.
    ``checked``: the model, if it was checked before. Returns the very artifact that was checked: the file is not read a
    second time.
    """
    from dslc.base.cache import Cache
    from dslc.runtime.artifact.file import Artifact

    cache = Cache.open()
    if not has_compiler():
        return artifact_as_built(config, project_root(config), cache, trust=trust)
    checked = checked or check_config(config)
    with placed(config):
        options = options_of(for_device(config.build, device), cpu="native")
        path, root = _place(config, checked, options), project_root(config)
        options = with_lock(options, root)
        require_within(path.parent, root, LINK)  # also if nothing is built: weights are published there
        there = _there(path)
        if there is None or not as_built:
            require_target(options, device)
        stale = _stale(there, path, checked, options, cache)
        if there is not None and (stale is None or (as_built and stale.same_model)):
            foreign = None if trust else foreign_because(there, cache)
            if foreign is None:
                if stale is not None:
                    note(one_line(f"{path} is used although {stale.why}; `dslc build` rebuilds it"))
                return there
            stale = _Stale(foreign, foreign=True)
        assert stale is not None
        try:
            with build_progress() as progress:
                path, built = publish(checked, options, path.parent.parent, root=root, progress=progress, cache=cache)
        except DslcError as error:
            if stale.foreign and error.help is not None:
                error.help += "; or run the existing artifact with --trust, if you trust its author"
            raise
    only = f" for {options.level} only (`dslc build`: for all CPUs)" if options.level != "all" else ""
    why = stale.why and f", because the existing one was {stale.why}"
    note(one_line(f"built {path} in {built.seconds:.2f} s{only}{why}"))
    for line in (
        *choices_lines(built.facts["choices"]),
        *advice_lines(built.facts["unmeasured"]),
        *needs_line(built.facts["contractions"]["libraries"], options),
    ):
        note(one_line(line))
    return Artifact.of_bytes(built.files[path.name], place=str(path), path=path)


def _place(config: Config, checked: Checked, options: Options) -> Path:
    from dslc.compiler.artifact.naming import artifact_name

    options.check()  # also if nothing is built: an unknown target must not run an existing artifact
    name = artifact_name(checked, options.name)
    return project_root(config) / "build" / name / f"{name}.dslc"


@dataclass(frozen=True)
class _Stale:
    """``why`` an artifact differs from the one that a build would make; empty if no readable one exists. ``foreign``:
    it is equal, but somebody else may have made it."""

    why: str = ""
    same_model: bool = False
    foreign: bool = False


def _there(path: Path) -> Artifact | None:
    """The artifact that a build left there; None if it is missing, incomplete, damaged, or of another version."""
    from dslc.runtime.artifact.file import read_artifact

    if not (path.with_name("__init__.py").exists() and path.with_name("__init__.pyi").exists()):
        return None
    try:
        return read_artifact(path)
    except ArtifactError:
        return None


def _stale(there: Artifact | None, path: Path, checked: Checked, options: Options, cache: Cache) -> _Stale | None:
    from dslc.base import register
    from dslc.compiler.cached_build import made_from
    from dslc.compiler.options import recorded_options
    from dslc.compiler.toolchain.versions import toolchain

    if there is None:
        return _Stale()
    header = there.header
    if (header["name"], header["model"], header["source_sha256"]) != (path.stem, checked.name, checked.digest):
        return _Stale("built before the model was changed")
    recorded = header["options"]
    if "cpu" not in recorded:  # an artifact for all levels
        options = replace(options, level="all")
    wanted = recorded_options(checked, options)
    other = sorted(name for name in {*recorded, *wanted} if recorded.get(name) != wanted.get(name))
    if other:
        return _Stale(f"built with other options ({', '.join(other)})", same_model=not {"args", "cpu"} & {*other})
    if header["toolchain"] != toolchain(options.targets):
        return _Stale("built by other compilers")
    measured = "lock" in header or options.locked or any(each.blocks for each in options.tuned.values())
    if measured and register.known(cache, there.id) and not made_from(cache, checked, options, there.id):
        return _Stale("built with other measurements (dslc.lock)", same_model=True)
    return None


def publish(
    checked: Checked,
    options: Options,
    out: Path,
    *,
    root: Path | None = None,
    force: bool = False,
    rebuild: bool = False,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> tuple[Path, Finished]:
    """Build and publish into ``out/NAME/``: the module, its stub, the report, and last the artifact, which is
    recorded as made by this user. Weights stay unchanged. ``out`` may not lead out of the project ``root``.
    ``rebuild``: run the passes even if the cache holds their result.

    Raises what the build raises; ResourceError R402 (the folder is not writable; checked before compiling), R403 (the
    folder holds something else, or leads out of ``root``), R404 (another build is running there).
    """
    from dslc.base import register
    from dslc.base.cache import Cache
    from dslc.base.publish import folder_lock, publish_files
    from dslc.compiler.artifact.naming import artifact_name
    from dslc.compiler.cached_build import finished, note_made
    from dslc.runtime.artifact.file import artifact_id

    cache = Cache.open() if cache is None else cache
    name = artifact_name(checked, options.name)
    folder = out / name
    if root is not None:
        require_within(folder, root, LINK)
    tell_warnings([checked], codes=_OF_A_BUILD)
    made = _make(folder)
    try:
        if not force:
            _check_owner(folder, name, checked.name)
        with folder_lock(folder).scope() as scope, scope as lock:
            result = finished(checked, options, progress, cache, rebuild=rebuild)
            id = artifact_id(result.files[f"{name}.dslc"])
            register.note(cache, id)
            note_made(cache, checked, options, id)
            publish_files(folder, result.files, commit=f"{name}.dslc", lock=lock)
        tell_slow(result.facts["slow"])
    except BaseException:
        for empty in made:  # removes only folders that are still empty
            with suppress(OSError):
                empty.rmdir()
        raise
    return folder / f"{name}.dslc", result


def _make(folder: Path) -> list[Path]:
    """Make the folder; returns the folders that were created, innermost first."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            sealed = os.statvfs(folder).f_flag & os.ST_RDONLY
            raise OSError(
                errno.EROFS if sealed else errno.EACCES, "read-only file system" if sealed else "permission denied"
            )
    except OSError as error:
        raise ResourceError(
            "R402",
            f"the folder of the build cannot be written: {error.strerror}",
            place=str(folder),
            help="make it writable, or build elsewhere: dslc build -o FOLDER",
        ) from error
    return missing


def _check_owner(folder: Path, name: str, model: str) -> None:
    """Raises R403 unless the folder is empty or holds an artifact of this model."""
    from dslc.compiler.cached_build import REPORT
    from dslc.runtime.artifact.file import read_artifact

    beginnings = {"__init__.py": _FACE, "__init__.pyi": _FACE, REPORT: _PAGE}
    weights = {f"{name}.safetensors", f"{name}.previous.safetensors"}
    ours = {f"{name}.dslc", "__pycache__"} | weights
    there = sorted(p.name for p in folder.iterdir() if not p.name.startswith(".dslc"))
    help = "choose another folder with -o, another name with --name, or replace it with --force"
    path = folder / f"{name}.dslc"
    if not path.exists():
        # A build that was killed before its last file leaves the other files.
        foreign = [f for f in there if f not in ours and not _begins(folder / f, beginnings.get(f))]
        if foreign:
            raise ResourceError(
                "R403", f"the folder holds `{foreign[0]}`, which no build has made", place=str(folder), help=help
            )
        return
    try:
        found = read_artifact(path).header["model"]
    except ArtifactError as error:
        if error.code == "R302":
            return  # built by an earlier version
        raise ResourceError("R403", f"`{path.name}` is not a valid artifact", place=str(path), help=help) from error
    if found != model:
        raise ResourceError("R403", f"`{path.name}` is a build of the model {found}", place=str(path), help=help)


def _begins(path: Path, beginning: bytes | None) -> bool:
    """True if a build wrote the file: all files of one name begin with the same bytes. None: no build writes it."""
    if beginning is None or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(beginning)) == beginning
