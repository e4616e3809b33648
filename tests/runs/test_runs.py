"""Run folders and the commands around them, as a person uses them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedClassifier, PersonalizedRegressor, TopK, Tree
from persfl.checks import percent
from persfl.cli import main
from persfl.datasets import load_flights, load_housing
from persfl.errors import InputError
from persfl.evaluation.intervals import SAYS
from persfl.files import write_whole
from persfl.methods import Paper
from persfl.report import info
from persfl.report.export import export
from persfl.runs import Folder, keep_model, load_model, run_folder, save_model


def persfl(*words, cwd=None, **more):
    return subprocess.run(
        [sys.executable, "-m", "persfl", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        **more,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Eight months of each of 46 cities, with a text column and ids that are text."""
    frame = (
        load_housing().frame.sample(frac=1.0, random_state=0).groupby("city").head(8)
    )
    frame["season"] = np.where(frame["month"].between(4, 9), "warm", "cold")
    frame["size"] = np.where(
        frame.groupby("city")["sales"].transform("mean") > 300, "large", "small"
    )
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    frame.to_csv(path, index=False)
    return path


WORDS = ["--device", "city", "--label", "log_price", "--drop", "size"]
QUICK = ["--method", "paper", "--rounds", "3", "--no-report", "--trials", "1"]


def quick_fit(table, out):
    """The words of a fit that takes no time."""
    return ["fit", str(table), *WORDS, *QUICK, "--out", out]


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    words = [
        "--device",
        "city",
        "--label",
        "log_price",
        "--group",
        "size",
        "--method",
        "paper",
    ]
    assert main(["fit", str(table), *words, "--out", str(out)]) == 0
    return out


