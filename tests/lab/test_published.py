"""Our methods by other people's protocols: files as they are published, pages, refusals."""

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from persfl.cli import main
from persfl.errors import InputError
from persfl.lab.published_page import best_of, published_page, split_means
from persfl.lab.published_runs import Scored, load_published, run_set, there
from persfl.lab.published_sets import fmi, har, heart, school

ROOT = Path(__file__).parents[2]
SETS = {one.name: one for one in load_published("published")[2]}


@pytest.fixture
def hospitals(tmp_path):
    """A table in the form of the published one: 4 hospitals whose levels differ."""
    rng = np.random.default_rng(0)
    many = 160
    X = rng.normal(size=(many, 3))
    who = np.repeat(["a", "b", "c", "d"], many // 4)
    level = np.repeat([-1.0, 0.0, 1.0, 2.0], many // 4)
    ill = (X[:, 0] + level + 0.5 * rng.normal(size=many) > 0).astype(int)
    frame = pd.DataFrame(X, columns=["age", "chol", "thalach"])
    frame.insert(0, "split", np.where(np.arange(many) % 3 == 0, "test", "train"))
    frame.insert(0, "hospital", who)
    frame.assign(disease=ill, num=ill).to_csv(tmp_path / "heart.csv", index=False)
    return tmp_path


def test_a_run_leaves_a_page_a_figure_and_what_it_did(hospitals, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["run", "published", "--data", str(hospitals), "--out", str(out), "--quick"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "Pooled Training .7353" in shown
    assert "left out: fmi, school, har, femnist" in shown
    page = (out / "published" / "page.md").read_text()
    assert "## Heart disease in 4 hospitals" in page
    assert ".7353 is no upper bound" in page
    assert (out / "published" / "figure.png").stat().st_size > 1e4
    kept = json.loads((out / "published" / "results.json").read_text())
    assert set(kept["sets"]) == {"heart"}
    kept["sets"]["heart"][0]["value"] = 0.123456
    (out / "published" / "results.json").write_text(json.dumps(kept))
    assert main([*words, "--numbers"]) == 0  # nothing is done twice
    assert ".1235" in (out / "published" / "page.md").read_text()


def test_a_score_is_that_of_the_protocol(hospitals):
    dealt = heart(hospitals / "heart.csv")["FLamby's split"]
    assert (len(dealt.learn), dealt.classes) == (4, 2)
    found = run_set(SETS["heart"], hospitals, seed=0, quick=True)
    assert {one.method for one in found} == {"own", "pooled", "dummies"}
    assert all(0.5 < one.value <= 1 for one in found)
    assert split_means(SETS["heart"], found)["dummies"]["FLamby's split"] >= 0.7


def test_splits_that_are_dealt_alike_are_averaged_and_less_may_be_better():
    one = SETS["school"]
    scored = [
        Scored("school", name, f"split {k}", value + k, "shared", 2, 0.1)
        for name, value in (("own", 3.0), ("mixed", 1.0))
        for k in range(2)
    ]
    assert split_means(one, scored) == {"mixed": {"mean": 1.5}, "own": {"mean": 3.5}}
    assert best_of(one, scored) == ("mixed", 1.5)
    assert "| mixed | 1.5000 | shared | 2 |" in published_page("", "", [one], scored)


def test_results_go_into_the_page(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    script = importlib.import_module("draw_published")
    monkeypatch.setattr(script, "HERE", tmp_path)
    (tmp_path / "comparing.md").write_text((ROOT / "docs" / "comparing.md").read_text())
    scored = [
        Scored("school", name, f"split {k}", value, "shared", 2, 0.1)
        for name, value in (("own", 0.03), ("mixed", 0.02), ("blend", 0.025))
        for k in range(2)
    ]
    kept = {"sets": {"school": [asdict(one) for one in scored]}}
    (tmp_path / "a.json").write_text(json.dumps(kept))
    script.main(tmp_path / "a.json")
    text = (tmp_path / "comparing.md").read_text()
    assert "| MR-MTL, epsilon 6 .0239 | mixed .0200 | .0250 | .0300 |" in text
    assert (tmp_path / "published.png").stat().st_size > 1e4


def test_what_is_not_there_is_said(hospitals, tmp_path):
    every = list(SETS.values())
    known, missing = there(every, hospitals, [])
    assert [one.name for one in known] == ["heart"]
    assert missing == ["fmi", "school", "har", "femnist"]
    with pytest.raises(InputError, match="none of the published sets is there"):
        there(every, None, [])
    with pytest.raises(InputError, match="is no folder"):
        there(every, hospitals / "none", [])
    with pytest.raises(InputError, match="only must be one of 'heart'"):
        there(every, hospitals, ["hart"])
    (tmp_path / "school.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"'school.csv' has no column 'school'"):
        school(tmp_path / "school.csv")
    (tmp_path / "fmi.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="has no column 'station'"):
        fmi(tmp_path / "fmi.csv")
    np.savez(tmp_path / "har.npz", X=np.zeros(3))
    with pytest.raises(InputError, match="has no array 'y'"):
        har(tmp_path / "har.npz")


@pytest.mark.parametrize(
    "text",
    ["published = 3", "[[published]]", 'published = ["x"]', "[published]\nx = 1"],
)
def test_a_spec_of_other_words_is_a_sentence(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match="mine: a comparison|name of a published set"):
        load_published(tmp_path / "mine.toml")


def test_files_that_are_others_than_the_published_take_no_more_room(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("persfl.sources.unpacking._ROOM_NUMBERS", 0)
    np.savez_compressed(tmp_path / "har.npz", X=np.zeros(10**6))
    with pytest.raises(InputError, match="unpacks to more than"):
        har(tmp_path / "har.npz")
    rows = "\n".join(f"{10**15 + i % 2},{i},{i},train,{i}" for i in range(8))
    (tmp_path / "fmi.csv").write_text(f"station,date,y_tmax,split,tmax_1\n{rows}\n")
    (dealt,) = fmi(tmp_path / "fmi.csv").values()
    assert dealt.learn.counts.tolist() == [4, 4]
