"""The Python interface: connects the runtime with the compiler if an artifact needs the ops' numpy meanings.

``load`` is ``dslc.load``; ``Importable`` implements ``import lenet``. Importing this module loads neither numpy nor the
compiler.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dslc.base.errors import ArtifactError, EnvironmentFault
from dslc.base.turns import Turn

if TYPE_CHECKING:
    from dslc.runtime.cpu.reference_step import Meanings
    from dslc.runtime.session.session import Session


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "auto",
    weights: str | os.PathLike[str] | None = None,
    seed: int = 0,
    contexts: int = 1,
    verify: str = "all",
    digest: str | None = None,
    bulk: int | str | None = None,
    steps_per_launch: int | None = None,
    calls: Sequence[str] | None = None,
) -> Session:
    """Load an artifact: ``dslc.load("build/lenet/lenet.dslc")``.

    ``device``: ``"cpu"``; ``"gpu"``, or ``"gpu:1"`` for the second one; ``"auto"``: a GPU if the artifact holds code
    for one that is present, else the CPU. ``weights``: a safetensors file; ``"init"`` for initial values drawn from
    ``seed``; None for ``NAME.safetensors`` next to the artifact if it exists, else no weights yet. ``contexts``: how
    many calls may run concurrently, each with its own memory. ``verify="code"`` skips the digests of weights.
    ``digest="sha256:..."`` pins the artifact. ``bulk``: how many instructions a GPU gets at once, ``"all"`` for a whole
    step, or 0 for one launch and one synchronisation per instruction. ``steps_per_launch``: how many steps of
    ``train_steps`` the GPU gets with one launch. None keeps the built values. ``calls``: which of ``"train_step"``,
    ``"evaluate"`` and ``"predict"`` will be used; memory is allocated only for these. None: all. Raises DslcError.
    """
    from dslc.runtime.session.load import load

    return load(
        path,
        device=device,
        weights=weights,
        seed=seed,
        contexts=contexts,
        verify=verify,
        digest=digest,
        meanings=reference_meanings,
        bulk=bulk,
        steps_per_launch=steps_per_launch,
        calls=calls,
    )


def reference_meanings() -> Meanings:
    """The numpy meaning of every op. EnvironmentFault R203 if the compiler is not installed."""
    try:
        from dslc.compiler.ops import registry
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            "R203",
            f"the artifact is built with the reference provider, which needs the compiler: {error}",
            help="install dslc with its dependencies, or build the artifact with another provider",
        ) from error
    return registry.meanings()


class Importable:
    """The object that ``build/NAME/__init__.py`` exposes: the artifact next to it, loaded at the first call.

    ``file`` is that module's path, ``name`` the artifact's name, ``digest`` the SHA-256 of the interface for which the
    module and its ``.pyi`` were written.
    """

    def __init__(self, file: str, name: str, digest: str) -> None:
        self._folder = os.path.dirname(os.path.abspath(file))
        self._name = name
        self._digest = digest
        self._default: Session | None = None
        self._renew_turn()
        # A fork may happen while another thread loads: the child must not wait for that thread's lock.
        os.register_at_fork(after_in_child=self._renew_turn)

    def _renew_turn(self) -> None:
        self._turn = Turn()

    def session(
        self,
        *,
        device: str = "auto",
        weights: str | os.PathLike[str] | None = None,
        seed: int = 0,
        contexts: int = 1,
        verify: str = "all",
        digest: str | None = None,
        bulk: int | str | None = None,
        steps_per_launch: int | None = None,
        calls: Sequence[str] | None = None,
    ) -> Session:
        """A new Session of this artifact, with the options of ``dslc.load``. R308 if its interface has changed."""
        from dslc.runtime.artifact.file import read_artifact
        from dslc.runtime.session.load import start

        artifact = read_artifact(os.path.join(self._folder, f"{self._name}.dslc"), digest=digest)
        if artifact.header["interface_sha256"] != self._digest:
            raise ArtifactError(
                "R308",
                f"`import {self._name}` was generated for another interface than that of {self._name}.dslc",
                place=self._folder,
                help=f"build both again: dslc build {self._name}.nn",
            )
        return start(
            artifact,
            self._folder,
            device=device,
            weights=weights,
            seed=seed,
            contexts=contexts,
            verify=verify,
            meanings=reference_meanings,
            bulk=bulk,
            steps_per_launch=steps_per_launch,
            calls=calls,
        )

    def predict(self, /, *unnamed: object, **inputs: object) -> Any:
        """``Session.predict`` of a session that is created at the first call and kept. Inputs are passed by name."""
        session = self._default
        if session is None:
            with self._turn.hold() as scope, scope:
                session = self._default
                if session is None:
                    session = self.session(calls=("predict",))
                    if session.has_weights:  # else the next call looks again for published weights
                        self._default = session
        return session.predict(*unnamed, **inputs)  # type: ignore[arg-type]
