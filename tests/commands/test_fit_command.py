"""Fitting on the command line: places, words, and what is written for spreadsheets."""

import argparse

import numpy as np
import pandas as pd
import pytest
from fitted_runs import fit, predicted, rows

from persfl.cli import main
from persfl.commands.run_output import list_pairs
from persfl.runs import load_model
from persfl.spreadsheets import harmless, quoted


def test_out_is_a_file(tmp_path, capsys):
    (tmp_path / "run").write_text("precious")
    for more in ([], ["--force"], ["--resume"]):
        assert fit(tmp_path, rows(), *more) == 2
        assert "is a file. Name a folder for the run" in capsys.readouterr().err
    assert (tmp_path / "run").read_text() == "precious"


def test_seconds_are_those_the_person_waited(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("time.perf_counter", iter(range(0, 10**9, 1000)).__next__)
    assert fit(tmp_path, rows()) == 0
    seconds = int(capsys.readouterr().out.split(" s.")[0].split("; ")[-1])
    assert seconds >= 1000


def test_formulas_are_quoted_in_every_csv(tmp_path, capsys):
    names = {
        "d0": "=cmd|' /C calc'!A0",
        "d1": "+1-2",
        "d2": "-5",
        "d3": "@SUM(1)",
        "d4": "plain",
    }
    table = (
        rows()
        .assign(who=lambda t: t["who"].replace(names), note="=1+1")
        .rename(columns={"b": "=b"})
    )
    assert fit(tmp_path, table, "--drop", "note") == 0
    run = tmp_path / "run"
    found = predicted(run, table, tmp_path, "--keep", "note,=b")
    assert {"'=cmd|' /C calc'!A0", "'+1-2", "-5", "'@SUM(1)", "plain"} <= set(
        found["who"]
    )
    assert set(found["note"]) == {"'=1+1"}
    assert "'=b" in found.columns
    raw = predicted(run, table, tmp_path, "--keep", "note", "--verbatim")
    assert raw["who"].tolist() == table["who"].tolist()
    assert main(["helpers", str(run), "--export", str(tmp_path / "h.csv")]) == 0
    assert not set(pd.read_csv(tmp_path / "h.csv")["peer"]) & {
        "@SUM(1)",
        "=cmd|' /C calc'!A0",
    }
    assert (
        main(["helpers", str(run), "--export", str(tmp_path / "h.csv"), "--verbatim"])
        == 0
    )
    assert "@SUM(1)" in set(pd.read_csv(tmp_path / "h.csv")["peer"])
    words = [
        str(tmp_path / "run.csv"),
        "--device",
        "who",
        "--label",
        "y",
        "--drop",
        "note",
        "--method",
        "paper",
        "--rounds",
        "2",
        "--trials",
        "1",
    ]
    assert main(["compare", *words, "--out", str(tmp_path / "c.csv")]) == 0
    assert "'@SUM(1)" in set(pd.read_csv(tmp_path / "c.csv")["device"])


@pytest.mark.parametrize("beginning", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_text_begins_like_a_formula(beginning):
    assert quoted(f"{beginning}x") == f"'{beginning}x"
    made = harmless(
        pd.DataFrame({"t": pd.Categorical([f"{beginning}x", "y"]), "n": [-1, 2]})
    )
    assert made["t"].tolist() == [f"'{beginning}x", "y"]
    assert made["n"].tolist() == [-1, 2]


@pytest.mark.parametrize("mark", [";", "\t", "\n", "\r"])
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d"])
def test_no_part_of_a_text_begins_like_a_formula(mark, sign):
    """Where cells are parted there, quotation marks within a line mean nothing."""
    assert quoted(f"x{mark}{sign}1") == f"x{mark}'{sign}1"
    assert quoted(f"{sign}x") == f"'{sign}x"
    assert quoted(f"x{mark}1{sign}1\r\n") == f"x{mark}1{sign}1\r\n"


def test_a_peer_whose_answers_nobody_took_is_not_called_adopted(tmp_path, capsys):
    assert fit(tmp_path, rows(devices=3, each=8)) == 0
    found = load_model(tmp_path / "run").helpers_
    mine = argparse.Namespace(device="d0", top=1)
    capsys.readouterr()
    list_pairs(found[found["device"] == "d0"].assign(adopted=0.0), mine)
    assert "2 peers that d0 asked, of whom it adopted nobody" in capsys.readouterr().out
    everybody = argparse.Namespace(device=None, top=9)
    list_pairs(found.assign(adopted=0.0), everybody)
    said = capsys.readouterr().out
    assert said == "No device adopted what a single peer answered.\n"
    some = found["adopted"].where(found["device"] == "d1", 0.0)
    list_pairs(found.assign(adopted=some), everybody)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:2]] == ["d1"]
    assert lines[2:4] == ["", "each device's most adopted peer"]


