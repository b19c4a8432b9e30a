"""The matrix of a table against scikit-learn's pipeline, if scikit-learn and pandas are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.written import random_table, write_all

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")

COLUMNS = """
area: {missing: median, missing_flag: true, scale: standard}
rooms: {missing: mean, scale: minmax}
price: {missing: 5, scale: robust}
city: {categories: onehot, missing: mode}
kind: {categories: onehot}
"""


def pipeline(frame: Any) -> np.ndarray:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

    mode = SimpleImputer(strategy="most_frequent", missing_values=None)
    transformer = ColumnTransformer(
        [
            ("area", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), ["area"]),
            ("rooms", make_pipeline(SimpleImputer(strategy="mean"), MinMaxScaler()), ["rooms"]),
            ("price", make_pipeline(SimpleImputer(strategy="constant", fill_value=5.0), RobustScaler()), ["price"]),
            ("city", make_pipeline(mode, OneHotEncoder(sparse_output=False)), ["city"]),
            ("kind", OneHotEncoder(sparse_output=False), ["kind"]),
        ]
    )
    return np.asarray(transformer.fit_transform(frame))


@pytest.mark.parametrize("seed", range(5))
def test_the_matrix_is_that_of_a_column_transformer(tmp_path: Path, opened: Any, seed: int) -> None:
    table = random_table(seed, 200)
    table["price"] = [None if i % 7 == 3 else value for i, value in enumerate(table["price"])]
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in table.items()})
    for name in ("area", "rooms", "price"):
        frame[name] = frame[name].astype(float)
    theirs = pipeline(frame)
    flags = frame["area"].isna().to_numpy(float)
    theirs = np.concatenate([theirs[:, :1], flags[:, None], theirs[:, 1:]], 1)
    for path in write_all(tmp_path, table):
        data = opened(columns=COLUMNS, x=(f"{path}:area,rooms,price,city,kind", "f64", ("B", theirs.shape[1])))
        np.testing.assert_allclose(data.take(np.arange(200))["x"], theirs, rtol=0, atol=1e-6)
