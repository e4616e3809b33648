"""`PersonalizedRegressor().fit(ParquetDataset(...))`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.errors import InputError, UnseenWarning
from persfl.methods import Blend
from persfl.scale import ModelTable, ParquetDataset
from persfl.scale.executor import InThisProcess
from persfl.sources import clustered_regression

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def table():
    made = clustered_regression(n=40, clusters=2, rows=8, features=2, noise=0.3, seed=4)
    frame = pd.DataFrame(made.X, columns=["a", "b"])
    return frame.assign(kwh=made.y, meter=made.owner)


@pytest.fixture
def rows(table, tmp_path):
    (tmp_path / "meters").mkdir()
    table.to_parquet(tmp_path / "meters" / "x.parquet", index=False)
    return ParquetDataset(tmp_path / "meters", device="meter", label="kwh")


def made(**more: object) -> PersonalizedRegressor:
    method = Blend(trees=False)
    return PersonalizedRegressor(method=method, holdout=0, random_state=0, **more)


def test_a_dataset_predicts_as_a_table_does(table, rows, tmp_path):
    X = table[["a", "b"]]
    one = made().fit(X, table["kwh"], devices=table["meter"])
    model = made().fit(rows, engine=InThisProcess(), out=tmp_path / "run")
    wanted = one.predict(X, devices=table["meter"])
    found = model.predict(X, devices=table["meter"])
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict(table), wanted, rtol=1e-9, atol=1e-12)
    with pytest.warns(UnseenWarning, match=r"1 rows .*\(99\)"):
        assert np.isfinite(model.predict(X[:2], devices=[0, 99])).all()
    assert model.table_.model("7")["rows"] == 8
    # as docs/scale.md has it for Spark
    weights = ModelTable.open(tmp_path / "run").weights
    ids = pa.array(table["meter"]).cast(weights.ids.type)
    place = weights.places(pa.chunked_array([ids]))
    np.testing.assert_array_equal(weights.predict(X.to_numpy(), place), found)
    model.fit(X, table["kwh"], devices=table["meter"])
    assert "table_" not in vars(model)


def test_what_a_dataset_cannot_do_is_said(table, rows, tmp_path):
    with pytest.raises(InputError, match="out='run'"):
        made().fit(rows)
    with pytest.raises(InputError, match="impute is for tables"):
        made(impute=True).fit(rows, out=tmp_path / "run")
    with pytest.raises(InputError, match="units='centred' is for tables"):
        made(units="centred").fit(rows, out=tmp_path / "run")
    with pytest.raises(InputError, match="requires y to be passed"):
        made().fit(table[["a"]])
    with pytest.raises(TypeError, match="y"):
        PersonalizedClassifier().fit(rows)
    model = made().fit(rows, out=tmp_path / "run")
    with pytest.raises(InputError, match="whose rows"):
        model.predict(table[["a", "b"]])
    with pytest.raises(InputError, match="2 columns"):
        model.predict(np.ones((1, 3)), devices=[0])
    with pytest.raises(InputError, match="missing or infinite"):
        model.predict(np.full((1, 2), np.nan), devices=[0])
