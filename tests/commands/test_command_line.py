"""The front door on the command line: what a newcomer types, and what comes back."""

import json
import os
import pkgutil

import numpy as np
import pandas as pd
import pytest

from persfl import cli
from persfl.cli import main, parser
from persfl.commands.command_table import COMMANDS
from persfl.commands.option_tables import FIT
from persfl.commands.options import defaults
from persfl.encoding import refuse_numbers
from persfl.errors import InputError
from persfl.sources.table import read_frame
from persfl.spreadsheets import harmless, quoted

QUICK = ["--rounds", "3", "--trials", "1", "--no-report"]


def rows(devices=6, each=6, seed=0):
    rng = np.random.default_rng(seed)
    who = np.repeat([f"d{i}" for i in range(devices)], each)
    x = rng.normal(size=(len(who), 2)).round(3)
    y = (x @ [1.0, -2.0] + 0.1 * rng.normal(size=len(who)) + 5).round(3)
    return pd.DataFrame({"who": who, "a": x[:, 0], "b": x[:, 1], "y": y})


def fit(tmp_path, table, *more, name="run", label="y"):
    path = tmp_path / f"{name}.csv"
    if isinstance(table, pd.DataFrame):
        table.to_csv(path, index=False)
    else:
        path.write_bytes(table.encode() if isinstance(table, str) else table)
    words = [*map(str, more)]
    return main(
        [
            "fit",
            str(path),
            "--device",
            "who",
            "--label",
            label,
            "--out",
            str(tmp_path / name),
            *QUICK,
            *words,
        ]
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("front")
    assert fit(folder, rows()) == 0
    return folder / "run"


def predicted(run, table, tmp_path, *more):
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"
    table.to_csv(path, index=False)
    status = main(["predict", str(run), str(path), "--out", str(out), *more])
    return pd.read_csv(out) if status == 0 else status


# Predicting


def test_predictions_can_be_joined(run, tmp_path):
    new = rows(seed=1).sample(frac=1.0, random_state=0)
    found = predicted(run, new, tmp_path)
    assert list(found.columns) == ["row", "who", "prediction"]
    assert found["row"].tolist() == list(range(1, len(new) + 1))
    assert found["who"].tolist() == new["who"].tolist()
    kept = predicted(run, new, tmp_path, "--keep", "y,a")
    assert list(kept.columns) == ["row", "who", "y", "a", "prediction"]
    np.testing.assert_allclose(kept["y"], new["y"])
    assert list(predicted(run, new, tmp_path, "--keep", "all").columns) == [
        "row",
        "who",
        "a",
        "b",
        "y",
        "prediction",
    ]
    assert predicted(run, new, tmp_path, "--keep", "z") == 2


def test_names_that_are_taken_are_not_written_over(tmp_path):
    table = rows().rename(columns={"a": "row", "b": "prediction"})
    assert fit(tmp_path, table) == 0
    found = predicted(tmp_path / "run", table, tmp_path, "--keep", "all")
    assert list(found.columns) == [
        "row_2",
        "who",
        "row",
        "prediction",
        "y",
        "prediction_2",
    ]
    np.testing.assert_allclose(found["row"], table["row"])


def test_new_devices_get_the_model_for_all(run, tmp_path, capsys):
    new = rows(seed=1).assign(who=lambda t: t["who"].replace("d0", "stranger"))
    found = predicted(run, new, tmp_path)
    assert found["prediction"].notna().all()
    assert (
        "6 rows of 1 device not there when fitting ('stranger')"
        in capsys.readouterr().err
    )
    skipped = predicted(run, new, tmp_path, "--unseen", "skip")
    assert skipped["prediction"].isna().sum() == 6
    assert (
        "6 rows without a prediction: devices that were not there when fitting"
        in capsys.readouterr().err
    )
    known = new["who"].to_numpy() != "stranger"
    np.testing.assert_allclose(skipped["prediction"][known], found["prediction"][known])
    assert predicted(run, new, tmp_path, "--unseen", "error") == 2
    assert (
        "--unseen skip, or predict them by one model for all: --unseen pooled"
        in capsys.readouterr().err
    )


def test_a_run_without_a_model_for_newcomers_says_what_can_be_done(tmp_path, capsys):
    assert fit(tmp_path, rows(), "--unseen", "error") == 0
    new = rows().assign(who="stranger")
    assert predicted(tmp_path / "run", new, tmp_path) == 2
    assert "--unseen skip, or fit again with their rows" in capsys.readouterr().err
    assert predicted(tmp_path / "run", new, tmp_path, "--unseen", "pooled") == 2
    assert (
        "no model for newcomers. Leave them without a prediction: --unseen skip"
        in capsys.readouterr().err
    )
    assert (
        predicted(tmp_path / "run", new, tmp_path, "--unseen", "skip")["prediction"]
        .isna()
        .all()
    )


def test_missing_values_can_be_left_without_a_prediction(run, tmp_path, capsys):
    new = rows(seed=1)
    whole = predicted(run, new, tmp_path)
    new.loc[2, "a"], new.loc[4, "b"], new.loc[7, "who"] = np.nan, np.inf, None
    for gone in (new.assign(b=rows(seed=1)["b"]), new.assign(a=rows(seed=1)["a"])):
        assert predicted(run, gone.fillna({"who": "d1"}), tmp_path) == 2
    assert predicted(run, rows().assign(a=np.nan), tmp_path) == 2
    assert "--missing skip" in capsys.readouterr().err
    found = predicted(run, new, tmp_path, "--missing", "skip")
    assert found.index[found["prediction"].isna()].tolist() == [2, 4, 7]
    rest = found["prediction"].notna()
    np.testing.assert_allclose(found["prediction"][rest], whole["prediction"][rest])
    assert (
        "3 rows without a prediction: values missing or infinite."
        in capsys.readouterr().err
    )


def test_a_run_that_imputes_fills_them_in(tmp_path):
    table = rows()
    table.loc[3, "a"] = np.nan
    assert fit(tmp_path, table, "--impute") == 0
    assert predicted(tmp_path / "run", table, tmp_path)["prediction"].notna().all()


def test_chances_of_classes_where_rows_are_left_out(tmp_path, capsys):
    table = rows().assign(y=lambda t: np.where(t["y"] > 5, "hi", "lo"))
    assert fit(tmp_path, table) == 0
    table.loc[1, "a"] = np.nan
    found = predicted(tmp_path / "run", table, tmp_path, "--missing", "skip")
    assert list(found.columns) == ["row", "who", "prediction", "chance_hi", "chance_lo"]
    assert found.isna().sum().tolist() == [0, 0, 1, 1, 1]


# What a table may hold


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["1,234", "56,789", "7"],
            r"may be 1234 or 1\.234\. .*--thousands ,\) for the first, .*--decimal ,\) for",
        ),
        (["1,234,567", "999"], r"commas between thousands.*--thousands ,"),
        (["1,234.5", "2,000.25"], r"commas between thousands.*--thousands ,"),
        (["1,234", "12.5"], r"commas between thousands.*--thousands ,"),
        (["0,123", "0,456"], r"decimal comma.*--decimal ,"),
        (["1,5", "2,25"], r"decimal comma.*--decimal ,"),
        (
            ["1.234,5", "2.000,25", "17,3"],
            r"dots between thousands.*--thousands \.\) and .*--decimal ,",
        ),
        (["1.234.567", "2.000.000"], r"dots between thousands.*--thousands \."),
        (["1 234", "5 678"], r"marks between thousands. Write them without"),
    ],
)
def test_marks_in_numbers(cells, words):
    with pytest.raises(InputError, match=words):
        refuse_numbers(pd.Series(cells * 4), "x")


