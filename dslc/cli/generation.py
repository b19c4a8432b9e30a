"""``dslc predict --generate``: text that a model writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslc.cli.output import emit, say, say_part, settings

if TYPE_CHECKING:
    from dslc.runtime.session.session import Session


@dataclass(frozen=True)
class Wish:
    """What is asked for: ``steps`` tokens after each prompt, and the options of ``Session.tokens``."""

    steps: int
    prompts: Sequence[str]
    options: dict[str, Any]
    ids: bool
    tokenizer: Path | None


def write_text(session: Session, wish: Wish) -> None:
    """Prints each prompt with what follows; the text of a single one as it is written. Raises InputError R105,
    DataError R101 and R104, NumericError R501."""
    from dslc.runtime.data.text.tokenize import tokenizer_of
    from dslc.runtime.generate.generate import vocabulary_of
    from dslc.runtime.generate.text import Growing, codec_of

    tokenizer = None if wish.tokenizer is None or wish.ids else tokenizer_of(wish.tokenizer)
    if tokenizer is not None:
        tokenizer.require_trained(session.weights.notes)
    codec = codec_of(vocabulary_of(session), tokenizer, numbers=wish.ids)
    prompts = [codec.encode(text) for text in wish.prompts]
    new = [Growing(codec) for _ in prompts]
    at_once = len(prompts) == 1 and not settings().json
    found = session.tokens(prompts, wish.steps, **wish.options)
    if at_once:
        say_part(codec.decode(prompts[0]))
    for row, token in found:
        text = new[row].add(token)
        if at_once:
            say_part(text)
    if at_once:
        say(new[0].rest())
        return
    texts = [codec.decode(each.tokens) for each in new]
    data = [
        {"prompt": prompt, "text": text, "tokens": each.tokens}
        for prompt, text, each in zip(wish.prompts, texts, new, strict=True)
    ]
    lines = [codec.decode(prompt) + text for prompt, text in zip(prompts, texts, strict=True)]
    emit({"texts": data}, "\n\n".join(lines))
