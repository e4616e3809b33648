"""`persfl leaks`: what a fleet's answers give away, and what protection leaves of that."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from persfl.checks import percent
from persfl.commands.progress import table
from persfl.commands.run_output import model_of
from persfl.commands.run_tables import model_ids, read_like_fit
from persfl.fitting.fitted import Fitted
from persfl.lab.leak_meter import NONE, Leak, leaks_of
from persfl.methods import Private
from persfl.runs.leak_words import keep_leaks
from persfl.runs.model_checks import spec_of
from persfl.runs.run_folder import Folder

HEAD = (
    "epsilon",
    "error of X'X",
    "sums known",
    "rows found",
    "worst",
    "by model",
    "labels",
    "error of a row",
)


def measure_leaks(chosen: argparse.Namespace) -> int:
    """Attack own rows, at home, without protection and with it."""
    model = model_of(chosen)
    fitted: Fitted = model.fitted_
    spec = spec_of(Folder.open(Path(chosen.run)))
    frame = read_like_fit(Path(chosen.table), spec, also=[spec["label"]])
    whose = model_ids(frame[spec["device"]], model.devices_)
    X = frame[spec["features"]]
    if model.device is not None:
        X = X.assign(**{model.device: whose})
    devices = None if model.device is not None else whose
    rows, _ = fitted.schema.rows(model, X, frame[spec["label"]], devices, None)
    method = fitted.method
    budgets = {NONE, 8.0, 3.0, 1.0}
    delta = 1e-5
    if isinstance(method, Private):
        budgets.add(method.epsilon)
        delta = method.delta
    if chosen.epsilon is not None:
        budgets.add(chosen.epsilon)
    order = sorted(budgets, key=lambda epsilon: -epsilon or -math.inf)
    inside = fitted.units.inside(rows)
    found = leaks_of(
        inside, fitted.learner, order, delta=delta, seed=fitted.settings.seed
    )
    plain = [_plain(one) for one in found]
    if chosen.json:
        print(json.dumps(plain))
    else:
        _print_leaks(found, delta, Path(chosen.table).name, chosen.run)
    keep_leaks(Path(chosen.run), delta, plain)
    return 0


def _print_leaks(found: list[Leak], delta: float, name: str, run: str) -> None:
    table(HEAD, [_cells(one) for one in found])
    print(
        "\nError of X'X: how far sums over a device's rows, as others know them, are off; 0 is all"
        " of it.\nRows found: by whoever knows all other rows and sees what devices tell, at 1 %"
        " false alarms; in the mean, and\nthe worst row. By model: by losses of a model of own rows"
        " alone, by whoever knows none of them; whoever\nknows all others finds each row in it."
        " Labels: rows alone in a leaf of a tree. Error of a row: of the best\nguess of one that is"
        " all a device has.\n"
        f"delta is {delta:g}. Measured on the rows of {name}, which stay here. persfl report {run}"
        " shows it too."
    )


def _plain(one: Leak) -> dict[str, float | None]:
    facts = one._asdict()
    return {name: None if math.isnan(value) else value for name, value in facts.items()}


def _cells(one: Leak) -> tuple[str, ...]:
    """A line of the table."""
    name = "none" if one.epsilon == NONE else f"{one.epsilon:g}"
    off = "" if math.isnan(one.moments) else f"{one.moments:.2g}"
    shares = (one.known, one.found, one.worst, one.by_model, one.labels)
    cells = ("" if math.isnan(share) else percent(share, digits=1) for share in shares)
    row = "" if math.isnan(one.row) else f"{one.row:.2g}"
    return (name, off, *cells, row)
