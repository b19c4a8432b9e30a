"""The container: what is written is read back, and nothing else is taken for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from artifacts.assembling import canonical_text, put_together, table_of, take_apart
from artifacts.small_artifact import artifact_bytes, blobs, header, predict_plan
from places import with_support

from dslc.base.errors import ArtifactError, InputError
from dslc.runtime.artifact import container
from dslc.runtime.artifact.file import Artifact, read_artifact, write_artifact


def read(data: bytes) -> Artifact:
    artifact = Artifact.of_bytes(data)
    artifact.verify()
    return artifact


def refused(data: bytes) -> ArtifactError | None:
    try:
        read(data)
    except ArtifactError as error:
        return error
    return None


def test_round_trip(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    data = artifact_bytes()
    path = tmp_path / "small.dslc"
    path.write_bytes(data)
    artifact = read_artifact(path)
    assert [str(p) for p in artifact.all_programs()] == [
        "init", "predict@B=1", "predict@B=4", "train_step@B=4",
    ]  # fmt: skip
    assert artifact.plan(artifact.program("predict", {"B": 4})) == predict_plan(4)
    assert bytes(artifact.blob("bias")) == blobs()[-1].data
    assert len(artifact.programs("predict")) == 2
    with pytest.raises(ArtifactError) as caught:
        artifact.program("predict", {"B": 2})
    assert caught.value.code == "R312" and "predict@B=1; predict@B=4" in caught.value.message
    golden("artifact/header.json", json.dumps(dict(artifact.header), indent=1, sort_keys=True) + "\n")
    golden("artifact/plan.json", json.dumps(json.loads(artifact.blob("plan.3").tobytes()), indent=1) + "\n")
    golden("artifact/id.txt", artifact.id + "\n")


def test_the_same_bytes_in_other_circumstances(tmp_path: Path) -> None:
    script = "import os; from artifacts import small_artifact as s; os.write(1, s.artifact_bytes())"
    env = with_support(PYTHONHASHSEED="7", TZ="Asia/Kolkata", LC_ALL="C")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, check=True)
    assert done.stdout == artifact_bytes()


def test_digest_pins(tmp_path: Path) -> None:
    path = tmp_path / "small.dslc"
    path.write_bytes(artifact_bytes())
    assert read_artifact(path, digest=read_artifact(path).id).id.startswith("sha256:")
    with pytest.raises(ArtifactError) as caught:
        read_artifact(path, digest="sha256:" + "0" * 64)
    assert caught.value.code == "R303"
    with pytest.raises(InputError):
        read_artifact(path, digest="md5:1")


def test_every_truncation_is_refused() -> None:
    data = artifact_bytes()
    for length in range(len(data)):
        error = refused(data[:length])
        assert error is not None and error.code == "R301" and error.place, length


def flips_missed(data: bytes, bits: range) -> tuple[int, list[int]]:
    """(flips tried, the bits whose flip was not noticed)."""
    missed = []
    mutable = bytearray(data)
    for bit in bits:
        mutable[bit // 8] ^= 1 << bit % 8
        error = refused(bytes(mutable))
        if error is None or ":" not in (error.place or ""):
            missed.append(bit)
        mutable[bit // 8] ^= 1 << bit % 8
    return len(bits), missed


def test_every_flipped_bit_is_refused_with_its_place(fuzz_seed: int) -> None:
    """Every sixteenth one, chosen by DSLC_PART; all with DSLC_SOAK=1."""
    data, share = artifact_bytes(), 1 if os.environ.get("DSLC_SOAK") == "1" else 16
    tried, missed = flips_missed(data, range(fuzz_seed % share, 8 * len(data), share))
    assert tried * share > 30_000 and not missed


def test_the_flip_sweep_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a reader that does not look at the padding must be caught."""
    monkeypatch.setattr(container._Reader, "zeros", lambda *_: None)
    assert flips_missed(artifact_bytes(), range(8 * 52, 8 * 64)) == (96, list(range(8 * 52, 8 * 64)))


def parts() -> tuple[dict[str, Any], list[tuple[str, str, bytes]]]:
    head, pieces = take_apart(artifact_bytes())
    return head, [(b["name"], b["kind"], pieces[b["name"]]) for b in head["blobs"]]


def assembled(head: dict[str, Any], pieces: list[tuple[str, str, bytes]], **changes: Any) -> bytes:
    return put_together(canonical_text({**head, **changes}), [data for *_, data in pieces])


def test_the_assembler_is_true() -> None:
    head, pieces = parts()
    assert assembled(head, pieces) == artifact_bytes()


