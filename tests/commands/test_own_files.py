"""Commands over files that are somebody's own, or another command's: these stay as they are."""

import errno
import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from persfl import runs
from persfl.cli import main
from persfl.commands import housing_demo
from persfl.runs import Folder

WORDS = [
    "--device",
    "who",
    "--label",
    "y",
    "--method",
    "paper",
    "--rounds",
    "2",
    "--no-report",
]
FACTS = {
    "algorithm": 1, "home": [], "sums": True, "holdout": 0, "rounds": 1, "messages": 1,
    "model": "linear", "deadline": 1, "quorum": 1, "growth": 1, "reach": 1, "notes": [],
    "devices": ["a"], "targets": ["a"], "ways": {"asked": "what"}, "rows": {"a": 1},
    "counts": [{"device": "a", "asked": 1}],
}  # fmt: skip


def fit(place, *more):
    out = str(place / "run")
    return main(["fit", str(place / "rows.csv"), *WORDS, "--out", out, *more])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A table and a run of it, for tests to copy."""
    place = tmp_path_factory.mktemp("fitted")
    draw = np.random.default_rng(0).normal(size=(24, 2))
    rows = pd.DataFrame(draw, columns=["x", "y"]).assign(who=["a", "b", "c"] * 8)
    rows.to_csv(place / "rows.csv", index=False)
    assert fit(place) == 0
    return place


@pytest.fixture
def place(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "place")


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_demo_replaces_only_a_demo(place, tmp_path, monkeypatch, capsys):
    before = content(place)
    assert main(["demo", "--out", str(place)]) == 2
    assert "was not made by a demo" in capsys.readouterr().err
    assert content(place) == before
    monkeypatch.setattr(
        housing_demo, "fit_table", lambda _: 0
    )  # the table is written, then the run begins
    out = tmp_path / "demo"
    for _ in range(2):
        assert main(["demo", "--out", str(out)]) == 0
    shutil.copytree(place / "run", out / "run")
    assert main(["demo", "--out", str(out)]) == 2  # its table is there, but not its run
    shutil.rmtree(out / "run")
    (out / "housing.csv").write_text("mine")
    assert main(["demo", "--out", str(out)]) == 2
    assert (out / "housing.csv").read_text() == "mine"


def test_a_demo_writes_through_no_link(place, tmp_path, capsys):
    (place / "housing.csv").symlink_to(place / "rows.csv")
    before = content(place)
    assert main(["demo", "--out", str(place)]) == 2
    assert "is a link" in capsys.readouterr().err
    assert content(place) == before


def test_only_runs_that_were_set_aside_before_are_removed(place, monkeypatch):
    later = place / ".run.replaced-2"
    keep = runs.keep_model

    def kept(folder, model):
        keep(folder, model)  # now another command may begin to replace this run
        shutil.copytree(place / "run", later)

    monkeypatch.setattr("persfl.commands.table_fit.keep_model", kept)
    assert fit(place, "--force") == 0
    assert not (place / ".run.replaced").exists()
    assert Folder.open(later).finished


@pytest.mark.parametrize("name", [".", "../run"])
def test_the_run_one_stands_in_can_be_replaced(place, monkeypatch, name):
    monkeypatch.chdir(place / "run")
    words = ["fit", str(place / "rows.csv"), *WORDS, "--out", name]
    assert main([*words, "--force", "--seed", "1"]) == 0
    assert Folder.open(place / "run").spec["seed"] == 1


def test_predictions_are_not_written_over_their_run(place, capsys):
    before = content(place)
    (name,) = [path for path in before if path.name.startswith("final-")][:1]
    words = ["predict", str(place / "run"), str(place / "rows.csv")]
    assert main([*words, "--out", str(name)]) == 2
    assert "a file of the run itself" in capsys.readouterr().err
    assert content(place) == before
    assert main([*words, "--out", str(place / "new.csv")]) == 0


def test_a_page_that_nobody_named_is_not_overwritten(place, capsys):
    folder = Folder.open(place / "run", lock=True)
    folder.write("federation.json", json.dumps(FACTS).encode())
    folder.commit()
    folder.close()
    (place / "federation.html").write_text("<h1>mine</h1>")
    words = ["report", str(place / "run"), "--out"]
    assert main([*words, str(place / "page.html")]) == 2
    assert "was not made by persfl" in capsys.readouterr().err
    assert (place / "federation.html").read_text() == "<h1>mine</h1>"
    (place / "pages").mkdir()
    for _ in range(2):
        assert main([*words, str(place / "pages" / "page.html")]) == 0


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["predict", "run", "rows.csv", "--out"], "told.csv"),
        (["predict", "run", "rows.csv", "--out"], "told.parquet"),
        (["helpers", "run", "--export"], "told.csv"),
        (["helpers", "run", "--export"], "told.graphml"),
        (["compare", "rows.csv", *WORDS[:-1], "--out"], "told.csv"),
    ],
)
def test_a_full_disk_leaves_the_file_that_was_there(
    place, monkeypatch, capsys, words, name
):
    monkeypatch.chdir(place)
    (place / name).write_text("of yesterday")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main([*words, name]) == 2
    assert f"No space left on device: '{name}'. Free some" in capsys.readouterr().err
    assert (place / name).read_text() == "of yesterday"
    assert not (place / f"{name}.persfl-part").exists()
    assert main([*words, name]) == 0
    assert (place / name).read_bytes()[:12] != b"of yesterday"


def test_a_file_of_a_person_beside_one_that_is_written_stays(place, monkeypatch):
    monkeypatch.chdir(place)
    mine = place / "told.csv.part"
    mine.write_text("mine")
    assert main(["helpers", "run", "--export", "told.csv"]) == 0
    assert mine.read_text() == "mine"
