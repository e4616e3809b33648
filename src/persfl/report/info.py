"""The plain numbers a report is drawn from: a dict that `json.dumps` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl import __version__
from persfl.checks import many
from persfl.evaluation.alike import (
    VERDICTS,
    Alike,
    alike,
    verdict_codes,
    what_was_found,
)
from persfl.evaluation.error_table import OF_CLASSES, OF_NUMBERS
from persfl.evaluation.who_helps import pairs_known, reward_interval
from persfl.fitting.fitted import Fitted, HasFitted, fitted_of
from persfl.methods import settings_of
from persfl.report.about_run import about_run, counted_devices
from persfl.report.blocks import Blocks, adoption_shares, blocks, pairs_met
from persfl.report.depends_info import depends_info
from persfl.report.like_info import like_info
from persfl.report.makeup import makeup
from persfl.report.next_command import next_line
from persfl.report.worth_info import (
    PRIVACY,
    Groups,
    plain_numbers,
    question,
    worth_info,
)
from persfl.training.state import peers_asked

if TYPE_CHECKING:
    import pandas as pd

    from persfl.trust import Trust
    from persfl.types import Array

# helpers shown per device, fewer where devices are many: the page must stay small
TOP = 15
POINTS = 40  # points of a loss curve, likewise
MOST_HELPERS, MOST_POINTS = 24_000, 80_000  # in all

MEANINGS = {
    "estimator": "what a model is",
    "method": "how models are made; persfl methods lists all of them",
    "budget": (
        "how many refits, or four times as many short steps, a device asks its neighbours for"
    ),
    "ordered": "whether a device's rows come in the order of time",
    "time": "the column that says when each row was; later rows judge",
    "blocks": "the column whose equal entries are hidden together at all devices",
    "gap": "how much before the rows held back is not learned from",
    "horizon": "how far ahead is judged",
    "peers": "how many peers a device asks each round",
    "rounds": "how many rounds",
    "step_size": "length of a step, or weight of a peer's own rows against public points",
    "units": (
        "the scale on which devices compare models: shared is the fleet's mean and spread per"
        " column"
    ),
    "holdout": "share of each device's rows held back to judge by",
    "trials": "how many times rows were held back",
    "fallback": "whether devices keep their own model where the fleet's evidence favours it",
    "unseen": "what happens to devices that were not there when fitting",
    "impute": "whether missing values were filled in",
    "adopter": "which answers are adopted",
    "random_state": "the same number gives the same result",
}
# settings of every fit; the others are those of its method
GENERAL = set(MEANINGS) - {"budget", "peers", "rounds", "step_size", "adopter"}


def info(
    model: Fitted | HasFitted,
    *,
    device: str = "device",
    label: str = "y",
    groups: Groups | None = None,
    table: str = "",
    date: str = "",
) -> dict[str, Any]:
    """What a report shows of a fitted PersonalizedRegressor or PersonalizedClassifier.

    `device` and `label` are what they are called; `groups` is a dict of device id to a group that
    gets its own verdict. `table` and `date` are what the rows came from, and when.

    >>> from persfl import PersonalizedRegressor
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=30, clusters=2, rows=10, features=5, noise=0.1, seed=0
    ... )
    >>> whose = np.repeat(np.arange(30), 10)
    >>> model = PersonalizedRegressor(method="paper").fit(
    ...     devices.X, devices.y, devices=whose
    ... )
    >>> found = info(model)
    >>> found["worth"]["verdict"]["says"], len(found["help"]["matrix"]["blocks"]) - 1
    ('helps', 2)
    """
    fitted = fitted_of(model)
    ids = [str(name) for name in fitted.devices.tolist()]
    n = len(ids)
    known = pairs_known(fitted.trust)
    found = alike(known, fitted.trust)
    layout = blocks(adoption_shares(fitted.trust))
    if not found.kinds:
        layout = layout.undivided()
    classes = fitted.classes
    worth = fitted.worth
    return {
        "title": f"{label} in {counted_devices(n, device)}",
        "asked": question(
            n, device, f"{label} from {many(fitted.schema.features, 'feature')}"
        ),
        "about": about_run(fitted, device, label, table=table, date=date),
        "version": __version__,
        "task": "classification" if classes else "regression",
        "words": {
            "device": device,
            "label": label,
            "error": OF_CLASSES if classes else OF_NUMBERS,
        },
        "devices": {
            "ids": ids,
            "rows": fitted.rows.tolist(),
            "held": worth.table["held"].tolist() if worth is not None else [0] * n,
            "cluster": layout.block.tolist(),
        },
        "made_of": makeup(fitted),
        "method": fitted.notes[0],
        "worth": _worth(fitted, layout, groups),
        "depends": depends_info(fitted),
        "help": _help(fitted.trust, ids, layout, known, found),
        "loss": _loss(fitted.losses),
        "settings": _settings(fitted),
        "notes": list(fitted.notes[1:]),
        "privacy": PRIVACY,
    }


def _worth(
    fitted: Fitted, layout: Blocks, groups: Groups | None
) -> dict[str, Any] | None:
    if fitted.worth is None:
        return None
    found = worth_info(fitted.worth, fitted.rows, layout, groups)
    use = found["headline"]["use"]
    if use:
        found["headline"]["how"] = next_line(use)
    return found


def _help(
    trust: Trust,
    ids: Sequence[str],
    layout: Blocks,
    known: pd.DataFrame,
    found: Alike,
) -> dict[str, Any]:
    n = len(ids)
    target = known["target"].to_numpy()  # sorted, as trust keeps its pairs
    order = np.lexsort((known["peer"], -known["share"], target))
    first = np.searchsorted(target, np.arange(n))
    rank = np.arange(len(known)) - first[target]
    at = order[rank < min(TOP, max(2, MOST_HELPERS // n))]
    shown = known.iloc[at]
    columns = [
        shown[name].tolist() for name in ("target", "peer", "asked", "adopted", "share")
    ]
    rewards = map(plain_numbers, (shown["reward_mean"], *reward_interval(shown)))
    codes = verdict_codes(known, found)
    top: list[list[list[Any]]] = [[] for _ in range(n)]
    for owner, *facts in zip(
        *columns, *rewards, codes[at].tolist(), found.chance[at].tolist(), strict=True
    ):
        top[owner].append(facts)
    several = [cell.tolist() for cell in layout.cells]
    names = [
        ids[cell[0]] if len(cell) == 1 else f"{ids[cell[0]]} and {len(cell) - 1} more"
        for cell in several
    ]
    asked = known["asked"].sum()
    answered = np.bincount(known["peer"], weights=known["answered"], minlength=n)
    return {
        "chance": float(known["adopted"].sum() / asked) if asked else 0.0,
        "matrix": {
            "names": names,
            "devices": several,
            "values": layout.values.tolist(),
            "blocks": layout.starts,
            # a method with a chance for every pair has looked at all of them
            "never": [] if found.known else layout.never(pairs_met(trust)),
        },
        "top": top,
        "verdicts": list(VERDICTS),
        "kinds": found.kinds,
        "like": like_info(known, found, codes, n),
        "said": what_was_found(found, codes),
        "met": np.bincount(target, minlength=n).tolist(),
        "answered": answered.astype(np.int64).tolist(),
    }


def _loss(losses: Array) -> dict[str, Any]:
    rounds, n = losses.shape
    points = min(POINTS, max(6, MOST_POINTS // n)) if rounds else 0
    at = np.unique(np.linspace(0, rounds - 1, points).round().astype(int))
    some = losses[at]
    quantiles = np.empty((3, 0))
    if rounds:
        quantiles = np.nanquantile(some, [0.1, 0.5, 0.9], axis=1)
    names = ("low", "median", "high")
    return {
        "rounds": at.tolist(),
        "name": "loss on own rows, in the units of the run",
        "fleet": dict(zip(names, quantiles.tolist(), strict=True)),
        "device": [plain_numbers(column) for column in some.T],
    }


def _settings(fitted: Fitted) -> list[list[str]]:
    """What was asked, and what it came to: name, value, meaning."""
    method = {one.name: one for one in settings_of(fitted.method)}
    values: dict[str, object] = vars(fitted.settings) | fitted.method.get_params()
    values |= {
        "estimator": repr(fitted.learner),
        "method": fitted.ran,
        "step_size": f"{fitted.step_size:g}",
        "rounds": fitted.rounds,
        "units": fitted.units.kind,
        "impute": fitted.schema.impute,
        "unseen": "error" if fitted.pooled is None else "pooled",
        "random_state": fitted.settings.seed,
    }
    if "peers" in method:
        values["peers"] = peers_asked(method["peers"].value, len(fitted.devices))
    if values.get("adopter") is None:
        values["adopter"] = "Best()"
    more = {name: one.meaning for name, one in method.items() if name not in MEANINGS}
    return [
        [name, str(values[name]), meaning]
        for name, meaning in (MEANINGS | more).items()
        if name in method or name in GENERAL
    ]