@pytest.mark.parametrize(
    "cells",
    [
        ["1.2.3.4", "4.5.6.7"],
        ["12 34", "56 78"],
        ["a,b", "c,d"],
        ["1", "2"],
        ["A1", "B2"],
    ],
)
def test_codes_are_no_numbers(cells):
    refuse_numbers(pd.Series(cells), "x")


def test_thousands_are_read_when_told(tmp_path):
    (tmp_path / "t.csv").write_text('who,x\na,"1,234"\nb,"5,678,901"\n')
    assert read_frame(tmp_path / "t.csv", thousands=",", text="who")["x"].tolist() == [
        1234,
        5678901,
    ]
    table = rows()
    text = table.assign(a=[f"{10000 * v:,.0f}" for v in table["a"]])
    assert fit(tmp_path, text, "--thousands", ",") == 0
    # the run remembers how its table was read
    found = predicted(tmp_path / "run", text, tmp_path)
    assert found["prediction"].notna().all()
    assert json.loads((tmp_path / "run" / "spec.json").read_text())["thousands"] == ","


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_all_kinds_of_line_ends(tmp_path, end):
    text = rows().to_csv(index=False, lineterminator=end)
    (tmp_path / "t.csv").write_bytes(text.encode())
    found = read_frame(tmp_path / "t.csv", text="who")
    pd.testing.assert_frame_equal(found, rows(), check_dtype=False)
    (tmp_path / "t.csv").write_bytes(text.replace("a,b", '"a\nline",b').encode())
    assert "a\nline" in read_frame(tmp_path / "t.csv", text="who").columns


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b"who," + b"x" * 200_000 + b",y\n1,2,3\n",
            "first line of 't.csv' could not be read",
        ),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "could not be read"),
    ],
)
def test_odd_files_get_a_sentence(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_frame(tmp_path / "t.csv", text="who")


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (
            "y",
            1e200,
            (
                "column 'y' of 'run.csv' holds 1 number too large to compute with, such as 1e+200"
                " (at most 1e+100)"
            ),
        ),
        (
            "a",
            -1e300,
            "column 'a' of 'run.csv' holds 1 number too large to compute with",
        ),
        ("y", np.inf, "column 'y' of 'run.csv' holds 1 infinite value."),
        ("a", np.inf, "column 'a' of 'run.csv' holds 1 infinite value."),
    ],
)
def test_numbers_without_end(tmp_path, capsys, column, value, words):
    table = rows()
    table.loc[3, column] = value
    assert fit(tmp_path, table) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [[], ["--task", "classification"]])
