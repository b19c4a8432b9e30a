"""Text from a model that maps token ids ``[B, T]`` to logits ``[B, T, V]``, or ``[B, V]`` after the last of them.

A model without a ``state`` reads a window of T tokens for each new one. A model with states reads the prompt in runs of
the built sizes of T, and then each new token by a run of T = 1. All texts of a batch are read to the same place: if a
longer prompt has a token there, none is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from dslc.base.errors import InputError
from dslc.runtime.artifact.dtypes import numpy_dtype
from dslc.runtime.artifact.interface import Interface, Size, size_value
from dslc.runtime.generate.sampling import Sampling
from dslc.runtime.session.batches import Cut, cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Names of the logits among several results.
_NAMES: Final = ("logits", "output")


class Runner(Protocol):
    """A session, as generation uses it."""

    @property
    def interface(self) -> Interface: ...
    @property
    def predict(self) -> Callable[..., Any]: ...
    def stream(self) -> Any: ...


@dataclass(frozen=True)
class Shape:
    """What a model reads and gives: ``ids``, its input; ``result``, its result's name, None if it is the only one;
    ``each``: it has logits for each position; ``rows`` and ``lengths``: the built sizes of B and T; ``independent``:
    rows do not depend on each other, and a call of `predict` may have any number of them."""

    ids: str
    dtype: str
    result: str | None
    each: bool
    vocabulary: int
    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    independent: bool

    def logits(self, found: Any) -> NDArray[Any]:
        """The logits in what ``predict`` returned."""
        return np.asarray(found if self.result is None else getattr(found, self.result))


def shape_of(interface: Interface, sizes: Sequence[Mapping[str, int]], independent: bool) -> Shape:
    """The model's shape, from the sizes that `predict` is built for; ``independent``: its rows are.

    InputError R105 if it does not map tokens to logits, or if several results may be the logits and none has this name.
    """
    if len(interface.inputs) != 1:
        names = ", ".join(f"`{t.name}`" for t in interface.inputs)
        raise _refusal(interface, f"`{interface.model}` has the inputs {names}")
    [ids] = interface.inputs
    if len(ids.shape) != 2 or ids.dtype not in ("i32", "i64", "u8", "u16", "u32", "i16"):
        raise _refusal(interface, f"its input is `{ids.name}`: {ids}")
    found = [r for r in interface.results if r.dtype in ("f32", "f64") and _fits(r.shape, ids.shape)]
    if not found:
        raise _refusal(interface, "its results are " + ", ".join(f"`{r.name}`: {r}" for r in interface.results))
    result = found[0] if len(found) == 1 else next((r for r in found if r.name in _NAMES), None)
    if result is None:
        names = " or ".join(f"`{r.name}`" for r in found)
        raise _refusal(interface, f"it is not clear whether its logits are {names}: name the result `logits`")
    last: Size = result.shape[-1]
    if not isinstance(last, int):
        raise _refusal(interface, f"its vocabulary is {last}, which is not fixed")
    name = None if len(interface.results) == 1 else result.name
    rows, lengths = ({size_value(size, each) for each in sizes} for size in ids.shape)
    each = len(result.shape) == 3
    return Shape(ids.name, ids.dtype, name, each, last, tuple(sorted(rows)), tuple(sorted(lengths)), independent)


def vocabulary_of(session: Any) -> int:
    """The number of tokens of a session's model. InputError R105 if it does not map tokens to logits."""
    sizes = [program.sizes for program in session.artifact.programs("predict")]
    return shape_of(session.interface, sizes, independent=False).vocabulary


def _fits(result: tuple[Size, ...], ids: tuple[Size, ...]) -> bool:
    """Whether a result may be logits for each token, or for the last one."""
    return result[:-1] == ids or (len(result) == 2 and result[0] == ids[0])


def collected(prompt: Any, tokens: Callable[[Sequence[Any]], Iterable[tuple[int, int]]]) -> Any:
    """The new tokens of a prompt, i64[n]; or a list of them for a list of prompts."""
    several = isinstance(prompt, list | tuple) and any(np.ndim(each) for each in prompt)
    prompts = prompt if several else [prompt]
    found: list[list[int]] = [[] for _ in prompts]
    for row, token in tokens(prompts):
        found[row].append(token)
    arrays = [np.array(text, np.int64) for text in found]
    return arrays if several else arrays[0]


def _refusal(interface: Interface, cause: str) -> InputError:
    help = f"generate needs `model {interface.model}(ids: i32[B, T]) -> [B, T, V]` (or `[B, V]`)"
    return InputError("R105", cause, place="generate", help=help)


