"""``dslc weights``; starting from other weights; ``train --overfit-one-batch`` and ``--find-nan``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dslc.base.publish import publish_bytes
from dslc.runtime.weights import safetensors_file as tensorfile

MODEL = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2]) -> [B, 2] {
  return x |> linear(16) as fc |> relu |> linear(2) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  metrics   { accuracy = accuracy(output, label) }
  optimizer = sgd(lr=0.1, momentum=0.9)
}
"""
CONFIG = """model: net.nn
build: {target: cpu, sizes: {train: {B: 8}}}
data:
  train: {x: "data.csv:a..b", label: data.csv:label}
  split: 0.25
train: {epochs: 2, seed: 1}
save:  {dir: runs/net}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clouds of points that a line parts, in a table."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 64)
    x = rng.normal(0, 0.3, (64, 2)) + (2 * label[:, None] - 1)
    lines = ["a,b,label", *(f"{a:.6f},{b:.6f},{c}" for (a, b), c in zip(x, label))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "net.nn").write_text(MODEL)
    (tmp_path / "dslc.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_training_from_a_table_with_a_split(dslc: Callable, project: Path) -> None:
    ran = dslc("train", "--epochs", "6", "--json")
    assert ran.code == 0 and ran.json["steps"] == 6 * 6 and ran.json["metrics"]["accuracy"] > 0.9
    assert (project / "runs/net/plot.svg").exists()
    found = dslc("eval", "--json").json
    assert found["rows"] == 16 and found["values"] == ran.json["metrics"]


def test_one_batch_is_learned_or_not_by_exit_code(dslc: Callable, project: Path) -> None:
    ran = dslc("train", "--overfit-one-batch")
    assert ran.code == 0 and "in 200 steps on one batch: the model can learn it" in ran.out, ran.err
    ran = dslc("train", "--overfit-one-batch", "--steps", "3", "--lr", "1e-6", "--json")
    assert ran.code == 1 and ran.json["steps"] == 3 and not ran.json["learned"]
    assert not (project / "runs").exists() and not (project / "build/net/net.safetensors").exists()
    for wrong in (("--steps", "3"), ("--overfit-one-batch", "--resume"), ("--overfit-one-batch", "--find-nan")):
        assert dslc("train", *wrong).code == 2


def test_find_nan_names_the_node_and_the_line(dslc: Callable, project: Path) -> None:
    assert dslc("train", "--epochs", "1").code == 0
    ran = dslc("train", "--find-nan", "--epochs", "2", "--json")
    assert ran.code == 0 and ran.json == {"step": None}
    # The logarithm of a negative number, in a step after some that are finite.
    text = MODEL.replace("|> relu |> linear(2) as head", "|> linear(2) as head").replace(
        "loss      = cross_entropy(output, label)",
        "loss      = cross_entropy(output, label) + 0 * mean(log(output + 1.6))",
    )
    (project / "net.nn").write_text(text)
    (project / "dslc.yaml").write_text(CONFIG.replace("runs/net", "runs/other") + "  #\n")
    ran = dslc("train", "--set", "save.every=1 step", "--lr", "0.5")
    assert ran.code == 7 and "is not finite in step" in ran.err, ran.err
    step = int(ran.err.split("is not finite in step ")[1].split()[0])
    assert step > 1
    ran = dslc("train", "--find-nan", "--lr", "0.5")
    assert ran.code == 7 and f"in step {step}, replayed from step {step}" in ran.err, ran.err
    assert "log" in ran.err and "net.nn:9" in ran.err and "nan at [" in ran.err, ran.err


def test_the_first_result_that_is_not_finite_is_found_wherever_it_is(dslc: Callable, project: Path) -> None:
    """Each op whose result is poisoned is the one that is named; without poison the step is that of train_step."""
    from dslc.face import load, reference_meanings
    from dslc.runtime.session import load as loading

    assert dslc("build", "--providers", "reference").code == 0
    path = project / "build/net/net.dslc"
    data = {"x": np.ones((8, 2), "f4"), "label": np.zeros(8, "i4")}
    with load(path, weights="init") as one, load(path, weights="init") as other:
        assert one.find_nonfinite(lr=0.1, **data) is None and one.step == 1
        other.train_step(lr=0.1, **data)
        assert all(
            a.tobytes() == b.tobytes() for a, b in zip(one.state_tensors().values(), other.state_tensors().values())
        )
    meanings = reference_meanings()
    ops: list[str] = []

    def noted(name: str, meaning: object) -> object:
        def run(inputs: object, attrs: object) -> object:
            ops.append(name)
            results = [np.array(r) for r in meaning(inputs, attrs)]  # type: ignore[operator]
            if len(ops) == poison and results[0].dtype.kind == "f":
                results[0].reshape(-1)[-1] = np.inf
            return results

        return run

    poison = -1
    table = {name: noted(name, meaning) for name, meaning in meanings.items()}
    with loading.load(path, weights="init", meanings=table) as session:
        ops.clear()
        session.find_nonfinite(lr=0.1, **data)
        order = list(ops)
    assert len(order) > 8
    named = 0
    for number in range(1, len(order) + 1):
        poison = -1
        with loading.load(path, weights="init", meanings=table) as session:
            ops.clear()
            poison = number
            found = session.find_nonfinite(lr=0.1, **data)
        if found is not None:
            assert found.op == order[number - 1] and found.value == np.inf and len(ops) == number
            named += 1
    assert named > 8


def test_a_new_head_on_weights_of_another_model(dslc: Callable, project: Path) -> None:
    rng = np.random.default_rng(1)
    tensors = {
        "features.0.weight": rng.standard_normal((16, 2)).astype("f4"),
        "features.0.bias": np.zeros(16, "f4"),
        "classifier.weight": np.zeros((1000, 16), "f4"),
        "classifier.bias": np.zeros(1000, "f4"),
    }
    publish_bytes(project / "theirs.safetensors", tensorfile.encode(tensors))
    ran = dslc("train", "--weights", "theirs.safetensors")
    assert ran.code == 5 and "--map" in ran.err
    ran = dslc("train", "--weights", "theirs.safetensors", "--map", "features.0=fc", "--map", "classifier=head")
    assert ran.code == 5 and "--replace" in ran.err
    names = ("--map", "features.0=fc", "--map", "classifier=head")
    ran = dslc("train", "--weights", "theirs.safetensors", *names, "--partial", "--lr", "0")
    assert ran.code == 0 and "2 of 4 tensors" in ran.out
    published = tensorfile.read(project / "build/net/net.safetensors").tensors
    assert np.array_equal(published["fc.weight"].array(), tensors["features.0.weight"])
    for wrong in ("fc", "=fc", "fc="):
        assert dslc("train", "--weights", "theirs.safetensors", "--map", wrong).code == 2


def write(path: Path, **tensors: np.ndarray) -> None:
    publish_bytes(path, tensorfile.encode(tensors))


def test_list_and_diff(dslc: Callable, tmp_path: Path) -> None:
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    write(a, w=np.array([[1, 2], [3, np.nan]], "f4"), n=np.array([3], "i8"), only=np.zeros(2, "f4"))
    write(b, w=np.array([[1, 2.5], [3, np.nan]], "f4"), n=np.array([7], "i8"), shape=np.zeros(2, "f4"))
    ran = dslc("weights", "list", a)
    assert ran.code == 0 and "w" in ran.out and "f32[2, 2]" in ran.out and "every digest matches" in ran.out
    data = dslc("weights", "list", a, "--json").json
    assert data["tensors"]["n"] == {"dtype": "i64", "shape": [1]} and data["bytes"] == 32 and data["verified"]
    assert dslc("weights", "diff", a, a).code == 0
    ran = dslc("weights", "diff", a, b, "--json")
    assert ran.code == 1 and ran.json["same"] == 0
    found = {row["name"]: row for row in ran.json["different"]}
    assert found["w"]["largest_difference"] == 0.5 and found["n"]["largest_difference"] == 4.0
    assert found["only"]["right"] is None and found["shape"]["left"] is None
    ran = dslc("weights", "diff", a, b, "--tolerance", "4")
    assert ran.code == 1 and "2 of 4 tensors differ" in ran.out


def test_convert(dslc: Callable, tmp_path: Path) -> None:
    a, b, c = (tmp_path / f"{name}.safetensors" for name in "abc")
    values = np.array([1.0, -0.1, 3e38, np.inf, -np.nan, 1e-40, 0.0], "f4")
    write(a, **{"net.w": values, "net.n": np.array([5], "i8")})
    ran = dslc("weights", "convert", a, b, "--map", "net=body", "--dtype", "f64")
    assert ran.code == 0, ran.err
    found = tensorfile.read(b)
    assert found.verified and found.tensors["body.n"].array().tolist() == [5]
    assert np.array_equal(found.tensors["body.w"].array(), values.astype("f8"), equal_nan=True)
    ran = dslc("weights", "convert", a, c, "--dtype", "f16")
    assert ran.code == 5 and "does not fit f16" in ran.err and not c.exists()
    assert dslc("weights", "convert", a, c, "--dtype", "bf16").code == 0
    bits = tensorfile.read(c).tensors["net.w"].array()
    back = (bits.astype("u4") << 16).view("f4")
    assert np.allclose(back[:3], values[:3], rtol=2**-8) and np.isposinf(back[3]) and np.isnan(back[4])
    write(b, w=np.array([np.finfo("f4").max], "f4"))
    assert dslc("weights", "convert", b, c, "--dtype", "bf16").code == 5


def test_bf16_rounds_to_nearest_even() -> None:
    from dslc.runtime.weights.files import converted

    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF818000], "u4").view("f4")
    tensor = tensorfile.FileTensor("f32", ties.shape, ties.view("u1"))
    assert [hex(bits) for bits in converted(tensor, "bf16", "x")] == ["0x3f80", "0x3f82", "0x3f81", "0x3f80", "0xbf82"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("list",), 2), (("list", "a", "b"), 2), (("diff", "a"), 2), (("spam", "a"), 2), (("list", "missing"), 5),
        (("list", "a", "--dtype", "f32"), 2), (("convert", "a", "b.npz"), 2), (("list", "hostile"), 5),
    ],
)  # fmt: skip
def test_wrong_calls(dslc: Callable, project: Path, arguments: tuple[str, ...], code: int) -> None:
    (project / "hostile").write_bytes(b"\xff" * 64)
    assert dslc("weights", *arguments).code == code


def test_evaluation_piece_by_piece_is_that_of_all_rows_at_once(dslc: Callable, project: Path) -> None:
    """Random draws of an evaluation go by the row in all the data, wherever a piece begins."""
    from dslc.face import load

    noisy = MODEL.replace("linear(2) as head\n}", "linear(2) as head |> spread\n}")
    noisy = noisy.replace(
        "model Net", "block spread(y: [B, 2]) -> [B, 2] {\n  return y + 3 * randn([B, 2])\n}\n\nmodel Net", 1
    )
    (project / "net.nn").write_text(noisy)
    ran = dslc("build", "--size", "eval:B=1,8")
    assert ran.code == 0, ran.err
    rng = np.random.default_rng(0)
    data = {"x": rng.standard_normal((21, 2)).astype("f4"), "label": rng.integers(0, 2, 21).astype("i4")}
    asked: list[tuple[int, int]] = []
    with load(project / "build/net/net.dslc", weights="init") as session:

        def read(spans):  # type: ignore[no-untyped-def]
            asked.extend(spans)
            return ({name: array[start:stop] for name, array in data.items()} for start, stop in spans)

        found = session.evaluate_rows(21, read)
        assert found == session.evaluate(**data) and found.rows == 21
        assert asked == [(0, 8), (8, 16), *((row, row + 1) for row in range(16, 21))]
        assert found != session.evaluate(**{name: array[::-1] for name, array in data.items()})


def test_an_input_that_is_not_finite_is_named_and_the_state_waits_to_be_restored(dslc: Callable, project: Path) -> None:
    from dslc.base.errors import ArtifactError
    from dslc.face import load

    assert dslc("build").code == 0
    data = {"x": np.ones((8, 2), "f4"), "label": np.zeros(8, "i4")}
    with load(project / "build/net/net.dslc", weights="init") as session:
        before = session.state_tensors()
        bad = np.ones((8, 2), "f4")
        bad[3, 1] = -np.inf
        found = session.find_nonfinite(lr=0.1, x=bad, label=data["label"])
        assert found is not None and (found.op, found.where, found.index, found.count) == (None, "x", (3, 1), 1)
        assert str(found) == "`x` is not finite: -inf at [3, 1], 1 of 16 values"
        with pytest.raises(ArtifactError) as caught:
            session.train_step(lr=0.1, **data)
        assert caught.value.code == "R310"
        session.restore(before, 0)
        assert session.find_nonfinite(lr=0.1, **data) is None and session.step == 1
