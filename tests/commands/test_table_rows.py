"""What a newcomer hands in as a table, and what comes back."""

import json

import numpy as np
import pandas as pd
import pytest
from fitted_runs import fit, predicted, rows

from persfl.cli import main
from persfl.column_checks import refuse_numbers
from persfl.encoding import Preparation
from persfl.errors import InputError, PersflWarning
from persfl.number_marks import marks_in
from persfl.sources.table import read_frame


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


def test_thousands_are_recognised_where_they_are_clear(tmp_path, capsys):
    table = rows()
    text = table.assign(a=[f"{1e7 * v:,.0f}" for v in table["a"]])
    assert fit(tmp_path, text) == 0
    assert "read with --thousands ," in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "spec.json").read_text())["thousands"] == ","
    found = predicted(tmp_path / "run", text, tmp_path)
    plain = table.assign(a=(1e7 * table["a"]).round())
    usual = predicted(tmp_path / "run", plain, tmp_path)
    np.testing.assert_array_equal(found["prediction"], usual["prediction"])


def test_thousands_that_may_be_decimals_are_asked_about(tmp_path, capsys):
    table = rows()
    whole = table[["b", "y"]].round()
    cells = [f"{1000 * (abs(v) + 1):,.0f}" for v in table["a"]]
    text = table.assign(**whole, a=cells)
    assert fit(tmp_path, text) == 2
    assert "--thousands ,) for the first" in capsys.readouterr().err


def european(table):
    """As a spreadsheet in German saves it."""
    text = table.rename(columns={"a": "a ", "who": " who"}).to_csv(
        index=False, sep=";", decimal=","
    )
    return text.replace("d0", "Zo\xeb ").encode("cp1252")


def test_a_table_as_a_european_spreadsheet_saves_it(tmp_path, capsys):
    table = rows()
    table.insert(1, "farm", np.where(table["a"] > 0, "big ", "big"))
    assert fit(tmp_path, european(table)) == 0
    said = capsys.readouterr().err
    assert "read as Windows-1252" in said
    assert "numbers have decimal commas: the table is read with --decimal ," in said
    plain = table.assign(who=table["who"].replace("d0", "Zo\xeb"), farm="big")
    assert fit(tmp_path, plain, name="plain") == 0
    usual = predicted(tmp_path / "plain", plain, tmp_path)
    (tmp_path / "other.csv").write_bytes(european(table))
    words = ["predict", tmp_path / "run", tmp_path / "other.csv", "--out"]
    assert main([str(word) for word in [*words, tmp_path / "out.csv"]]) == 0
    found = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_array_equal(found["prediction"], usual["prediction"])
    assert set(found["who"]) == set(plain["who"])


@pytest.mark.parametrize(
    ("a", "b", "decimal", "thousands"),
    [
        (["1,5", "2"], ["-4,055", "1,234"], ",", None),
        (["1,5", "2"], ["1.234,5", "17"], ",", "."),
        (["0,123", "1,234"], [7, 8], ",", None),
        (["215,000", "12,345"], [-93.61975, 4.2], ".", ","),
        (["1,234", "12.5"], ["x", "y"], ".", ","),
    ],
)
def test_marks_that_leave_no_doubt(a, b, decimal, thousands):
    found = marks_in(pd.DataFrame({"a": a, "b": b}))
    assert (found.decimal, found.thousands) == (decimal, thousands)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["215,000", "12,345"], [93.5, 42.0]),  # which may have been 93.500
        (["1,5", "2"], [0.25, 1.0]),
        (["1,234", "2,345"], ["07.11.2015", "08.11.2015"]),
        (["1,2,3", "4,5"], [1, 2]),
        (["1,5", "x"], [1, 2]),
    ],
)
def test_marks_that_leave_doubt_are_not_guessed(a, b):
    assert marks_in(pd.DataFrame({"a": a, "b": b})) is None


def test_blanks_say_nothing(tmp_path):
    text = "who, x ,kind,z\na , 1,tall ,7 \nb,2 ,tall, \n c, NA, short,8\n"
    (tmp_path / "t.csv").write_text(text)
    found = read_frame(tmp_path / "t.csv", text="who")
    assert found["who"].tolist() == ["a", "b", "c"]
    assert found["kind"].tolist() == ["tall", "tall", "short"]
    assert found["x"].tolist()[:2] == [1.0, 2.0]
    assert found[["x", "z"]].isna().sum().tolist() == [1, 1]


