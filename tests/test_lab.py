"""The room of experiments: addresses of before it, and what its two kinds of specs share."""

import importlib
import sys

import pytest

from persfl.errors import InputError
from persfl.lab import (
    agreement,
    comparison_cells,
    comparison_sets,
    figure_runs,
    figure_specs,
    spec_files,
    standings,
    trial,
)
from persfl.lab.spec_files import read_spec, typed_values

# What docs/api and the guides named before `persfl.lab`, and where it is now.
ADDRESSES = [
    ("persfl.comparing", "compare", trial.compare),
    ("persfl.comparing", "summary", trial.summary),
    ("persfl.comparing.trial", "compare", trial.compare),
    ("persfl.comparing.trial", "summary", trial.summary),
    ("persfl.comparing.sets", "DataSet", comparison_sets.DataSet),
    ("persfl.comparing.sets", "Table", comparison_sets.Table),
    ("persfl.comparing.cells", "Cell", comparison_cells.Cell),
    ("persfl.comparing.cells", "run_cells", comparison_cells.run_cells),
    ("persfl.comparing.cells", "measured", comparison_cells.measurements),
    ("persfl.comparing.standings", "Standing", standings.Standing),
    ("persfl.comparing.standings", "standings", standings.standings),
    ("persfl.comparing.standings", "mean_regret", standings.mean_regret),
    ("persfl.experiments", "load_spec", figure_specs.load_spec),
    ("persfl.experiments", "run_spec", figure_runs.run_spec),
    ("persfl.experiments", "spec_names", spec_files.spec_names),
    ("persfl.experiments", "Settings", figure_specs.Settings),
    ("persfl.experiments", "Series", figure_specs.Series),
    ("persfl.experiments", "Spec", figure_specs.Spec),
    ("persfl.experiments", "Result", figure_runs.Result),
    ("persfl.experiments.agreement", "verdicts", agreement.verdicts),
]


@pytest.mark.parametrize(("module", "name", "now"), ADDRESSES)
def test_documented_addresses_keep_working(module, name, now):
    assert getattr(importlib.import_module(module), name) is now


def test_a_module_that_is_no_file_is_found_first_of_all(monkeypatch):
    """In a process that has not imported its package yet, and as an attribute of the package."""
    for name in [name for name in sys.modules if name.startswith("persfl.comparing")]:
        monkeypatch.delitem(sys.modules, name)
    cells = importlib.import_module("persfl.comparing.cells")
    assert sys.modules["persfl.comparing"].cells is cells
    assert cells.Cell is comparison_cells.Cell


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"few": True}, "few must be of type int. Got True."),
        ({"few": 2.5}, "few must be of type int. Got 2.5."),
        ({"cost": False}, "cost must be of type float. Got False."),
        ({"cost": "1"}, "cost must be of type float. Got '1'."),
        ({"features": "a"}, r"features must be of type tuple\[str, ...\]. Got 'a'."),
        (
            {"features": ["a", 1]},
            r"features must be of type tuple\[str, ...\]. Got \['a', 1\].",
        ),
        ({"squares": 1}, "squares must be of type bool. Got 1."),
        ({"fw": 1}, "unknown key 'fw'. Known: few, cost, features, squares."),
    ],
)
def test_a_value_of_another_type_gets_a_sentence(value, sentence):
    known = ["few", "cost", "features", "squares"]
    with pytest.raises(InputError, match=f"mine: {sentence}"):
        typed_values("mine", value, comparison_sets.DataSet, known)


def test_numbers_and_lists_become_what_fields_hold():
    values = {"few": 3, "cost": 2, "features": ["a"], "squares": True}
    found = typed_values("mine", values, comparison_sets.DataSet, list(values))
    assert found == {"few": 3, "cost": 2.0, "features": ("a",), "squares": True}
    assert type(found["cost"]) is float


def test_text_that_is_not_toml_gets_a_sentence(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(InputError, match="'mine.toml' is not valid TOML"):
        read_spec(tmp_path / "mine.toml")


def test_every_spec_reads_back_as_it_was_written(tmp_path):
    for name in [*spec_files.spec_names(), *spec_files.spec_names("networks")]:
        spec = figure_specs.load_spec(name)
        for text in (spec.text, spec.brief):
            path = tmp_path / f"{spec.name}.toml"
            path.write_text(text, encoding="utf-8")
            assert figure_specs.load_spec(path) == spec
