"""``load``: turns an artifact file into a Session that is ready to run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dslc.runtime.artifact.file import Artifact, read_artifact
from dslc.runtime.session.open import ALL_AT_ONCE, check_options
from dslc.runtime.session.session import MeaningsSource, Session, WeightsSource


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    weights: WeightsSource = None,
    seed: int = 0,
    contexts: int = 1,
    verify: str = "all",
    digest: str | None = None,
    meanings: MeaningsSource = None,
    bulk: int | str | None = None,
    steps_per_launch: int | None = None,
    calls: Sequence[str] | None = None,
    part: tuple[int, int] = (0, 1),
) -> Session:
    """Load an artifact and prepare it to run.

    ``device``: ``"cpu"``, ``"gpu"`` (the first one), ``"gpu:1"``, or ``"auto"``: a GPU if the artifact holds code for
    one that is present, else the CPU.
    ``weights``: a safetensors file; ``"init"`` for initial values drawn from ``seed``; None for ``NAME.safetensors``
    next to the artifact if it exists, else no weights (``predict`` then raises WeightsMissing). ``contexts``: how many
    calls may run concurrently; each has its own memory. ``verify="code"`` skips the digests of weights.
    ``digest="sha256:..."`` pins the artifact. ``meanings``: the ops' numpy meanings, or a function that returns them,
    for artifacts of the reference provider. ``bulk`` overrides the build, for comparisons: how many instructions a GPU
    gets at once, ``"all"`` for a whole step, or 0 for one launch and one synchronisation per instruction.
    ``steps_per_launch`` overrides the build: how many steps of ``train_steps`` a GPU gets with one launch; each takes
    memory for its inputs. ``calls``: which of ``train_step``, ``evaluate`` and ``predict`` will be used; memory is
    allocated only for these. None: all. ``part``: rank and number of the processes that will ``join`` to train; each
    holds its part of the optimizer's state. Raises ArtifactError (R3xx), EnvironmentFault (R2xx), OutOfMemory (R401),
    and InputError (R105, for an option out of range).
    """
    return start(
        read_artifact(path, digest=digest),
        os.path.dirname(os.fspath(path)) or ".",
        device=device,
        weights=weights,
        seed=seed,
        contexts=contexts,
        verify=verify,
        meanings=meanings,
        bulk=bulk,
        steps_per_launch=steps_per_launch,
        calls=calls,
        part=part,
    )


def start(
    artifact: Artifact,
    folder: str,
    *,
    device: str,
    weights: WeightsSource,
    seed: int,
    contexts: int,
    verify: str,
    meanings: MeaningsSource,
    bulk: int | str | None = None,
    steps_per_launch: int | None = None,
    calls: Sequence[str] | None = None,
    part: tuple[int, int] = (0, 1),
) -> Session:
    """``load`` for an artifact that was already read from ``folder``."""
    bulk = ALL_AT_ONCE if bulk == "all" else bulk
    given = {"bulk": bulk, "steps_per_launch": steps_per_launch, "calls": calls}
    check_options(
        device=device, seed=seed, contexts=contexts, verify=verify, **{n: v for n, v in given.items() if v is not None}
    )
    session = Session(
        artifact,
        device=device,
        seed=seed,
        contexts=contexts,
        verify_weights=verify == "all",
        meanings=meanings,
        bulk=None if bulk is None else int(bulk),
        steps_per_launch=steps_per_launch,
        calls=calls,
        part=part,
    )
    try:
        if weights is None:
            session.weights.load_published(folder, session.name)
        elif weights == "init":
            session.initialise()
        else:
            session.weights.load(weights)
    except BaseException:
        session.close()
        raise
    return session
