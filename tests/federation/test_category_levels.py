"""Texts in a federation's tables: their levels are declared, and all encode alike."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from federated import plan

from persfl.cli import main
from persfl.errors import InputError
from persfl.federation.category_levels import encoded, levels_from
from persfl.federation.conduct import conduct
from persfl.federation.federation_folder import init, opened, read_node
from persfl.federation.local_grid import LocalGrid
from persfl.federation.node_folder import device_of, node_privacy, use_table
from persfl.federation.row_table import RowTable
from persfl.runs import load_model

WARDS = {"ward": ("surgery", "maternity", 'heart "3"')}
NAMES = ["ann", "bob", "eve"]


def rows(seed):
    """The ward decides of the label, by as much at every device."""
    rng = np.random.default_rng(seed)
    ward = rng.choice(WARDS["ward"], size=40)
    level = pd.Series(ward).map({"surgery": 0.0, "maternity": 5.0}).fillna(10.0)
    age = rng.normal(size=40)
    noise = 0.1 * rng.normal(size=40)
    return pd.DataFrame({"ward": ward, "age": age, "y": level + age + noise})


@pytest.fixture
def fed(tmp_path):
    return init(tmp_path / "fed", NAMES, categories=WARDS)


def started(fed, tmp_path, name, table):
    path = tmp_path / f"{name}.csv"
    table.to_csv(path, index=False)
    use_table(fed.path / name, path, label="y", drop=[], weight=None)
    return device_of(fed.path / name)


def test_levels_are_declared_once_and_handed_to_every_node(fed):
    assert opened(fed.path).categories == WARDS
    assert all(read_node(fed.path / name).categories == WARDS for name in NAMES)


def test_the_command_line_declares_levels(tmp_path):
    words = ["federation", "init", str(tmp_path / "new"), "--nodes", "2"]
    assert (
        main([*words, "--categories", "sex=f,m", "--categories", "smoker=no,yes"]) == 0
    )
    found = opened(tmp_path / "new").categories
    assert found == {"sex": ("f", "m"), "smoker": ("no", "yes")}


@pytest.mark.parametrize(
    "told", [[], {"ward": []}, {"ward": ["a"]}, {"ward": ["a", "a"]}, {"w": [1, 2]}, 7]
)
def test_what_are_no_levels_is_said(told):
    if told == []:
        assert levels_from({}, "node.toml") == {}
        return
    with pytest.raises(InputError, match="categories|levels"):
        levels_from(told, "node.toml")


def test_a_run_from_texts_to_predictions_here_and_at_home(fed, tmp_path):
    devices = {
        name: started(fed, tmp_path, name, rows(k)[["age", "y", "ward"]])
        for k, name in enumerate(NAMES)
    }
    out = tmp_path / "run"
    told = {"method": "blend", "categories": fed.categories}
    conduct(LocalGrid(devices), plan(out, devices, **told))
    model = load_model(out)
    new = rows(9).assign(device="bob")
    found = model.predict(new[["age", "ward"]], devices=new["device"])
    assert np.abs(found - new["y"]).mean() < 0.5
    new.to_csv(tmp_path / "new.csv", index=False)
    at_home = tmp_path / "home.csv"
    words = ["predict", str(fed.path / "bob"), str(tmp_path / "new.csv")]
    assert main([*words, "--only", "--out", str(at_home)]) == 0
    told = pd.read_csv(at_home)["prediction"]
    np.testing.assert_allclose(told, found, rtol=1e-9)
    words = ["predict", str(out), str(tmp_path / "new.csv"), "--out"]
    assert main([*words, str(tmp_path / "here.csv")]) == 0
    here = pd.read_csv(tmp_path / "here.csv")["prediction"]
    np.testing.assert_allclose(here, found, rtol=1e-9)


def test_a_level_that_nobody_declared_stops_the_node_with_its_name(fed, tmp_path):
    table = rows(0)
    table.loc[3, "ward"] = "kitchen"
    with pytest.raises(InputError, match="'kitchen', which .categories. in node.toml"):
        started(fed, tmp_path, "ann", table)


def test_a_device_with_other_levels_is_named(fed, tmp_path):
    other = init(tmp_path / "other", NAMES, categories={"ward": ("surgery", "heart")})
    devices = {name: started(fed, tmp_path, name, rows(1)) for name in NAMES[:2]}
    few = rows(2).assign(ward="surgery")
    devices["eve"] = started(other, tmp_path, "eve", few)
    told = {"method": "blend", "categories": fed.categories}
    conduct(LocalGrid(devices), plan(tmp_path / "run", devices, **told))
    assert "device 'eve' differs in" in load_model(tmp_path / "run").notes_[-1]
    del devices["ann"]
    asked = plan(tmp_path / "two", devices, **told)
    with pytest.raises(InputError, match="device 'eve' differs in"):
        conduct(LocalGrid(devices), asked)


def test_whole_numbers_may_be_levels_and_labels_are_left_alone(tmp_path):
    frame = pd.DataFrame({"kind": [1, 2, 1], "y": [1, 0, 1], "x": [0.5, 1.5, 2.5]})
    found = encoded(frame, {"kind": ("1", "2")}, "rows.csv")
    assert found["kind=1"].tolist() == [1.0, 0.0, 1.0]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    table = RowTable(data=str(tmp_path / "rows.csv"), label="y")
    assert table.read({"y": ("0", "1")}).data.y.tolist() == [1.0, 0.0, 1.0]


def test_what_is_0_or_1_needs_no_range(fed):
    path = fed.path / "ann" / "node.toml"
    path.write_text(path.read_text() + "\n[privacy]\nepsilon = 3.0\nlabel = [0, 20]\n")
    columns = ["age", "ward=surgery", "ward=maternity"]
    assert node_privacy(fed.path / "ann").lacking(columns) == ["age"]
