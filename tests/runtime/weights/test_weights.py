"""Weights: files, digests, mismatches, assignment."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from artifacts.line_model import MEANINGS, OUTPUTS

from dslc.base.errors import ArtifactError, DslcError, DslcWarning, InputError, WeightsMissing
from dslc.runtime.session.load import load
from dslc.runtime.session.session import Session
from dslc.runtime.session.state import State
from dslc.runtime.weights import safetensors_file as tensorfile
from dslc.runtime.weights.safetensors_header import LONGEST_HEADER, header_length

Open = Callable[..., Session]
GOOD = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7, 8], np.float32)}


def test_the_public_library_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "b": np.array(3.5),
        "c": np.zeros((0, 4), np.int32),
        "d": np.array([True, False]),
        "é": np.arange(5, dtype=np.uint8),
        "h": np.array([1.5], np.float16),
    }
    path = tmp_path / "x.safetensors"
    path.write_bytes(tensorfile.encode(tensors, {"note": "n"}))
    theirs = safetensors.numpy.load_file(path)
    ours = tensorfile.read(path)
    assert ours.verified and dict(ours.metadata) == {"note": "n"}
    assert theirs.keys() == ours.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        for have in (theirs[name], ours.tensors[name].array()):
            assert have.dtype == value.dtype and np.array_equal(have, value), name
    plain = {k: np.array(v, order="C") for k, v in tensors.items()}
    path.write_bytes(safetensors.numpy.save(plain, {"x": "y"}))
    again = tensorfile.read(path)
    assert not again.verified
    assert all(np.array_equal(again.tensors[k].array(), v) for k, v in tensors.items())


def test_the_same_tensors_give_the_same_bytes() -> None:
    metadata = {f"k{i}": str(i) for i in range(20)}
    turned = dict(reversed(metadata.items()))
    assert tensorfile.encode(GOOD, metadata) == tensorfile.encode(dict(reversed(GOOD.items())), turned)


def test_round_trip_through_a_session(open_line: Open, tmp_path: Path) -> None:
    first, second = open_line(seed=1), open_line(seed=2)
    path = tmp_path / "w.safetensors"
    first.weights.save(path)
    second.weights.load(path)
    assert list(second.weights) == ["b", "w"] or list(second.weights) == ["w", "b"]
    for name in first.weights:
        assert np.array_equal(first.weights[name], second.weights[name])
    assert path.read_bytes() == safetensors_bytes(second, tmp_path)
    copy = first.weights["w"]
    copy[...] = 0
    assert first.weights["w"].any()


def safetensors_bytes(session: Session, folder: Path) -> bytes:
    session.weights.save(folder / "again")
    return (folder / "again").read_bytes()


def test_loading_weights_restarts_the_optimizer(open_line: Open, tmp_path: Path) -> None:
    session, fresh = open_line(seed=1), open_line(seed=1)
    x, target = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
    session.train_step(x=x, target=target)
    session.weights.save(tmp_path / "w")
    session.weights.load(tmp_path / "w")
    state = session.state_tensors()
    assert np.array_equal(state["w.momentum"], fresh.state_tensors()["w.momentum"])
    assert np.array_equal(state["w"], session.weights["w"]) and not np.array_equal(state["w"], fresh.weights["w"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"b": None}, "missing: b"),
        ({"extra.weight": GOOD["b"]}, "extra: extra.weight"),
        ({"b": GOOD["b"][:1]}, "misshaped: b is f32[1], not f32[2]"),
        ({"b": GOOD["b"].astype(np.float64)}, "misshaped: b is f64[2], not f32[2]"),
        (
            {"w": None, "b": GOOD["w"], "z\n\x1b": GOOD["b"]},
            r"missing: w; extra: z\n\x1b; misshaped: b is f32[2, 3], not f32[2]",
        ),
        ({"w.num_batches_tracked": np.array(3)}, "extra: w.num_batches_tracked"),
    ],
)  # fmt: skip
def test_mismatch_names_what_differs(
    open_line: Open, tmp_path: Path, change: dict[str, np.ndarray | None], said: str
) -> None:
    session = open_line()
    before = session.state_tensors()
    tensors = {k: v for k, v in (GOOD | change).items() if v is not None}
    path = tmp_path / "w.safetensors"
    path.write_bytes(tensorfile.encode(tensors))
    with pytest.raises(ArtifactError) as caught:
        session.weights.load(path)
    assert caught.value.code == "R305" and said in caught.value.message
    assert all(np.array_equal(v, before[k]) for k, v in session.state_tensors().items())


@pytest.mark.parametrize(
    ("tensors", "step"),
    [
        ({n: v.astype(np.float16) for n, v in GOOD.items()}, "dslc weights convert FILE NEW --dtype f32"),
        ({n: v.astype(np.int32) for n, v in GOOD.items()}, "use weights of this model"),
        ({f"model.{n}": v for n, v in GOOD.items()}, "`dslc weights map FILE NET.nn` proposes a map"),
        ({**GOOD, "w": GOOD["w"].T.copy()}, 'rearrange: "a b -> b a"'),
        ({**GOOD, "b": GOOD["b"][:1]}, "use weights of this model"),
    ],
)
def test_a_mismatch_names_the_next_step(
    open_line: Open, tmp_path: Path, tensors: dict[str, np.ndarray], step: str
) -> None:
    (tmp_path / "w.safetensors").write_bytes(tensorfile.encode(tensors))
    with pytest.raises(ArtifactError) as caught:
        open_line().weights.load(tmp_path / "w.safetensors")
    assert caught.value.code == "R305" and step in caught.value.help


@pytest.mark.parametrize(
    ("name", "start", "what", "step"),
    [
        ("w.pt", b"PK\x03\x04" + bytes(60), "a zip file as PyTorch's .pt", "safetensors.torch.save_file"),
        ("w.pt", b"\x80\x02}q\0X\x05\0\0\0", "a pickle of Python", "safetensors.torch.save_file"),
        ("w.h5", b"\x89HDF\r\n\x1a\n" + bytes(60), "an HDF5 file", "safetensors.torch.save_file"),
        ("w.onnx", b"\x08\x08\x12\x07pytorch" + bytes(60), "a model of ONNX", "safetensors.torch.save_file"),
        ("w.gguf", b"GGUF\3\0\0\0" + bytes(60), "a GGUF file", "safetensors.torch.save_file"),
        ("w.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS", "git lfs pull"),
        ("w.safetensors", b"<!DOCTYPE html><html>", "a web page", "download the file again"),
        ("w.safetensors", b"\x1f\x8b\x08" + bytes(60), "compressed by gzip", "unpack it"),
        ("w.safetensors", b"", "the file is empty", "copy it again"),
        ("net.dslc", b"\x89DSLC\r\n\x1a" + bytes(60), "an artifact of dslc", "NAME.safetensors next to it"),
        ("net.nn", b"nn 1\ndim B in 1..8 = 4\n", "a text", "NAME.safetensors"),
    ],
)
def test_a_file_of_another_kind_is_told_which(
    open_line: Open, tmp_path: Path, name: str, start: bytes, what: str, step: str
) -> None:
    (tmp_path / name).write_bytes(start)
    with pytest.raises(ArtifactError) as caught:
        open_line().weights.load(tmp_path / name)
    assert caught.value.code == "R306" and what in caught.value.message and step in caught.value.help


def test_not_strict_takes_what_is_there(open_line: Open, tmp_path: Path) -> None:
    session = open_line()
    before = session.weights["w"]
    (tmp_path / "w").write_bytes(tensorfile.encode({"b": GOOD["b"], "more": GOOD["b"]}))
    session.weights.load(tmp_path / "w", strict=False)
    assert np.array_equal(session.weights["b"], GOOD["b"]) and np.array_equal(session.weights["w"], before)


def test_a_file_without_digests_is_taken_with_one_line(open_line: Open, tmp_path: Path) -> None:
    session = open_line()
    (tmp_path / "w").write_bytes(safetensors.numpy.save(GOOD))
    with pytest.warns(DslcWarning, match=r"\[W004\] .*no digests") as caught:
        session.weights.load(tmp_path / "w")
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    assert np.array_equal(session.weights["w"], GOOD["w"])
    quiet = open_line(verify="code")
    quiet.weights.load(tmp_path / "w")  # nothing is verified, so nothing is said


def test_batch_counters_of_pytorch_are_named_and_left_out() -> None:
    from dslc.runtime.cpu.backend import HostState
    from dslc.runtime.session.context_pool import Pool
    from dslc.runtime.weights.mapping import Weights

    tensors = [
        {"name": f"bn.{n}", "kind": "buffer", "dtype": "f32", "shape": [2], "offset": 64 * i, "init": "constant(0)"}
        for i, n in enumerate(("running_mean", "running_var"))
    ]
    state = State({"bytes": 128, "tensors": tensors, "forward_order": []}, HostState(128))
    weights = Weights(state, Pool([None]), verify=True, guard=lambda call: None)  # type: ignore[list-item]
    values = {f"bn.{n}": GOOD["b"] for n in ("running_mean", "running_var")}
    file = tensorfile.decode(
        np.frombuffer(tensorfile.encode(values | {"bn.num_batches_tracked": np.array(9)}), np.uint8).copy(),
        "x",
    )
    with pytest.warns(DslcWarning, match="bn.num_batches_tracked"):
        weights._install_all(file, "x")
    assert np.array_equal(weights["bn.running_var"], GOOD["b"])


def test_published_weights_next_to_the_artifact(open_line: Open, line: Path) -> None:
    published = line.with_suffix(".safetensors")
    published.write_bytes(tensorfile.encode(GOOD))
    with load(line, meanings=MEANINGS) as session:
        assert np.array_equal(session.weights["w"], GOOD["w"])
    published.write_bytes(tensorfile.encode({**GOOD, "w": GOOD["w"][:1]}))
    with pytest.raises(ArtifactError, match="misshaped") as caught:
        load(line, meanings=MEANINGS)
    assert "`dslc publish RUN` publishes the weights of a run of this model" in str(caught.value.help)
    published.write_bytes(tensorfile.encode(GOOD))
    elsewhere = line.parent / "elsewhere"
    os.rename(published, elsewhere)
    os.symlink(elsewhere, published)
    with pytest.raises(ArtifactError) as caught:  # never through a link
        load(line, meanings=MEANINGS)
    assert caught.value.code == "R306"
    load(line, weights=published, meanings=MEANINGS).close()  # a path that the caller names may be one


def test_files_that_are_not_there_or_no_files(open_line: Open, tmp_path: Path) -> None:
    session = open_line()
    with pytest.raises(WeightsMissing):
        session.weights.load(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", "/dev/zero", "a\0b"):
        with pytest.raises(DslcError) as caught:
            session.weights.load(path)
        assert caught.value.code == ("R304" if path == tmp_path else "R306")


def test_a_file_of_pytorch_or_numpy_says_what_it_is(open_line: Open, tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", w=np.ones(2, np.float32))
    with pytest.raises(ArtifactError, match="zip") as caught:
        open_line().weights.load(tmp_path / "weights.npz")
    assert caught.value.code == "R306" and "save_file" in (caught.value.help or "")


def test_assignment_is_exact(open_line: Open) -> None:
    session = open_line()
    session.weights["b"] = np.array([1, 2], np.float32)
    assert session.weights["b"].tolist() == [1, 2]
    for bad in ([1.0, 2.0], np.zeros(OUTPUTS), np.zeros((1, 2), np.float32), np.zeros((), np.float32), None):
        with pytest.raises(InputError):
            session.weights["b"] = bad
    with pytest.raises(KeyError):
        session.weights["w.momentum"] = np.zeros((2, 3), np.float32)
    with pytest.raises(KeyError):
        session.weights["nothing"]
    assert session.weights["b"].tolist() == [1, 2]


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    data = tensorfile.encode(GOOD)
    passed = []
    for bit in range(8 * len(data)):
        flipped = np.frombuffer(data, np.uint8).copy()
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            file = tensorfile.decode(flipped, "x")
            if file.verified and file.tensors.keys() == GOOD.keys():
                same = all(np.array_equal(file.tensors[n].array(), v) for n, v in GOOD.items())
                passed.append((bit, same and all(file.tensors[n].dtype == "f32" for n in GOOD)))
        except ArtifactError as error:
            assert error.code == "R306"
    # What passes changed nothing that counts: the padding of the header, or where JSON has a choice.
    assert all(same for _, same in passed)
    assert len(passed) < 8 * 64


def test_every_truncation_is_seen() -> None:
    data = np.frombuffer(tensorfile.encode(GOOD), np.uint8)
    for length in range(len(data)):
        with pytest.raises(ArtifactError):
            tensorfile.decode(data[:length].copy(), "x")
    with pytest.raises(ArtifactError):
        tensorfile.decode(np.append(data, np.uint8(0)), "x")


def test_hostile_headers(fuzz_count: Callable[[int], int], fuzz_seed: int) -> None:
    """Whatever the header says: R306, or a file that the public library reads too."""
    rng = random.Random(fuzz_seed)
    good = {
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [24, 32]},
        "__metadata__": {"a": "b"},
    }
    values = [0, -1, 1, 2**31, 2**63, 2**64, 1e300, 1.0, None, True, "F64", "x" * 99, [], {}, [0, 8], [[0]], [2] * 99]
    refused = taken = 0
    for case in range(fuzz_count(5000)):
        header = json.loads(json.dumps(good))
        for _ in range(rng.randint(1, 2) if case else 0):  # the first one is good
            entry = header[rng.choice(list(good))]
            entry[rng.choice([*entry, "new"])] = rng.choice(values)
        if case and rng.random() < 0.1:
            header[rng.choice(["w", "c"])] = rng.choice([*values, good["b"]])
        text = json.dumps(header).encode()
        if case and rng.random() < 0.1:
            text = text.replace(b'"b"', b'"w"')
        data = len(text).to_bytes(8, "little") + text + bytes(32)
        try:
            tensorfile.decode(np.frombuffer(data, np.uint8).copy(), "x")
        except ArtifactError as error:
            assert error.code == "R306"
            refused += 1
        else:
            safetensors.deserialize(data)
            taken += 1
    assert refused > 0 and taken > 0
    deep = b'{"a":' + b"[" * 200_000
    for text in (deep, b"{" * 100_000, b"\xff\xfe", b"NaN", b"[]", b'{"a":NaN}'):
        data = len(text).to_bytes(8, "little") + text
        with pytest.raises(ArtifactError):
            tensorfile.decode(np.frombuffer(data, np.uint8).copy(), "x")


def test_a_header_longer_than_its_limit_is_refused_however_large_the_file_is() -> None:
    for length, fits in ((LONGEST_HEADER, True), (LONGEST_HEADER + 1, False)):
        start = length.to_bytes(8, "little")
        if fits:
            assert header_length(start, 1 << 40, "x") == length
        else:
            with pytest.raises(ArtifactError) as caught:
                header_length(start, 1 << 40, "x")
            assert caught.value.code == "R306" and str(length) in caught.value.message


def test_the_state_takes_nothing_of_another_type(open_line: Open) -> None:
    state = open_line()._state
    before = state.read("w")
    for array in (before.astype(np.float64), before[None], before.astype(np.int32)):
        with pytest.raises(AssertionError, match="w is"):
            state.write("w", array)
    assert np.array_equal(state.read("w"), before)


def test_names_are_mapped_and_heads_replaced_on_loading(open_line: Open, tmp_path: Path) -> None:
    session = open_line(seed=1)
    before = session.state_tensors()
    w = GOOD["w"].astype(np.float16)
    (tmp_path / "w").write_bytes(tensorfile.encode({"net.1.weight": w.T.copy(), "net.1.bias": np.ones(9, np.float32)}))
    rules: dict[str, object] = {"net.1.weight": {"to": "w", "rearrange": "i o -> o i"}, "net.1.bias": "b"}
    for wrong, code in (
        (dict(map={"a{": "b"}), "R104"),
        (dict(replace=["b{"]), "R104"),
        (dict(map="none/none"), "R104"),
        (dict(map=rules), "R305"),
        (dict(replace=["b"]), "R305"),
        (dict(map={"net": "w"}), "R305"),
    ):
        with pytest.raises(DslcError) as caught:
            session.weights.load(tmp_path / "w", **wrong)
        assert caught.value.code == code and caught.value.help
        assert all(np.array_equal(v, before[k]) for k, v in session.state_tensors().items())
    session.weights.load(tmp_path / "w", map=[{k: v} for k, v in rules.items() if v != "b"] + [{"net.1.bias": None}],
                         replace=["b"])  # fmt: skip
    assert np.array_equal(session.weights["w"], w) and np.array_equal(session.weights["b"], before["b"])
    session.weights.load(tmp_path / "w", strict=False, map=rules)
    (tmp_path / "little").write_bytes(tensorfile.encode({"b": GOOD["b"]}))
    with pytest.raises(ArtifactError, match="of the bytes of the weights"):
        session.weights.load(tmp_path / "little", strict=False, map={"b": "b"})


def test_a_checkpoint_is_loaded_as_weights(open_line: Open, tmp_path: Path) -> None:
    session, other, fresh = open_line(seed=1), open_line(seed=2), open_line(seed=2).state_tensors()
    session.train_step(x=np.ones((4, 3), np.float32), target=np.zeros(4, np.int32))
    session.save_checkpoint(tmp_path / "c")
    for how in ({}, {"map": {"w": "w"}}, {"replace": ["b"]}):
        other.weights.load(tmp_path / "c", **how)
        assert np.array_equal(other.weights["w"], session.weights["w"])
        assert np.array_equal(other.state_tensors()["w.momentum"], fresh["w.momentum"])
    tensors = {name: tensor.array() for name, tensor in tensorfile.read(tmp_path / "c").tensors.items()}
    (tmp_path / "no").write_bytes(tensorfile.encode(tensors))  # the same tensors, but not a checkpoint
    with pytest.raises(ArtifactError, match=r"extra: .*w\.momentum"):
        other.weights.load(tmp_path / "no")


@pytest.mark.parametrize(
    "header",
    [
        rb'{"a\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        rb'{"__metadata__":{"a\ud800":"b"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        rb'{"__metadata__":{"a":"\udfff"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    ],
)
def test_a_text_that_cannot_be_encoded_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(DslcError, match="lone surrogate"):
        tensorfile.read(path)
