"""The Session: an artifact in memory, ready to predict, train and evaluate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from dslc.base.errors import DslcError, InputError
from dslc.runtime.artifact.file import Artifact
from dslc.runtime.artifact.interface import Interface
from dslc.runtime.artifact.reserved import OF_STATE
from dslc.runtime.artifact.share import share_of
from dslc.runtime.cpu.reference_step import Meanings
from dslc.runtime.session import fork, snapshot
from dslc.runtime.session.backend import OnDevice
from dslc.runtime.session.calls.loaded_calls import LoadedCalls
from dslc.runtime.session.calls.run_scalars import RunScalars
from dslc.runtime.session.calls.shared_pieces import own_spans
from dslc.runtime.session.calls.training import Part, Training
from dslc.runtime.session.context import Context
from dslc.runtime.session.context_pool import Pool, closed_error
from dslc.runtime.session.find_nonfinite import Nonfinite
from dslc.runtime.session.initial_values import InitialValues
from dslc.runtime.session.open import check_options, choose_place, loaded_programs, open_backend, programs_for
from dslc.runtime.session.preparation import Preparation
from dslc.runtime.session.results import EvalResult, StepResult
from dslc.runtime.session.state import State
from dslc.runtime.session.stream import Stream
from dslc.runtime.weights.mapping import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslc.runtime.session.calls.shard_sum import Exchange
    from dslc.runtime.session.fitted_data import FittedData

MeaningsSource: TypeAlias = Meanings | Callable[[], Meanings] | None
WeightsSource: TypeAlias = str | os.PathLike[str] | None


class Session:
    """An artifact in memory. May be called from many threads; created by ``load``.

    ``predict`` and ``evaluate`` run concurrently, up to the number of contexts; ``train_step`` and every call that
    reads or changes the weights run alone. In a forked child every call raises ForkError R204.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        device: str,
        seed: int,
        contexts: int,
        verify_weights: bool,
        meanings: MeaningsSource,
        bulk: int | None = None,
        steps_per_launch: int | None = None,
        calls: Iterable[str] | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self._born = fork.generation()
        self._streams = count()
        place = choose_place(artifact, device)
        share = share_of(artifact.header, *part)
        every = loaded_programs(artifact, place.choice.target, share)
        names = None if calls is None else frozenset(calls)
        self._programs = programs_for(every, names)
        self.artifact = artifact
        self.interface = Interface.of_header(artifact.header["interface"])
        self._scalars = RunScalars(int(seed))
        options = contexts, meanings, bulk, steps_per_launch
        self._backend = open_backend(artifact, place, self._programs, *options, share)
        self.device = self._backend.name
        self._state = State(artifact.header["state"], self._backend.state, share)
        self._initial = InitialValues(self._state, {OF_STATE + each.name: each.start for each in self.interface.states})
        self._pool = Pool([*map(Context, self._backend.contexts, self._backend.blocks)])
        self._preparation = Preparation(self._programs.get("prepare", []), self._pool, self._state)
        self.weights = Weights(self._state, self._pool, verify=verify_weights, guard=self._alive)
        of_backend = self._backend.sums, self._backend.may_be_outside
        self._calls = LoadedCalls(artifact.header, self.interface, self._programs, names, *of_backend)
        parts = self._calls, self._backend, self._pool, self._state, self._initial, self._scalars
        self._training = Training(*parts, Part(part, share is not None))
        if "update_step" in self._programs:
            try:
                _ = self._calls.train_step  # it takes the memory for the sums over shards
            except DslcError:
                self._backend.close()
                raise

    @property
    def name(self) -> str:
        """The artifact's name."""
        return self.interface.name

    @property
    def step(self) -> int:
        """The number of training steps in the state, which is the number of the next one. After an interrupt it tells
        whether the state includes the interrupted step."""
        return self._state.step

    @property
    def seed(self) -> int:
        """The seed of random draws, which ``initialise`` may change."""
        return self._scalars.seed

    @property
    def divided(self) -> bool:
        """Whether this process holds only a part of the optimizer's state, as one of several that train together."""
        return self._training.part.divided

    @property
    def steps_per_launch(self) -> int:
        """How many steps of ``train_steps`` run with one launch; 1 on a CPU, and if a step consists of several runs."""
        return self._training.steps_per_launch

    @property
    def counters(self) -> Mapping[str, int]:
        """The work of a GPU for this session; empty on the CPU. ``graph_launches`` and ``launches`` (of single
        instructions), ``synchronisations`` (by the host during runs), ``waits`` (for results, an earlier run, or
        inputs), ``bytes_in``, ``bytes_out``, ``compilations``."""
        return self._backend.counters()

    @property
    def has_weights(self) -> bool:
        """True if every parameter and buffer has a value."""
        return not self._state.missing

    @property
    def data(self) -> FittedData:
        """Encodes raw values of columns as the training encoded its data, and decodes labels."""
        from dslc.runtime.session.fitted_data import data_of

        built = [program.sizes for program in self.artifact.programs("predict")]
        return data_of(self.interface, self.weights.notes, built)

    def predict(self, /, *unnamed: object, step: int = 0, row: int = 0, **inputs: object) -> Any:
        """The model's results: an array, or a named tuple of arrays if there are several. The caller owns them.

        The number of rows is free; if rows depend on each other, it must be within the batch dim's bounds. ``step`` and
        ``row`` select the random draws of a model that draws in ``predict``. The first call after a change of the
        weights takes longer if the artifact has values that are prepared from them. Raises InputError R105,
        WeightsMissing R304.
        """
        self._alive("predict")
        call = self._calls.predict
        call.by_name(unnamed)
        given = self._backend.adopt("predict", inputs)
        arrays, dims = call.check(given)
        scalars = self._scalars.of_run(step=step, row=row)
        pieces = call.pieces(dims)

        def run(context: Context) -> Any:
            if given and all(isinstance(value, OnDevice) for value in given.values()):
                return call.run_on_device(context, self._backend, arrays, dims, pieces, scalars)
            return call.run(context, arrays, dims, pieces, scalars)

        return self._preparation.run(run)

    def stream(self) -> Stream:
        """A sequence of ``predict`` calls; each begins with the states that the preceding call left.

        InputError R105 for a model without a ``state``."""
        self._alive("stream")
        if not self.interface.states:
            help = "call predict; `state h: [B, 8] = 0` in a model declares one"
            raise InputError("R105", f"`{self.interface.model}` has no state", place="stream", help=help)
        parts = self._calls.predict, self._pool, self._backend, self._preparation
        return Stream(*parts, number=next(self._streams), alive=self._alive, scalars=self._scalars.of_run)

    def generate(self, prompt: Any, steps: int, **options: Any) -> Any:
        """New tokens that follow a prompt, by a model of token ids ``[B, T]`` with logits ``[B, T, V]`` or ``[B, V]``.

        ``prompt``: a sequence of ids, or a list of several, of any lengths; the result is an i64 array, or a list of
        them. ``steps``: how many tokens to add. The options are those of ``tokens``, which gives the same tokens one by
        one.
        """
        from dslc.runtime.generate.generate import collected

        return collected(prompt, lambda prompts: self.tokens(prompts, steps, **options))

    def tokens(
        self,
        prompts: Sequence[Any],
        steps: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: Iterable[int] = (),
    ) -> Iterator[tuple[int, int]]:
        """(index of the prompt, new token), one after another, as they are drawn.

        Tokens are drawn from ``softmax(logits / temperature)``; at temperature 0 the most likely one is taken.
        ``top_k``: only from so many most likely tokens; ``top_p``: then from the fewest most likely ones that together
        have this probability. Equal ``seed``, prompts and logits give equal tokens. A prompt ends with a token of
        ``stop``. Each token of a model without a ``state`` costs a run over its last T tokens; a model with states,
        built for T = 1, reads each token once. Raises InputError R105, WeightsMissing R304, NumericError R501 for
        logits of nan.
        """
        from dslc.runtime.generate import generate as texts
        from dslc.runtime.generate.sampling import Sampling

        self._alive("generate")
        sampling = Sampling(temperature, top_k, top_p, seed)
        sampling.check()
        check_options(steps=steps)
        sizes = [program.sizes for program in self._calls.predict.programs]
        shape = texts.shape_of(self.interface, sizes, self._calls.row_independent)
        given = texts.checked_prompts(prompts, shape.vocabulary)
        return texts.tokens(self, shape, given, int(steps), sampling, frozenset(stop))

    def reset_state(self) -> None:
        """Set the states that training carries from step to step to their initial values. `dslc train` does this at the
        start of each epoch."""
        self._alive("reset_state")
        self._training.reset_state()

    def facts(self) -> Mapping[str, str]:
        """Facts that must be equal in all processes that train together on GPUs, by name; empty on the CPU. On a GPU,
        EnvironmentFault R205 if NCCL is not installed."""
        self._alive("facts")
        return self._backend.facts()

    def join(self, group: Exchange) -> None:
        """Train as one of several processes that share the shards of each step: ``train_step`` then takes the rows of
        this process's shards, and changes the state as it does on all of them.

        On GPUs, all processes call this together, each with a GPU of its own. Raises RanksError R601 for a number of
        processes that does not divide the shards, EnvironmentFault R205 if GPUs need NCCL and it is not installed.
        """
        self._alive("join")
        self._training.join(group, self.name)

    def train_step(
        self, /, *unnamed: object, lr: float | None = None, row: int | None = None, **inputs: object
    ) -> StepResult:
        """One step of the optimizer on one batch of the built size.

        If accumulation and shards divide a step into N parts (micro-batches times shards), the batch has N times the
        built rows. Loss and metrics are the means over the parts.

        ``inputs``: the model's inputs, those of the train section, and its float arguments. ``lr``: this step's
        learning rate, by default the train section's. ``row``: the global number of the batch's first row, by default
        step x rows. Elements with a non-finite gradient are not updated; this is reported, not raised. Raises
        InputError R105, WeightsMissing R304.
        """
        self._alive("train_step")
        return self._training.train_step(unnamed, inputs, lr, row)

    def train_steps(
        self, batches: Iterable[Mapping[str, object]] | None = None, /, **stacked: object
    ) -> list[StepResult]:
        """``train_step`` for a sequence of batches: the same bits, with less work for the host.

        ``batches``: for each step the named arguments of ``train_step``, including ``lr`` and ``row``; an array may be
        reused after the next batch is requested. ``batches`` must not call the session. Alternatively ``stacked``:
        inputs with the steps as an additional first axis; ``lr`` and float arguments are numbers for all steps, or one
        per step. A GPU gets as many steps with one launch as the artifact says (``--steps-per-launch``), or
        ``load(steps_per_launch=)``. Raises the errors of ``train_step`` and those of ``batches``, after the earlier
        steps.
        """
        self._alive("train_steps")
        return self._training.train_steps(batches, stacked)

    def find_nonfinite(
        self, /, *, lr: float | None = None, row: int | None = None, **inputs: object
    ) -> Nonfinite | None:
        """``train_step`` with a check of each result: returns the first that is not finite, or None if all are finite.

        If one is found, the step is incomplete: the state stays partially updated until it is restored.
        """
        self._alive("find_nonfinite")
        return self._training.find_nonfinite(inputs, lr, row)

    def evaluate(self, /, *unnamed: object, step: int = 0, **inputs: object) -> EvalResult:
        """Loss and metrics over all given rows: split into built sizes, combined as the train section requires.

        ``inputs``: the model's inputs, those of the train section, and its float arguments. Raises InputError R105,
        WeightsMissing R304.
        """
        self._alive("evaluate")
        call = self._calls.evaluate
        call.by_name(unnamed)
        arrays, arguments, dims = call.check(self._backend.adopt("evaluate", inputs))
        pieces = call.pieces(dims)
        scalars = self._scalars.of_run(step=step, row=0) | arguments
        with self._pool.shared() as scope, scope as context:
            self._state.ensure_ready("evaluate")
            return call.run(context, arrays, pieces, scalars)

    def evaluate_rows(
        self,
        rows: int,
        read: Callable[[Sequence[tuple[int, int]]], Iterable[Mapping[str, object]]],
        /,
        *,
        step: int = 0,
        **arguments: object,
    ) -> EvalResult:
        """``evaluate`` for data that need not fit into memory: the same pieces, one after the other.

        ``read`` receives the pieces as (first row, end row) and yields the inputs of each in turn; without a batch dim
        there is one piece. ``arguments`` are the float arguments. After ``join`` all processes call this together: each
        reads and computes its part of the pieces, and all return the same. Raises InputError R105, WeightsMissing R304,
        and the errors of ``read``.
        """
        self._alive("evaluate")
        call = self._calls.evaluate
        pieces = call.pieces_of(rows)
        scalars = self._scalars.of_run(step=step, row=0)
        group = self._training.group
        spans = own_spans(pieces, group, rows)
        with self._pool.shared() as scope, scope as context:
            self._state.ensure_ready("evaluate")
            return call.run_each(context, pieces, read(spans), arguments, scalars, group)

    def initialise(self, seed: int | None = None) -> None:
        """Set every state tensor to its initial value, drawn from ``seed`` (default: the session's seed); the step is
        0."""
        self._alive("initialise")
        if seed is not None:
            check_options(seed=seed)
            self._scalars.seed = int(seed)
        with self._pool.exclusive() as scope, scope as context:
            self._state.tear()
            self._initial.fill(context, self._calls.init, self._scalars.of_run(step=0, row=0))
            self.weights.notes = {}
            self._state.all_set(0)

    def state_tensors(self) -> dict[str, NDArray[Any]]:
        """Copies of all state tensors, including the optimizer's, taken between two steps. If ``divided`` is True, all
        processes call this together."""
        self._alive("state_tensors")
        return self._training.copies("state_tensors")[0]

    def restore(self, tensors: Mapping[str, object], step: int) -> None:
        """Set all state tensors and the step's number, or nothing.

        InputError R105 for a name, shape or dtype that differs.
        """
        self._alive("restore")
        check_options(step=step)
        arrays = snapshot.checked(self._state.tensors, tensors)
        with self._pool.exclusive() as scope, scope:
            self._state.restore(arrays, int(step))

    def save_checkpoint(self, path: str | os.PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write all state tensors, the step, the notes and the caller's texts; the file is written atomically."""
        self._alive("save_checkpoint")
        tensors, step = self._training.copies("save_checkpoint")
        snapshot.save(path, self._state.tensors, tensors, step, extra or {}, self.weights.notes)

    def load_checkpoint(self, path: str | os.PathLike[str]) -> dict[str, str]:
        """Continue from a checkpoint of ``save_checkpoint`` or ``dslc train``; returns the caller's texts.

        Raises ArtifactError R305 for another model's checkpoint and R306 for a damaged one; the state is then
        unchanged.
        """
        self._alive("load_checkpoint")
        found = snapshot.load(path, self._state.tensors)
        self.restore(found.tensors, found.step)
        self.weights.notes = found.notes
        return dict(found.extra)

    def keep_choices(self) -> int:
        """Store the choices of cuBLASLt and cuDNN for this artifact and GPU in the private cache, so that later loads
        reuse them. Returns their number; 0 if no library is called. ResourceError R402."""
        self._alive("keep_choices")
        return self._backend.keep_choices()

    def close(self) -> None:
        """Wait for running calls, then release the memory. May be called again; later calls raise R309."""
        if fork.is_child(self._born):
            return
        with self._pool.closing() as scope, scope:
            self._backend.close()

    def __enter__(self) -> Self:
        self._alive("with")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = " closed" if self._pool.closed else ""
        return f"<dslc.Session {self.name} on {self.device}, step {self.step}{closed}>"

    def _alive(self, call: str) -> None:
        fork.refuse_child(self._born, self.name)
        if self._pool.closed:
            raise closed_error(call)
        self._backend.check()
