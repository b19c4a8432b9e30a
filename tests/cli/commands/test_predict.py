"""``dslc predict`` on every kind of data that ``dslc train`` reads."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dslc.runtime.predict import rows as predicted_rows

pytestmark = pytest.mark.slow

MODEL = """nn 1
dim B in 1..64 = 8

model Net(x: [B, 2]) -> [B, 3] {
  return x |> linear(4) as fc |> relu |> linear(3) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.1)
}
"""
IMAGES = """nn 1
dim B in 1..64 = 2

model Net(image: [B, 3, 4, 4]) -> [B, 2] {
  return image |> flatten |> linear(2) as head
}

train Net(label: i32[B]) {
  loss      = cross_entropy(output, label)
  optimizer = sgd(lr=0.001)
}
"""
CONFIG = """model: net.nn
build: {{target: cpu, sizes: {{train: {{B: 2}}, predict: {{B: [1, 4]}}}}}}
data:
{data}
train: {{epochs: 1}}
"""
TABLE = """  train: {x: "points.csv:a,b", label: points.csv:kind}
  eval:  {x: "points.csv:a,b", label: points.csv:kind}
"""
FOLDER = """  train: {image: "pets/:image", label: "pets/:label"}
  augment: {image: [{flip: 0.5}, {normalize: {mean: [100], std: [50]}}]}
"""


def made(folder: Path, model: str, data: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "net.nn").write_text(model)
    (folder / "dslc.yaml").write_text(CONFIG.format(data=data))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def points(dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A trained project whose data is a table; the values of its inputs."""
    values = np.random.default_rng(3).normal(0, 1, (11, 2)).astype(np.float32)
    lines = [f"{i},{a},{b},{i % 3}" for i, (a, b) in enumerate(values.tolist())]
    made(tmp_path, MODEL, TABLE, monkeypatch)
    (tmp_path / "points.csv").write_text("\n".join(["id,a,b,kind", *lines]) + "\n")
    assert dslc("train").code == 0
    np.save("x.npy", values)
    assert dslc("predict", "x.npy", "-o", "expected.npy").code == 0
    return values


def test_a_table_is_named_as_in_training_or_by_its_file(dslc: Callable, points: np.ndarray) -> None:
    expected = np.load("expected.npy")
    assert expected.shape == (11, 3)
    Path("new.csv").write_text(Path("points.csv").read_text())
    np.save("f64.npy", points.astype(np.float64))
    np.savez("x.npz", x=points.astype(np.float64), y=points)
    for source in (["new.csv:a,b"], ["x=new.csv:a,b"], ["new.csv"], ["x=new.csv"], [], ["f64.npy"], ["x.npz:x"]):
        ran = dslc("predict", *source, "-o", "y.npy", "--json")
        assert ran.code == 0, ran.err
        assert ran.json == {"out": "y.npy", "rows": 11, "results": {"output": [11, 3]}}
        assert np.array_equal(np.load("y.npy"), expected), source
        assert ("rounded to float32" in ran.err) == (source in (["f64.npy"], ["x.npz:x"]))


