"""``start.map``: rules, files and shipped maps; every malformed one is refused at its place."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT

from dslc.base.errors import DataError, DslcError
from dslc.runtime.config.load import load_config
from dslc.runtime.config.maps import map_of, read_map, shipped


def made(folder: Path, start: str, names: list[str]) -> list[str]:
    (folder / "dslc.yaml").write_text(f"model: net.nn\nstart:\n{start}")
    return sorted(load_config(folder / "dslc.yaml").start.map.naming(names, "here").made)


def test_a_map_is_rules_or_a_file_or_both(tmp_path: Path) -> None:
    (tmp_path / "my.map").write_text('about: a test\nmap: {fc: head, "layer{s}": "stage.{s-1}", none: nothing}\n')
    names = ["fc.w", "layer1.w"]
    assert made(tmp_path, '  map: {fc: head, "layer{s}": "stage.{s-1}"}\n', names) == ["head.w", "stage.0.w"]
    assert made(tmp_path, "  map: my.map\n", names) == ["head.w", "stage.0.w"]
    assert made(tmp_path, "  map: [my.map, {fc: old}]\n", names) == ["old.w", "stage.0.w"]
    assert made(tmp_path, "  map: [my.map, {fc: null}]\n", names) == ["stage.0.w"]
    assert made(tmp_path, "  map: [{fc: old}, my.map]\n", names) == ["head.w", "stage.0.w"]
    assert made(tmp_path, "  weights: x\n", names) == ["fc.w", "layer1.w"]


@pytest.mark.parametrize(
    ("start", "code", "said"),
    [
        ("  map: none.map\n", "R101", "none.map"),
        ("  map: torchvision/none\n", "R104", "no map `torchvision/none` is shipped"),
        ("  map: 3\n", "R104", "is a mapping"),
        ("  map: [3]\n", "R104", "is a mapping"),
        ("  map:\n    a{: b\n", "R104", "dslc.yaml:4:9"),
        ("  map:\n    a: {to: b, rearrange: i}\n", "R104", "does not rearrange axes"),
        ("  map:\n    a: [b]\n", "R104", "has no new name"),
        ("  map: bad.map\n", "R104", "bad.map:2:5"),
        ("  map: other.map\n", "R104", "unknown key `maps`"),
        ("  map: empty.map\n", "R104", "has no `map`"),
        ("  map: huge.map\n", "R104", "larger than 1 MiB"),
        ("  map: /dev/zero.map\n", "R101", "cannot be read"),
    ],
)
def test_a_malformed_map_is_refused_at_its_place(
    tmp_path: Path, start: str, code: str, said: str, allowed: Callable[[float, float], bool]
) -> None:
    (tmp_path / "bad.map").write_text("map:\n a: {eval: b}\n")
    (tmp_path / "other.map").write_text("maps: {a: b}\n")
    (tmp_path / "empty.map").write_text("about: none\n")
    (tmp_path / "huge.map").write_text("map: {a: b}\n" + "#" * (1 << 20))
    began = time.process_time()
    with pytest.raises(DslcError) as caught:
        made(tmp_path, start, ["a"])
    assert caught.value.code == code and said in f"{caught.value.place}: {caught.value.message}"
    assert caught.value.help and allowed(time.process_time() - began, 2)


def test_maps_of_plain_data() -> None:
    assert map_of({"a": "b"}, "map").naming(["a.w"], "here").made.keys() == {"b.w"}
    assert map_of([{"a": "b"}, {"a": None}], "map").naming(["a.w"], "here").ignored == ("a.w",)
    with pytest.raises(DataError) as caught:
        map_of({"a{": "b"}, "map")
    assert caught.value.code == "R104" and caught.value.place == "map"


def test_every_shipped_map_is_read() -> None:
    for name in shipped():
        assert map_of(name, "map")


def test_the_maps_of_the_page_are_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/finetune.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        path = tmp_path / "dslc.yaml"
        if block.startswith(("about", "map")):
            path.write_text(block)
            assert read_map(path)
        else:
            path.write_text("model: net.nn\n" + block)
            assert load_config(path).entries
