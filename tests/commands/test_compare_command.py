"""Comparing on the command line."""

import json

import pandas as pd
from fitted_runs import rows

from persfl.cli import main


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
        "--method",
        "paper",
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
        "own,blend",
    ]
    found = {}
    for order in ([], ["--ordered"]):
        assert main([*words, *order, "--json"]) == 0
        found[bool(order)] = {
            one["method"]: one["error"]
            for one in json.loads(capsys.readouterr().out)["methods"]
        }
    assert found[True]["own"] > 100 * found[False]["own"]
    assert main([*words, "--ordered"]) == 0
    assert (
        "48 rows to learn from and 24 later ones to judge by" in capsys.readouterr().out
    )
