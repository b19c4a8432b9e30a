"""Laws over all formats of tables: the same table gives the same rows, facts and errors, bit for bit."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.written import WRITERS, floats, random_table, write_all
from thinning import taken

from dslc.base.errors import DataError
from dslc.runtime.data.columns.fitted import Fitted
from dslc.runtime.data.names import FORMATS, format_of
from dslc.runtime.data.source import Source
from dslc.runtime.data.tables.table_format import TableFormat

COLUMNS = """
area: {missing: median, missing_flag: true, scale: standard}
rooms: {missing: mean, scale: minmax}
garden: {missing: 0}
city: {categories: onehot, missing: mode, unknown: other, rare: 2}
built: {date: [year, month, weekday, days], missing: "1970-01-01", missing_flag: true, scale: standard}
price: {scale: [log, robust]}
kind: {categories: index}
"""
KEY = "area..price"


def inputs(path: Path, width: int) -> dict[str, Any]:
    return {
        "x": (f"{path}:{KEY}", "f32", ("B", width)),
        "y": (f"{path}:kind", "i32", ("B",), (0, 3)),
        "again": (f"{path}:area", "f64", ("B", 2)),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Any]], list[Path]]:
    seed = int(os.environ["DSLC_SEED"])
    print(f"DSLC_SEED={seed}")
    table = random_table(seed, 60)
    table["city"][:20] = [c for c in sorted(set(filter(None, table["city"])))[:10] for _ in range(2)][:20] or [None]
    table["city"] = (table["city"] + [None] * 60)[:60]
    return table, write_all(tmp_path_factory.mktemp("tables"), table)


def width_of(table: dict[str, list[Any]]) -> int:
    counts: dict[str, int] = {}
    for city in table["city"]:
        if city is not None:
            counts[city] = counts.get(city, 0) + 1
    return 2 + 1 + 1 + sum(count >= 2 for count in counts.values()) + 1 + 5 + 1


def test_every_format_of_tables_is_written_here() -> None:
    names = {format.usage for format in FORMATS if isinstance(format, TableFormat)}
    written = {next(f.usage for f in FORMATS if f.matches(name)) for name in WRITERS}
    assert names == written


@pytest.mark.parametrize("at_once", [1 << 20, 8])
def test_the_same_table_gives_the_same_bits_in_every_format(
    files: Any, opened: Any, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    table, paths = files
    for module in ("encoded", "csv_table", "json_table"):
        monkeypatch.setattr(f"dslc.runtime.data.tables.{module}.AT_ONCE", at_once)
    order = np.random.default_rng(1).permutation(60)
    found = []
    for path in paths:
        data = opened(columns=COLUMNS, **inputs(path, width_of(table)))
        assert data.rows == 60
        assert data.columns["x"].rows.in_memory == (at_once > 8)
        found.append((data.fitted, {name: value.tobytes() for name, value in data.take(order).items()}))
    for path, (fitted, batch) in zip(paths, found):
        assert fitted.notes() == found[0][0].notes(), path.name
        assert batch == found[0][1], path.name


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_decimal_numbers_are_those_of_a_csv(tmp_path: Path, opened: Any, name: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    texts = ["0.1", "-316.27", "12345678901234567890.123456789", "0.000000000000000000000000000001", None]
    column = pa.array([text and Decimal(text) for text in texts], pa.decimal256(60, 30))
    table = pa.table({"x": column, "row": range(5)})
    if name == "t.parquet":
        pa.parquet.write_table(table, tmp_path / name)
    else:
        with pa.ipc.new_file(tmp_path / name, table.schema) as file:
            file.write_table(table)
    (tmp_path / "t.csv").write_text("x,row\n" + "".join(f"{text or ''},{at}\n" for at, text in enumerate(texts)))
    for each in (name, "t.csv"):
        data = opened(x=(f"{tmp_path}/{each}:x", "f64", ("B",)), columns="x: {missing: -1}")
        assert data.take(np.arange(5))["x"].tolist() == [float(text) if text else -1.0 for text in texts], each


@pytest.mark.parametrize("name", taken(["t.csv", "t.jsonl", "t.parquet", "t.arrow"], 2))
def test_workers_do_not_change_a_bit(files: Any, opened: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table, paths = files
    path = next(path for path in paths if path.name == name)
    whole = opened(columns=COLUMNS, **inputs(path, width_of(table)))
    for module in ("encoded", "csv_table", "json_table"):
        monkeypatch.setattr(f"dslc.runtime.data.tables.{module}.AT_ONCE", 8)
    data = opened(columns=COLUMNS, **inputs(path, width_of(table)))
    order = np.random.default_rng(2).permutation(60).astype(np.int64)
    tasks = [(order[at : at + 20], 0) for at in (0, 20, 40)]
    for workers in (0, 2):
        for (rows, _), batch in zip(tasks, data.feed(tasks, workers)):
            expected = whole.take(rows)
            assert all(batch[name].tobytes() == expected[name].tobytes() for name in expected)


def test_the_facts_are_those_of_numpy(files: Any, opened: Any) -> None:
    table, paths = files
    data = opened(columns=COLUMNS, **inputs(paths[0], width_of(table)))
    facts = {name: column.facts for name, column in data.fitted.columns.items()}
    area = floats(table["area"])
    filled = np.where(np.isnan(area), np.nanmedian(area), area)
    assert facts["area"]["fill"] == np.nanmedian(area)
    np.testing.assert_allclose([facts["area"]["shift"], facts["area"]["divisor"]], [filled.mean(), filled.std()], 1e-13)
    rooms = floats(table["rooms"])
    np.testing.assert_allclose(facts["rooms"]["fill"], np.nanmean(rooms), 1e-15)
    assert (facts["rooms"]["shift"], facts["rooms"]["divisor"]) == (
        np.nanmin(rooms),
        np.nanmax(rooms) - np.nanmin(rooms),
    )
    low, middle, high = np.percentile(np.log1p(floats(table["price"])), [25, 50, 75])
    np.testing.assert_allclose([facts["price"]["shift"], facts["price"]["divisor"]], [middle, high - low], 1e-13)
    assert facts["kind"]["names"] == sorted(set(table["kind"]))
    years = np.array([1970 if each is None else each.year for each in table["built"]], float)
    np.testing.assert_allclose(facts["built"]["parts"][0], [years.mean(), years.std()], 1e-13)
    row = data.take(np.arange(60))
    assert row["y"].tolist() == [facts["kind"]["names"].index(kind) for kind in table["kind"]]
    assert data.fitted.class_names("y") == ("farm", "flat", "house")


def test_only_training_rows_are_fitted(files: Any, opened: Any) -> None:
    table, paths = files
    columns = "area: {missing: mean}\nkind: {categories: index}\n"
    for path in paths:
        given = {"x": (f"{path}:area", "f64", ("B",)), "y": (f"{path}:kind", "i32", ("B",))}
        whole = opened(columns=columns, split=0.25, **given)
        kept, held = whole.parted(0.25)
        assert len(kept.index) == 45 and kept.fitted is held.fitted is whole.fitted
        area = floats(table["area"])[kept.index]
        np.testing.assert_allclose(whole.fitted.columns["area"].facts["fill"], np.nanmean(area), 1e-15)
        again = opened(fitted=whole.fitted, columns=columns, **given)
        assert again.fitted == whole.fitted  # given facts are applied, never fitted again
        assert again.take(np.arange(60))["x"].tobytes() == whole.take(np.arange(60))["x"].tobytes()


def test_a_gap_without_a_rule_is_a_bad_row_in_every_format(files: Any, opened: Any, refused: Any) -> None:
    table, paths = files
    gaps = [row for row, value in enumerate(table["rooms"]) if value is None]
    for path in paths:
        for columns in ("", "rooms: {scale: standard}"):
            given = {"x": (f"{path}:rooms", "f32", ("B",))}
            error = refused(lambda given=given, columns=columns: opened(columns=columns, **given))
            assert error.code == "R101" and f"record {gaps[0]} cannot be read" in error.message, path
            notes: list[str] = []
            data = opened(columns=columns, skip=len(gaps), notes=notes, **given)
            assert data.rows == 60 - len(gaps) and len(notes) == len(gaps)
            assert not set(gaps) & set(data.index.tolist())


@pytest.mark.slow
def test_an_unknown_category_is_a_bad_row_of_the_evaluation(tmp_path: Path, opened: Any) -> None:
    for name, write in WRITERS.items():
        for folder, values in (("a", ["x", "y"]), ("b", ["y", "z"])):
            (tmp_path / folder).mkdir(exist_ok=True)
            write(tmp_path / folder / name, {"area": [1.0, 2.0], "c": values})
        columns = "c: {categories: index}"
        fitted = opened(columns=columns, y=(f"{tmp_path}/a/{name}:c", "i32", ("B",))).fitted
        with pytest.raises(DataError, match=r"`c` is 'z', which is none of its 2 categories"):
            opened(columns=columns, fitted=fitted, y=(f"{tmp_path}/b/{name}:c", "i32", ("B",)))
        tolerant = opened(columns=columns, fitted=fitted, skip=1, y=(f"{tmp_path}/b/{name}:c", "i32", ("B",)))
        assert tolerant.take(np.array([0, 1]))["y"].tolist() == [1, 1]
        other = "c: {categories: index, unknown: other}"
        fitted = opened(columns=other, y=(f"{tmp_path}/a/{name}:c", "i32", ("B",))).fitted
        data = opened(columns=other, fitted=fitted, y=(f"{tmp_path}/b/{name}:c", "i32", ("B",)))
        assert data.take(np.array([0, 1]))["y"].tolist() == [1, 2] and fitted.class_names("y") == ("x", "y", "other")


def test_the_width_of_a_row_is_explained(files: Any, opened: Any, refused: Any) -> None:
    _, paths = files
    columns = "area: {missing: mean, missing_flag: true}\nkind: {categories: onehot}"
    error = refused(lambda: opened(columns=columns, x=(f"{paths[0]}:area,kind,price", "f32", ("B", 3))))
    assert (
        error.code == "R102" and "area 2 + kind 3 + price 1 = 6 values" in error.message and "size 6" in str(error.help)
    )


def test_columns_that_nothing_reads_and_names_in_two_files_are_refused(files: Any, opened: Any, refused: Any) -> None:
    _, paths = files
    error = refused(lambda: opened(columns="aera: {scale: minmax}", x=(f"{paths[0]}:price", "f32", ("B",))))
    assert error.code == "R104" and error.help and "did you mean" not in error.help
    error = refused(lambda: opened(columns="prise: {scale: minmax}", x=(f"{paths[0]}:price", "f32", ("B",))))
    assert "did you mean `price`" in str(error.help)
    two = {"x": (f"{paths[0]}:price", "f32", ("B",)), "z": (f"{paths[2]}:price", "f32", ("B",))}
    error = refused(lambda: opened(columns="price: {scale: minmax}", **two))
    assert error.code == "R104" and "t.csv and of t.tsv" in error.message


@pytest.mark.slow
def test_several_files_are_fitted_together(tmp_path: Path, opened: Any) -> None:
    for name, write in WRITERS.items():
        table = random_table(5, 30, 0.0)
        suffix = name.partition(".")[2]
        for part in range(3):
            some = {column: values[part * 10 : part * 10 + 10] for column, values in table.items()}
            write(tmp_path / f"{name}-{part}.{suffix}", some)
        write(tmp_path / name, table)
        given = {"columns": "area: {scale: standard}\ncity: {categories: index}"}
        whole, parts = (
            opened(x=(f"{path}:area,city", "f32", ("B", 2)), **given)
            for path in (tmp_path / name, tmp_path / f"{name}-*.{suffix}")
        )
        assert whole.fitted == parts.fitted
        rows = np.arange(30)[::-1]
        assert whole.take(rows)["x"].tobytes() == parts.take(rows)["x"].tobytes()


def test_doubles_that_are_rounded_are_reported(files: Any, opened: Any) -> None:
    _, paths = files
    for path in paths:
        notes: list[str] = []
        opened(notes=notes, x=(f"{path}:price", "f32", ("B",)))
        said = [note for note in notes if "is float64 and is rounded to float32" in note]
        assert len(said) == (path.suffix in (".parquet", ".arrow", ".feather", ".arrows")), path


def test_a_missing_column_is_found_before_the_build(files: Any, refused: Any) -> None:
    _, paths = files
    for path in paths:
        source = Source(path, "area,prise", f"{path}:area,prise")
        error = refused(lambda source=source: format_of(source).require(source))
        assert error.code == "R102" and "no column `prise`" in error.message and "`price`" in str(error.help)
        format_of(source).require(Source(path, "area..price", source.name))


@pytest.mark.parametrize(
    ("value", "dtype", "hint"),
    [
        ("'spam'", "f32", "categories: onehot"),
        ("'spam'", "i32", "categories: index"),
        ("None", "f32", "missing: median"),
        ("None", "i32", "missing: median"),
    ],
)
def test_a_column_that_is_not_described_says_how_to_describe_it(
    value: str, dtype: str, hint: str, tmp_path: Path, opened: Any
) -> None:
    bad = None if value == "None" else value.strip("'")
    for path in write_all(tmp_path, {"area": ["1", bad, "2"], "b": ["1", "2", "3"]}):
        with pytest.raises(DataError) as error:
            opened(x=(f"{path}:area", dtype, ("B",)))
        assert error.value.code == "R101" and f"`data.columns: {{area: {{{hint}}}}}` would" in error.value.message, path


@pytest.mark.parametrize("suffix", ["csv", "npy"])
def test_a_class_out_of_range_says_that_classes_count_from_zero(suffix: str, tmp_path: Path, opened: Any) -> None:
    (tmp_path / "t.csv").write_text("kind\n1\n2\n3\n")
    np.save(tmp_path / "t.npy", np.array([1, 2, 3]))
    with pytest.raises(DataError) as error:
        opened(x=(f"{tmp_path}/t.{suffix}{':kind' if suffix == 'csv' else ''}", "i32", ("B",), (0, 3)))
    assert error.value.code == "R103" and "number the classes from 0" in str(error.value.help)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_texts_may_be_views_and_other_columns_may_share_a_name(name: str, tmp_path: Path, opened: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    texts, other = pyarrow.array(["1", "2.5"], pyarrow.string_view()), pyarrow.array([3, 4])
    table = pyarrow.Table.from_arrays([other, other, texts], names=["z", "z", "x"])
    (parquet.write_table if name == "t.parquet" else feather.write_feather)(table, tmp_path / name)
    assert opened(x=(f"{tmp_path}/{name}:x", "f32", ("B",))).take(np.arange(2))["x"].tolist() == [1, 2.5]


def test_what_stands_for_a_gap_is_the_same_in_every_format(tmp_path: Path, opened: Any) -> None:
    columns = """
