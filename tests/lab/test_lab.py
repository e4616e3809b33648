"""The room of experiments: addresses of before it, and what its two kinds of specs share."""

import sys
from pathlib import Path

import pytest

from persfl import comparing, experiments
from persfl.errors import InputError
from persfl.lab import comparison_sets, figure_specs, jobs, spec_files
from persfl.lab.figure_runs import pieces
from persfl.lab.spec_files import read_spec, typed_values


@pytest.mark.parametrize("old", [comparing, experiments])
def test_the_addresses_before_the_lab_keep_working(old):
    for name in old.__all__:
        there = sys.modules[vars(old)[name].__module__]
        assert there.__name__.startswith("persfl.lab.")
        assert vars(there)[name] is vars(old)[name]


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


def test_no_more_processes_are_started_than_have_work(monkeypatch):
    started = []

    def parallel(n_jobs, return_as):
        started.append(n_jobs)
        return lambda work: [None for _ in work]

    monkeypatch.setattr(jobs, "Parallel", parallel)
    spec = figure_specs.load_spec("fig2a").quick()
    todo = pieces(spec, runs=2, seed=0, out=Path("nowhere"))
    assert len(list(jobs.finished_jobs(todo, jobs=10**30))) == len(todo)
    assert started == [len(todo)]
