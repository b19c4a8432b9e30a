"""Constant tensors: of written numbers and of files of numbers. They are no parameters; many are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources.in_memory import files

import dslc
from dslc.compiler.check.model import check_file, check_program
from dslc.compiler.ir.graph import Kind
from dslc.compiler.options import Options
from dslc.compiler.pipeline import build, compile_entry
from dslc.dsl.diagnostics import CompileError
from dslc.dsl.limits import MAX_TABLE_BYTES

RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(3, 40))

#: a model whose results are a table, a view of it, and what is computed from it; the loss reads it too
MODEL = """nn 1
dim B in 1..8 = 4
use "table.npy"
use "ids.npy" (order)
const TWICE = 2 * table
block half(x: [b, 3]) -> [b, 20] {
  return (x @ table)[:, 0:20]
}
model M(x: [B, 3]) -> (y: [B, 40], table_itself: [3, 40], flat: i32[100], halves: [B, 20]) {
  y = x @ TWICE |> linear(40) as fc
  return y, table, reshape(order, [100]), half(x)
}
train M(goal: [B, 40]) {
  loss      = mse(y, goal) + mean(table)
  metrics   { most = max(cast(order, "float")) }
  optimizer = sgd(lr=0.01)
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "table.npy", TABLE)
    np.save(tmp_path / "ids.npy", np.asfortranarray(np.arange(100, dtype=">i4").reshape(4, 25)))
    (tmp_path / "m.nn").write_text(MODEL)
    return tmp_path


def built(path: Path, **options: Any) -> Path:
    path.with_suffix(".dslc").write_bytes(build(check_file(path), Options(**options)).artifact)
    return path.with_suffix(".dslc")


@pytest.mark.parametrize("provider", ["reference", "own"])
def test_files_of_numbers_are_constants_of_every_entry(folder: Path, provider: str) -> None:
    checked = check_file(folder / "m.nn")
    assert list(checked.params) == ["fc.weight", "fc.bias"]
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    with dslc.load(built(folder / "m.nn", provider=provider), weights="init", device="cpu") as session:
        for _ in range(2):  # other entries use the same memory in between
            found = session.predict(x=x)
            weights = {name: np.asarray(session.weights[name]) for name in ("fc.weight", "fc.bias")}
            wanted = 2 * x @ TABLE @ weights["fc.weight"].T + weights["fc.bias"]
            np.testing.assert_allclose(found.y, wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found.table_itself, TABLE.astype(np.float32))
            np.testing.assert_array_equal(found.flat, np.arange(100))
            np.testing.assert_allclose(found.halves, (x @ TABLE)[:, :20], rtol=1e-4, atol=1e-5)
            step = session.train_step(x=x, goal=found.y)
            np.testing.assert_allclose(step.loss, TABLE.mean(), rtol=1e-4, atol=1e-6)
            assert step.metrics["most"] == 99


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("entry", ["predict", "train_step"])
def test_code_for_a_gpu(folder: Path, precision: str, entry: str) -> None:
    options = Options(target="sm_90", precision=precision)
    program, _ = compile_entry(check_file(folder / "m.nn"), entry, {"B": 4}, options)
    constants = [i for i in program.graph.inputs if i.kind is Kind.CONSTANT]
    assert constants and program.memory is not None
    for source in constants:
        assert program.memory.places[source.value].region == "work"
        assert str(source.value.type) in ("f32[3, 40]", "i32[4, 25]", "f32[4, 25]")  # the last: a cast of a constant
    assert all(node.op.view or node in program.kernels for node in program.graph.nodes)


def test_constants_lie_below_all_other_work(folder: Path) -> None:
    program, _ = compile_entry(check_file(folder / "m.nn"), "train_step", {"B": 4}, Options())
    memory = program.memory
    assert memory is not None
    held = [i.value for i in program.graph.inputs if i.kind is Kind.CONSTANT]
    end = max(memory.places[v].offset + v.type.bytes for v in held)
    others = [p.offset for v, p in memory.places.items() if p.region == "work" and v not in held and v.type.bytes]
    assert all(offset >= end or offset in {memory.places[v].offset for v in held} for offset in others)
    assert memory.work_bytes >= end and memory.lower_bound >= end


