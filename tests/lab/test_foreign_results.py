"""Experiments in folders that somebody else made, and over files that are somebody's own."""

import json
import re

import numpy as np
import pytest

from persfl.cli import main
from persfl.errors import InputError
from persfl.lab.comparison_cells import Cell
from persfl.lab.comparison_sets import DataSet
from persfl.lab.figure_files import results_folder
from persfl.lab.figure_runs import run_spec
from persfl.lab.figure_specs import load_spec
from persfl.lab.kept_cells import read_cells, run_cells
from persfl.lab.spec_files import SPECS
from persfl.runs import Folder

SHORT = ("--runs", "1", "--rounds", "3", "--jobs", "1")


def spec_at(path):
    path.write_text((SPECS / "fig5.toml").read_text())
    return str(path)


def test_nothing_of_an_earlier_figure_becomes_markup_or_leads_elsewhere(tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"private")
    earlier = tmp_path / "out" / "earlier"
    earlier.mkdir(parents=True)
    (earlier / "figure.png").symlink_to(secret)
    script = "<script>alert(1)</script>"
    told = {"seed": script, "runs": script, "verdicts": {script: [script]}}
    (earlier / "run.json").write_text(json.dumps(told))
    Folder.create(tmp_path / "out" / "fitted", {})  # whose run.json is of another kind
    assert main(["reproduce", "fig5", *SHORT, "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "reproduction.html").read_text()
    assert "alert(1)" in page
    assert "<script" not in page
    assert "cHJpdmF0ZQ" not in page  # "private" in base 64
    assert "fitted" not in page
    policy = re.search('Content-Security-Policy content="([^"]*)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]


@pytest.mark.parametrize("name", ["curves.csv", "run.json", "runs"])
def test_results_are_written_through_no_link(tmp_path, capsys, name):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "out" / "fig5").mkdir(parents=True)
    (tmp_path / "out" / "fig5" / name).symlink_to(mine)
    assert (
        main(["reproduce", "fig5", *SHORT, "--numbers", "--out", str(tmp_path / "out")])
        == 2
    )
    assert "is a link" in capsys.readouterr().err
    assert mine.read_text() == "mine"


def test_a_linked_folder_of_results_is_refused(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "fig5").symlink_to(tmp_path / "mine")
    assert (
        main(["reproduce", "fig5", *SHORT, "--numbers", "--out", str(tmp_path / "out")])
        == 2
    )
    assert "is a link" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_results_do_not_overwrite_a_run(tmp_path, capsys):
    folder = Folder.create(tmp_path / "fig5", {})
    folder.close()
    assert main(["reproduce", "fig5", *SHORT, "--numbers", "--out", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert Folder.open(tmp_path / "fig5").spec == {}


@pytest.mark.parametrize("name", ["spec.toml", "summary.csv", "figure.png", "page.md"])
def test_results_overwrite_no_file_that_a_person_made(tmp_path, capsys, name):
    mine = tmp_path / "fig5" / name
    mine.parent.mkdir()
    mine.write_text("precious")
    assert main(["reproduce", "fig5", *SHORT, "--numbers", "--out", str(tmp_path)]) == 2
    assert f"holds something else, {name!r}" in capsys.readouterr().err
    with pytest.raises(InputError, match="something else"):
        run_spec(load_spec("fig5").rounds(3), runs=1, out=tmp_path)
    assert mine.read_text() == "precious"
    assert list(mine.parent.iterdir()) == [mine]


def test_a_comparison_overwrites_no_file_that_a_person_made(tmp_path, capsys):
    spec = tmp_path / "mine.toml"
    spec.write_text('methods = ["own"]\n[[set]]\nname = "txhousing"\nfew = 5\n')
    page = tmp_path / "mine" / "page.md"
    page.parent.mkdir()
    page.write_text("precious")
    words = ["run", str(spec), "--numbers", "--quick", "--jobs", "1"]
    assert main([*words, "--out", str(tmp_path)]) == 2
    assert "'page.md', which results" in capsys.readouterr().err
    assert page.read_text() == "precious"
    # as a comparison leaves it that was cut before it had written its page
    (page.parent / "results.json").write_text(json.dumps({"cells": []}))
    assert results_folder(tmp_path, "mine") == page.parent


def test_a_figure_that_was_cut_goes_on_in_its_folder(tmp_path):
    run_spec(load_spec("fig5").rounds(3), runs=1, out=tmp_path)
    (tmp_path / "fig5" / "curves.csv").write_text("half")
    assert main(["reproduce", "fig5", *SHORT, "--numbers", "--out", str(tmp_path)]) == 0


def test_a_page_of_another_kind_is_not_overwritten(tmp_path, capsys):
    page = tmp_path / "reproduction.html"
    page.write_text("precious")
    assert main(["reproduce", "fig5", *SHORT, "--out", str(tmp_path)]) == 2
    assert "was not made by persfl" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [page]
    assert page.read_text() == "precious"


@pytest.mark.parametrize("name", ["..toml", "...toml"])
def test_a_specs_name_leads_nowhere_else(tmp_path, capsys, name):
    spec = spec_at(tmp_path / name)
    assert main(["run", spec, *SHORT, "--numbers", "--out", str(tmp_path / "out")]) == 2
    assert "must have a name" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_tuning_overwrites_no_spec_that_a_person_wrote(tmp_path, capsys):
    text = load_spec("fig5").brief.replace(
        "[[series]]", "[[series]]\ngrid = {step_size = [0.01, 0.02]}", 1
    )
    (tmp_path / "mine.toml").write_text(text)
    words = ["tune", str(tmp_path / "mine.toml"), *SHORT]
    assert main([*words, "--out", str(tmp_path)]) == 2
    assert "is the spec itself" in capsys.readouterr().err
    assert (tmp_path / "mine.toml").read_text() == text
    (tmp_path / "out").mkdir()
    spec_at(tmp_path / "out" / "mine.toml")
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "no result of persfl tune" in capsys.readouterr().err
    for _ in range(2):  # a second time over what the first left
        assert main([*words, "--out", str(tmp_path / "tuned")]) == 0
    assert load_spec(tmp_path / "tuned" / "mine.toml").tuned


def test_deep_specs_are_a_sentence(tmp_path):
    (tmp_path / "deep.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(InputError, match="not valid TOML"):
        load_spec(tmp_path / "deep.toml")


def test_other_rows_in_a_file_are_other_results(tmp_path):
    draw = np.random.default_rng(0)
    data = DataSet(name="mine", few=6, file="rows.npz", folder=str(tmp_path))
    found = []
    for _ in range(2):
        rows = {"X": draw.normal(size=(60, 2)), "y": draw.normal(size=60)}
        np.savez(tmp_path / "rows.npz", **rows, group=np.arange(60) % 4)
        cells = [Cell(data, 0, ("own", "pooled"))]
        found += [
            run_cells(cells, path=tmp_path / "results.json")[0]["errors"]
            for _ in range(2)
        ]
    assert found[0] == found[1] != found[2] == found[3]


@pytest.mark.parametrize(
    "content",
    ['{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"cells": [7]}'],
)
def test_kept_results_of_another_form_are_a_sentence(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"results\.json"):
        read_cells(path)