def checked_prompts(prompts: Sequence[object], vocabulary: int) -> list[list[int]]:
    """Token ids of each prompt. InputError R105 for one without tokens, or with a number that is no token."""
    found: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        array = np.asarray(prompt)
        if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
            cause = f"prompt {number} is {array.dtype}{list(array.shape)}"
            help = "a prompt is a sequence of token ids, at least one"
            raise InputError("R105", cause, place="generate(prompt)", help=help)
        if array.min() < 0 or array.max() >= vocabulary:
            wrong = int(array.min() if array.min() < 0 else array.max())
            cause, help = f"prompt {number} has the token {wrong}", f"tokens are 0 to {vocabulary - 1}"
            raise InputError("R105", cause, place="generate(prompt)", help=help)
        found.append([int(token) for token in array])
    return found


def tokens(
    session: Runner,
    shape: Shape,
    prompts: Sequence[Sequence[int]],
    steps: int,
    sampling: Sampling,
    stop: frozenset[int],
) -> Iterator[tuple[int, int]]:
    """(prompt, token) for each new token, in the order in which they are drawn; prompts that do not fit into one batch
    follow one after another. A prompt ends after ``steps`` tokens, or with one of ``stop``."""
    carries = bool(session.interface.states)
    if shape.independent and not carries:
        pieces: tuple[Cut, ...] | None = (Cut(0, len(prompts), len(prompts)),)
    else:
        pieces = cut(len(prompts), shape.rows, pad=shape.independent)
    if pieces is None:
        cause = f"{len(prompts)} prompts, and the model is built for {' and '.join(map(str, shape.rows))} at once"
        help = "give as many; or build it for one, too: --size predict:B=1"
        raise InputError("R105", cause, place="generate(prompt)", help=help)
    for piece in pieces:
        texts = [list(prompt) for prompt in prompts[piece.start : piece.start + piece.rows]]
        left = [steps] * len(texts)
        read = _Stream(session, shape, piece.size) if carries else _Windows(session, shape, piece.size)
        while any(left):
            logits, known = read.next(texts, left)
            for row, text in enumerate(texts):
                if left[row] and known[row] == len(text):
                    token = sampling.draw(logits[row], piece.start + row, len(text))
                    text.append(token)
                    left[row] = 0 if token in stop else left[row] - 1
                    yield piece.start + row, token


class _Windows:
    """Reads a window of the last T tokens of each text at once. A shorter text stands at the window's beginning."""

    def __init__(self, session: Runner, shape: Shape, rows: int) -> None:
        self._session, self._shape = session, shape
        self._rows = rows

    def next(self, texts: Sequence[Sequence[int]], left: Sequence[int]) -> tuple[NDArray[Any], list[int]]:
        """Logits after the last token of each text, and the number of tokens read of each."""
        shape, counts = self._shape, [len(text) for text in texts]
        if shape.each:
            length = min((n for n in shape.lengths if n >= max(counts)), default=max(shape.lengths))
        else:
            length = max((n for n in shape.lengths if n <= min(counts)), default=0)
            if not length:
                cause = f"a prompt has {min(counts)} tokens, the model reads {min(shape.lengths)}"
                raise InputError("R105", cause, place="generate(prompt)", help="give longer prompts")
        ids = np.zeros((self._rows, length), numpy_dtype(shape.dtype))
        for row, text in enumerate(texts):
            ids[row, : min(length, len(text))] = text[-length:]
        logits = shape.logits(self._session.predict(**{shape.ids: ids}))
        if shape.each:
            logits = logits[np.arange(len(texts)), [min(length, count) - 1 for count in counts]]
        return logits, counts


class _Stream:
    """Reads by a stream, which remembers: only the tokens that it has not read, as many of each text."""

    def __init__(self, session: Runner, shape: Shape, rows: int) -> None:
        self._stream, self._shape = session.stream(), shape
        self._rows = rows
        self._read = 0

    def next(self, texts: Sequence[Sequence[int]], left: Sequence[int]) -> tuple[NDArray[Any], list[int]]:
        """Logits after the tokens that the shortest unfinished text has, and their number for each text."""
        shape, end = self._shape, min(len(text) for text, more in zip(texts, left) if more)
        logits = None
        while self._read < end:
            length = max((n for n in shape.lengths if n <= end - self._read), default=0)
            if not length:
                cause = f"{end - self._read} tokens are left to read, the model is built for {min(shape.lengths)}"
                help = "build it for one token at a time, too: --size predict:T=1,64"
                raise InputError("R105", cause, place="generate", help=help)
            ids = np.zeros((self._rows, length), numpy_dtype(shape.dtype))
            for row, text in enumerate(texts):  # a finished text may be shorter; nobody sees what follows it
                part = text[self._read : self._read + length]
                ids[row, : len(part)] = part
            logits = shape.logits(self._stream.predict(**{shape.ids: ids}))
            self._read += length
        assert logits is not None, "the shortest unfinished text got a token by the last call"
        return logits[:, -1] if shape.each else logits, [self._read] * len(texts)
