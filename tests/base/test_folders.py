"""Modules that register what they define are found by listing their folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dslc.base.folders import import_modules, import_tree
from dslc.compiler.ops import registry


def test_all_modules_of_a_folder_in_the_order_of_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(sys, "order", order, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    inner = tmp_path / "a_folder_of_files" / "inner"
    inner.mkdir(parents=True)
    for path in ("zeta.py", "alpha.py", "mid.py", "inner/deep.py", "__init__.py", "inner/__init__.py"):
        (inner.parent / path).write_text("import sys\nsys.order.append(__name__)\n")
    (inner.parent / "notes.txt").touch()
    for _ in range(2):
        import_modules("a_folder_of_files")
    assert order == ["a_folder_of_files", *(f"a_folder_of_files.{name}" for name in ("alpha", "mid", "zeta"))]


def test_a_tree_with_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(sys, "seen", order, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    deep = tmp_path / "a_tree_of_files" / "later" / "deep"
    deep.mkdir(parents=True)
    for path in (
        "zeta.py",
        "__init__.py",
        "later/alpha.py",
        "later/__init__.py",
        "later/deep/__init__.py",
        "later/deep/x.py",
    ):
        (tmp_path / "a_tree_of_files" / path).write_text("import sys\nsys.seen.append(__name__)\n")
    for _ in range(2):
        import_tree("a_tree_of_files")
    names = ("zeta", "later", "later.alpha", "later.deep", "later.deep.x")
    assert order == ["a_tree_of_files", *(f"a_tree_of_files.{name}" for name in names)]


def test_a_module_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_broken_folder").mkdir()
    (tmp_path / "a_broken_folder/wrong.py").write_text("import no_such_module\n")
    with pytest.raises(ImportError, match="no_such_module"):
        import_modules("a_broken_folder")


def test_every_file_of_ops_is_loaded() -> None:
    registry.load_all()
    folder = Path(registry.__file__).parent
    files = [path.relative_to(folder).with_suffix("") for path in folder.rglob("[a-z]*.py")]
    assert {f"dslc.compiler.ops.{'.'.join(file.parts)}" for file in files} <= sys.modules.keys()
    assert len(files) > 60
