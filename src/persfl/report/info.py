"""The plain numbers a report is drawn from: a dict that `json.dumps` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from persfl import __version__
from persfl.checks import many
from persfl.evaluation.intervals import Verdict, percent
from persfl.evaluation.verdicts import ARMS, Worth
from persfl.evaluation.who_helps import (
    VERDICTS,
    pairs_known,
    reward_interval,
    verdict_codes,
)
from persfl.fitting import Fitted, fitted_of
from persfl.fitting.fitted import HasFitted
from persfl.report.blocks import Blocks, blocks, shares
from persfl.report.makeup import makeup
from persfl.training import peers_asked
from persfl.trust import Trust
from persfl.types import Array

# helpers shown per device, fewer where devices are many: the page must stay small
TOP = 15
POINTS = 40  # points of a loss curve, likewise
MOST_HELPERS, MOST_POINTS = 24_000, 80_000  # in all

PRIVACY = [
    "No raw rows leave a device: what travels are models, and answers computed from private rows.",
    (
        "That is not privacy by itself. Unprotected answers can determine the rows they come from:"
        " about as many gradient answers as there are features give away a linear device's second"
        " moments; one row and an intercept give that row away; leaves of a small tree carry"
        " private labels."
    ),
    (
        "This page itself shows every device's errors, and who helps whom. Share it only with"
        " people who may know that."
    ),
]
MEANINGS = {
    "estimator": "what a model is",
    "method": (
        "blend: mix own rows, fleet and neighbours; paper: the printed algorithms; kin: learn from"
        " all devices that answer from the same truth"
    ),
    "budget": (
        "how many refits, or four times as many short steps, a device asks its neighbours for"
    ),
    "ordered": "whether a device's rows come in the order of time",
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


def info(
    model: Fitted | HasFitted,
    *,
    device: str = "device",
    label: str = "y",
    groups: Mapping[Any, Any] | None = None,
) -> dict[str, Any]:
    """What a report shows of a fitted PersonalizedRegressor or PersonalizedClassifier.

    `device` and `label` are what they are called; `groups` is a dict of device id to a group that
    gets its own verdict.

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
    layout = blocks(shares(fitted.trust))
    classes, worth = fitted.classes, fitted.worth
    return {
        "title": f"{label} in {many(n, 'device')}",
        "asked": _asked(
            n, device, f"{label} from {many(fitted.schema.features, 'feature')}"
        ),
        "version": __version__,
        "task": "classification" if classes else "regression",
        "words": {
            "device": device,
            "label": label,
            "error": (
                "Brier score (squared error of the chances of all classes)"
                if classes
                else "mean squared error as a share of the label's variance"
            ),
        },
        "devices": {
            "ids": ids,
            "rows": fitted.rows.tolist(),
            "held": worth.table["held"].tolist() if worth is not None else [0] * n,
            "cluster": layout.block.tolist(),
        },
        "made_of": makeup(fitted),
        "method": fitted.notes[0],
        "worth": None if worth is None else _worth(worth, fitted.rows, layout, groups),
        "help": _help(fitted.trust, ids, layout),
        "loss": _loss(fitted.losses),
        "settings": _settings(fitted),
        "notes": [*fitted.notes[1:], *better_rivals(worth)],
        "privacy": PRIVACY,
    }


def _asked(n: int, device: str, what: str) -> str:
    """The question that the page answers."""
    if n == 1:
        return f"How well can the only device ({device}) predict {what}?"
    return f"Which of {many(n, 'device')} ({device}) help each other to predict {what}?"