def test_a_method_that_asks_nobody_has_no_helpers_and_says_so(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    rows().to_csv(path, index=False)
    out = str(tmp_path / "run")
    words = ["--device", "who", "--label", "y", "--method", "own", "--no-report"]
    assert main(["fit", str(path), *words, "--out", out]) == 0
    capsys.readouterr()
    for more in ([], ["--device", "d0"]):
        assert main(["helpers", out, *more]) == 0
        assert capsys.readouterr().out.startswith("Nobody was asked: method 'own'")


def test_rows_in_time(tmp_path, capsys):
    draw = np.random.default_rng(0)
    day = np.tile(np.arange(8), 10)
    frame = pd.DataFrame(
        {"who": np.repeat(np.arange(10), 8), "x": draw.normal(size=80)}
    )
    frame["date"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    frame["y"] = frame["x"] + 2 * draw.normal(size=8)[day] + 0.1 * draw.normal(size=80)
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    words = ["fit", str(path), "--device", "who", "--label", "y", "--method", "own"]
    out = tmp_path / "run"
    assert main([*words, "--out", str(out)]) == 2
    assert "or say what it is: time='date'" in capsys.readouterr().err
    assert main([*words, "--drop", "date", "--out", str(out)]) == 0
    assert "Set blocks='date'" in capsys.readouterr().out
    told = ["--time", "date", "--gap", "1D", "--horizon", "1D", "--force"]
    assert main([*words, *told, "--out", str(out)]) == 0
    assert "'date'" not in capsys.readouterr().out
    model = load_model(out)
    kept = model.get_params()
    assert [kept[key] for key in ("time", "gap", "horizon", "ordered")] == [
        *("date", "1D", "1D"),
        True,
    ]
    assert model.worth_.table["held"].tolist() == [1] * 10
    np.testing.assert_array_equal(
        model.predict(frame[["x", "date"]], devices=frame["who"].map(str)),
        model.predict(frame[["x"]], devices=frame["who"].map(str)),
    )
    compare = ["compare", *words[1:-2], "--method", "own"]
    assert main([*compare, "--drop", "date"]) == 0
    assert "Set blocks='date'" in capsys.readouterr().err
    assert main([*compare, "--blocks", "date"]) == 0
    assert "Set blocks" not in capsys.readouterr().err
    seeds = ["--seeds", "1", "--methods", "own,pooled", "--reference", "pooled"]
    assert main([*compare[:-2], *seeds, "--time", "date"]) == 0
    assert "later ones to judge by" in capsys.readouterr().out
    assert main([*compare, "--time", "dat"]) == 2
    assert "Did you mean 'date'?" in capsys.readouterr().err


def test_trackers_are_told_from_the_command_line(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    board = tmp_path / "board"
    assert fit(tmp_path, rows(), "--track", f"tensorboard={board}") == 0
    assert list(board.glob("events.out.*"))
    assert fit(tmp_path, rows(), "--track", "excel=x", name="other") == 2
    assert "--track must be tensorboard=FOLDER" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
