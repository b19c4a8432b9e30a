"""Hostile names, `use` paths and array files: text and bytes that try to become code, a path, or a crash."""

from __future__ import annotations

import keyword
import struct
from collections.abc import Iterator

PWN = "__import__('os').system('touch pwned')"
# Text that would be code, a path or another line, if it reached a template as it is.
INJECTIONS = (
    "x\nimport os", "x\rimport os", "x\u2028import os", 'x"""\nimport os\n"""', "x', __import__('os')", "x; import os",
    "x){}", "x:=1", "x #", "x\\", "x\0", "{name}", "{0.__class__}", "%s", "$(touch pwned)", "`touch pwned`", "../x",
    "/etc/passwd", "x.y", "x-y", "x y", "", " ", "9x", "x" * 65, "größe", "ｘ", "х", "x\u200b", "\u202ex", "\ufeffx",
    PWN, "x=" + PWN, "lambda: " + PWN, "*x", "**x", "/", "self/",
)  # fmt: skip
DUNDERS = ("__init__", "__class__", "__import__", "__builtins__", "__file__", "__x", "__name__")
KEYWORDS = tuple(keyword.kwlist)

PATHS = (
    "../secret", "../../etc/passwd", "/etc/passwd", "/dev/zero", "/proc/self/environ", "file:///etc/passwd",
    "http://localhost/x.nn", "~/x", "$HOME/x", "a/../../secret", "./../secret", "link", "folder", "fifo", "a\\..\\b",
    "//etc/passwd", "C:/x", "x\0y", ".", "..", "",
)  # fmt: skip


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin-1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text) % (1 << 16))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def arrays() -> Iterator[tuple[str, bytes]]:
    """Array files that want to be more than arrays."""
    # What `pickle` would run: os.system('touch pwned'); written by hand, as nothing here may import it.
    payload = b"cos\nsystem\n(S'touch pwned'\ntR."
    for dtype in (
        "|O",
        "O",
        "|O8",
        "object",
        "<f4', 'x': __import__('os'), 'y': '",
        "os.system",
        "M8[" + "9" * 99 + "s]",
    ):
        yield f"dtype {dtype[:20]}", npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': (1,), }}", payload)
    for shape in (PWN, f"({PWN},)", "(9" * 500, "(" * 5000, "(1" + "0" * 400 + ",)", "(-1,)", "(1e9,)", "(True,)"):
        yield f"shape {shape[:20]}", npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", bytes(64))
    for order in (PWN, "1", "None", "not False", "[False for x in ()]"):
        yield f"order {order[:20]}", npy(f"{{'descr': '<f4', 'fortran_order': {order}, 'shape': (1,), }}", bytes(4))
    yield "a pickle", payload
    yield "a pickle of protocol 4", b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch pwned\x85R."
    yield "python", b"import os; os.system('touch pwned')\n"
    yield "an elf file", b"\x7fELF\x02\x01\x01" + bytes(64)
    for version in ((2, 0), (3, 0), (9, 9), (0, 0)):
        yield f"version {version}", npy(f"{PWN}", bytes(64), version)
    for cut in (0, 1, 5, 6, 7, 9, 10, 63):
        good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", bytes(16))
        yield f"the first {cut} bytes", good[:cut]