def same(left, right):
    """Two run folders hold the same result to the last bit."""
    a, b = load_model(left), load_model(right)
    for name in ("losses_", "rows_", "fallback_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    pd.testing.assert_frame_equal(a.helpers_, b.helpers_, check_exact=True)
    pd.testing.assert_frame_equal(a.worth_.table, b.worth_.table, check_exact=True)
    pd.testing.assert_frame_equal(
        Folder.open(left).rounds(), Folder.open(right).rounds(), check_exact=True
    )
    assert (
        repr(a.models_) == repr(b.models_)
        if not isinstance(a.models_, np.ndarray)
        else np.array_equal(a.models_, b.models_)
    )


def test_from_a_csv_to_a_report_in_one_command(run, capsys):
    files = {
        path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()
    }
    assert {"run.json", "spec.json", "versions.json", "model.json", "model.npz"} < files
    assert "worth.parquet" in files
    assert not any(
        name.endswith(".persfl-part") or name.startswith("state-") for name in files
    )
    assert any(name.startswith("rounds/final-") for name in files)
    assert (run / "report.html").stat().st_size < 5e6
    spec = json.loads((run / "spec.json").read_text())
    assert spec["device"] == "city"
    assert spec["features"] == [
        "year",
        "month",
        "sales",
        "listings",
        "inventory",
        "season",
    ]
    rounds = Folder.open(run).rounds()
    assert rounds["round"].nunique() == 100
    assert len(rounds) == 4600
    assert len(rounds["asked"][0]) == 20


def test_the_run_is_the_estimators(run, table):
    frame = pd.read_csv(table)
    features = ["year", "month", "sales", "listings", "inventory", "season"]
    model = PersonalizedRegressor(method="paper", random_state=0).fit(
        frame[features], frame["log_price"], devices=frame["city"]
    )
    kept = load_model(run)
    np.testing.assert_array_equal(kept.models_, model.models_)
    pd.testing.assert_frame_equal(kept.helpers_, model.helpers_)
    assert info(kept) == info(model)
    np.testing.assert_array_equal(
        kept.predict(frame[features], devices=frame["city"]),
        model.predict(frame[features], devices=frame["city"]),
    )


def test_predicting_new_rows(run, table, tmp_path, capsys):
    new = pd.read_csv(table).drop(columns=["log_price"]).head(5)
    new.to_csv(tmp_path / "new.csv", index=False)
    assert (
        main(
            [
                "predict",
                str(run),
                str(tmp_path / "new.csv"),
                "--out",
                str(tmp_path / "p.csv"),
            ]
        )
        == 0
    )
    found = pd.read_csv(tmp_path / "p.csv")
    model = load_model(run)
    expected = model.predict(
        new[[c for c in new if c not in ("city", "size")]], devices=new["city"]
    )
    assert found["city"].tolist() == new["city"].tolist()
    np.testing.assert_allclose(found["prediction"], expected)
    assert (
        main(
            [
                "predict",
                str(run),
                str(tmp_path / "new.csv"),
                "--out",
                str(tmp_path / "p.parquet"),
            ]
        )
        == 0
    )
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "p.parquet"), found)
    capsys.readouterr()
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--only"]) == 0
    assert capsys.readouterr().out.startswith("row,city,prediction\n1,")
    new.assign(city="Atlantis").to_csv(tmp_path / "strange.csv", index=False)
    assert (
        main(["predict", str(run), str(tmp_path / "strange.csv"), "--unseen", "error"])
        == 2
    )
    assert (
        "1 device of the table ('Atlantis') not there when fitting"
        in capsys.readouterr().err
    )
    new.drop(columns="sales").to_csv(tmp_path / "less.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "less.csv")]) == 2
    assert "no column 'sales'" in capsys.readouterr().err


def test_a_graph_of_odd_names_can_be_read(run, tmp_path):
    """XML has no way to write the signs that command a terminal."""
    known = load_model(run).helpers_.head(3).assign(device="a\x1b[2J", adopted=1.0)
    odd = nx.read_graphml(export(known, tmp_path / "h.graphml"))
    assert "a\\x1b[2J" in odd


def test_helpers_in_the_terminal_and_exported(run, tmp_path, capsys):
    assert main(["helpers", str(run), "--device", "Austin", "--top", "3"]) == 0
    shown = capsys.readouterr().out.splitlines()
    known = load_model(run).helpers_
    mine = known[known["device"] == "Austin"]
    assert [line.split()[0] for line in shown[1:4]] == ["Austin"] * 3
    assert mine["peer"].iloc[0] in shown[1]
    assert f"{percent(mine['share'].iloc[0], digits=1)}" in shown[1]
    assert main(["helpers", str(run), "--device", "Austn"]) == 2
    assert "Did you mean 'Austin'" in capsys.readouterr().err
    assert main(["helpers", str(run), "--export", str(tmp_path / "h.csv")]) == 0
    again = pd.read_csv(tmp_path / "h.csv")
    pd.testing.assert_frame_equal(again, pd.DataFrame(known), check_dtype=False)
    assert main(["helpers", str(run), "--export", str(tmp_path / "h.graphml")]) == 0
    graph = nx.read_graphml(tmp_path / "h.graphml")
    assert graph.number_of_edges() == int((known["adopted"] > 0).sum())
    best = mine.iloc[0]
    assert graph[best["peer"]]["Austin"]["share"] == pytest.approx(best["share"])
    assert main(["helpers", str(run), "--export", str(tmp_path / "h.xml")]) == 2
    capsys.readouterr()
    assert main(["helpers", str(run), "--device", "Austin", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(mine)


def test_groups_get_a_verdict(run, table):
    spec = json.loads((run / "spec.json").read_text())
    found = info(load_model(run), groups=dict(spec["groups"]))
    names = {
        group["name"]: group["devices"]
        for group in found["worth"]["groups"]
        if group["kind"] == "your groups"
    }
    assert set(names) == {"large", "small"}
    assert sum(names.values()) == 46


# Interruption


@pytest.mark.parametrize(
    "model", ["linear", pytest.param("forest", marks=pytest.mark.slow)]
)
def test_killed_and_resumed_is_bit_identical(table, tmp_path, monkeypatch, model):
    """kill -9 at several moments; each time it goes on from the last saved round."""
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(table)
    few = (
        frame
        if model == "linear"
        else frame[frame["city"].isin(["Austin", "Waco", "Tyler"])]
    )
    few.to_csv(tmp_path / "few.csv", index=False)
    rounds = {"linear": 40, "forest": 4}[model]
    words = [
        "fit",
        "few.csv",
        *WORDS,
        "--model",
        model,
        "--method",
        "paper",
        "--rounds",
        str(rounds),
        "--peers",
        "2",
        "--trials",
        "1",
        "--no-report",
    ]
    assert main([*words, "--out", "whole"]) == 0
    broken = tmp_path / "broken"
    words += ["--out", str(broken), "--resume"]
    for rounds_more in (1, 2):
        process = subprocess.Popen(
            [sys.executable, "-m", "persfl", *words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PERSFL_SAVE_SECONDS": "0"},
        )
        begin = _progress(broken)
        while process.poll() is None and _progress(broken) - begin < rounds_more:
            time.sleep(0.005)
        process.kill()
        _, trouble = process.communicate(timeout=200)
        assert process.returncode == -signal.SIGKILL, trouble.decode()
    assert main(words) == 0
    same(tmp_path / "whole", broken)


@pytest.mark.filterwarnings("ignore::persfl.errors.UnseenWarning")
def test_trees_go_through_arrays(table, tmp_path):
    frame = pd.read_csv(table)
    few = frame[frame["city"] < "B"]
    folder = Folder.create(tmp_path / "run", {}, every=0)
    model = PersonalizedRegressor(
        Tree(2), method=Paper(rounds=2, peers=2), holdout=0, unseen="pooled"
    )
    model.fit(few[["year", "sales"]], few["log_price"], few["city"], keep=folder)
    state = Folder.open(tmp_path / "run").last("final")
    assert state.r == 2
    for kept, grown in zip(state.models, model.models_, strict=True):
        for left, right in zip(kept, grown, strict=True):
            np.testing.assert_array_equal(left, right)
    keep_model(folder, model)
    again = load_model(tmp_path / "run")
    whose = few["city"].where(few["city"] != "Austin", "elsewhere")
    np.testing.assert_array_equal(
        again.predict(few[["year", "sales"]], devices=whose),
        model.predict(few[["year", "sales"]], devices=whose),
    )


def _progress(path):
    """How many rounds the index of a run names, over all stages."""
    try:
        index = json.loads((path / "run.json").read_text())
    except FileNotFoundError:
        return 0
    return sum(stage["round"] for stage in index["stages"].values())


def test_ctrl_c_keeps_what_is_done(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        "fit",
        str(table),
        *WORDS,
        "--method",
        "paper",
        "--rounds",
        "300",
        "--trials",
        "1",
        "--no-report",
        "--json",
    ]
    # Tests that run in the background of a shell are told to ignore the signal, and what they start
    # inherits that.
    heed = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            heed + "runpy.run_module('persfl', run_name='__main__')",
            *words,
            "--out",
            "run",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # saves every round, so that it is still at it when the signal comes
        env=os.environ | {"PERSFL_SAVE_SECONDS": "0"},
    )
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, trouble = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "--resume" in trouble
    assert lines[-1]["event"] == "round"
    assert {"stage", "round", "rounds", "loss", "seconds_left"} <= set(lines[-1])
    assert _progress(tmp_path / "run") >= lines[-1]["round"]
    assert main([*words, "--out", "run", "--resume"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["round"] > 1 or first["stage"] != "trial-0"
    assert main([*words, "--out", "whole"]) == 0
    same(tmp_path / "run", tmp_path / "whole")


def test_resuming_something_else_is_refused(table, tmp_path, capsys):
    out = str(tmp_path / "run")
    words = [
        "fit",
        str(table),
        *WORDS,
        "--out",
        out,
        "--method",
        "paper",
        "--rounds",
        "5",
        "--no-report",
    ]
    assert main(words) == 0
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    assert "finished already" in capsys.readouterr().out
    assert (
        main(
            [
                *words[:-3],
                "--method",
                "paper",
                "--rounds",
                "6",
                "--no-report",
                "--resume",
            ]
        )
        == 2
    )
    assert "rounds was 5 and is 6 now" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("keep me")
    other = ["fit", str(table), *WORDS, "--out", str(tmp_path / "mine"), "--force"]
    assert main(other) == 2
    assert (tmp_path / "mine" / "precious.txt").read_text() == "keep me"


def test_damaged_files_are_refused_by_name(run, tmp_path):
    for name in ("model.npz", "model.json", "worth.parquet", "run.json", "spec.json"):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.*damaged"):
            Folder.open(copy).read("spec.json") if name == "spec.json" else load_model(
                copy
            )
        (copy / name).unlink()
        with pytest.raises(InputError, match=f"{name}"):
            Folder.open(copy).read("spec.json") if name == "spec.json" else load_model(
                copy
            )


def test_a_stage_that_starts_anew_never_writes_over_named_files(table, tmp_path):
    """Files that the index on disk names stay as they are until the next index is there, also
    after a step was halved.
    """
    frame = pd.read_csv(table)
    folder = Folder.create(tmp_path / "run", {}, every=0)
    written = folder.write

    def watched(name, content):
        on_disk = json.loads((folder.path / "run.json").read_text())["files"]
        assert name not in on_disk or name.startswith(("model", "worth"))
        written(name, content)

    folder.write = watched
    model = PersonalizedRegressor(method=Paper(step_size=50.0, rounds=20), holdout=0)
    model.fit(frame[["year", "sales"]], frame["log_price"], frame["city"], keep=folder)
    assert any("halved" in note for note in model.notes_)
    assert Folder.open(folder.path).last("final").r == 20


@pytest.mark.parametrize("name", ["thesis.txt", "model.json"])
def test_force_keeps_what_somebody_elses_index_names(table, tmp_path, capsys, name):
    """An index may come from elsewhere, and name files of one's own."""
    out = tmp_path / "run"
    folder = Folder.create(out, {})
    folder.write(name, b"precious")
    if name == "model.json":
        folder.index["files"][name] = "0" * 64
    folder.finish()
    assert main([*quick_fit(table, str(out)), "--force"]) == 2
    said = capsys.readouterr().err
    assert f"{name}' does not belong to the run, so --force does not remove it" in said
    Folder.open(out).remove()
    assert [path.name for path in out.iterdir()] == [name]
    assert (out / name).read_bytes() == b"precious"


class Killed(BaseException):
    """As kill -9: nothing is cleaned up after it."""


@pytest.mark.parametrize("writes", range(4))
def test_a_run_killed_between_its_first_writes_begins_again(
    table, tmp_path, capsys, monkeypatch, writes
):
    out = tmp_path / "run"
    words = quick_fit(table, str(out))
    count = 0

    def killed(path, content):
        nonlocal count
        if count == writes:
            path.with_name(path.name + ".persfl-part").write_bytes(b"{")
            raise Killed
        count += 1
        write_whole(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_whole", killed)
        patch.setattr(run_folder, "remove_begun", lambda path: None)
        if writes < 3:
            with pytest.raises(Killed):
                main(words)
        else:  # only the folder was made
            (out / "rounds").mkdir(parents=True)
    assert not (out / "run.json").exists()
    for more in ([], ["--force"]):
        assert main([*words, *more]) == 2
        assert "Begin it again with --resume" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    assert not list(out.rglob("*.persfl-part"))
    assert load_model(out).models_ is not None


@pytest.mark.parametrize("name", ["spec.json", "versions.json", "rounds/x", "notes"])
def test_what_a_run_did_not_begin_is_not_begun_again(table, tmp_path, name):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"openapi": "3.1"}')
    for more in ([], ["--force"], ["--resume"]):
        assert main([*quick_fit(table, str(tmp_path / "run")), *more]) == 2
        assert path.read_text() == '{"openapi": "3.1"}'


def test_force_keeps_what_it_cannot_replace(table, tmp_path, capsys):
    out = tmp_path / "run"
    words = quick_fit(table, str(out))
    assert main(words) == 0
    before = load_model(out).models_
    assert main([*words, "--method", "paper", "--peers", "99", "--force"]) == 2
    np.testing.assert_array_equal(load_model(out).models_, before)
    (out / "mine.txt").write_text("precious")
    assert main([*words, "--force"]) == 2
    assert "does not belong to the run" in capsys.readouterr().err
    (out / "mine.txt").unlink()
    assert main([*words, "--force"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    bad = [
        "fit",
        str(table),
        *WORDS,
        "--method",
        "paper",
        "--peers",
        "99",
        "--out",
        str(tmp_path / "new"),
    ]
    assert main(bad) == 2
    assert not (tmp_path / "new").exists()


def test_ids_are_text_as_they_stand(tmp_path, capsys):
    """007, NA and 1e3 are names; a stranger among the rows to predict changes nothing for the
    others.
    """
    rows = "\n".join(
        f"{who},{k},{k * s}"
        for who, s in (("007", 1), ("NA", 2), ("1e3", -1))
        for k in range(8)
    )
    (tmp_path / "t.csv").write_text("id,x,y\n" + rows + "\n")
    out = str(tmp_path / "run")
    words = [
        "--device",
        "id",
        "--label",
        "y",
        "--method",
        "paper",
        "--rounds",
        "3",
        "--no-report",
        "--unseen",
        "pooled",
        "--out",
        out,
    ]
    assert main(["fit", str(tmp_path / "t.csv"), *words]) == 0
    assert load_model(out).devices_.tolist() == ["007", "1e3", "NA"]
    (tmp_path / "a.csv").write_text("id,x\n007,3\n")
    (tmp_path / "b.csv").write_text("id,x\n007,3\nnew,3\n")
    capsys.readouterr()
    found = []
    for name in ("a.csv", "b.csv"):
        assert main(["predict", out, str(tmp_path / name)]) == 0
        found.append(capsys.readouterr().out.splitlines()[1])
    assert found[0] == found[1]
    assert found[0].startswith("1,007,")


def test_one_device_has_a_report_too(table, tmp_path):
    frame = pd.read_csv(table)
    frame[frame["city"] == "Waco"].to_csv(tmp_path / "one.csv", index=False)
    assert (
        main(["fit", str(tmp_path / "one.csv"), *WORDS, "--out", str(tmp_path / "run")])
        == 0
    )
    assert (tmp_path / "run" / "report.html").is_file()


def test_saving_from_python(table, tmp_path, capsys):
    frame = pd.read_csv(table)
    X = frame[["city", "year", "sales", "season"]]
    model = PersonalizedRegressor(
        device="city", method=Paper(adopter=TopK(2), rounds=5), impute=True
    ).fit(X, frame["log_price"])
    again = load_model(save_model(model, tmp_path / "run", label="log_price"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.method.adopter == TopK(2)
    assert info(again) == info(model)
    X.head(2).to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")]) == 0
    assert main(["helpers", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    dates = PersonalizedRegressor(method=Paper(rounds=2), holdout=0).fit(
        X[["year"]], frame["log_price"], devices=frame["city"].map(lambda c: (c, 1))
    )
    with pytest.raises(InputError, match="ids are text or numbers"):
        save_model(dates, tmp_path / "dates")
    numbers = PersonalizedRegressor(method=Paper(rounds=2), holdout=0).fit(
        X[["year"]], frame["log_price"], devices=pd.factorize(frame["city"])[0]
    )
    save_model(numbers, tmp_path / "numbers")
    pd.DataFrame({"device": [3], "year": [2005]}).to_csv(
        tmp_path / "n.csv", index=False
    )
    assert main(["predict", str(tmp_path / "numbers"), str(tmp_path / "n.csv")]) == 0


def test_an_unfinished_run_says_so(table, tmp_path):
    folder = Folder.create(tmp_path / "r", {"a": 1})
    with pytest.raises(InputError, match="was not finished"):
        load_model(folder.path)
    with pytest.raises(InputError, match="not a run folder"):
        load_model(tmp_path)


@pytest.mark.filterwarnings("ignore::persfl.errors.UnseenWarning")
def test_classes_survive_the_folder(tmp_path, capsys):
    flights = load_flights()
    frame = flights.frame[flights.devices < "BN"].copy()
    frame["arrival"] = [flights.target_names[k] for k in frame["arrival"]]
    frame.to_parquet(tmp_path / "f.parquet")
    out = tmp_path / "run"
    words = [
        "fit",
        str(tmp_path / "f.parquet"),
        "--device",
        "destination",
        "--label",
        "arrival",
    ]
    words += ["--method", "paper", "--rounds", "5", "--trials", "1"]
    assert main([*words, "--unseen", "pooled", "--out", str(out)]) == 0
    model = load_model(out)
    assert isinstance(model, PersonalizedClassifier)
    assert model.classes_.tolist() == sorted(flights.target_names)
    new = frame.head(3).assign(destination=["ALB", "ATL", "XYZ"])
    new.to_csv(tmp_path / "new.csv", index=False)
    assert (
        main(
            [
                "predict",
                str(out),
                str(tmp_path / "new.csv"),
                "--out",
                str(tmp_path / "p.csv"),
            ]
        )
        == 0
    )
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found)[-4] == "prediction"
    np.testing.assert_allclose(found.filter(like="chance_").sum(axis=1), 1.0)
    for name in ("tree", "forest"):
        out = tmp_path / name
        assert (
            main(
                [
                    *words[:-4],
                    "--method",
                    "paper",
                    "--rounds",
                    "1",
                    "--peers",
                    "2",
                    "--model",
                    name,
                    "--out",
                    str(out),
                    "--unseen",
                    "pooled",
                ]
            )
            == 0
        )
        X = pd.read_csv(tmp_path / "new.csv")
        chances = load_model(out).predict_proba(
            X[flights.feature_names], devices=X["destination"]
        )
        assert chances.shape == (3, 3)


# Mistakes


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["fit", "absent.csv", *WORDS, "--out", "o"], "there is no file 'absent.csv'"),
        (
            ["fit", "TABLE", "--device", "town", "--label", "log_price", "--out", "o"],
            "has no column 'town'",
        ),
        (
            ["fit", "TABLE", "--device", "cty", "--label", "log_price", "--out", "o"],
            "Did you mean 'city'?",
        ),
        (
            ["fit", "TABLE", "--device", "city", "--label", "city", "--out", "o"],
            "must be different columns",
        ),
        (
            ["fit", "TABLE", *WORDS, "--group", "city", "--out", "o"],
            "must be different columns",
        ),
        (["fit", "twice.csv", *WORDS, "--out", "o"], "column 'sales' more than once"),
        (["fit", "utf16.csv", *WORDS, "--out", "o"], "not UTF-8"),
        (["fit", "endless.csv", *WORDS, "--out", "o"], "1 infinite value."),
        (["fit", "dates.csv", *WORDS, "--out", "o"], "holds dates"),
        (
            ["fit", "TABLE", *WORDS, "--weight", "season", "--out", "o"],
            "finite numbers of at least 0",
        ),
        (["fit", "TABLE", *WORDS, "--out", "."], "--out"),
        (["compare", "TABLE", *WORDS, "--out", "TABLE"], "is the table itself"),
        (
            ["fit", "TABLE", *WORDS, "--features", "city,sales", "--out", "o"],
            "leave out the device",
        ),
        (
            [
                "fit",
                "TABLE",
                *WORDS,
                "--method",
                "paper",
                "--peers",
                "46",
                "--out",
                "o",
            ],
            "peers must be at most 45",
        ),
        (["fit", "TABLE", *WORDS, "--holdout", "1.5", "--out", "o"], "holdout"),
        (
            ["fit", "TABLE", *WORDS, "--group", "month", "--out", "o"],
            "same in all rows of a device",
        ),
        (
            [
                "fit",
                "TABLE",
                "--device",
                "city",
                "--label",
                "season",
                "--task",
                "regression",
                "--out",
                "o",
            ],
            "needs numbers",
        ),
        (["fit", "empty.csv", *WORDS, "--out", "o"], "'empty.csv' is empty."),
        (["fit", "head.csv", *WORDS, "--out", "o"], "has no rows"),
        (["fit", "holes.csv", *WORDS, "--out", "o"], "--impute"),
        (["fit", "unlabelled.csv", *WORDS, "--out", "o"], "rows have no label"),
        (["fit", "nobody.csv", *WORDS, "--out", "o"], "leave it empty"),
        (["fit", "comma.txt", *WORDS, "--thousands", "'", "--out", "o"], "--decimal ,"),
        (["fit", "rows.xlsx", *WORDS, "--out", "o"], "must end in .csv"),
        (["fit", ".", *WORDS, "--out", "o"], "could not be read"),
        (["helpers", "nowhere"], "is not a run folder"),
        (["report", "."], "is not a run folder"),
        (["predict", "nowhere", "TABLE"], "is not a run folder"),
        (["compare", "TABLE", *WORDS, "--holdout", "0"], "comparing needs rows"),
        (
            [
                "compare",
                "TABLE",
                *WORDS,
                "--out",
                "x.txt",
                "--method",
                "paper",
                "--rounds",
                "2",
            ],
            "must end in .csv",
        ),
    ],
)
def test_every_mistake_gets_a_sentence(
    table, tmp_path, monkeypatch, capsys, words, answer
):
    frame = pd.read_csv(table)
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text("")
    frame.head(0).to_csv("head.csv", index=False)
    frame.assign(sales=frame["sales"].where(frame["sales"] > 100)).to_csv(
        "holes.csv", index=False
    )
    frame.assign(log_price=frame["log_price"].where(frame["log_price"] > 11.5)).to_csv(
        "unlabelled.csv", index=False
    )
    frame.assign(city=frame["city"].where(frame["city"] > "B")).to_csv(
        "nobody.csv", index=False
    )
    frame.assign(sales="1,234").to_csv("comma.txt", index=False)
    Path("rows.xlsx").write_text("x")
    Path("twice.csv").write_text("city,sales,sales,log_price\na,1,2,3\n")
    frame.assign(sales=[f"{1000 + k:,}.50" for k in range(len(frame))]).to_csv(
        "thousands.csv", index=False
    )
    frame.to_csv("utf16.csv", index=False, encoding="utf-16")
    frame.assign(sales=[np.inf, *frame["sales"][1:]]).to_csv("endless.csv", index=False)
    frame.assign(season=[f"2001-05-{1 + k % 9}" for k in range(len(frame))]).to_csv(
        "dates.csv", index=False
    )
    assert main([str(table) if word == "TABLE" else word for word in words]) == 2
    trouble = capsys.readouterr().err
    assert answer in trouble
    assert trouble.startswith("persfl: ")
    assert "Traceback" not in trouble
    assert len(trouble.strip().splitlines()) == 1


def test_separators_and_decimals(table, tmp_path):
    frame = pd.read_csv(table)
    frame.to_csv(tmp_path / "semi.csv", index=False, sep=";", decimal=",")
    words = [
        *WORDS,
        "--method",
        "paper",
        "--rounds",
        "3",
        "--no-report",
        "--trials",
        "1",
    ]
    assert (
        main(
            [
                "fit",
                str(tmp_path / "semi.csv"),
                *words,
                "--decimal",
                ",",
                "--out",
                str(tmp_path / "a"),
            ]
        )
        == 0
    )
    assert main(["fit", str(table), *words, "--out", str(tmp_path / "b")]) == 0
    np.testing.assert_allclose(
        load_model(tmp_path / "a").models_, load_model(tmp_path / "b").models_
    )


def test_impute_weight_and_json(table, tmp_path, capsys):
    frame = pd.read_csv(table)
    frame["sales"] = frame["sales"].where(frame["sales"] > 60)
    frame["w"] = 1.0 + (frame["year"] > 2008)
    frame.to_csv(tmp_path / "h.csv", index=False)
    words = [
        "fit",
        str(tmp_path / "h.csv"),
        *WORDS,
        "--impute",
        "--weight",
        "w",
        "--method",
        "paper",
        "--rounds",
        "4",
        "--json",
        "--out",
    ]
    assert main([*words, str(tmp_path / "run")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["event"] == "done"
    assert lines[-1]["says"] in {word for row in SAYS for word in row}
    assert Path(lines[-1]["report"]).is_file()


def test_a_simpler_way_that_does_better_is_named(tmp_path, capsys):
    """Devices that are all alike: one model for all wins, and the command line says so."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(
        who=np.repeat(np.arange(40), 10), y=X.sum(axis=1) + rng.normal(size=400)
    )
    frame.to_csv(tmp_path / "alike.csv", index=False)
    words = [
        "--device",
        "who",
        "--label",
        "y",
        "--method",
        "paper",
        "--rounds",
        "2",
        "--no-report",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["fit", str(tmp_path / "alike.csv"), *words]) == 0
    assert (
        "A simple way does better than personalizing: one model for all"
        in capsys.readouterr().out
    )


def test_quiet_when_not_a_terminal(table, tmp_path):
    done = persfl(
        "fit",
        table,
        *WORDS,
        "--method",
        "paper",
        "--rounds",
        3,
        "--out",
        "run",
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\r" not in done.stdout


def test_compare_names_all_rivals(table, tmp_path, capsys):
    assert (
        main(
            [
                "compare",
                str(table),
                *WORDS,
                "--method",
                "paper",
                "--rounds",
                "10",
                "--out",
                str(tmp_path / "c.csv"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    for name in (
        "own rows only",
        "one model for all",
        "fine-tuned",
        "personalized",
        "fedavg",
        "fedavg+fine-tuning",
        "ifca (2)",
    ):
        assert name in shown
    found = pd.read_csv(tmp_path / "c.csv")
    assert len(found) == 46
    assert {
        "device",
        "own",
        "personalized",
        "fedavg+fine-tuning",
        "gain",
        "low",
        "high",
    } <= set(found)
    assert (
        main(
            [
                "compare",
                str(table),
                *WORDS,
                "--method",
                "paper",
                "--rounds",
                "2",
                "--model",
                "tree",
                "--method",
                "paper",
                "--peers",
                "2",
            ]
        )
        == 0
    )


def test_the_demo_can_be_run_twice(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo, "elsewhere")  # what an earlier one left
    before = (tmp_path / "elsewhere" / "run" / "run.json").stat()
    assert main(["demo", "--out", "elsewhere", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["event"] == "done"
    assert lines[-1]["out"] == "elsewhere/run"
    assert (tmp_path / "elsewhere" / "run" / "run.json").stat() != before
    assert (tmp_path / "elsewhere" / "run" / "report.html").stat().st_size > 1e4


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from persfl.cli import main\ntry: main(['fit', '--help'])\nexcept SystemExit:"
        " pass\n"
    )
    code += (
        "print([m for m in ('numpy', 'pandas', 'sklearn', 'numba', 'matplotlib') if m in"
        " sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_force_leaves_a_neighbour_alone(table, tmp_path):
    """A folder that merely has the name under which a replaced run waits is somebody's own."""
    words = quick_fit(table, str(tmp_path / "run"))
    for name in ("run.replaced", ".run.replaced"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("precious")
    assert main(words) == 0
    assert [
        (tmp_path / name / "mine.txt").read_text()
        for name in ("run.replaced", ".run.replaced")
    ] == ["precious"] * 2


@pytest.mark.parametrize("words", [["clusters=[2]"]])
def test_settings_that_no_folder_keeps_leave_the_place_as_it_was(
    words, table, tmp_path, capsys
):
    out = tmp_path / "run"
    asked = ["fit", str(table), *WORDS, "--method", "clustered", "--out", str(out)]
    assert main([*asked, "--set", *words]) == 2
    assert "settings that are numbers or texts" in capsys.readouterr().err
    assert not out.exists()


def test_a_run_that_could_not_begin_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(TypeError):
        Folder.create(tmp_path / "run", {"a": object()})
    assert not (tmp_path / "run").exists()

    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(run_folder, "versions", stop)
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt):
        Folder.create(tmp_path / "mine", {})
    assert list((tmp_path / "mine").iterdir()) == []
    (tmp_path / "mine" / "spec.json").write_text("a person's")
    with pytest.raises(InputError, match="not empty"):
        Folder.create(tmp_path / "mine", {})
    assert (tmp_path / "mine" / "spec.json").read_text() == "a person's"