def test_blobs_swapped_extended_with_holes_or_twice() -> None:
    head, pieces = parts()
    swapped = [pieces[1], pieces[0], *pieces[2:]]
    assert "SHA-256" in str(refused(assembled(head, swapped)))  # the bytes in another order than the table
    table = table_of(pieces)
    table[0]["sha256"], table[1]["sha256"] = table[1]["sha256"], table[0]["sha256"]
    assert "SHA-256" in str(refused(assembled(head, pieces, blobs=table)))
    hole = table_of(pieces)
    for entry in hole[2:]:
        entry["offset"] += 64
    assert "next free offset" in str(refused(assembled(head, pieces, blobs=hole)))
    overlap = table_of(pieces)
    overlap[1]["offset"] = 0
    assert "next free offset" in str(refused(assembled(head, pieces, blobs=overlap)))
    long = table_of(pieces)
    long[-1]["bytes"] = 1 << 62
    assert "in a file of" in str(refused(assembled(head, pieces, blobs=long)))
    twice = [*pieces, pieces[0]]
    assert "twice" in str(refused(assembled(head, twice, blobs=table_of(twice))))
    assert "after the end" in str(refused(artifact_bytes() + b"\0"))
    assert "end marker" in str(refused(put_together(canonical_text(head), [p[2] for p in pieces], b"DSLC-end")))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b'{"a":1,"a":1}', "canonical"),
        (b'{"b":1,"a":1}', "canonical"),
        (b'{"a":NaN}', "canonical"),
        (b'{"a":1e999}', "canonical"),
        (b'{"a": 1}', "canonical"),
        (b"{" + b'"a":[' * 17 + b"]" * 17 + b"}", "deeper than 16"),
        (b"[" * 900_000, "deeper than 16"),
        (b"[" * 15_000_000, "more than 1000000 values"),
        (b"[" + b"[]," * 2_000_000 + b"[]]", "more than 1000000 values"),
        (b'{"a":' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a":"\xff"}', "ASCII"),
        (b"", "not JSON"),
        (b'"a', "not JSON"),
        (b"[]", "is an object"),
        (b"{}", "`format`"),
    ],
)
def test_headers_that_are_no_strict_json(text: bytes, rule: str) -> None:
    error = refused(put_together(text, []))
    assert error is not None and error.code == "R301" and rule in error.message and "artifact:" in error.render()


def test_each_program_has_a_plan_of_its_own() -> None:
    head, pieces = parts()
    head["programs"][1]["plan"] = "plan.2"
    error = refused(assembled(head, pieces))
    assert error is not None and error.place == "artifact: programs[2].plan"
    spare = [*pieces, ("plan.9", "plan", pieces[0][2])]
    head, _ = parts()
    assert "no program has the plan 'plan.9'" in str(refused(assembled(head, spare, blobs=table_of(spare))))


def test_versions() -> None:
    head, pieces = parts()

    def code(**changes: Any) -> str | None:
        error = refused(assembled(head, pieces, **changes))
        return error and error.code

    assert code(format=[1, 7]) is None, "a newer minor version that needs nothing new must load"
    assert code(format=[1, 7], new_field={"x": 1}) is None
    assert code(format=[1, 0], new_field={"x": 1}) == "R301"
    assert code(format=[1, 7], required_features=["reference", "warp"]) == "R302"
    assert code(format=[2, 0]) == "R302"
    error = refused(assembled(head, pieces, format=[1, 7], required_features=["warp"]))
    assert error is not None and "built by dslc 0.1.0 in format 1.7" in error.message
    assert "it needs warp" in error.message and "build it again" in str(error.help)
    data = bytearray(artifact_bytes())
    data[8] = 2
    other = refused(bytes(data))
    assert other is not None and other.code == "R302"


def test_only_regular_files_and_no_links(tmp_path: Path) -> None:
    good = tmp_path / "small.dslc"
    good.write_bytes(artifact_bytes())
    (tmp_path / "link.dslc").symlink_to(good)
    os.mkfifo(tmp_path / "fifo.dslc")
    (tmp_path / "folder.dslc").mkdir()
    for name, code in [
        ("link", "R301"), ("fifo", "R301"), ("folder", "R301"), ("missing", "R311"),
    ]:  # fmt: skip
        with pytest.raises(ArtifactError) as caught:
            read_artifact(tmp_path / f"{name}.dslc")
        assert caught.value.code == code, name
    with pytest.raises(ArtifactError):
        read_artifact("/dev/zero")


def test_a_huge_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.dslc"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArtifactError) as caught:
        read_artifact(path)
    assert "at most" in caught.value.message


def test_the_writer_refuses_what_the_reader_would() -> None:
    bad = header()
    bad["name"] = "class"
    with pytest.raises(ArtifactError) as caught:
        write_artifact(bad, blobs())
    assert caught.value.place == "artifact: name"
    nan = header()
    nan["interface"]["train"]["lr"] = float("nan")
    with pytest.raises(ArtifactError):
        write_artifact(nan, blobs())


@pytest.mark.parametrize(("low", "high"), [(1, 3), (5, 9)])
def test_a_program_has_sizes_within_the_bounds_of_its_dims(low: int, high: int) -> None:
    changed = header()  # whose programs are of 1 and 4 rows, within 1 to 512
    changed["programs"] = [p for p in changed["programs"] if p["sizes"] in ({}, {"B": 4})]
    changed["interface"]["dims"][0] |= {"low": low, "high": high, "default": low}
    with pytest.raises(ArtifactError) as caught:
        write_artifact(changed, blobs())
    assert "'B' = 4 is not a dim within its bounds" in caught.value.message
