"""From a folder of Parquet files to predictions, on the command line."""

from __future__ import annotations

import io
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedRegressor
from persfl.cli import main
from persfl.methods import Blend
from persfl.sources import clustered_regression

pq = pytest.importorskip("pyarrow.parquet")
PANEL = 25


def meters() -> pd.DataFrame:
    made = clustered_regression(n=60, clusters=3, rows=8, features=3, noise=0.4, seed=2)
    table = pd.DataFrame(made.X, columns=list("abc"))
    table["kwh"] = 50 + 10 * made.y
    table["meter"] = [f"m{k:02d}" for k in made.owner]
    return table


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of files and a run of it: more devices than its panel has."""
    place = tmp_path_factory.mktemp("scale")
    table = meters()
    (place / "meters").mkdir()
    table[:200].to_parquet(place / "meters" / "1.parquet", index=False)
    table[200:].to_parquet(place / "meters" / "2.parquet", index=False)
    assert main(fit(place)) == 0
    return place


def fit(place, *more: str) -> list[str]:
    words = ["fit", str(place / "meters"), "--device", "meter", "--label", "kwh"]
    words += ["--engine", "processes", "--out", str(place / "run")]
    return [*words, "--set", f"panel={PANEL}", "--set", "trees=false", *more]


@pytest.fixture(scope="module")
def one():
    table = meters()
    model = PersonalizedRegressor(method=Blend(panel=PANEL, trees=False), holdout=0)
    return model.fit(table[list("abc")], table["kwh"], devices=table["meter"])


def predictions(place, capsys, *more: str) -> pd.DataFrame:
    out = place / "said"
    shutil.rmtree(out, ignore_errors=True)
    words = ["predict", str(place / "run"), str(place / "meters"), "--out", str(out)]
    assert main([*words, *more]) == 0
    assert "with predictions in" in capsys.readouterr().out
    return pd.concat([pd.read_parquet(path) for path in sorted(out.iterdir())])


def test_predictions_are_those_of_one_process(place, one, capsys):
    found = predictions(place, capsys, "--keep", "kwh")
    table = meters()
    wanted = one.predict(table[list("abc")], devices=table["meter"])
    assert found.columns.tolist() == ["meter", "kwh", "prediction"]
    assert found["meter"].tolist() == table["meter"].tolist()
    np.testing.assert_allclose(found["prediction"], wanted, rtol=1e-9)


def test_predictions_of_one_device(place, capsys):
    found = predictions(place, capsys, "--device", "m07", "--only")
    assert found.columns.tolist() == ["meter", "prediction"]
    assert set(found["meter"]) == {"m07"}
    whole = predictions(place, capsys, "--device", "m07")
    assert whole.columns.tolist() == ["meter", *"abc", "kwh", "prediction"]
    assert len(found) == 8


def test_newcomers_and_missing_values(place, one, tmp_path, capsys):
    table = meters()[:4].assign(meter=["m00", "new", "m01", "m02"])
    table.loc[3, "a"] = np.nan
    table.to_parquet(tmp_path / "x.parquet", index=False)
    words = ["predict", str(place / "run"), str(tmp_path / "x.parquet")]
    assert main([*words, "--out", str(tmp_path / "0")]) == 2
    assert "1 rows of 'x.parquet' have missing" in capsys.readouterr().err
    words += ["--missing", "skip"]
    assert main([*words, "--out", str(tmp_path / "1")]) == 0
    said = pd.read_parquet(tmp_path / "1" / "x.parquet")["prediction"]
    with pytest.warns(UserWarning, match="not there"):
        wanted = one.predict(table[list("abc")][:3], devices=table["meter"][:3])
    np.testing.assert_allclose(said[:3], wanted, rtol=1e-9)
    assert np.isnan(said[3])
    assert main([*words, "--unseen", "skip", "--out", str(tmp_path / "2")]) == 0
    said = pd.read_parquet(tmp_path / "2" / "x.parquet")["prediction"]
    assert np.isnan(said).tolist() == [False, True, False, True]
    assert main([*words, "--unseen", "error", "--out", str(tmp_path / "3")]) == 2
    assert "device 'new' of 'x.parquet' was not there" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "1")]) == 2
    assert "is there already" in capsys.readouterr().err


def test_predictions_are_whole_or_not_there(place, tmp_path, capsys):
    (tmp_path / "rows").mkdir()
    meters().to_csv(tmp_path / "rows" / "1.csv", index=False)
    with (tmp_path / "rows" / "1.csv").open("a") as file:
        file.write("x,1,1,1,m00\n")
    said = tmp_path / "said"
    said.mkdir()
    mine = said / "notes.txt"
    mine.write_text("mine")
    (said / "1.parquet.persfl-part").symlink_to(mine)
    words = ["predict", str(place / "run"), str(tmp_path / "rows"), "--out", str(said)]
    assert main(words) == 2
    assert "column 'a' of the files holds string, no numbers" in capsys.readouterr().err
    path = tmp_path / "rows" / "2.csv"
    meters().to_csv(path, index=False)
    cut = path.read_bytes() + b"1,1\n"
    (tmp_path / "rows" / "1.csv").write_bytes(cut)
    assert main(words) == 2
    assert "1.csv' could not be read" in capsys.readouterr().err
    path.unlink()
    assert mine.read_text() == "mine"
    assert not (said / "1.parquet").exists()
    meters().to_csv(tmp_path / "rows" / "1.csv", index=False)
    assert main(words) == 0
    assert sorted(path.name for path in said.iterdir()) == ["1.parquet", "notes.txt"]


def test_helpers_of_a_device(place, one, capsys):
    words = ["helpers", str(place / "run"), "--device", "m07"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    theirs = one.helpers_.query("device == 'm07'").set_index("peer")["share"]
    assert [row["peer"] for row in found[:2]] == theirs.nlargest(2).index.tolist()
    assert main(words) == 0
    assert "The model of m07 is" in capsys.readouterr().out
    assert main([*words[:-1], "m99"]) == 2
    assert "there is no device 'm99'. Known: 'm00'" in capsys.readouterr().err
    assert main(words[:2]) == 2
    assert "say whose helpers" in capsys.readouterr().err


def test_the_report_is_small_and_finds_a_device(place, tmp_path, capsys):
    page = (place / "run" / "report.html").read_text()
    assert "60 devices" in page
    assert "{{" not in page
    assert len(page) < 20_000
    # the rivals that the terminal shows, and numbers that stay with their unit
    for name in ("always the mean", "own rows only", "one model for all"):
        assert f'<th scope="row">{name}' in page
    assert "personalized is better by (95\N{NO-BREAK SPACE}% interval)" in page
    assert "In the mean over devices a model is " in page
    assert not re.search(r"\d %", page)
    first = json.loads(re.search(r"const first = (\[.*?\]),", page)[1])
    assert first == ["m00"]
    drawer = (place / "run" / "report" / "00000.js").read_text()
    rows = json.loads(drawer.removeprefix("found(").removesuffix(");"))
    assert [row[0] for row in rows] == sorted(set(meters()["meter"]))
    assert main(["report", str(place / "run"), "--out", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r" / "00000.js").exists()
    assert not (tmp_path / "report").exists()
    words = ["report", str(place / "run"), "--out"]
    assert main([*words, str(place / "run" / "fleet.npz")]) == 2
    assert "--out must end in .html" in capsys.readouterr().err


def test_ids_that_a_browser_cannot_count_are_searched_as_they_are(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    for path in (run / "models").iterdir():
        rows = pd.read_parquet(path)
        rows["meter"] = 2**53 + rows["meter"].str[1:].astype("int64")
        rows.to_parquet(path, index=False)
    assert main(["report", str(run)]) == 0
    drawer = (run / "report" / "00000.js").read_text()
    rows = json.loads(drawer.removeprefix("found(").removesuffix(");"))
    assert [row[0] for row in rows][:2] == ["9007199254740992", "9007199254740993"]
    assert "whole = true" in (run / "report.html").read_text()


@pytest.mark.parametrize("arms", [[], {}, [1], [{"key": "own"}], "x", None])
def test_forged_errors_of_a_run_are_one_sentence(place, tmp_path, capsys, arms):
    shutil.copytree(place / "run", tmp_path / "run")
    path = tmp_path / "run" / "sharded.json"
    told = json.loads(path.read_text())
    told["facts"]["worth"]["arms"] = arms
    path.write_text(json.dumps(told))
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "sharded.json' does not hold what persfl writes" in capsys.readouterr().err


def test_a_run_that_is_there_is_kept(place, capsys):
    assert main(fit(place)) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main(fit(place, "--resume")) == 0
    assert main(fit(place, "--resume", "--seed", "5")) == 2
    assert "seed was 0 and is 5 now" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "tree"], "--model is for tables that fit one process"),
        (["--impute"], "--impute is for tables that fit one process"),
        (["--time", "a"], "--time is for tables that fit one process"),
        (["--task", "classification"], "--task is for tables that fit one process"),
        (["--engine", "abacus"], "there is no engine 'abacus'"),
        (["--method", "dummies"], "dummies reads all rows in one process"),
        (["--label", "watt"], "there is no column 'watt'"),
    ],
)
def test_what_cannot_be_done_is_said(place, tmp_path, capsys, words, says):
    told = [*fit(place), "--out", str(tmp_path / "run"), *words]
    if words[0] == "--method":
        told = [word for word in told if word != "--set" and "=" not in word]
    assert main(told) == 2
    assert says in capsys.readouterr().err


def test_rows_that_are_shards_already_are_not_sorted_again(place, tmp_path, capsys):
    shards = place / "run" / "shards"
    words = ["fit", str(shards), "--device", "meter", "--label", "kwh", "--json"]
    words += ["--set", "panel=25", "--set", "trees=false", "--out", str(tmp_path / "r")]
    assert main([*words, "--no-report"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["event"] == "done"
    assert {line["stage"] for line in lines[:-1]} >= {"making models"}
    assert not (tmp_path / "r" / "shards").exists()
    words[3] = "who"
    assert main([*words[:-1], str(tmp_path / "other")]) == 2
    assert "these shards are by 'meter'" in capsys.readouterr().err


def test_a_run_that_is_not_over_answers_nothing(place, tmp_path, capsys):
    shutil.copytree(place / "run", tmp_path / "run")
    path = tmp_path / "run" / "sharded.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"facts": {}}))
    assert main(["helpers", str(tmp_path / "run"), "--device", "m00"]) == 2
    assert "is not over" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "run")]) == 3
    assert "the run was stopped" in capsys.readouterr().err
    assert main(["watch", str(place / "run")]) == 0
    assert "In the mean over devices" in capsys.readouterr().out
    for odd in ("{", "[" * 100_000, json.dumps(told | {"spec": []})):
        path.write_text(odd)
        assert main(["helpers", str(tmp_path / "run"), "--device", "m00"]) == 2
        assert "sharded.json' does not hold" in capsys.readouterr().err


def test_a_forged_file_of_the_fleet_is_a_sentence(place, tmp_path, capsys):
    shutil.copytree(place / "run", tmp_path / "run")
    kept = tmp_path / "run" / "fleet.npz"
    arrays = dict(np.load(kept))
    words = ["predict", str(tmp_path / "run"), str(place / "meters"), "--out"]
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays, zeros=np.zeros(1_000_000))
    below = io.BytesIO()
    np.savez(below, **arrays | {"scale": -arrays["scale"]})
    for i, content in enumerate(
        (b"PK\x03\x04 and nothing else", packed.getvalue(), below.getvalue())
    ):
        kept.write_bytes(content)
        assert main([*words, str(tmp_path / f"said-{i}")]) == 2
        assert "fleet.npz' is damaged" in capsys.readouterr().err


COMMANDS = {
    "report": ["report", "RUN"],
    "helpers": ["helpers", "RUN", "--device", "m00"],
    "predict": ["predict", "RUN", "ROWS", "--out", "SAID"],
}


@pytest.mark.parametrize(
    ("command", "table", "column", "values"),
    [
        ("report", "models", "error", "x"),
        ("report", "models", "own", float("nan")),
        ("report", "models", "fleet", float("inf")),
        ("predict", "models", "coef_a", "x"),
        ("predict", "models", "meter", "m00"),
        ("helpers", "models", "own", float("nan")),
        ("helpers", "models", "meter", 2.5),
        ("helpers", "helpers", "share", None),
        ("helpers", "helpers", "peer", [1]),
    ],
)
def test_a_forged_table_is_a_sentence(
    place, tmp_path, capsys, command, table, column, values
):
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    path = run / table / "part-00000.parquet"
    rows = pd.read_parquet(path)
    rows[column] = [values] * len(rows)
    rows.to_parquet(path, index=False)
    names = {"RUN": run, "ROWS": place / "meters", "SAID": tmp_path / "said"}
    words = [str(names.get(word, word)) for word in COMMANDS[command]]
    assert main([*words, *(["--engine", "processes"] * (command == "predict"))]) == 2
    said = capsys.readouterr().err
    assert str(run / table) in said
    assert "defect" not in said


def test_a_table_that_unpacks_to_thousands_of_times_its_size_is_not_read(
    place, tmp_path, capsys
):
    shutil.copytree(place / "run", tmp_path / "run")
    path = tmp_path / "run" / "models" / "part-00000.parquet"
    one = pq.read_table(path)[:1]
    many = one.take(np.zeros(500_000, dtype=np.int32))
    pq.write_table(many, path)
    assert path.stat().st_size < 50_000
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "unpacks to too much" in capsys.readouterr().err


def test_numbers_of_a_forged_run_are_looked_at(place, tmp_path, capsys):
    shutil.copytree(place / "run", tmp_path / "run")
    path = tmp_path / "run" / "sharded.json"
    told = json.loads(path.read_text())
    worth = told["facts"]["worth"]
    arm = worth["arms"][0]
    arms = arm | {"gain": "x"}, arm | {"mistakes": "x"}
    forged = [told["facts"] | {"worth": worth | {"arms": [each]}} for each in arms]
    for name in ("gain", "low", "worse"):
        verdict = worth["verdict"] | {name: None}
        forged.append(told["facts"] | {"worth": worth | {"verdict": verdict}})
    for odd in (
        *({"facts": facts} for facts in forged),
        {"facts": told["facts"] | {"worth": {"verdict": {}}}},
        {"facts": told["facts"] | {"offers": [["near", "x"]]}},
        {"facts": told["facts"] | {"offers": [["near", 1e308]]}},
        {"facts": told["facts"] | {"panel": None}},
        {"spec": told["spec"] | {"features": ["a", "a", "c"]}},
        {"spec": told["spec"] | {"holdout": "<b>"}},
    ):
        path.write_text(json.dumps(told | odd))
        assert main(["report", str(tmp_path / "run")]) == 2
        assert "sharded.json' does not hold" in capsys.readouterr().err


def test_what_a_device_is_called_is_not_filled_in(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    path = run / "models" / "part-00000.parquet"
    rows = pd.read_parquet(path)
    rows.loc[0, "meter"] = "{{names}}"
    rows.to_parquet(path, index=False)
    assert main(["report", str(run)]) == 0
    assert '= ["{{names}}"' in (run / "report.html").read_text()


@pytest.mark.parametrize("name", ["shards", "models", "helpers"])
def test_a_link_in_a_run_that_goes_on_is_refused(place, tmp_path, capsys, name):
    """It deleted and wrote over files of the folder that the link stands for."""
    shutil.copytree(place / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / name)
    mine = tmp_path / "mine"
    (mine / "unsorted").mkdir(parents=True)
    kept = [mine / "unsorted" / "0", mine / "shard-00000.parquet"]
    kept.append(mine / "part-00000.parquet")
    for path in kept:
        path.write_text("mine")
    (tmp_path / "run" / name).symlink_to(mine)
    words = fit(place, "--resume")
    words[words.index("--out") + 1] = str(tmp_path / "run")
    assert main(words) == 2
    assert f"{name}' is a link" in capsys.readouterr().err
    assert all(path.read_text() == "mine" for path in kept)


def test_a_run_does_not_go_on_with_other_rows(place, tmp_path, capsys):
    shutil.copytree(place / "run", tmp_path / "run")
    shutil.copytree(place / "meters", tmp_path / "meters")
    path = tmp_path / "meters" / "1.parquet"
    pd.read_parquet(path).assign(kwh=99.0).to_parquet(path, index=False)
    assert main(fit(tmp_path, "--resume")) == 2
    assert "holds shards of other rows" in capsys.readouterr().err
    assert main(fit(place, "--resume")) == 0


def test_shards_that_a_person_made_stay_what_they_are(place, tmp_path, capsys):
    """They were replaced by others, and files beside a run that could not begin were removed."""
    run = tmp_path / "run"
    table = meters().assign(kwh=99.0)
    (tmp_path / "meters").mkdir()
    table.to_parquet(tmp_path / "meters" / "1.parquet", index=False)
    words = ["shard", str(tmp_path / "meters"), "--device", "meter"]
    assert main([*words, "--out", str(run / "shards"), "--shards", "2"]) == 0
    before = {path: path.read_bytes() for path in (run / "shards").iterdir()}
    other = fit(place)
    other[other.index("--out") + 1] = str(run)
    assert main(other) == 2
    assert "holds shards of other rows" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (run / "shards").iterdir()} == before
    mine = run / "notes.txt", run / "shards" / "shard-mine.parquet"
    for path in mine:
        path.write_text("mine")
    (run / "shards" / "shards.json").unlink()
    for name in (*mine, run / "shards" / "shard-00000.parquet"):
        assert main(other) == 2
        assert "is not empty. Name a new folder" in capsys.readouterr().err
        assert name.exists()
        name.unlink()


def test_a_run_of_another_method_answers_what_it_knows(place, tmp_path, capsys):
    for name in ("paper", "ditto"):
        out = str(tmp_path / name)
        words = ["fit", str(place / "meters"), "--device", "meter", "--label", "kwh"]
        words += ["--engine", "processes", "--method", name, "--set", "rounds=4"]
        assert main([*words, "--out", out]) == 0
        said = capsys.readouterr().out
        assert f"Method {name}: " in said
        assert "Personalizing" in said or "own rows alone do better" in said
        assert f"Method {name}: " in (tmp_path / name / "report.html").read_text()
        assert main(["helpers", out, "--device", "m07"]) == 0
        helped = capsys.readouterr().out.splitlines()
        if name == "paper":
            assert helped[0].split() == ["peer", "alike", "share"]
        else:
            assert helped == ["Nobody is named as a helper of m07."]