area: {missing: 7, missing_flag: true, missing_values: [-999, "n.a."]}
city: {categories: onehot, missing: mode, missing_values: ["?", Unknown, 0]}
built: {date: year, missing: "1970-01-01", missing_values: "9999-12-31"}
"""
    table = {
        "area": [1.5, -999.0, None, 4.0, -99.0],
        "city": ["Ulm", "?", "Unknown", "Bonn", "Ulm"],
        "built": [date(2001, 1, 1), date(9999, 12, 31), None, date(1999, 12, 31), date(2000, 2, 2)],
    }
    wanted = np.array([[1.5, 0], [7, 1], [7, 1], [4, 0], [-99, 0]])
    for path in write_all(tmp_path, table):
        data = opened(columns=columns, x=(f"{path}:area,city,built", "f32", ("B", 5)))
        found = data.take(np.arange(5))["x"]
        assert np.array_equal(found[:, :2], wanted), path
        assert data.fitted.columns["city"].facts["names"] == ["Bonn", "Ulm"]
        assert found[:, 2:4].tolist() == [[0, 1], [0, 1], [0, 1], [1, 0], [0, 1]]
        assert found[:, 4].tolist() == [2001, 1970, 1970, 1999, 2000], path
        again = Fitted.of_notes(data.fitted.notes(), "x")
        assert again == data.fitted


def test_no_gap_is_named_where_the_option_is_absent(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("area\n1\n-\n")
    assert (
        "'-' is not a number; if it stands for a gap: `data.columns: {area: {missing_values: [...]}}`"
        in refused(lambda: opened(columns="area: {missing: mean}", x=(f"{tmp_path}/t.csv:area", "f32", ("B",)))).message
    )
    data = opened(columns='area: {missing: mean, missing_values: ["-"]}', x=(f"{tmp_path}/t.csv:area", "f32", ("B",)))
    assert data.take(np.arange(2))["x"].tolist() == [1, 1]


def test_whole_floats_are_the_same_integers_in_every_format(tmp_path: Path, opened: Any) -> None:
    table = {"k": [3.0, 0.0, 400.0, 2.0**53 - 1]}
    for path in write_all(tmp_path, table):
        data = opened(k=(f"{path}:k", "i64", ("B",)))
        assert data.take(np.arange(4))["k"].tolist() == [3, 0, 400, 2**53 - 1], path.name


@pytest.mark.parametrize("value", [0.5, 2.0**53, 1e300])
def test_floats_that_may_stand_for_several_integers_are_refused(
    tmp_path: Path, opened: Any, refused: Any, value: float
) -> None:
    for path in write_all(tmp_path, {"k": [1.0, value]}):
        if path.suffix in (".csv", ".tsv") and value == 2.0**53:
            continue  # a text is exact
        error = refused(lambda path=path: opened(k=(f"{path}:k", "i64", ("B",))))
        assert error.code == "R101" and "record 1" in error.message, path.name


def test_a_list_where_a_value_belongs_is_told(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.jsonl").write_text('{"x": ["a", "b"]}\n')
    paths = [tmp_path / "t.jsonl"]
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        pass
    else:
        parquet.write_table(pa.table({"x": pa.array([["a", "b"]])}), tmp_path / "t.parquet")
        paths.append(tmp_path / "t.parquet")
    for path in paths:
        error = refused(lambda path=path: opened(x=(f"{path}:x", "f32", ("B", 2))))
        assert "list" in error.message and "for each element of a list" in error.help, error.render()


def test_a_date_in_a_described_column_of_numbers_is_no_gap(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n2024-02-29\n")
    error = refused(lambda: opened(x=(f"{tmp_path}/t.csv:x", "f32", ("B",)), columns="x: {missing: 0}"))
    assert "the date '2024-02-29' is not a number" in error.message and "missing_values" not in error.message


def test_more_classes_than_the_model_has_are_counted(tmp_path: Path, opened: Any, refused: Any) -> None:
    (tmp_path / "t.csv").write_text("k\n" + "".join(f"{name}\n" for name in "wxyz"))
    label = {"k": (f"{tmp_path}/t.csv:k", "i32", ("B",), (0, 3))}
    error = refused(lambda: opened(**label, columns="k: {categories: index}"))
    assert error.code == "R103" and "it names 4 classes, more than the 3 of the model: `w`, `x`" in error.message


def test_rounding_is_told_once_if_columns_are_fitted(tmp_path: Path, opened: Any) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pa.parquet.write_table(pa.table({"x": [1.5, 2.5], "k": ["a", "b"]}), tmp_path / "t.parquet")
    notes: list[str] = []
    inputs = {"x": (f"{tmp_path}/t.parquet:x", "f32", ("B",)), "k": (f"{tmp_path}/t.parquet:k", "i32", ("B",), (0, 2))}
    opened(**inputs, columns="k: {categories: index}", notes=notes)
    assert len([line for line in notes if "is rounded" in line]) == 1, notes


@pytest.mark.parametrize(
    ("name", "content", "says", "help"),
    [
        ("t.jsonl:x", b"", "the file is empty", "one JSON object per line"),
        ("t.jsonl:x", '{"x": 1}\n'.encode("utf-16"), "it is UTF-16, not UTF-8", "iconv -f UTF-16 -t UTF-8"),
        ("t.npy", b"", "the file is empty", "numpy.save"),
        ("t.npy", np.zeros(2, [("a", "i4"), ("b", "f8")]), "records of several fields", "each field as an array"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_why(
    name: str, content: Any, says: str, help: str, tmp_path: Path, opened: Any, refused: Any
) -> None:
    path = tmp_path / name.partition(":")[0]
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    error = refused(lambda: opened(x=(str(tmp_path / name), "f32", ("B",))))
    assert says in error.message and help in error.help, error.render()