def test_the_file_decides_the_digest_and_its_path_does_not(folder: Path) -> None:
    first = check_file(folder / "m.nn").digest
    (folder / "same").mkdir()
    for name in ("table.npy", "ids.npy", "m.nn"):
        (folder / "same" / name).write_bytes((folder / name).read_bytes())
    assert check_file(folder / "same/m.nn").digest == first
    np.save(folder / "table.npy", TABLE + 1)
    assert check_file(folder / "m.nn").digest != first


def test_a_used_file_may_use_numbers_and_pass_them_on(folder: Path) -> None:
    (folder / "inner.nn").write_text('nn 1\nuse "table.npy" (mel)\nblock by(x: [b, 3]) -> [b, 40] { return x @ mel }\n')
    (folder / "outer.nn").write_text(
        'nn 1\nuse inner (by, mel)\nuse "table.npy" (again)\n'
        "model M(x: [4, 3]) -> [4, 40] { return by(x) + mel[0] + again[1] }\n"
    )
    with dslc.load(built(folder / "outer.nn"), device="cpu") as session:
        x = np.ones((4, 3), np.float32)
        np.testing.assert_allclose(session.predict(x=x), TABLE.sum(0) + TABLE[0] + TABLE[1] + 0 * x[:, :1], rtol=1e-5)
    constants = [i for i in check_file(folder / "outer.nn").graph.inputs if i.kind is Kind.CONSTANT]
    assert len(constants) == 1


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.float16([0.1, 2]), "[2]"), (np.float32(0.5), "[]"), (np.array([[1e300, -np.inf], [np.nan, 0.1]]), "[2, 2]"),
        (np.arange(4, dtype="<i8"), "i64[4]"), (np.arange(3, dtype=">i2"), "i16[3]"),
        (np.arange(3, dtype="i1"), "i8[3]"), (np.arange(3, dtype="u1"), "u8[3]"), (np.array([True, False]), "b1[2]"),
        (np.zeros((0, 3), "i4"), "i32[0, 3]"),
    ],
    ids=str,
)  # fmt: skip
def test_dtypes_of_files(array: np.ndarray, expected: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    text = f'nn 1\nuse "a.npy"\nmodel M(x: [2]) -> (found: {expected}, y: [2]) {{ return a, x }}\n'
    (tmp_path / "m.nn").write_text(text)
    with dslc.load(built(tmp_path / "m.nn"), device="cpu") as session, np.errstate(over="ignore"):
        found = session.predict(x=np.zeros(2, np.float32)).found
        wanted = array.astype(np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("="))
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def test_numbers_that_are_not_read_are_not_stored(folder: Path) -> None:
    (folder / "n.nn").write_text('nn 1\nuse "table.npy"\nmodel M(x: [4, 3]) -> [4, 3] { return relu(x) }\n')
    assert [i.kind for i in check_file(folder / "n.nn").graph.inputs] == [Kind.DATA]


def _object(path: Path) -> None:
    np.save(path, np.array([{}, 1], object), allow_pickle=True)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_TABLE_BYTES + 1)


def _link(path: Path) -> None:
    outside = path.parent.parent / f"{path.parent.name}-outside.npy"
    np.save(outside, TABLE)
    path.symlink_to(outside)


def _header(text: str, data: bytes = b"") -> Any:
    head = text.encode()
    return lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data)


