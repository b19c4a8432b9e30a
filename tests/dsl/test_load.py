"""Files that use files: found, read once, bounded, and never outside of the project."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.base.errors import DslcError
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.load import load, read_source

BLOCK = "nn 1\nblock {name}(x: [B, D]) -> [B, D] {{ return x }}\n"


def write(folder: Path, **files: str) -> Path:
    """Files by stem; `__` in a stem stands for a folder."""
    for stem, text in files.items():
        path = folder / (stem.replace("__", "/") + ".nn")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def codes(error: pytest.ExceptionInfo[CompileError]) -> list[str]:
    return [diagnostic.code for diagnostic in error.value.diagnostics]


def test_modules_come_before_their_users_and_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        main='nn 1\nuse lib.a (a)\nuse "lib/b.nn"\n',
        lib__a="nn 1\nuse b\n" + BLOCK.format(name="a").removeprefix("nn 1\n"),
        lib__b=BLOCK.format(name="b"),
    )
    program = load(str(tmp_path / "main.nn"))
    names = [Path(module.source.path).relative_to(tmp_path).as_posix() for module in program.modules]
    assert names == ["lib/b.nn", "lib/a.nn", "main.nn"]
    assert program.modules[-1] is program.main
    (use_a, a), (use_b, b) = program.main.uses
    assert (use_a.path, use_a.names, use_b.path, use_b.names) == ("lib.a", ("a",), "lib/b.nn", ())
    assert a.uses[0][1] is b
    assert b.sha256 == hashlib.sha256((tmp_path / "lib/b.nn").read_bytes()).hexdigest()


def test_search_folders_come_after_the_files_own_folder(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\nuse a\nuse b\n", a=BLOCK.format(name="near"), lib__a=BLOCK.format(name="far"))
    write(tmp_path, lib__b=BLOCK.format(name="b"))
    program = load(str(tmp_path / "main.nn"), search=[str(tmp_path / "lib")])
    assert [Path(m.source.path).relative_to(tmp_path).as_posix() for _, m in program.main.uses] == ["a.nn", "lib/b.nn"]


def test_circle_is_named_in_full(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\nuse a\n", a="nn 1\nuse b\n", b="nn 1\nuse c\n", c="nn 1\nuse a\n")
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "main.nn"))
    assert codes(error) == ["E0107"]
    names = error.value.message.replace(f"{tmp_path}/", "")
    assert names == "files use each other in a cycle: a.nn -> b.nn -> c.nn -> a.nn"


@pytest.mark.parametrize(
    "used", ['"../outside.nn"', '"../nothing.nn"', '"/etc/passwd.nn"', '"https://host/a.nn"', "link", "linked.inner"]
)
def test_no_way_out_of_the_root(tmp_path: Path, used: str) -> None:
    project = tmp_path / "project"
    write(tmp_path, outside=BLOCK.format(name="o"), folder__inner=BLOCK.format(name="i"))
    write(project, main=f"nn 1\nuse {used}\n")
    (project / "link.nn").symlink_to(tmp_path / "outside.nn")
    (project / "linked").symlink_to(tmp_path / "folder")
    with pytest.raises(CompileError) as error:
        load(str(project / "main.nn"))
    assert codes(error) == ["E0108"]


def test_links_inside_the_root_are_followed(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\nuse link\n", a=BLOCK.format(name="a"))
    (tmp_path / "link.nn").symlink_to(tmp_path / "a.nn")
    assert len(load(str(tmp_path / "main.nn")).modules) == 2


def test_only_regular_files_are_read_and_none_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\nuse pipe\nuse folder\nuse nothing\n")
    os.mkfifo(tmp_path / "pipe.nn")
    (tmp_path / "folder.nn").mkdir()
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "main.nn"))
    assert codes(error) == ["E0106"] * 3
    with pytest.raises(DslcError, match="is not a regular file"):
        load(str(tmp_path / "pipe.nn"))
    with pytest.raises(DslcError, match="no such file") as missing:
        load(str(tmp_path / "nothing.nn"))
    assert missing.value.code == "E0106" and missing.value.exit_code == 2
    with pytest.raises(DslcError, match="no such file"):
        read_source(str(tmp_path / "nothing.nn"))


def test_misspelt_file_has_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\nuse lib.blokcs\n", lib__blocks=BLOCK.format(name="b"))
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "main.nn"))
    assert error.value.help == "did you mean `lib/blocks.nn`?"


def test_errors_of_all_files_come_together(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\nuse a\nuse b\nuse c\n", a="nn 1\nconst = 3\n", b="nn 1\nconst x 3\n", c="nn 9\n")
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "main.nn"))
    assert codes(error) == ["E0001", "E0001", "E0008"]


def test_length_counts_all_files_together(tmp_path: Path) -> None:
    filler = "nn 1\n" + "# filler\n" * 5000
    write(tmp_path, main="nn 1\nuse a\n", a="nn 1\nuse b\n" + filler[5:], b=filler)
    assert len(load(str(tmp_path / "main.nn")).modules) == 3
    (tmp_path / "b.nn").write_text(filler + filler[5:])
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "main.nn"))
    assert codes(error) == ["E0002"]
    assert Path(error.value.diagnostics[0].label.span.source.path).name == "a.nn"


def test_ten_megabytes_are_refused_without_being_read(tmp_path: Path, allowed: Callable[[float, float], bool]) -> None:
    (tmp_path / "long.nn").write_bytes(b"nn 1\n" + b"const a = 1\n" * 870_000)
    start = time.process_time()
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "long.nn"))
    assert codes(error) == ["E0002"]
    assert allowed(time.process_time() - start, 0.1)


def test_number_of_files_and_levels_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, main="nn 1\n" + "".join(f"use m{i}\n" for i in range(256)))
    write(tmp_path, **{f"m{i}": "nn 1\n" for i in range(256)})
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "main.nn"))
    assert codes(error) == ["E0114"]
    (tmp_path / "main.nn").write_text("nn 1\n" + "".join(f"use m{i}\n" for i in range(255)))
    assert len(load(str(tmp_path / "main.nn")).modules) == 256

    write(tmp_path, **{f"d{i}": f"nn 1\nuse d{i + 1}\n" for i in range(16)}, d16="nn 1\n", d17="nn 1\n")
    assert len(load(str(tmp_path / "d0.nn")).modules) == 17
    (tmp_path / "d16.nn").write_text("nn 1\nuse d17\n")
    with pytest.raises(CompileError) as error:
        load(str(tmp_path / "d0.nn"))
    assert codes(error) == ["E0114"]


def test_bytes_become_text(tmp_path: Path) -> None:
    path = tmp_path / "a.nn"
    path.write_bytes(b"\xef\xbb\xbfnn 1\r\nconst a = 3\r\n")
    assert load(str(path)).main.file.items
    path.write_bytes(b"nn 1\nconst a = 3 # \xff\n")
    with pytest.raises(CompileError) as error:
        read_source(str(path))
    assert codes(error) == ["E0003"] and error.value.place == f"{path}:2:15"


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_binary_file_is_named_as_such(tmp_path: Path, size: int) -> None:
    content = b"\x89\0" * (size // 2)
    for name, title, help in (
        ("net.dslc", "this file is an artifact, not a model's source", "`dslc info net.dslc`"),
        ("w.pt", "this file is not text", "`NAME.nn`"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CompileError) as error:
            read_source(str(tmp_path / name))
        [found] = error.value.diagnostics
        assert (found.code, found.title) == ("E0003", title) and help in (found.help or "")


def test_a_long_source_is_no_binary_file(tmp_path: Path) -> None:
    (tmp_path / "a.nn").write_bytes(b"# comment\n" * 20_000)
    with pytest.raises(CompileError) as error:
        read_source(str(tmp_path / "a.nn"))
    assert codes(error) == ["E0002"]