def sentence(verdict: Verdict, rows: int) -> str:
    """What may be said of the whole fleet."""
    between = f"95 % interval {percent(verdict.low)} to {percent(verdict.high)}"
    measured = (
        f"measured on {many(rows, 'row')} of {many(verdict.devices, 'device')} that the models had"
        " not seen"
    )
    if verdict.says == "helps":
        return (
            f"Asking peers removes about {percent(verdict.gain)} of a typical device's error"
            f" ({between}), {measured}."
        )
    if verdict.says == "hurts":
        return (
            "Models from own rows alone do better: asking peers adds about"
            f" {percent(-verdict.gain)} to a typical device's error"
            f" ({between.replace('interval', 'interval of the gain')}), {measured}."
        )
    if verdict.says == "not measured":
        return "No rows were held back, so nothing was measured."
    does = (
        f"removes {percent(verdict.gain)} of"
        if verdict.gain >= 0
        else f"adds {percent(-verdict.gain)} to"
    )
    return (
        f"No clear difference between asking peers and own rows alone: asking {does} a typical"
        " device's error, and that may be chance"
        f" ({between.replace('interval', 'interval of the gain')}), {measured}."
    )


def better_rivals(worth: Worth | None) -> list[str]:
    """Whoever does better than asking peers is named."""
    if worth is None:
        return []
    better = [
        ARMS[arm]
        for arm in ("pooled", "centred", "tuned")
        if arm in worth.arms and worth.fleet(arm).says == "hurts"
    ]
    if not better:
        return []
    return [
        f"On these rows a simpler way does better than asking peers: {'; '.join(better)}."
    ]


def _worth(
    worth: Worth, rows: Any, layout: Blocks, groups: Mapping[Any, Any] | None
) -> dict[str, Any]:
    fleet, held = worth.fleet(), int(worth.table["held"].sum())
    device = worth.device()
    return {
        "rows": held,
        "verdict": (
            {k: getattr(fleet, k) for k in ("gain", "low", "high", "says")}
            | {"sentence": sentence(fleet, held)}
        ),
        "arms": worth.summary(),
        "groups": _groups(worth, rows, layout, groups),
        "device": {
            "own": _plain(device["own"]),
            "personal": _plain(device["personal"]),
            "gain": _plain(device["gain"]),
            "low": _plain(device["low"]),
            "high": _plain(device["high"]),
            "says": device["verdict"].tolist(),
            "similar": {
                k: _plain(device[f"similar_{k}"])
                for k in ("devices", "gain", "low", "high")
            },
        },
    }


def _groups(
    worth: Worth, rows: Any, layout: Blocks, groups: Mapping[Any, Any] | None
) -> list[dict[str, Any]]:
    kinds: list[tuple[str, list[Any]]] = []
    if groups is not None:
        kinds.append(
            (
                "your groups",
                [groups.get(name) for name in worth.table["device"].tolist()],
            )
        )
    if len(rows) >= 9 and rows.min() < rows.max():
        edges = np.unique(np.quantile(rows, [0, 1 / 3, 2 / 3, 1], method="lower"))
        part = np.clip(
            np.searchsorted(edges, rows, side="right") - 1, 0, max(len(edges) - 2, 0)
        )
        names = {k: _row_range(rows[part == k]) for k in np.unique(part).tolist()}
        if len(names) > 1:
            kinds.append(("rows", [names[k] for k in part.tolist()]))
    if len(layout.starts) > 2:
        kinds.append(
            ("who helps whom", [f"block {k + 1}" for k in layout.block.tolist()])
        )
    found = []
    for kind, named in kinds:
        table = worth.groups(named)
        if kind == "rows":
            table = table.assign(
                first=[int(str(name).split()[0]) for name in table["group"]]
            ).sort_values("first")
        elif kind == "who helps whom":
            table = table.sort_values("group")
        for row in table.itertuples(index=False):
            if row.devices:
                found.append(
                    {"kind": kind, "name": str(row.group)}
                    | {
                        k: getattr(row, k)
                        for k in ("devices", "gain", "low", "high", "says")
                    }
                )
    return found


def _row_range(rows: Any) -> str:
    """How many rows the devices of a group have."""
    low, high = int(rows.min()), int(rows.max())
    return many(low, "row") if low == high else f"{low} to {high} rows"