REFUSED: dict[str, tuple[Any, str, str]] = {
    "objects": (_object, "E0116", "which no tensor can hold"),
    "complex": (lambda path: np.save(path, np.ones(2, complex)), "E0116", "real and imaginary parts"),
    "empty": (lambda path: path.write_bytes(b""), "E0116", "the file is empty"),
    "text": (lambda path: path.write_text("1 2 3\n"), "E0116", "does not start"),
    "cut": (lambda path: path.write_bytes((path.parent / "table.npy").read_bytes()[:-1]), "E0116", "the file has"),
    "code": (_header("{'descr': '<f4', 'fortran_order': False, 'shape': exit()}"), "E0116", "plain array"),
    "a huge shape": (
        _header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 2)}"), "E0116", "needs"
    ),
    "a huge empty axis": (
        _header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 0)}"), "E0116", "elements"
    ),
    "too large": (_huge, "E0116", "together are longer than 67,108,864 bytes"),
    "a folder": (lambda path: path.mkdir(), "E0106", "not a regular file"),
    "missing": (lambda path: None, "E0106", "there is no file bad.npy"),
    "a link out": (_link, "E0108", "out of the project"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_refused(case: str, folder: Path) -> None:
    make, code, told = REFUSED[case]
    make(folder / "bad.npy")
    (folder / "n.nn").write_text('nn 1\nuse "bad.npy" (t)\nmodel M(x: [4]) -> [4] { return x + sum(t) }\n')
    with pytest.raises(CompileError) as error:
        check_file(folder / "n.nn")
    [found] = error.value.diagnostics
    assert found.code == code and told in str(error.value) and found.label.span.text.startswith("use "), error.value


@pytest.mark.parametrize(
    ("use", "code", "told"),
    [
        ('use "table.npy" (a, b)', "E0116", "these are 2"),
        ('use "2d-x.npy"', "E0116", 'write `use "2d-x.npy" (NAME)`'),
        ('use "tabel.npy"', "E0106", "did you mean `table.npy`?"),
        ('use "table.npy"\nuse "ids.npy" (table)', "E0103", "declared twice"),
        ('use "table.npy" (x)', "E0112", "would hide it"),
    ],
)
def test_names_of_files(use: str, code: str, told: str, folder: Path) -> None:
    np.save(folder / "2d-x.npy", TABLE)
    (folder / "n.nn").write_text(f"nn 1\n{use}\nmodel M(x: [4]) -> [4] {{ return relu(x) }}\n")
    with pytest.raises(CompileError) as error:
        check_file(folder / "n.nn")
    assert error.value.diagnostics[0].code == code and told in str(error.value)


@pytest.mark.parametrize("provider", ["reference", "own"])
def test_written_numbers_of_every_size(provider: str, tmp_path: Path) -> None:
    text = """nn 1
const FEW = tensor([[0.1, -inf], [nan, 3]])
model M(x: [2]) -> (few: [2, 2], many: [8, 9], ints: i64[65], bools: b1[66], one: i32[], none: [0]) {
  many = tensor([[i / (j + 1) for j in 0..9] for i in 0..8])
  return FEW + 0 * x, many, tensor([i * 2^40 for i in 0..65], dtype="i64"), tensor([i % 3 == 0 for i in 0..66]),
    tensor(7), tensor([])
}
"""
    path = tmp_path / "m.dslc"
    path.write_bytes(build(check_program(files(text)), Options(provider=provider)).artifact)
    with dslc.load(path, device="cpu") as session:
        found = session.predict(x=np.zeros(2, np.float32))
    np.testing.assert_array_equal(found.few, np.float32([[0.1, -np.inf], [np.nan, 3]]))
    np.testing.assert_array_equal(found.many, np.float32([[i / (j + 1) for j in range(9)] for i in range(8)]))
    np.testing.assert_array_equal(found.ints, np.arange(65) * 2**40)
    np.testing.assert_array_equal(found.bools, np.arange(66) % 3 == 0)
    assert found.one == 7 and found.none.shape == (0,)


def test_class_weights_of_many_classes_run_on_a_gpu() -> None:
    text = """nn 1
model M(x: [4, 100]) -> [4, 100] { return x |> linear(100) as fc }
train M(y: i32[4]) {
  loss      = cross_entropy(output, y, weight=[1 + i / 100 for i in 0..100])
  optimizer = sgd(lr=0.1)
}
"""
    program, _ = compile_entry(check_program(files(text)), "train_step", {}, Options(target="sm_90"))
    assert all(node.op.view or node in program.kernels for node in program.graph.nodes)


def test_a_table_is_known_before_the_call_of_its_layer() -> None:
    text = "layer tok = embedding(20, 6)\n  y = h @ tok.weight.T\n  return y + sum(tok(t), over=1, keep=true)"
    checked = check_program(files(f"nn 1\nmodel M(t: i32[4], h: [4, 6]) -> [4, 20] {{\n  {text}\n}}\n"))
    [(name, info)] = checked.params.items()
    assert name == "tok.weight" and info.input.value.type.shape == (20, 6) and info.init.kind == "normal"


@pytest.mark.parametrize(
    ("layer", "leaf", "told"),
    [
        ("linear(6)", "weight", "call the layer first"),
        ("linear(6)", "bias", "call the layer first"),  # its initial values depend on the input's size
        ("conv(6, 3)", "weight", "call the layer first"),
        ("embedding(20, 6)", "wieght", "did you mean `weight`?"),
        ("embedding(20)", "weight", "call the layer first"),
        ("twice()", "weight", "call the layer first"),
    ],
)
def test_what_needs_the_call(layer: str, leaf: str, told: str) -> None:
    block = "block twice(x: [n]) -> [n] {\n  param weight: [3]\n  return x\n}\n"
    text = f"{block}model M(t: i32[4], h: [4, 6]) -> [4] {{\n  layer l = {layer}\n  return sum(l.{leaf})\n}}\n"
    with pytest.raises(CompileError, match="E0102") as error:
        check_program(files(f"nn 1\n{text}"))
    assert f"no parameter `{leaf}` before its first call" in str(error.value) and told in str(error.value)


def test_names_of_a_comprehension_are_its_own() -> None:
    text = """nn 1
block head(x: [b, 4]) -> [b, 2] { return x |> linear(2) as fc }
model M(x: [4, 4]) -> (y: [4, 6], i: i32[3]) {
  i = 7
  parts = [x |> head as part for i in 0..3]
  pairs = [a * b for (a, b) in [(i, i) for i in 0..5] if a != 3]
  for head in [1, 2] { x = x * head }
  return concat(parts, axis=1), tensor([i, len(pairs), sum(pairs)])
}
"""
    checked = check_program(files(text))
    assert [*checked.params][::2] == [f"part.{i}.fc.weight" for i in range(3)]
    literal = checked.graph.outputs["result.i"].producer
    assert literal.attrs["values"] == (7, 4, 21)  # type: ignore[union-attr]


def test_a_comprehension_of_several_clauses() -> None:
    text = """nn 1
model M(x: [4, 4]) -> (y: [4, 8], i: i32[8]) {
  parts = [x |> linear(2) as part for i in 0..3 if i != 1 for j in 0..2]
  found = [k for (a, b) in [[1, 2], [3, 4]] for k in [a, b, a * b] if k > 1 for _ in 0..(k - 1) // 2]
  return concat(parts, axis=1), tensor(found + [[[i, j] for j in 0..2 for i in 0..2][1][0]])
}
"""
    checked = check_program(files(text))
    assert [*checked.params][::2] == [f"part.{i}.{j}.weight" for i in (0, 2) for j in (0, 1)]
    literal = checked.graph.outputs["result.i"].producer
    assert literal.attrs["values"] == (3, 4, 12, 12, 12, 12, 12, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "const A = [1 for i in 0..999 for j in 0..999 for k in 0..999]",
        "const A = [[[[1 for i in 0..999] for j in 0..999] for k in 0..999] for l in 0..999]",
        "const A = [[0..1000 for i in 0..1000] for j in 0..1000]",
    ],
)
def test_comprehensions_are_bounded(text: str) -> None:
    with pytest.raises(CompileError, match="E0006"):
        check_program(files(f"nn 1\n{text}\nmodel M(x: [4]) -> [4] {{ return x }}\n"))


@pytest.mark.parametrize("rounds", [25, 60])
def test_a_list_that_contains_itself_many_times_is_refused(rounds: int) -> None:
    body = f"  l = [1]\n  for i in 0..{rounds} {{ l = [l, l] }}\n  return x + tensor(l)\n"
    with pytest.raises(CompileError, match=r"E0305|E0306"):
        check_program(files(f"nn 1\nmodel M(x: [4]) -> [4] {{\n{body}}}\n"))


def test_a_result_of_several_parts_of_a_dim_has_the_size_that_is_declared(tmp_path: Path) -> None:
    """`2*(T//4)`, which the artifact stores as text, is not `2*T//4`."""
    text = (
        "nn 1\ndim T in 2..9 = 6\nmodel M(x: [T, 2]) -> [T//4*2, 2] { return concat([x[:T//4], x[:T//4]], axis=0) }\n"
    )
    path = tmp_path / "m.dslc"
    path.write_bytes(build(check_program(files(text)), Options()).artifact)
    with dslc.load(path, device="cpu") as session:
        assert session.predict(x=np.zeros((6, 2), np.float32)).shape == (2, 2)
