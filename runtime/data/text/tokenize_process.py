"""The process ``python -m dslc.runtime.data.text.tokenize_process FD``: it runs the ``tokenizers`` library on one file.

The library is Rust on untrusted bytes: if it aborts, loops or allocates too much, only this process ends. FD is memory
that holds the file. Each line of stdin asks for the ids of texts, as JSON; the answer is a line of JSON, then the
number of ids of each text, i32, and the ids, u32. Or a line asks for the text of ids, which the line of the answer has.
The first answer describes the tokenizer. The memory of the process is limited before the file is read.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeVar

from dslc.base.confine import confine
from dslc.base.words import reason

#: Bytes beyond what the process has at its start: the largest published files need 0.5 GiB, a request at most 1.8.
_MEMORY: Final = 3 << 30
_PADDING: Final = ("[PAD]", "<pad>", "<|pad|>", "<|padding|>")
_LONGEST: Final = 300  # characters of a reason

Found = TypeVar("Found")


class _Refused(Exception):
    """The library refuses; the text says why."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints must not mix with the answers
    import tokenizers

    confine(_MEMORY)
    handle = int(sys.argv[1])
    try:
        tokenizer = _asked(lambda: tokenizers.Tokenizer.from_buffer(os.pread(handle, os.fstat(handle).st_size, 0)))
        described = _asked(lambda: _described(tokenizer))
    except _Refused as error:
        _answer(answers, {"refused": str(error)})
        return
    _answer(answers, {**described, "version": tokenizers.__version__})
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            if "decode" in asked:
                _answer(answers, {"text": _asked(lambda asked=asked: _decoded(tokenizer, asked["decode"]))})  # type: ignore[misc]
                continue
            found = _asked(lambda asked=asked: _encoded(tokenizer, asked["texts"], asked["length"]))  # type: ignore[misc]
        except _Refused as error:
            _answer(answers, {"refused": str(error)})
            continue
        counts, ids = array("i", map(len, found)), array("I")
        for each in found:
            ids.extend(each)
        _answer(answers, {"texts": len(counts), "ids": len(ids)}, counts.tobytes(), ids.tobytes())


def _described(tokenizer: Any) -> dict[str, int]:
    """Of a tokenizer: the id that fills short texts, and the largest id of its vocabulary."""
    given = tokenizer.padding
    known = [tokenizer.token_to_id(name) for name in _PADDING]
    padding = given["pad_id"] if given else next((id for id in known if id is not None), 0)
    tokenizer.no_padding()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    return {"padding": padding, "largest": largest}


def _encoded(tokenizer: Any, texts: list[str], length: int | None) -> list[list[int]]:
    """The ids of each text: with special tokens and at most ``length``, or all of the text alone."""
    if length is None:
        tokenizer.no_truncation()
        return [found.ids for found in tokenizer.encode_batch(texts, add_special_tokens=False)]
    tokenizer.enable_truncation(length)
    return [found.ids[:length] for found in tokenizer.encode_batch(texts)]


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    """The text of ids, special tokens among them."""
    found: str = tokenizer.decode(ids, skip_special_tokens=False)
    return found


def _asked(call: Callable[[], Found]) -> Found:
    """The result of a call of the library. It raises plain exceptions, and panics of Rust, which are no
    ``Exception``. _Refused."""
    try:
        return call()
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _Refused(reason(error)[:_LONGEST]) from error


def _answer(to: Any, head: dict[str, Any], *parts: bytes) -> None:
    to.write(json.dumps(head).encode() + b"\n" + b"".join(parts))
    to.flush()


if __name__ == "__main__":
    main()