def _help(trust: Trust, ids: Sequence[str], layout: Blocks) -> dict[str, Any]:
    n = len(ids)
    known = pairs_known(trust)
    target = known["target"].to_numpy()  # sorted, as trust keeps its pairs
    order = np.lexsort((known["peer"], -known["share"], target))
    first = np.searchsorted(target, np.arange(n))
    shown = known.iloc[
        order[
            np.arange(len(known)) - first[target] < min(TOP, max(2, MOST_HELPERS // n))
        ]
    ]
    low, high = reward_interval(shown)
    codes = verdict_codes(shown, trust).tolist() if len(shown) else []
    top: list[list[list[Any]]] = [[] for _ in range(n)]
    columns = [
        shown[name].tolist()
        for name in ("target", "peer", "asked", "adopted", "share", "reward_mean")
    ]
    for owner, *facts, lo, hi, code in zip(
        *columns, _plain(low), _plain(high), codes, strict=True
    ):
        facts[-1] = None if facts[-1] != facts[-1] else facts[-1]
        top[owner].append([*facts, lo, hi, code])
    several = [cell.tolist() for cell in layout.cells]
    names = [
        ids[cell[0]] if len(cell) == 1 else f"{ids[cell[0]]} and {len(cell) - 1} more"
        for cell in several
    ]
    asked = known["asked"].sum()
    return {
        "chance": float(known["adopted"].sum() / asked) if asked else 0.0,
        "matrix": {
            "names": names,
            "devices": several,
            "values": layout.values.tolist(),
            "blocks": layout.starts,
        },
        "top": top,
        "verdicts": list(VERDICTS),
        "met": np.bincount(target, minlength=n).tolist(),
        "answered": (
            np.bincount(known["peer"], weights=known["answered"], minlength=n)
            .astype(np.int64)
            .tolist()
        ),
    }


def _loss(losses: Array) -> dict[str, Any]:
    rounds, n = losses.shape
    at = (
        np.unique(
            np.linspace(0, rounds - 1, min(POINTS, max(6, MOST_POINTS // n)))
            .round()
            .astype(int)
        )
        if rounds
        else np.empty(0, dtype=int)
    )
    kept = losses[at]
    low, middle, high = (
        np.nanquantile(kept, [0.1, 0.5, 0.9], axis=1) if rounds else (np.empty(0),) * 3
    )
    return {
        "rounds": at.tolist(),
        "name": "loss on own rows, in the units of the run",
        "fleet": {
            "low": low.tolist(),
            "median": middle.tolist(),
            "high": high.tolist(),
        },
        "device": (
            [_plain(column) for column in kept.T]
            if rounds
            else [[] for _ in range(losses.shape[1])]
        ),
    }


def _settings(fitted: Fitted) -> list[list[str]]:
    values = dict(vars(fitted.settings))
    values |= {
        "estimator": repr(fitted.learner),
        "step_size": f"{fitted.step_size:g}",
        "rounds": fitted.rounds,
        "units": fitted.units.kind,
        "impute": fitted.schema.impute,
        "unseen": "error" if fitted.pooled is None else "pooled",
        "peers": peers_asked(values["peers"], len(fitted.devices)),
        "random_state": fitted.settings.seed,
    }
    if values["adopter"] is None:
        values["adopter"] = (
            "Best()" if fitted.method == "paper" else f"that of {fitted.method}"
        )
    if values["method"] != fitted.method:
        values["method"] = f"{values['method']}: {fitted.method}"
    foreign = (
        ("peers", "rounds", "step_size", "adopter")
        if fitted.method == "blend"
        else ("budget", "ordered")
    )
    return [
        [name, str(values[name]), meaning]
        for name, meaning in MEANINGS.items()
        if name not in foreign
    ]


def _plain(values: Any) -> list[Any]:
    """Numbers as JSON has them: null for what is not one."""
    return [
        float(v) if np.isfinite(v) else None
        for v in np.asarray(values, dtype=np.float64)
    ]