def test_two_values_that_are_no_whole_numbers_are_classes(tmp_path, capsys, more):
    table = rows().assign(y=lambda t: np.where(t["y"] > 5, 2.5, 3.1))
    assert fit(tmp_path, table, *more) == 0
    found = predicted(tmp_path / "run", table, tmp_path)
    assert set(found["prediction"]) <= {2.5, 3.1}
    assert {"chance_2.5", "chance_3.1"} < set(found.columns)


def test_two_rows_with_two_labels(tmp_path, capsys):
    assert fit(tmp_path, "who,a,y\nx,1,2.5\nz,2,3.5\n") in (0, 2)
    said = capsys.readouterr()
    assert "Unknown label type" not in said.err
    assert "defect" not in said.err


def test_one_class_is_named_plainly(tmp_path, capsys):
    assert fit(tmp_path, rows().assign(y=0.0), "--task", "classification") == 2
    assert "Got 1 class: 0.0." in capsys.readouterr().err


def test_true_and_false_are_no_texts(tmp_path, capsys):
    assert fit(tmp_path, rows().assign(y=lambda t: t["y"] > 5)) == 0
    assert "y holds True and False, taken as classes." in capsys.readouterr().err


def test_a_column_that_counts_rows_is_named(tmp_path, capsys):
    table = rows()
    table.insert(0, "rownames", range(1, len(table) + 1))
    assert fit(tmp_path, table) == 0
    said = capsys.readouterr()
    assert "column 'rownames' only counts the rows" in said.err
    assert "3 features (rownames, a, b)" in said.out
    assert fit(tmp_path, table.drop(columns="rownames"), name="other") == 0
    assert "only counts" not in capsys.readouterr().err


def test_one_device_is_one_device(tmp_path, capsys):
    path, out = tmp_path / "t.csv", tmp_path / "one"
    rows(devices=1, each=12).to_csv(path, index=False)
    assert (
        main(["fit", str(path), "--device", "who", "--label", "y", "--out", str(out)])
        == 0
    )
    said = capsys.readouterr().out
    assert "1 device, 12 rows" in said
    assert "who helps whom" not in said
    page = (out / "report.html").read_text()
    assert "1 devices" not in page
    assert "the only device" in page


# What is said when something is wrong


