"""The text of a lock: TOML in one canonical form, so that the same data is the same bytes, and git merges it by line.

    format = 1

    ["matmul f32[64, 64] f32[64, 64] -> f32[64, 64]"."NVIDIA H200, 132 SMs, sm_90"]
    ways = [
      "41.2 us, 0 bytes: own tile=128x64x64/64x32 stages=3",
      "44 us, 1048576 bytes: cublaslt id=66 tile=20",
    ]
    default = "55 us, 0 bytes: own"
    spread = 0.004
    error = 0.0012
    rejected = []
    versions = "driver 580.159.03"

A file comes from anywhere, so its size, its lines and the number of its blocks are bounded before and while it is read.
"""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from typing import Any, Final

from dslc.base.errors import BuildError
from dslc.base.schema import Float, Int, ListOf, MapOf, Mismatch, Record, Text, checker
from dslc.base.visible import one_line
from dslc.compiler.ir.choice import ALL_PROVIDERS, Choice, Measured
from dslc.compiler.lock.model import MAX_TEXT, TIME_DIGITS, Block, Lock

#: The version of the text's form, its first line.
FORMAT: Final = 1

MAX_BYTES: Final = 4 << 20
MAX_LINE: Final = 2000  # characters
MAX_BLOCKS: Final = 20_000
MAX_WAYS: Final = 64
MAX_REJECTED: Final = 256
_MAX_KEY: Final = 400
_MAX_SECONDS: Final = 3600.0
_MAX_WORKSPACE: Final = 1 << 40
_MAX_FACTOR: Final = 1e30  # of a spread or an error

