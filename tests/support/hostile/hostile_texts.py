"""Texts and tokenizer files that want a reader's time or memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hostile.hostile_files import holding, sparse

GOOD_TOKENIZER: Final = """{"version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
"model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"""


def texts() -> dict[str, Callable[[Path], None]]:
    return {
        "bytes that are no text": holding(lambda: b"\xff" * 9999),
        "UTF-16": holding(lambda: "text ".encode("utf-16") * 999),
        "a character cut off": holding(lambda: b"a" * 999 + b"\xc3"),
        "too few tokens": holding(lambda: b"a"),
    }


def tokenizers() -> dict[str, Callable[[Path], None]]:
    start = b'{"version": "1.0", "model": '
    return {
        "no JSON": holding(lambda: b"{" * 99),
        "a list": holding(lambda: b"[]"),
        "deep lists": holding(lambda: start + b"[" * (1 << 20)),
        "49 MiB of spaces": sparse(b"{" + b" " * 99, 49 << 20),
        "40 MiB of texts": holding(lambda: start + b'{"type": "BPE", "vocab": {' + b'"a": 1, ' * (5 << 20)),
        "40 MiB of lists": holding(lambda: start + b'{"type": "BPE", "merges": [' + b"[], " * (10 << 20)),
        "a kind of tomorrow": holding(lambda: start + b'{"type": "New"}}'),
        "no vocabulary": holding(lambda: start + b'{"type": "WordLevel"}}'),
    }
