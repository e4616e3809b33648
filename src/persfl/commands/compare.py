"""`persfl compare`: several ways to learn on the same held-out rows of a table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from persfl.checks import many
from persfl.commands import method_comparison
from persfl.commands.answers import print_errors, seconds
from persfl.commands.progress import Progress
from persfl.commands.run_tables import check_out
from persfl.commands.table_fit import estimator_for, print_remarks
from persfl.commands.table_rows import read_rows
from persfl.estimators.personalized import rows_by_device
from persfl.fitting.date_columns import date_notes
from persfl.lab.trial import compare, summary
from persfl.methods import Blend
from persfl.spreadsheets import write_csv
from persfl.training.state import Forget

if TYPE_CHECKING:
    from persfl.evaluation.verdicts import Worth


def compare_table(chosen: argparse.Namespace) -> int:
    """All methods on the same held-out rows."""
    over_seeds = method_comparison.is_over_seeds(chosen)
    endings = (".csv", ".json") if over_seeds else (".csv",)
    check_out(chosen.out, *endings, table=chosen.table)
    rows = read_rows(chosen)
    print_remarks(chosen, rows.remarks)
    # over seeds every method has its turn; there are no newcomers to predict for
    method = Blend() if over_seeds else None
    model = estimator_for(chosen, rows, method, unseen="error")
    table = (rows.X, rows.y, rows.devices, rows.weight)
    asked = rows_by_device(model, *table, aside=rows.aside)
    classes = asked.schema.labels.count
    print_remarks(chosen, date_notes(asked.dates, asked.rows, classes, asked.order))
    if over_seeds:
        return method_comparison.compare_methods(chosen, rows.path.name, asked)
    progress = Progress(Forget(), lines=chosen.json)
    worth = compare(
        model,
        rows.X,
        rows.y,
        rows.devices,
        sample_weight=rows.weight,
        aside=rows.aside,
        keep=progress,
    )
    progress.close()
    if chosen.out:
        errors = worth.device().rename(columns={"personal": "personalized"})
        write_csv(errors, Path(chosen.out), verbatim=chosen.verbatim)
    if chosen.json:
        methods = json.loads(summary(worth).reset_index().to_json(orient="records"))
        print(json.dumps({"event": "done", "methods": methods}))
    else:
        _print(worth, chosen)
    return 0


def _print(worth: Worth, chosen: argparse.Namespace) -> None:
    held = worth.table["held"]
    rows = many(int(held.sum()), "row")
    devices = many(int((held > 0).sum()), "device")
    squared = "mean squared error over the label's variance"
    what = "Brier score" if worth.classes else squared
    where = f"on {rows} of {devices} that no model saw"
    print(f"{what}, {where}; {seconds(chosen)}.\n")
    print_errors(worth)
    print(
        "\nThe last column counts every device once. Where its interval contains 0, the difference"
        " may be chance."
    )
    if chosen.out:
        print(f"Every device's errors are in {chosen.out}.")
    print("All methods on equal terms, kin and blend too: add --seeds 5.")
