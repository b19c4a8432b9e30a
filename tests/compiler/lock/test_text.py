"""The text of a lock: one form for the same data, and an error with place, cause and next step for every other text."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from locks import GPU, block, random_lock, way

from dslc.base.errors import BuildError
from dslc.compiler.lock.model import Lock
from dslc.compiler.lock.text import (
    FORMAT,
    MAX_BLOCKS,
    MAX_BYTES,
    MAX_LINE,
    MAX_REJECTED,
    MAX_WAYS,
    format_block,
    format_lock,
    format_way,
    parse_lock,
    parse_way,
)

COUNT = 2000 if os.environ.get("DSLC_SOAK") == "1" else 200


def test_the_text_of_a_lock(golden: Callable[[str, str], None]) -> None:
    ways = (
        way(41.2e-6, "cudnn", "eng62_k2=5_k3=0"),
        way(44e-6, workspace=1 << 20),
        way(0.25, "own", "rows=4 threads=256"),
    )
    rejected = ("cudnn eng99_k0=1: wrong result (error 0.31)", 'own tile="x"\\y: says\nno')
    full = replace(
        block("conv_last bf16[32, 56, 56, 64] -> bf16[32, 56, 56, 64] pad=(1, 1)", ways=ways),
        default=way(55e-6, "cudnn", "eng3_k1=2", 1 << 20), spread=0.0041, error=1.25e-7, rejected=rejected,
        versions="cublaslt 13.1.0, cudnn 9.19.0, driver 580.159.03",
    )  # fmt: skip
    lock = Lock.of(
        [full, block("add f32[2] f32[2] -> f32[2]"), replace(full, gpu="NVIDIA A100, 108 SMs, sm_80", default=None)]
    )
    golden("lock/text.lock", format_lock(lock))


def test_a_printed_lock_is_read_as_the_same_data(fuzz_seed: int) -> None:
    for number in range(COUNT):
        lock = random_lock(random.Random(fuzz_seed * 100_000 + number))
        text = format_lock(lock)
        assert parse_lock(text.encode(), "dslc.lock") == lock
        shuffled = [*lock.blocks]
        random.Random(number).shuffle(shuffled)
        assert format_lock(Lock.of(shuffled)) == text


def test_another_layout_of_the_same_data_is_printed_in_the_one_form() -> None:
    lock = Lock.of([block("b"), block("a")])
    text = format_lock(lock)
    title, _, fields = format_block(lock.blocks[0]).partition("\n")
    shuffled = "\n".join(sorted(fields.replace("[\n  ", "[").replace(",\n]", "]").splitlines(), reverse=True))
    other = f"# mine\r\nformat=1\n{format_block(lock.blocks[1])}{title.replace(chr(34), chr(39))}\n{shuffled}\n"
    assert format_lock(parse_lock(other.encode(), "dslc.lock")) == text != other


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ('fused mode="up"', "['fused mode=\"up\"'."),
        ("fused mode='up'", "[\"fused mode='up'\"."),
        (r"fused \d", r'["fused \\d".'),
        (r'fused "\d"', "['fused \"\\d\"'."),
        ("fused 'a' \"b\"", r"""["fused 'a' \"b\""."""),
    ],
)
def test_a_key_with_quotes_needs_no_backslash_if_possible(key: str, title: str) -> None:
    text = format_lock(Lock.of([block(key)]))
    assert f"\n{title}" in text
    assert format_lock(parse_lock(text.encode(), "dslc.lock")) == text
    [read] = parse_lock(text.encode(), "dslc.lock").blocks
    assert read.key == key
    wrong = text.replace('versions = ""', "versions = 3")
    with pytest.raises(BuildError) as caught:
        parse_lock(wrong.encode(), "dslc.lock")
    assert caught.value.place == "dslc.lock:3"


def test_times_keep_four_digits_and_any_size() -> None:
    for seconds, text in ((1e-9, "0.001"), (41.2349e-6, "41.23"), (0.99996e-6, "1"), (12.3456, "12350000")):
        shown = format_way(way(seconds))
        assert shown == f"{text} us, 0 bytes: own"
        assert format_way(parse_way(shown)) == shown


def test_one_change_changes_the_lines_of_one_item() -> None:
    first = Lock.of([block(key) for key in "abc"])
    second = first.merged([replace(block("b"), ways=(*block("b").ways, way(1.0)))])
    before, after = format_lock(first).splitlines(), format_lock(second).splitlines()
    assert len(after) == len(before) + 1 and not {*before} - {*after}


GOOD = format_lock(Lock.of([block("a"), block("b")]))


def _edited(old: str, new: str) -> bytes:
    assert old in GOOD
    return GOOD.replace(old, new, 1).encode()


def _many(lines: int, text: str) -> bytes:
    return GOOD.encode() + "\n".join(text.replace("?", str(n)) for n in range(lines)).encode()


MANY_WAYS = '"1 us, 0 bytes: own",\n' * MAX_WAYS
BAD: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "dslc.lock:1", "first line is not `format = 1`"),
    "no format": (_edited("format = 1\n", ""), "dslc.lock:1", "first line is not `format = 1`"),
    "a later format": (_edited("format = 1", "format = 2"), "dslc.lock:1", "its format is 2, not 1"),
    "a format that is no int": (_edited("format = 1", "format = true"), "dslc.lock:1", "its format is True, not 1"),
    "bytes": (b"\x80\x04" * 99, "dslc.lock:1", "not UTF-8"),
    "bytes later": (GOOD.encode() + b"\xff", f"dslc.lock:{GOOD.count(chr(10)) + 1}", "not UTF-8"),
    "a zero": (_edited("spread", "\0"), "dslc.lock:", "not TOML"),
    "cut off": (GOOD.encode()[:-30], "dslc.lock", "not TOML"),
    "a conflict": (_edited('["b"', '<<<<<<< ours\n["b"'), "dslc.lock:12", "a merge left a conflict"),
    "the end of a conflict": (GOOD.encode() + b">>>>>>> theirs\n", "dslc.lock:", "a merge left a conflict"),
    "twice": (GOOD.encode() + GOOD.partition("\n\n")[2].encode(), "dslc.lock:", "is also in line 3"),
    "deep": (_edited("rejected = []", f"rejected = {'[' * 1900}"), "dslc.lock", "nested too deeply"),
    "deep over lines": (_edited("rejected = []", "rejected = " + "[\n" * 100_000), "dslc.lock", "nested too deeply"),
    "a long number": (_edited("spread = 0.0", "spread = " + "1" * 1900), "dslc.lock:3", "expected a finite float"),
    "too long a line": (_edited("versions = ", "versions = " + " " * MAX_LINE), "dslc.lock:10", "longer than 2,000"),
    "too long": (GOOD.encode() + b"\n" * MAX_BYTES, "dslc.lock", "longer than 4,194,304 bytes"),
    "too many ways": (_edited("ways = [", "ways = [" + MANY_WAYS), "dslc.lock:3", f"list of 1 to {MAX_WAYS} items"),
    "no way": (_edited('ways = [\n  "1 us, 0 bytes: own",\n]', "ways = []"), "dslc.lock:3", "list of 1 to"),
    "an unknown field": (_edited("spread", "more = 1\nspread"), "dslc.lock:3", "unknown field 'more'"),
    "a field is missing": (_edited("spread = 0.0\n", ""), "dslc.lock:3", "the field 'spread' is missing"),
    "an index": (_edited("1 us, 0 bytes: own", "3"), "dslc.lock:3", "ways[0]: expected `TIME us, SIZE bytes"),
    "an unknown provider": (_edited("bytes: own", "bytes: mine"), "dslc.lock:3", "ways[0]: expected `TIME us"),
    "no time": (_edited('"1 us', '"0 us'), "dslc.lock:3", "ways[0]: expected a time up to"),
    "an endless time": (_edited('"1 us', '"9999999999 us'), "dslc.lock:3", "ways[0]: expected a time up to"),
    "a huge workspace": (_edited(" 0 bytes", " 9999999999999 bytes"), "dslc.lock:3", "a workspace up to"),
    "a negative spread": (_edited("spread = 0.0", "spread = -0.5"), "dslc.lock:3", "spread: expected a number from 0"),
    "nan": (_edited("error = 0.0", "error = nan"), "dslc.lock:3", "error: expected a finite float"),
    "a date": (_edited("error = 0.0", "error = 1979-05-27"), "dslc.lock:3", "error: expected a finite float"),
    "an escape sequence": (_edited('ns = ""', r'ns = "\u001b[2J"'), "dslc.lock:3", "versions: expected text"),
    "an escape sequence in a key": (_edited('["a"', r'["\u001b[2J"'), "dslc.lock", "expected the key of a problem"),
    "a surrogate": (_edited('versions = ""', r'versions = "\ud800"'), "dslc.lock:", "not TOML"),
    "another GPU's form": (_edited(GPU, "H200"), "dslc.lock:3", "expected a GPU: `NAME, N SMs, sm_NN`"),
    "a block without a GPU": (_edited(f'."{GPU}"', ""), "dslc.lock:3", "expected"),
    "a value": (_edited("format = 1", "format = 1\nfast = true"), "dslc.lock", "expected a title of a problem"),
    "no fields": (_edited("format = 1", 'format = 1\n["x"]'), "dslc.lock:2", "expected a title of a problem"),
}  # fmt: skip


def test_a_mark_at_the_start_and_other_line_ends_change_nothing() -> None:
    wanted = parse_lock(GOOD.encode(), "dslc.lock")
    assert parse_lock(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode(), "dslc.lock") == wanted


@pytest.mark.parametrize("name", BAD)
def test_every_other_text_is_an_error_with_place_cause_and_next_step(
    name: str, allowed: Callable[[float, float], bool]
) -> None:
    data, place, cause = BAD[name]
    started = time.process_time()
    with pytest.raises(BuildError) as caught:
        parse_lock(data, "dslc.lock")
    assert allowed(time.process_time() - started, 5)
    error = caught.value
    assert error.code == "E0607" and cause in error.message and error.help
    assert error.place is not None and error.place.startswith(place), error.place
    assert len(error.message) < 800 and error.message.isprintable()


@pytest.mark.slow
def test_the_largest_lock_is_read_in_seconds_and_one_block_more_is_refused(
    allowed: Callable[[float, float], bool],
) -> None:
    lines = f'"c?"."{GPU}"={{ways=["1 us, 0 bytes: own"],spread=0.0,error=0.0,rejected=[],versions=""}}'
    data = _many(MAX_BLOCKS, lines).replace(GOOD.encode(), f"format = {FORMAT}\n".encode())
    started = time.process_time()
    assert len(parse_lock(data, "dslc.lock").blocks) == MAX_BLOCKS
    assert allowed(time.process_time() - started, 20)
    with pytest.raises(BuildError, match=r"20,001 blocks, more than 20,000"):
        parse_lock(data + f"\n{lines}".encode(), "dslc.lock")


def test_a_hostile_text_is_read_or_refused_and_never_fails_otherwise(fuzz_seed: int) -> None:
    draw = random.Random(fuzz_seed)
    refused = 0
    for _ in range(10 * COUNT):
        data = bytearray(GOOD.encode())
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[at] = draw.choice(b"\0\"\\[]{}=.,\n\r#'0e-\xff<")
                case 1:
                    del data[at : at + draw.randint(1, 40)]
                case 2:
                    data[at:at] = data[: draw.randint(1, 60)]
                case 3:
                    data[at:at] = draw.choice([b"\\u001b", b"[[", b"''' ", b'"""', b"1e999", b"inf", b"\xe2\x80\xae"])
        try:
            lock = parse_lock(bytes(data), "dslc.lock")
        except BuildError as error:
            refused += 1
            assert error.code == "E0607" and error.help and error.message.isprintable()
        else:
            assert parse_lock(format_lock(lock).encode(), "again") == lock
    assert refused > COUNT


def test_whatever_a_block_is_made_of_can_be_read_again() -> None:
    odd = block("a", ways=(way(3e-6),) * MAX_WAYS)
    reasons = ("\x1b[2J\n" * 200, "", "\ud800", '"""\\')
    odd = replace(odd, rejected=reasons * (MAX_REJECTED // 4), versions="x" * 5000 + "\n")
    lock = Lock.of([odd])
    assert parse_lock(format_lock(lock).encode(), "dslc.lock") == lock
