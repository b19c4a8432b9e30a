"""Random sources: the formatter keeps the tree, the parser keeps its temper. Failing cases print their seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from places import MODELS
from sources.source_generator import Generator
from thinning import thinned

from dslc.base.errors import DslcError
from dslc.dsl import syntax
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.format.printer import format_file
from dslc.dsl.limits import MAX_SOURCE_BYTES
from dslc.dsl.load import decode
from dslc.dsl.parser import parse
from dslc.dsl.span import Source

SOURCES = sorted(MODELS.glob("*.nn"))
ABSTRACT = {"Tree", "Expr", "Stmt", "Item"}


@pytest.mark.slow
def test_formatting_keeps_the_tree_and_is_done_at_once(fuzz_count: Callable[..., int], fuzz_seed: int) -> None:
    seen: set[str] = set()
    wide = 0
    for number in range(fuzz_count(3000, 50)):
        text = Generator(fuzz_seed + number).file()
        source = Source(f"seed {fuzz_seed + number}", text)
        tree = parse(source)
        formatted = format_file(source)
        assert parse(Source(source.path, formatted)) == tree, source.path
        assert format_file(Source(source.path, formatted)) == formatted, source.path
        assert sorted(_comment_marks(formatted)) == sorted(_comment_marks(text)), source.path
        for line in formatted.splitlines():
            assert line == line.rstrip() and "\t" not in line.partition("#")[0].partition('"')[0], source.path
        wide += any(len(line) > 100 for line in text.splitlines())
        seen |= _classes(tree)
    concrete = {name for name, kind in vars(syntax).items() if isinstance(kind, type) and issubclass(kind, syntax.Tree)}
    assert concrete - ABSTRACT == seen
    assert wide, "no source was wider than a line may be: the breaking of lines was not tried"


def test_mutated_bytes_are_refused_or_read_within_the_limits(
    fuzz_count: Callable[..., int], fuzz_seed: int, allowed: Callable[[float, float], bool]
) -> None:
    rng = random.Random(fuzz_seed)
    corpus = [path.read_bytes() for path in SOURCES]
    refused = accepted = 0
    slowest = 0.0
    for number in range(fuzz_count(40_000, 80)):
        data = _mutated(rng, rng.choice(corpus), corpus)
        start = time.process_time()
        try:
            parse(decode(f"seed {fuzz_seed}, case {number}", data))
            accepted += 1
        except CompileError as error:
            refused += 1
            assert error.diagnostics and error.render() and error.as_json()
            assert error.exit_code == 2
        except DslcError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {fuzz_seed}, case {number}: {data!r}") from error
        slowest = max(slowest, time.process_time() - start)
    assert allowed(slowest, 2.0), f"seed {fuzz_seed}: {slowest:.2f} s"
    assert refused and accepted


UNITS = ["[[]],", "1+", "-", "not ", "(", "a[0].b(c)|>", "{", "}", '"', "'", "x y ", "1 if a else ", "a\n", "@a "]
UNITS += ["; ", "#\n", "é", "2^", "a if ", "1,", "block ", "return\n"]


@pytest.mark.slow
def test_the_densest_sources_are_refused_within_two_seconds(allowed: Callable[[float, float], bool]) -> None:
    for number, unit in enumerate(UNITS):
        text = "nn 1\nconst a = " + unit * ((MAX_SOURCE_BYTES - 40) // len(unit.encode()))
        if number % 2:
            text = f"nn 1\nmodel M() {{ {text[5:]} }}"
        start = time.process_time()
        with pytest.raises(CompileError) as error:
            parse(Source("dense", text))
        assert len(error.value.render()) < 200_000
        assert allowed(time.process_time() - start, 2.0), unit


#: what comes before the repeated part, the part, and an error after all of them
BEFORE_AN_ERROR = {
    "signs": ("const a = ", "-", "1 1"),
    "powers": ("const a = ", "2^", "1 1"),
    "choices": ("const a = ", "1 if a else ", "1 1"),
    "indices": ("const a = x", "[0]", " 1"),
    "one list": ("const a = [", "1,", "1 1]"),
    "branches": ("model M() {", "if a {} else ", "if a {} x }"),
    "soft words": ("const a = ", "dim ^ ", "1 1"),
    "one error a line": ("", f"const a = {'-' * 900}1 1\n", ""),
}


@pytest.mark.parametrize("name", thinned(BEFORE_AN_ERROR, 2))
def test_an_error_after_much_text_is_found_in_two_seconds(name: str, allowed: Callable[[float, float], bool]) -> None:
    """Neither a long list nor the search for what could be next goes through the text again and again."""
    head, unit, end = BEFORE_AN_ERROR[name]
    text = f"nn 1\n{head}{unit * ((MAX_SOURCE_BYTES - 60) // len(unit))}{end}"
    start = time.process_time()
    with pytest.raises(CompileError) as error:
        parse(Source(name, text))
    assert {d.code for d in error.value.diagnostics} == {"E0001"}
    assert allowed(time.process_time() - start, 2.0)


@pytest.mark.slow
def test_the_densest_sources_are_read_and_formatted_in_seconds(allowed: Callable[[float, float], bool]) -> None:
    """Within the limits nothing is worse than linear; the bounds leave room for a slow machine."""
    whole = {
        "declarations": "nn 1\n" + "const a=1;" * 6000,
        "statements": "nn 1\nmodel M(x:[B]){" + "y=f(x,k=3)|>g;" * 4000 + "}",
        "one line": "nn 1\nconst a=[" + "1,[2],f(x)," * 5000 + "]",
        "comments": "nn 1\nconst a=[" + "1,#c\n" * 8_000 + "]",
        "blank lines": "nn 1\n" + "const a=1\n\n\n" * 7000,
        "entries": "nn 1\ntrain M {" + "loss_name=1\n" * 5000 + "}",
    }
    for name, text in whole.items():
        start = time.process_time()
        parse(Source(name, text))
        assert allowed(time.process_time() - start, 2.0), name
        format_file(Source(name, text))
        assert allowed(time.process_time() - start, 10.0), name
    with pytest.raises(CompileError, match="when formatted"):
        format_file(Source("grows", "nn 1\n" + "const a=1;" * 9000))


def _comment_marks(text: str) -> list[str]:
    """The comments of a generated source (its texts hold one `#`, in a fixed place)."""
    found = []
    for line in text.replace('"{ ( # |>"', '""').splitlines():
        if "#" in line:
            found.append(line[line.index("#") :].rstrip())
    return found


def _classes(tree: syntax.Tree) -> set[str]:
    names: set[str] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        names.add(type(node).__name__)
        for part in type(node).__dataclass_fields__:
            value = getattr(node, part)
            stack += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, syntax.Tree)]
    return names


def _mutated(rng: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """A few random edits: bytes changed, cut, doubled, moved in from elsewhere; brackets and words inserted."""
    inserts = [b"{", b"}", b"(", b")", b"[", b"]", b"|>", b"\n", b";", b"@", b"=", b'"', b"#", b"\x00", b"\xff", b"->"]
    inserts += [
        b" if ",
        b" else ",
        b" as ",
        b"return ",
        b"block ",
        b"layer ",
        b"..",
        b"9" * 30,
        b"1e999",
        b"\xe2\x80\xae",
    ]
    text = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(text):
            text[at] = rng.randrange(256)
        elif kind == 1:
            del text[at : at + rng.randint(1, 20)]
        elif kind == 2:
            text[at:at] = text[at : at + rng.randint(1, 40)]
        elif kind == 3:
            other = rng.choice(corpus)
            start = rng.randrange(len(other))
            text[at:at] = other[start : start + rng.randint(1, 60)]
        else:
            text[at:at] = rng.choice(inserts)
    return bytes(text)