def test_the_batches_of_a_long_table_change_no_bit(
    dslc: Callable, points: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicted_rows, "_AT_ONCE", 1)
    for out in ("y.npy", "y.csv"):
        assert dslc("predict", "new.csv" if out == "y.csv" else "x.npy", "-o", out).code == (3 if out == "y.csv" else 0)
    assert dslc("predict", "points.csv", "-o", "y.csv").code == 0
    assert np.array_equal(np.load("y.npy"), np.load("expected.npy"))
    with open("y.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines] == [str(i) for i in range(11)]
    assert [int(line["class"]) for line in lines] == np.load("expected.npy").argmax(1).tolist()
    again = np.array([[line[f"output.{i}"] for i in range(3)] for line in lines]).astype(np.float32)
    assert np.array_equal(again, np.load("expected.npy"))


@pytest.mark.parametrize(
    ("sources", "code", "words"),
    [
        (["points.csv:a"], "R102", "a row of the input has 2 values"),
        (["points.csv:a,c"], "R102", "no column `c`"),
        (["missing.csv"], "R101", "no such file"),
        (["x=points.csv", "x=x.npy"], "R105", "given twice"),
        (["points.csv", "x.npy"], "R105", "given twice"),
        (["y=points.csv"], "R105", "no input `y`"),
        (["points.xls"], "R101", "no format has such a name"),
        (["photos/:image"], "R102", "not an image"),
    ],
)
def test_wrong_data_is_told(sources: list[str], code: str, words: str, dslc: Callable, points: np.ndarray) -> None:
    ran = dslc("predict", *sources, "-o", "y.csv")
    assert ran.code == 3 and f"error[{code}]" in ran.err and words in ran.err, ran.err
    assert not Path("y.csv").exists()


def test_images_have_their_names_and_are_normalized(
    dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, IMAGES, FOLDER, monkeypatch)
    pixels = np.random.default_rng(4).integers(0, 256, (6, 4, 4, 3)).astype(np.uint8)
    for at, image in enumerate(pixels):
        for folder in (f"pets/{'cat' if at < 3 else 'dog'}", "photos"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(f"{folder}/{at}.png")
    assert dslc("train").code == 0
    scaled = (np.moveaxis(pixels, -1, 1).astype(np.float32) - 100) / 50
    np.save("image.npy", scaled.astype(np.float32))
    assert dslc("predict", "--artifact", "build/net", "image.npy", "-o", "expected.npy").code == 0
    for source in ("photos", "photos/", "photos/:image", "image=photos", "pets"):
        ran = dslc("predict", source, "-o", "y.csv")
        assert ran.code == 0, ran.err
        with open("y.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        folders = ["cat/"] * 3 + ["dog/"] * 3 if source == "pets" else [""] * 6
        assert [line["row"] for line in lines] == [f"{folder}{i}.png" for i, folder in enumerate(folders)]
        found = np.array([[value for name, value in line.items() if name.startswith("output")] for line in lines])
        assert np.allclose(found.astype(np.float32), np.load("expected.npy"), rtol=1e-5, atol=1e-5)
    Path("photos/2.png").write_bytes(b"no image")
    ran = dslc("predict", "photos", "-o", "y.csv")
    assert ran.code == 3 and "photos/2.png" in ran.err and len(Path("y.csv").read_text().splitlines()) == 7


TEXTS = """  train: {x: "points.csv:size,colour", label: points.csv:kind}
  eval:  {x: "points.csv:size,colour", label: points.csv:kind}
  columns:
    size:   {missing: mean, scale: standard}
    colour: {categories: index}
    kind:   {categories: index}
"""


def test_what_was_fitted_in_training_is_applied(
    dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, MODEL, TEXTS, monkeypatch)
    rows = [
        (f"n{i}", "" if i == 4 else i, ["red", "blue", "green"][i % 3], ["cat", "dog", "fox"][i % 3]) for i in range(12)
    ]
    head = "id,size,colour,kind\n"
    Path("points.csv").write_text(head + "".join(",".join(map(str, row)) + "\n" for row in rows))
    assert dslc("train").code == 0
    assert dslc("predict", "-o", "all.jsonl", "--rows", "points.csv:id").code == 0
    Path("new.csv").write_text(head + "".join(",".join(map(str, row)) + "\n" for row in rows[7:9]))
    for place in (["new.csv:id"], ["id"], ["new.csv:id", "--artifact", "build/net"], ["id", "--artifact", "build/net"]):
        ran = dslc("predict", "new.csv", "-o", "new.jsonl", "--rows", *place)
        assert ran.code == 0, ran.err
        assert Path("new.jsonl").read_text() == "".join(Path("all.jsonl").read_text().splitlines(True)[7:9])
    first = json.loads(Path("new.jsonl").read_text().splitlines()[0])
    assert first["row"] == "n7" and first["class"] in ("cat", "dog", "fox") and len(first["output"]) == 3
    same = Path("new.jsonl").read_bytes()
    for part, some in enumerate((rows[7:8], rows[8:9])):
        Path(f"part{part}.csv").write_text(head + "".join(",".join(map(str, row)) + "\n" for row in some))
    ran = dslc("predict", "part*.csv:size,colour", "-o", "new.jsonl", "--rows", "id")
    assert ran.code == 0 and Path("new.jsonl").read_bytes() == same, ran.err
    ran = dslc("predict", "new.csv", "-o", "new.jsonl", "--rows", "ids")
    assert ran.code == 3 and "there is no column `ids`" in ran.err and "did you mean `id`?" in ran.err
    ran = dslc("predict", "new.csv", "-o", "new.jsonl", "--rows", "points.csv:id")
    assert ran.code == 3 and "it has 12 rows, the data 2" in ran.err
    ran = dslc("predict", "new.csv", "-o", "new.jsonl", "--rows", "new.csv:id,size")
    assert ran.code == 3 and "one column names the rows" in ran.err


PRICES = """nn 1
dim B in 1..64 = 4

model Net(x: [B, 1]) -> [B] {
  return x |> linear(1) as head |> flatten(0)
}

train Net(target: [B]) {
  loss      = mse(output, target)
  optimizer = sgd(lr=0.2)
}
"""
HOUSES = """  train: {x: "houses.csv:area", target: houses.csv:price}
  split: 0.25
  columns: {area: {scale: standard}, price: {scale: SCALE}}
"""


@pytest.mark.parametrize("scale", ["standard", "minmax", "robust", "log", "[log, standard]"])
def test_a_scaled_target_is_predicted_and_evaluated_in_the_units_of_the_data(
    scale: str, dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, PRICES, HOUSES.replace("SCALE", scale), monkeypatch)
    rows = [(20 + i, 50_000 + 3_000 * i + (-1) ** i * 900) for i in range(24)]
    head = "area,price\n"
    Path("houses.csv").write_text(head + "".join(f"{area},{price}\n" for area, price in rows))
    assert dslc("train", "--epochs", "30").code == 0
    assert dslc("predict", "houses.csv", "-o", "all.jsonl", "--rows", "houses.csv:price").code == 0
    found = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert list(found[0]) == ["row", "price", "output.scaled"]
    assert all(5_000 < line["price"] < 200_000 and abs(line["output.scaled"]) < 20 for line in found)
    assert "price" in json.loads(dslc("eval", "--json").out)["units"]  # the rows that were held back
    config = Path("dslc.yaml").read_text()
    held = config.replace("  split: 0.25\n", "  eval: {x: houses.csv:area, target: houses.csv:price}\n")
    Path("dslc.yaml").write_text(held)
    values = json.loads(dslc("eval", "--json").out)["units"]["price"]
    wrong = np.array([line["price"] - float(line["row"]) for line in found])
    true = np.array([price for _, price in rows], np.float64)
    near = {"rel": 1e-4}  # the true values were rounded to f32 after the scaling
    assert values["mae"] == pytest.approx(np.abs(wrong).mean(), **near)
    assert values["rmse"] == pytest.approx(np.sqrt((wrong**2).mean()), **near)
    assert values["r2"] == pytest.approx(1 - (wrong**2).sum() / ((true - true.mean()) ** 2).sum(), **near)
    assert "price, in the units of the data: mae " in dslc("eval").out


@pytest.mark.parametrize("command", [("predict", "houses.csv", "-o", "y.csv"), ("eval",)])
def test_missing_weights_are_named_before_the_data(
    command: tuple[str, ...], dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, PRICES, HOUSES.replace("SCALE", "standard"), monkeypatch)
    Path("houses.csv").write_text("area,price\n" + "".join(f"{i},{i * i}\n" for i in range(24)))
    ran = dslc(*command)
    assert "R304" in ran.err and "dslc train" in ran.err and "--weights" in ran.err, ran.err


def test_a_missing_folder_for_the_results_is_told_before_the_rows_are_read(dslc: Callable, points: np.ndarray) -> None:
    ran = dslc("predict", "missing.csv", "-o", "nowhere/y.csv")
    assert ran.code == 3 and "there is no folder nowhere" in ran.err


WORDS = """nn 1
dim B in 1..64 = 4
dim T = 4

model Net(ids: i32[B, T]) -> [B, T, 300] {
  return ids |> embedding(300, 2) as table |> linear(300) as head
}

train Net(next: i32[B, T]) {
  loss      = cross_entropy(output, next)
  optimizer = sgd(lr=0.1)
}
"""
CORPUS = """  tokenizer: tokenizer.json
  train: {ids: "corpus.txt:tokens", next: "corpus.txt:tokens+1"}
"""


def test_text_is_read_by_the_tokenizer_of_the_configuration(
    dslc: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made(tmp_path, WORDS, CORPUS, monkeypatch)
    words = list("abcdefgh")
    level = tokenizers.models.WordLevel({word: at + 200 for at, word in enumerate(words)}, unk_token="a")
    tokenizer = tokenizers.Tokenizer(level)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    Path("corpus.txt").write_text(" ".join(words * 20))
    assert dslc("train").code == 0
    np.save("ids.npy", np.array([[204, 205, 206, 207], [200, 201, 202, 203]], np.int32))
    assert dslc("predict", "ids.npy", "-o", "expected.npy").code == 0
    Path("new.txt").write_text("e f g h a b c d")
    ran = dslc("predict", "new.txt", "-o", "y.npy")
    assert ran.code == 0, ran.err
    assert np.array_equal(np.load("y.npy"), np.load("expected.npy"))