_ALGORITHM: Final = r"[!-~](?:[ -~]{0,198}[!-~])?"
_WAY: Final = re.compile(
    rf"([0-9]{{1,10}}(?:\.[0-9]{{1,20}})?) us, ([0-9]{{1,13}}) bytes: ({'|'.join(ALL_PROVIDERS)})(?: ({_ALGORITHM}))?"
)
_GPU: Final = r"[^,]{1,100}, [1-9][0-9]{0,3} SMs, sm_[0-9]{2,3}"
_WAY_TEXT: Final = Text(MAX_TEXT, _WAY.pattern, "`TIME us, SIZE bytes: PROVIDER ALGORITHM`")
_CHECK: Final = checker(
    Record({
        "ways": ListOf(_WAY_TEXT, MAX_WAYS, 1),
        "spread": Float(),
        "error": Float(),
        "rejected": ListOf(Text(MAX_TEXT), MAX_REJECTED),
        "versions": Text(MAX_TEXT),
    }, optional={"default": _WAY_TEXT})
)  # fmt: skip
_CHECK_KEY: Final = checker(Text(_MAX_KEY, called="the key of a problem"))
_CHECK_GPUS: Final = checker(MapOf(Text(MAX_TEXT, _GPU, "a GPU: `NAME, N SMs, sm_NN`"), Int(), 100))
_MARKER: Final = re.compile(r"^(<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_HELP: Final = "restore it from version control, or delete it and run `dslc tune`"


def format_lock(lock: Lock) -> str:
    """The canonical text; ``parse_lock`` of it gives an equal lock."""
    return "\n".join([f"format = {FORMAT}\n", *map(format_block, lock.blocks)])


def format_block(block: Block) -> str:
    """The canonical text of a block, which ends with a newline."""
    default = [] if block.default is None else [f"default = {_quoted(format_way(block.default))}"]
    return "\n".join([
        _title(block.key, block.gpu),
        *_listed("ways", [format_way(way) for way in block.ways]),
        *default,
        f"spread = {block.spread!r}",
        f"error = {block.error!r}",
        *_listed("rejected", block.rejected),
        f"versions = {_quoted(block.versions)}",
        "",
    ])  # fmt: skip


def format_way(way: Measured) -> str:
    """``41.2 us, 0 bytes: cudnn eng62_k2=5_k3=0``"""
    return f"{_microseconds(way.seconds)} us, {way.choice.workspace} bytes: {way.choice}"


def parse_way(text: str) -> Measured:
    """The inverse of ``format_way``. Raises Mismatch."""
    match = _WAY.fullmatch(text)
    if match is None:
        raise Mismatch(f"expected {_WAY_TEXT.called}", text)
    seconds, workspace = float(f"{match[1]}e-6"), int(match[2])
    if not 0 < seconds <= _MAX_SECONDS or workspace > _MAX_WORKSPACE:
        raise Mismatch(f"expected a time up to {_MAX_SECONDS:.0f} s and a workspace up to {_MAX_WORKSPACE} bytes", text)
    return Measured(Choice(match[3], match[4] or "", workspace), seconds)


def parse_lock(data: bytes, place: str) -> Lock:
    """The lock in the bytes of a file called ``place``. BuildError E0607 with the line or block, and the cause."""
    text = _decoded(data, place)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise _wrong(place, "its lists are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError is one; an int of too many digits raises it directly
        raise _wrong(*_split(str(error), place)) from None
    version = tables.pop("format", None)
    if type(version) is not int or version != FORMAT:
        cause = (
            "its first line is not `format = 1`" if version is None else f"its format is {version!r:.40}, not {FORMAT}"
        )
        raise _wrong(f"{place}:1", cause, "write `format = 1`, or update dslc if a later version wrote the file")
    blocks: list[Block] = []
    for key, gpus in tables.items():
        try:
            _check_place(key, gpus)
        except Mismatch as mismatch:
            raise _wrong(_line_of(text, key, None, place), f"the block {key!r:.200}: {_said(mismatch)}") from None
        for gpu, fields in gpus.items():
            try:
                blocks.append(_block(key, gpu, fields))
            except Mismatch as mismatch:
                where = _line_of(text, key, gpu, place)
                raise _wrong(where, f"the block {key!r:.200} of {gpu}: {_said(mismatch)}") from None
    if len(blocks) > MAX_BLOCKS:
        raise _wrong(place, f"it holds {len(blocks):,} blocks, more than {MAX_BLOCKS:,}")
    return Lock.of(blocks)


def _decoded(data: bytes, place: str) -> str:
    """The text within the limits of size and lines, without the marks of a merge."""
    if len(data) > MAX_BYTES:
        raise _wrong(place, f"it is longer than {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")  # editors on Windows write a mark at the start
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _wrong(f"{place}:{line}", "it is not UTF-8 text") from None
    if marker := _MARKER.search(text):
        line = text.count("\n", 0, marker.start()) + 1
        raise _wrong(
            f"{place}:{line}",
            "a merge left a conflict in it",
            "keep one side of each conflict, delete the marks, then run `dslc lock --check`; "
            "`dslc tune` measures what is missing",
        )
    titles: dict[str, int] = {}
    for number, content in enumerate(text.split("\n"), 1):
        if len(content) > MAX_LINE:
            raise _wrong(f"{place}:{number}", f"the line is longer than {MAX_LINE:,} characters")
        if content.startswith("[") and content.rstrip().endswith("]"):
            first = titles.setdefault(content.rstrip(), number)
            if first != number:  # as after a merge by hand
                cause = f"the block {content.rstrip()[:200]} is also in line {first}"
                raise _wrong(f"{place}:{number}", cause, "delete one of the two: both were measured")
    return text


def _check_place(key: str, gpus: object) -> None:
    _CHECK_KEY(key)
    if type(gpus) is not dict or not gpus:
        raise Mismatch('expected a title of a problem and a GPU: `["PROBLEM"."GPU"]`')
    _CHECK_GPUS(dict.fromkeys(gpus, 0))


def _block(key: str, gpu: str, fields: Any) -> Block:
    _CHECK(fields)
    for name in ("spread", "error"):
        if not 0 <= fields[name] <= _MAX_FACTOR:
            raise Mismatch("expected a number from 0 on", fields[name]).inside(name)
    default = fields.get("default")
    return Block(
        key,
        gpu,
        tuple(_way(way, f"ways[{i}]") for i, way in enumerate(fields["ways"])),
        None if default is None else _way(default, "default"),
        fields["spread"],
        fields["error"],
        tuple(fields["rejected"]),
        fields["versions"],
    )


def _way(text: str, field: str) -> Measured:
    try:
        return parse_way(text)
    except Mismatch as mismatch:
        raise mismatch.inside(field) from None


def _said(mismatch: Mismatch) -> str:
    got = "" if mismatch.got is None else f", not {one_line(repr(mismatch.got))[:120]}"
    return f"{mismatch.path + ': ' if mismatch.path else ''}{mismatch.rule}{got}"


def _title(key: str, gpu: str) -> str:
    return f"[{_quoted(key)}.{_quoted(gpu)}]"


def _line_of(text: str, key: str, gpu: str | None, place: str) -> str:
    """The place with the line of a block's title, as far as it is written in the canonical form."""
    title = f"[{_quoted(key)}" if gpu is None else _title(key, gpu)
    at = next((n for n, line in enumerate(text.split("\n"), 1) if line.startswith(title)), None)
    return place if at is None else f"{place}:{at}"


def _split(message: str, place: str) -> tuple[str, str]:
    """The place and the cause of a message of tomllib: ``Invalid value (at line 3, column 8)``."""
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message, re.DOTALL)
    if match is None:
        return place, f"it is not TOML: {one_line(message)[:200]}"
    where = place if match[2] is None else f"{place}:{match[2]}:{match[3]}"
    return where, f"it is not TOML: {one_line(match[1])[:200]}"


def _wrong(place: str, cause: str, help: str = _HELP) -> BuildError:
    return BuildError("E0607", one_line(cause), place=place, help=help)


def _listed(name: str, texts: list[str] | tuple[str, ...]) -> list[str]:
    """A list with one item a line, so that a change of one item changes one line."""
    if not texts:
        return [f"{name} = []"]
    return [f"{name} = [", *(f"  {_quoted(text)}," for text in texts), "]"]


def _quoted(text: str) -> str:
    """A string of TOML. Texts of a lock are printable, so only two characters would need a backslash. One that contains
    ``"`` is a literal string, which has no backslashes, unless it contains ``'``."""
    if '"' in text and "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _microseconds(seconds: float) -> str:
    """With at most so many digits, without an exponent and without zeros at the end."""
    exact = Decimal(f"{seconds:.{TIME_DIGITS - 1}e}").scaleb(6)
    text = f"{exact:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
