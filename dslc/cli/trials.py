"""Checks, builds and opens the models of a sweep's trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dslc.base.errors import ArtifactError, DslcError, EnvironmentFault
from dslc.base.version import has_compiler
from dslc.cli.output import note
from dslc.cli.progress import build_progress

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.config.config import Config
    from dslc.runtime.session.session import Session
    from dslc.runtime.sweep.plan import SweepPlan

#: What `python -c` runs as the process of a trial.
CHILD: Final = "from dslc.cli.trials import trial; trial()"
#: Fields that decide which model is built.
BUILT: Final = ("model", "args.")

Model: TypeAlias = "tuple[str, str | None]"


def said(values: Mapping[str, Any]) -> str:
    """The values of a trial on one line: ``train.lr=0.1  args.width=32``."""
    return "  ".join(f"{key}={shown(value)}" for key, value in values.items())


def shown(value: object) -> str:
    """A value as YAML writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def model_of(config: Config) -> Model:
    """The file and the name of a configuration's model."""
    return str(config.model), config.model_name


def models_checked(plan: SweepPlan, *, trust: bool) -> dict[Model, str]:
    """Check the models of all trials and the data of the first one. Nothing is built.

    Returns the digest of each model's text. Raises CompileError for a model that cannot be built, DataError for the
    data, EnvironmentFault R205 if a trial needs a build and there is no compiler."""
    from dslc.runtime.sinks.known import require_sinks
    from dslc.runtime.train.resume import plan_before_build

    trials = plan.trials or plan.samples
    first = trials[0].config
    require_sinks(first.save.sinks)
    if not has_compiler():
        for axis in plan.base.sweep.space.axes:
            if axis.field.startswith((*BUILT, "build.")):
                raise EnvironmentFault(
                    "R205", f"this needs the compiler: `{axis.key}` changes the build",
                    place=str(axis.written.mark), help="pip install dslc",
                )  # fmt: skip
        return {model_of(first): trial_artifact(first, trust=trust).header["source_sha256"]}
    from dslc.cli.compile import check_config, foreseen

    digests: dict[Model, str] = {}
    seen: list[tuple[object, ...]] = []
    for trial in trials:
        config = trial.config
        build = (model_of(config), config.args, config.build, config.train.freeze, config.train.lr_scale)
        if build in seen:
            continue
        seen.append(build)
        try:
            checked = check_config(config)
            model = foreseen(config, checked)
        except DslcError:
            note(f"the model of one trial cannot be built: {said(trial.values)}")
            raise
        digests[model_of(config)] = checked.digest
        if config is first:
            plan_before_build(config, model, note, resume=False, replay=False)
    return digests


def first_artifact(plan: SweepPlan, *, trust: bool) -> Artifact:
    """The artifact of the first trial; builds it if needed. Raises BuildError."""
    first = (plan.trials or plan.samples)[0].config
    if not has_compiler():
        return trial_artifact(first, trust=trust)
    with build_progress() as progress:
        return trial_artifact(first, trust=trust, progress=progress)


def trial_artifact(config: Config, *, trust: bool, progress: Any = None) -> Artifact:
    """The artifact of a trial, from the cache of builds or built now; nothing is written into the project. Without the
    compiler: the artifact of the project."""
    from dslc.base.cache import Cache
    from dslc.cli.as_built import artifact_as_built
    from dslc.cli.build_options import options_of
    from dslc.cli.compile import check_config, project_root
    from dslc.cli.locks.find import with_lock
    from dslc.cli.origins import placed
    from dslc.runtime.artifact.file import Artifact

    root, cache = project_root(config), Cache.open()
    if not has_compiler():
        return artifact_as_built(config, root, cache, trust=trust)
    from dslc.compiler.cached_build import finished

    with placed(config):
        options = with_lock(options_of(config.build, cpu="native"), root)
        built = finished(check_config(config), options, progress, cache)
    path = root / "build" / built.name / f"{built.name}.dslc"
    return Artifact.of_bytes(built.files[path.name], place=str(path), path=path)


def gpus_of(artifact: Artifact, device: str) -> int:
    """The GPUs over which trials are spread; 0 if they run on the CPU or on a device that was named."""
    from dslc.runtime.artifact.targets import capability_of

    if device != "auto" or all(capability_of(program.target) is None for program in artifact.all_programs()):
        return 0
    from dslc.runtime.cuda.device import devices

    try:
        return len(devices())
    except EnvironmentFault as error:
        if error.code != "R201":
            raise
        return 0


def trial() -> None:
    """The process of a trial."""
    from dslc.cli.surroundings import fault
    from dslc.runtime.sweep.trial import main

    main(_open, fault)


@contextmanager
def _open(config: Config, task: Mapping[str, Any]) -> Iterator[Session]:
    from dslc.cli.artifacts import session_of

    artifact = trial_artifact(config, trust=task["trust"])
    if artifact.header["source_sha256"] != task["source"]:
        raise ArtifactError(
            "R307", "the model was changed while the sweep ran", place=str(config.model),
            help="start `dslc sweep` again",
        )  # fmt: skip
    seed = config.train.seed
    with session_of(artifact, device=task["device"], weights="init", seed=seed, use="train") as session:
        yield session
