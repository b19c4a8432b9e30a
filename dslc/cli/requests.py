"""Finds the model that ``build``, ``show`` and ``why`` compile: from the command line or from ``dslc.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslc.base.errors import BuildError
from dslc.cli.options import pairs, sizes
from dslc.cli.origins import placed
from dslc.cli.settings import default_config, merged_sizes

if TYPE_CHECKING:
    from dslc.compiler.check.model import Checked
    from dslc.compiler.options import Options
    from dslc.runtime.config.config import Config


@dataclass(frozen=True)
class Request:
    """``build``: the options as ``dslc.yaml`` writes them. ``root``: the folder that contains ``build/``. ``config``:
    the configuration that named the model; None if the command line did, with ``file``."""

    checked: Checked
    build: Mapping[str, Any]
    root: Path
    config: Config | None = None
    file: Path = Path()

    @property
    def folder(self) -> Path:
        """The folder of the project, where its lock is: that of dslc.yaml, or else of the model's file."""
        return self.root if self.config is not None else self.file.parent

    def options(self, name: str | None = None, *, lock: Path | None = None, **flags: Any) -> Options:
        """The build options, with the flags that are not None, and the measurements of the project's lock, or of the
        file ``lock``.

        Raises BuildError E0603, E0607, E0608; EnvironmentFault R210.
        """
        from dslc.cli.build_options import options_of
        from dslc.cli.locks.find import with_lock

        with placed(self.config):
            options = options_of({**self.build, **{k: v for k, v in flags.items() if v is not None}}, name)
            return with_lock(options, self.folder, lock)


def requested(
    model: str | None,
    *,
    target: str | None,
    precision: str | None,
    defines: tuple[str, ...],
    size: tuple[str, ...],
) -> Request:
    """The checked model and its build options. Raises CompileError, BuildError, DataError."""
    if model is None:
        from dslc.cli.compile import check_config, project_root

        config = default_config("name a model: FILE.nn", target=target, precision=precision, defines=defines, size=size)
        return Request(check_config(config), config.build, project_root(config), config)
    from dslc.compiler.check.model import check_file, split_model

    build: dict[str, Any] = {}
    if target is not None:
        build["target"] = target
    if precision is not None:
        build["precision"] = precision
    if size:
        build["sizes"] = merged_sizes(None, sizes(size))
    file = Path(split_model(model)[0])
    return Request(check_file(model, args=pairs(defines, "-D")), build, Path(), file=file)


def chosen_entry(request: Request, entry: str | None, options: Options) -> tuple[str, Mapping[str, int]]:
    """The entry to inspect and its largest sizes; without a name, ``train_step`` or else ``predict``. BuildError E0508
    for an entry that the model lacks."""
    from dslc.compiler.options import entry_sizes

    wanted = entry or ("train_step" if request.checked.train is not None else "predict")
    with placed(request.config):
        entries = entry_sizes(request.checked, options)
    if wanted == "prepare":  # of all sizes together
        return wanted, {}
    built = [sizes for name, sizes in entries if name == wanted]
    if not built:
        why = ", since it has no train section" if request.checked.train is None else ""
        raise BuildError(
            "E0508",
            f"`{request.checked.name}` has no entry {wanted}{why}",
            place="--entry",
            help=f"it has {', '.join(dict.fromkeys(name for name, _ in entries))}",
        )
    return wanted, built[-1]
