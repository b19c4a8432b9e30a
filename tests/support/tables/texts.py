"""A tokenizer file and a text, for data of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

TEXT: Final = "It was a dark night.\n\nThe rain fell in torrents, except when a wind checked it.\n" * 40


def write_tokenizer(path: Path, vocabulary: int = 400) -> Path:
    """A byte-level BPE trained on the text, with special tokens around each row."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        special_tokens=["[CLS]", "[SEP]", "[PAD]"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([TEXT], trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    made.save(str(path))
    return path


def row_of(tokenizer: Path, text: str, length: int) -> list[int]:
    """What the library itself makes of a text: a row of ``length`` tokens, filled with 2."""
    import tokenizers

    found: Any = tokenizers.Tokenizer.from_file(str(tokenizer))
    found.enable_truncation(length)
    ids = found.encode(text).ids
    return [*ids, *([2] * (length - len(ids)))]
