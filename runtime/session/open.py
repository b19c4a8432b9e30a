"""Decisions before a session allocates memory: options, the device, and the programs for it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Final

from dslc.base.errors import ArtifactError, DslcWarning, EnvironmentFault, InputError
from dslc.runtime.artifact.header_schema import MOST_STEPS_PER_LAUNCH
from dslc.runtime.artifact.interface import Interface, shards_of
from dslc.runtime.artifact.loops import unrolled
from dslc.runtime.artifact.share import Share, shared_plan
from dslc.runtime.artifact.targets import Choice, capability_of, choose_target
from dslc.runtime.cuda.sizes import Regions, foreseen_bytes
from dslc.runtime.session.calls.early import early_by_sizes
from dslc.runtime.session.context import Loaded
from dslc.runtime.session.update_stages import in_stages

if TYPE_CHECKING:
    from dslc.runtime.artifact.file import Artifact
    from dslc.runtime.cuda.device import Device
    from dslc.runtime.cuda.driver_bytes import Code
    from dslc.runtime.cuda.sums.sum_sizes import SumSizes
    from dslc.runtime.session.backend import Backend
    from dslc.runtime.session.session import MeaningsSource

_DEVICE: Final = re.compile(r"cpu|(auto|gpu)(:(0|[1-9][0-9]{0,2}))?")
_VERIFY: Final = ("all", "code")
ALL_AT_ONCE: Final = (1 << 31) - 1  # the largest bulk; exceeds the instructions of any plan
#: The entries that each call of a session runs; every session also has ``init``.
CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "train_step": ("train_step", "accumulate_step", "update_step"),
    "evaluate": ("eval_step", "eval_finish"),
    "predict": ("predict", "prepare"),
}
#: The uses of a session (``dslc train`` and so on, ``dslc.load``) and the calls that each of them makes.
USES: Final[Mapping[str, tuple[str, ...]]] = {
    "train": ("train_step", "evaluate"), "eval": ("evaluate",), "predict": ("predict",), "load": tuple(CALLS),
}  # fmt: skip
_LIMITS: Final = {
    "seed": 1 << 64, "step": 1 << 63, "row": 1 << 63, "steps": 1 << 31, "contexts": 257, "bulk": ALL_AT_ONCE + 1,
    "steps_per_launch": MOST_STEPS_PER_LAUNCH + 1,
}  # fmt: skip
_LEAST: Final = {"contexts": 1, "steps_per_launch": 1}


def check_options(**options: object) -> None:
    """Raise InputError R105 if an option of ``load`` or of a call is out of range."""
    for name, value in options.items():
        if not _fits(name, value):
            said = f"`{name}` is {repr(value)[:60]}"
            raise InputError("R105", said, place=f"{name}=...", help=f"it is {_expected(name)}")


def _fits(name: str, value: object) -> bool:
    if name in _LIMITS:
        whole = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
        return whole and _LEAST.get(name, 0) <= int(value) < _LIMITS[name]  # type: ignore[call-overload]
    if name == "calls":
        return isinstance(value, list | tuple | set | frozenset) and bool(value) and set(value) <= CALLS.keys()
    if name == "device":
        return isinstance(value, str) and _DEVICE.fullmatch(value) is not None
    return isinstance(value, str) and value in _VERIFY


def _expected(name: str) -> str:
    """What an option may be, for a message."""
    if name in _LIMITS:
        return f"an int from {_LEAST.get(name, 0)} to {_LIMITS[name] - 1}"
    if name == "calls":
        return "some of " + ", ".join(map(repr, CALLS)) + ", such as ('train_step', 'evaluate')"
    if name == "device":
        return "one of 'auto', 'cpu', 'gpu', or 'gpu:1' for the second GPU"
    return "one of " + ", ".join(repr(a) for a in _VERIFY)


@dataclass(frozen=True, slots=True)
class Place:
    """The device of a session: a GPU and the target that it runs, or the CPU."""

    gpu: Device | None
    choice: Choice


_CPU: Final = Place(None, Choice("cpu", False))


def choose_place(artifact: Artifact, device: str) -> Place:
    """The device for an artifact.

    ``auto`` is a GPU if the artifact holds code for it, ``auto:1`` the second one, else the CPU; with a warning W006 if
    the artifact holds code for GPUs but none can be used. Raises EnvironmentFault R201 for a GPU that cannot be used,
    R202 for an artifact without code for the device; both messages list the artifact's targets.
    """
    targets = sorted({p.target for p in artifact.all_programs()})
    for_gpus = [t for t in targets if capability_of(t) is not None]
    auto = device.startswith("auto")
    if device == "cpu" or (auto and not for_gpus):
        return _CPU
    if not for_gpus:
        raise _not_built(artifact, targets, "a GPU", "sm_90")
    from dslc.runtime.cuda import device as devices
    from dslc.runtime.cuda.libraries.preload import preload

    try:
        index = devices.index_of(device.replace("auto", "gpu"))
        devices.driver()  # there is one: vendor libraries will be needed
        preload(artifact)
        gpu = devices.device(index)
        choice = choose_target(for_gpus, gpu.capability)
        if choice is None:
            target = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
            raise _not_built(artifact, targets, f"the {gpu.name}, which is {target}", target)
    except EnvironmentFault as error:
        if not auto or "cpu" not in targets or error.code not in ("R201", "R202"):
            raise
        said = f"{artifact.header['name']} runs on the CPU: {error.message}"
        warnings.warn(DslcWarning("W006", said), stacklevel=5)
        return _CPU
    return Place(gpu, choice)


def _not_built(artifact: Artifact, targets: Sequence[str], machine: str, target: str) -> EnvironmentFault:
    return EnvironmentFault(
        "R202",
        f"the artifact is built for {', '.join(targets) or 'no target'}, not for {machine}",
        place=artifact.header["name"],
        help=f"build it for this target, too: dslc build --target {','.join(dict.fromkeys([*targets, target]))}",
    )


def loaded_programs(artifact: Artifact, target: str, share: Share | None = None) -> dict[str, list[Loaded]]:
    """The programs of a target, by entry, for a process that has this share of updates. R202 for a target without
    programs."""
    found: dict[str, list[Loaded]] = {}
    interface = Interface.of_header(artifact.header["interface"])
    each_step = unrolled if target != "cpu" else lambda plan: plan  # on a GPU, steps are nodes of a graph
    listed = [(p, each_step(artifact.plan(p))) for p in artifact.all_programs() if p.target == target]
    early = early_by_sizes(listed, share) if target != "cpu" else {}
    for p, whole in listed:
        carried = interface.carried(p.context, p.sizes)
        plan, ahead = whole, early.get(tuple(p.sizes.items()))
        if share is not None:
            plan = shared_plan(whole, p.entry, share)
            if target != "cpu" and p.entry == "update_step":
                plan = in_stages(plan, whole, share if ahead is None else ahead.share)
        shard, amounts = ahead if p.entry == "train_step" else None, (p.io_bytes, p.work_bytes)
        found.setdefault(p.entry, []).append(
            Loaded(p.entry, p.sizes, *amounts, plan, p.context_bytes, carried, p.prepared_bytes, p.turn, shard)
        )
    if not found:
        raise _not_built(artifact, sorted({p.target for p in artifact.all_programs()}), "a CPU", "cpu")
    if len(found.get("init", [])) != 1:
        raise ArtifactError(
            "R301", "an artifact holds one program `init` per target", place="programs", help="build it again"
        )
    return found


def programs_for(programs: Mapping[str, list[Loaded]], calls: Iterable[str] | None) -> dict[str, list[Loaded]]:
    """The programs that these calls run, and ``init``; all programs for None."""
    if calls is None:
        return dict(programs)
    wanted = {"init", *(entry for call in calls for entry in CALLS[call])}
    return {entry: listed for entry, listed in programs.items() if entry in wanted}


def open_backend(
    artifact: Artifact,
    place: Place,
    programs: Mapping[str, Sequence[Loaded]],
    contexts: int,
    source: MeaningsSource,
    bulk: int | None,
    steps_per_launch: int | None,
    share: Share | None = None,
) -> Backend:
    """Allocate memory and load code for the programs on their device. Raises the errors of the backends."""
    every = [p for listed in programs.values() for p in listed]
    if place.gpu is None:
        from dslc.runtime.cpu.backend import HostBackend

        return HostBackend(artifact, every, contexts, source, share)
    from dslc.runtime.cuda.backend import CudaBackend

    steps = _recorded_steps(artifact) if steps_per_launch is None else steps_per_launch
    return CudaBackend(artifact, place.gpu, place.choice, every, contexts, bulk, steps, share)


def session_needs(artifact: Artifact, contexts: int = 1) -> dict[str, dict[str, int]]:
    """For each target of an artifact, the bytes that a session takes for each of ``USES``: state, work and io, with as
    many steps per launch as the build requested, and on a GPU the sums over shards of one process. On a GPU the session
    takes nothing else from the pool. ArtifactError R301 for an unsound plan of a model with shards."""
    interface = Interface.of_header(artifact.header["interface"])
    programs = []
    for p in artifact.all_programs():
        lasting = p.context_bytes, interface.carried(p.context, p.sizes), p.prepared_bytes
        programs.append((p.target, Regions(p.entry, p.io_bytes, p.work_bytes, *lasting)))
    state = int(artifact.header["state"]["bytes"])
    return needs_of(state, programs, _recorded_steps(artifact), contexts, sums=sum_needs(artifact))


def sum_needs(artifact: Artifact) -> dict[str, list[SumSizes]]:
    """For each GPU target of an artifact with shards, the memory that one process takes for the sums of each training
    step. ArtifactError R301 for an unsound plan."""
    from dslc.runtime.cuda.sums.layout import sums_of

    described = artifact.header["interface"]
    if shards_of(described) == 1:
        return {}
    targets = {p.target for p in artifact.all_programs() if capability_of(p.target) is not None}
    every = {t: [p for listed in loaded_programs(artifact, t).values() for p in listed] for t in sorted(targets)}
    return {target: sums_of(programs, described) for target, programs in every.items()}


def needs_of(
    state: int,
    programs: Iterable[tuple[str, Regions]],
    steps: int,
    contexts: int = 1,
    sums: Mapping[str, Sequence[SumSizes]] | None = None,
) -> dict[str, dict[str, int]]:
    """``session_needs`` for a list of (target, program regions), ``state`` bytes of state, and the ``sums`` over shards
    of each GPU target."""
    of_target: dict[str, list[Regions]] = {}
    for target, regions in programs:
        of_target.setdefault(target, []).append(regions)
    found: dict[str, dict[str, int]] = {}
    for target, listed in of_target.items():
        have = {regions.entry for regions in listed}
        found[target] = {}
        for use, calls in USES.items():
            if use == "load" or all(CALLS[call][0] in have for call in calls):
                held = {"init", *(entry for call in calls for entry in CALLS[call])}
                chosen = [regions for regions in listed if regions.entry in held]
                on_gpu = capability_of(target) is not None
                added = (sums or {}).get(target, ()) if "train_step" in held else ()
                found[target][use] = foreseen_bytes(state, chosen, steps, contexts, on_gpu=on_gpu, sums=added)
    return found


def driver_needs(artifact: Artifact, contexts: int = 1) -> dict[str, dict[str, int]]:
    """For each GPU target of an artifact, about how many bytes the driver takes next to those of ``session_needs``, for
    code, graphs and libraries. ArtifactError R301 for an unsound plan or cubin."""
    from dslc.runtime.cuda.driver_bytes import code_of

    targets = {p.target for p in artifact.all_programs()}
    capabilities = {t: found for t in sorted(targets) if (found := capability_of(t)) is not None}
    every = {t: [p for listed in loaded_programs(artifact, t).values() for p in listed] for t in capabilities}

    def code(target: str, held: Sequence[Loaded]) -> Code:
        return code_of(artifact, held, capabilities[target])

    return driver_needs_of(every, code, _recorded_steps(artifact), contexts)


def driver_needs_of(
    programs: Mapping[str, Sequence[Loaded]],
    code: Callable[[str, Sequence[Loaded]], Code],
    steps: int,
    contexts: int = 1,
) -> dict[str, dict[str, int]]:
    """``driver_needs`` for the programs of each GPU target, and the ``code`` that some of a target's programs run."""
    from dslc.runtime.cuda.driver_bytes import driver_bytes
    from dslc.runtime.cuda.sizes import lane_sizes

    found: dict[str, dict[str, int]] = {}
    for target, listed in programs.items():
        have = {p.entry for p in listed}
        found[target] = {}
        for use, calls in USES.items():
            if use == "load" or all(CALLS[call][0] in have for call in calls):
                entries = {"init", *(entry for call in calls for entry in CALLS[call])}
                held = [p for p in listed if p.entry in entries]
                found[target][use] = driver_bytes(held, code(target, held), lane_sizes(held, steps), contexts)
    return found


def _recorded_steps(artifact: Artifact) -> int:
    """The number of training steps per launch that the build requested."""
    recorded = artifact.header["options"].get("steps_per_launch", 1)
    if type(recorded) is not int or not 1 <= recorded <= MOST_STEPS_PER_LAUNCH:
        raise ArtifactError(
            "R301",
            f"`steps_per_launch` is {repr(recorded)[:60]}",
            place="options",
            help=f"build it again, with a number up to {MOST_STEPS_PER_LAUNCH}",
        )
    return recorded
