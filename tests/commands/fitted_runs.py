"""Small tables, fitted on the command line."""

import numpy as np
import pandas as pd

from persfl.cli import main

QUICK = ["--method", "paper", "--rounds", "3", "--trials", "1", "--no-report"]


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


def predicted(run, table, tmp_path, *more):
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"
    table.to_csv(path, index=False)
    status = main(["predict", str(run), str(path), "--out", str(out), *more])
    return pd.read_csv(out) if status == 0 else status