def test_a_mark_among_numbers_is_a_missing_value(tmp_path):
    text = "who;x;grade;z\na;1,5;A;-\nb;-;-;-\nc; ? ;B;-\n"
    (tmp_path / "t.csv").write_text(text)
    with pytest.warns(
        PersflWarning, match="column 'x' holds numbers, and '-' in 2 rows"
    ):
        found = read_frame(tmp_path / "t.csv", text="who", decimal=",")
    assert found["x"].dropna().tolist() == [1.5]
    assert found["grade"].tolist() == ["A", "-", "B"]
    assert found["z"].tolist() == ["-", "-", "-"]
    assert marks_in(pd.DataFrame({"x": ["1,5", "-"]})).decimal == ","


def test_numbers_with_a_unit_are_numbers_and_that_is_said(tmp_path):
    text = "who;price;share;way;weight;room\na;$106.00;83.9%; 528 mi;1,5 kg;A7\n"
    text += "b;-$7.50;-;1,073 mi;2 kg;B7\nc;;n/a;3 mi;3;C7\n"
    (tmp_path / "t.csv").write_text(text)
    with pytest.warns(PersflWarning) as said:
        found = read_frame(tmp_path / "t.csv", text="who", thousands=",")
    assert found["price"].tolist()[:2] == [106.0, -7.5]
    assert found["share"].dropna().tolist() == [83.9]
    assert found["way"].tolist() == [528.0, 1073.0, 3.0]
    # one cell without the unit, and letters in front, may mean something else
    assert found["weight"].tolist() == ["1,5 kg", "2 kg", "3"]
    assert found["room"].tolist() == ["A7", "B7", "C7"]
    wanted = [
        "column 'price' holds numbers with '$' before them, and is read as numbers.",
        "column 'share' holds numbers with '%' behind them, and is read as numbers.",
        "column 'way' holds numbers with 'mi' behind them, and is read as numbers.",
    ]
    assert set(wanted) <= {str(one.message) for one in said}


def test_thousands_inside_numbers_with_a_unit_are_found(tmp_path):
    cells = pd.DataFrame({"who": list("abc"), "price": ["$1,250.50", "$3", "$20"]})
    cells.to_csv(tmp_path / "t.csv", index=False)
    found = read_frame(tmp_path / "t.csv", text="who")
    assert marks_in(found).thousands == ","


def test_dates_with_names_of_months_are_no_categories():
    for cells in (["Jan 1 2001", "Feb 1 2001"], ["1-Jan-2001", "1 March 2001"]):
        with pytest.raises(InputError, match="holds dates, such as '.*: time='x'"):
            refuse_numbers(pd.Series(cells), "x")
    refuse_numbers(pd.Series(["May flower", "Marble 2001", "Market 5 2001"]), "x")


def test_categories_with_blanks_of_an_earlier_run_are_known_without():
    fitted = Preparation(pd.DataFrame({"kind": ["tall ", "short", "tall", " wide"]}))
    assert fitted.columns == ["kind= wide", "kind=short", "kind=tall", "kind=tall "]
    found = fitted(pd.DataFrame({"kind": ["wide", "tall", "tall ", "x"]}))
    assert found.argmax(axis=1).tolist() == [0, 2, 3, 0]
    assert found.sum(axis=1).tolist() == [1, 1, 1, 0]


def test_one_name_with_and_without_a_blank_is_one_name(tmp_path):
    (tmp_path / "t.csv").write_text("who,x, x\na,1,2\n")
    with pytest.raises(InputError, match="column 'x' more than once"):
        read_frame(tmp_path / "t.csv", text="who")


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
        (b"", "'t.csv' is empty. Its first line must name the columns"),
        (b"\n \n", "'t.csv' is empty."),
        (
            b"who,a\n1,2\n3,4,5\n",
            "row 3 of 't.csv' has 3 cells, where the first line names 2 columns",
        ),
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
    assert (
        "column 'rownames' only counts the rows and is learned from all the same. Leave it out:"
        " --drop rownames."
    ) in said.err
    twice = table.assign(again=table["rownames"])
    assert fit(tmp_path, twice, name="twice") == 0
    assert (
        "columns 'rownames', 'again' only count the rows and are learned from all the same. Leave"
        " them out: --drop rownames,again."
    ) in capsys.readouterr().err
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


@pytest.mark.parametrize("option", ["--device", "--label", "--weight", "--time"])
def test_a_column_without_a_name_is_a_sentence(tmp_path, capsys, option):
    path = tmp_path / "rows.csv"
    path.write_text("who,x,y\na,1,2\nb,2,3\n")
    words = {"--device": "who", "--label": "y"} | {option: ""}
    told = [f"{name}={value}" for name, value in words.items()]
    assert main(["fit", str(path), *told, "--out", str(tmp_path / "run")]) == 2
    assert "'rows.csv' has no column ''" in capsys.readouterr().err