def test_a_missing_option_is_one_line(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "t.csv", "--device", "who", "--out", "x"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert (
        said
        == "persfl fit: the following arguments are required: --label. See persfl fit --help.\n"
    )


def test_help_has_every_command_in_a_group_and_an_example():
    text = parser().format_help()
    named = [command.name for group in COMMANDS.values() for command in group]
    known = next(a for a in parser()._actions if a.metavar == "COMMAND").choices
    assert sorted(named) == sorted(known)
    assert "examples:\n  persfl demo\n" in text
    assert all(f"\n  {name} " in text for name in named)


def test_every_command_of_the_table_is_there():
    listed = [command for group in COMMANDS.values() for command in group]
    for command in [*listed, *(inner for one in listed for inner in one.commands)]:
        if command.run:
            assert callable(pkgutil.resolve_name(f"persfl.commands.{command.run}"))
        else:
            assert command.commands


def test_the_demo_is_a_fit_where_nothing_else_is_said():
    words = ["fit", "t.csv", "--device", "d", "--label", "y", "--out", "o"]
    asked = vars(parser().parse_args(words))
    usual = defaults(FIT)
    assert usual == {name: asked[name] for name in usual} | dict.fromkeys(
        ("device", "label", "out")
    )


def test_out_is_a_file(tmp_path, capsys):
    (tmp_path / "run").write_text("precious")
    for more in ([], ["--force"], ["--resume"]):
        assert fit(tmp_path, rows(), *more) == 2
        assert "is a file. Name a folder for the run" in capsys.readouterr().err
    assert (tmp_path / "run").read_text() == "precious"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (
            InputError("peers must be at most 3."),
            2,
            "persfl: peers must be at most 3.\n",
        ),
        (
            PermissionError(13, "Permission denied", "/data/x"),
            2,
            "Check the path and its permissions.",
        ),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (MemoryError(), 2, "not enough memory"),
        (
            ValueError("shapes (3,) and (4,)"),
            70,
            "ValueError: shapes (3,) and (4,). This is a defect of persfl, please report",
        ),
        (KeyError("models"), 70, "KeyError: 'models'. This is a defect of persfl"),
        (
            FileNotFoundError(2, "No such file", cli.__file__ + ".gone"),
            70,
            "FileNotFoundError",
        ),
    ],
)
@pytest.mark.parametrize("debug", [[], ["before"], ["after"]])
def test_mistakes_and_defects_are_told_apart(
    monkeypatch, capsys, error, status, words, debug
):
    def broken(chosen):
        raise error

    monkeypatch.setattr("persfl.commands.run_output.write_report_again", broken)
    if cli.__file__ in str(error) and isinstance(error, FileNotFoundError):
        monkeypatch.setattr(
            error, "filename", os.path.join(os.path.dirname(cli.__file__), "page.gone")
        )
    before, after = (
        ["--debug"] if where in debug else [] for where in ("before", "after")
    )
    assert main([*before, "report", "run", *after]) == status
    said = capsys.readouterr().err
    assert words in said
    assert ("Traceback" in said) == bool(debug)
    assert len(said.splitlines()) == 1 or debug


def test_a_module_of_ones_own_is_not_called_ours():
    chosen = parser().parse_args(
        [
            "fit",
            "t.csv",
            "--device",
            "a",
            "--label",
            "b",
            "--out",
            "c",
            "--model",
            "net.py:Net",
        ]
    )
    sentence, status = cli.explained(RuntimeError("size mismatch"), chosen)
    assert (status, "a defect of net.py:Net or of persfl" in sentence) == (70, True)


def test_seconds_are_those_the_person_waited(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("time.perf_counter", iter(range(0, 10**9, 1000)).__next__)
    assert fit(tmp_path, rows()) == 0
    seconds = int(capsys.readouterr().out.split(" s.")[0].split("; ")[-1])
    assert seconds >= 1000


def test_compare_counts_devices_as_fit_does(tmp_path, capsys):
    table = pd.concat(
        [rows(), rows(devices=3, each=2).assign(who=lambda t: "small-" + t["who"])]
    )
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    words = [
        str(path),
        "--device",
        "who",
        "--label",
        "y",
        "--rounds",
        "3",
        "--trials",
        "1",
    ]
    assert main(["compare", *words]) == 0
    assert "rows of 6 devices" in capsys.readouterr().out
    assert main(["fit", *words, "--out", str(tmp_path / "x"), "--no-report"]) == 0
    assert "rows of 6 devices" in capsys.readouterr().out


def test_compare_over_seeds_keeps_to_the_order_of_time(tmp_path, capsys):
    path = tmp_path / "t.csv"
    table = rows(each=12)
    late = table.groupby("who").cumcount() >= 8
    table.loc[late, "y"] += 100.0  # nobody who learns from early rows can know
    table.to_csv(path, index=False)
    words = [
        "compare",
        str(path),
        "--device",
        "who",
        "--label",
        "y",
        "--few",
        "8",
        "--seeds",
        "1",
        "--methods",
        "local,blend",
    ]
    found = {}
    for order in ([], ["--ordered"]):
        assert main([*words, *order, "--json"]) == 0
        found[bool(order)] = {
            one["method"]: one["error"]
            for one in json.loads(capsys.readouterr().out)["methods"]
        }
    assert found[True]["local"] > 100 * found[False]["local"]
    assert main([*words, "--ordered"]) == 0
    assert (
        "48 rows to learn from and 24 later ones to judge by" in capsys.readouterr().out
    )


# Spreadsheets


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
