"""Colours `.nn` sources on the documentation site: a Pygments lexer, and zensical started with it.

    python docs/nn_lexer.py build --config-file zensical.toml

Pygments finds lexers of other packages by entry points; this one belongs to the site alone, so it is added to the table
of the process that renders the pages.
"""

from __future__ import annotations

from typing import Final

from pygments.lexer import RegexLexer, bygroups, words
from pygments.lexers import LEXERS
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

__all__ = ["NnLexer"]  # what Pygments takes from this module

_KEYWORDS: Final = (
    "along", "and", "as", "block", "carry", "check", "const", "dim", "else", "for", "if", "in", "into", "layer",
    "model", "nn", "not", "optimizer", "or", "param", "return", "reverse", "scan", "state", "train", "use", "yield",
)  # fmt: skip
_TYPES: Final = (
    "b1",
    "bf16",
    "bool",
    "f16",
    "f32",
    "f64",
    "float",
    "i8",
    "i16",
    "i32",
    "i64",
    "int",
    "u8",
    "u16",
    "u32",
)


class NnLexer(RegexLexer):
    """Models of dslc."""

    name = "dslc model"
    aliases = ("nn",)
    filenames = ("*.nn",)
    tokens = {
        "root": [
            (r"##.*", String.Doc),
            (r"#.*", Comment.Single),
            (r'"(?:\\.|[^"\\\n])*"', String.Double),
            (r"@[A-Za-z_]\w*", Name.Decorator),
            (r"(block|model|train|optimizer)(\s+)([A-Za-z_]\w*)", bygroups(Keyword, Text, Name.Class)),
            (words(_KEYWORDS, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(("true", "false"), prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(_TYPES, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (r"([A-Za-z_]\w*)(?=\()", Name.Function),
            (r"(\|>)(\s*)([A-Za-z_]\w*)", bygroups(Operator.Word, Text, Name.Function)),
            (r"\d[\d_]*(?:\.(?!\.)[\d_]*)?(?:[eE][-+]?\d+)?", Number),
            (r"[A-Za-z_]\w*", Name),
            (r"\|>|->|\.\.\.?|[-+*/%^@=<>!]+", Operator),
            (r"[()\[\]{},:;.]", Punctuation),
            (r"\s+", Text),
        ]
    }


def main() -> None:
    from zensical.main import cli

    LEXERS["NnLexer"] = ("nn_lexer", NnLexer.name, NnLexer.aliases, NnLexer.filenames, ())
    cli()


if __name__ == "__main__":
    main()
