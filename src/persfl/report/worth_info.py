"""What a report says of a run: what learning together is worth, in sentences and in numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from persfl.checks import many
from persfl.evaluation.intervals import Verdict, percent
from persfl.evaluation.verdicts import ARMS, Worth

if TYPE_CHECKING:
    from persfl.report.blocks import Blocks
    from persfl.types import IntArray

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


def question(devices: int, device: str, what: str) -> str:
    """The question that the page answers."""
    if devices == 1:
        return f"How well can the only device ({device}) predict {what}?"
    all_of_them = f"{many(devices, 'device')} ({device})"
    return f"Which of {all_of_them} help each other to predict {what}?"


def sentence(verdict: Verdict, rows: int) -> str:
    """What may be said of the whole fleet.

    >>> sentence(Verdict(0.2, 0.1, 0.3, "helps", 50, 0.7, 0.3, 0.001), 400)[:67]
    "Personalizing removes 20 % of the fleet's error (95 % interval 10 %"
    """
    if verdict.says == "not measured":
        return "No rows were held back, so nothing was measured."
    ends = (
        f"95 % interval of the gain {percent(verdict.low)} to {percent(verdict.high)}"
    )
    where = f"{many(rows, 'row')} of {many(verdict.devices, 'device')}"
    measured = f"measured on {where} that the models had not seen"
    if verdict.says == "helps":
        ends = ends.replace(" of the gain", "")
        said = f"Personalizing removes {percent(verdict.gain)} of the fleet's error"
        return f"{said} ({ends}), {measured}.{_better_and_worse(verdict)}"
    means = {
        "hurts": "Models from own rows alone do better",
        "better on average, worse for most": (
            "Personalizing is better on average and worse for most"
        ),
        "worse on average, better for most": (
            "Personalizing is worse on average and better for most"
        ),
    }
    start = means.get(
        verdict.says, "No clear difference between personalizing and own rows alone"
    )
    ways = (
        f"removes {percent(verdict.gain)} of",
        f"adds {percent(_added(verdict.gain))} to",
    )
    how = ways[verdict.gain < 0]
    did = f"{start}: it {how} the fleet's error"
    if verdict.says == "hurts":
        did = f"{start}: their error is {percent(-verdict.gain)} lower over the fleet"
    elif verdict.says.startswith("no clear"):
        did += ", and that may be chance"
    return f"{did} ({ends}), {measured}.{_better_and_worse(verdict)}"


def _added(gain: float) -> float:
    """How much of the rival's error comes on top, at most all of it once more."""
    return min(-gain / (1.0 + gain), 1.0) if gain > -1 else 1.0


def _better_and_worse(verdict: Verdict) -> str:
    """How many devices have less error, and how many more."""
    if not verdict.better >= 0:
        return ""
    shares = f"{percent(verdict.better)} of devices have less error than alone"
    return f" {shares}, {percent(verdict.worse)} more."


def better_rivals(worth: Worth | None) -> list[str]:
    """Whoever does better than the personalized models is named."""
    rivals = ("pooled", "centred", "tuned")
    arms = [] if worth is None else [arm for arm in rivals if arm in worth.arms]
    better = [ARMS[arm] for arm in arms if worth and worth.fleet(arm).says == "hurts"]
    what = "On these rows a simpler way does better than personalizing"
    return [f"{what}: {'; '.join(better)}."] if better else []


Groups = Mapping[Hashable, object]  # of device ids
# thirds by number of rows make sense from so many devices on
_THIRDS = 9
_INTERVAL = ("gain", "low", "high")
_SHOWN = ("devices", *_INTERVAL, "says")


def worth_info(
    worth: Worth, rows: IntArray, layout: Blocks, groups: Groups | None
) -> dict[str, Any]:
    """Verdicts on the fleet, on groups and on devices, as plain numbers."""
    fleet = worth.fleet()
    held = int(worth.table["held"].sum())
    verdict = fleet._asdict() | {"sentence": sentence(fleet, held)}
    del verdict["devices"]
    device = worth.device()
    similar = {
        name: plain_numbers(device[f"similar_{name}"])
        for name in ("devices", *_INTERVAL)
    }
    columns = ("own", "personal", *_INTERVAL)
    small = device["small"].tolist()
    each = {name: plain_numbers(device[name]) for name in columns}
    says = device["verdict"].tolist()
    return {
        "rows": held,
        "verdict": verdict,
        "arms": worth.summary(),
        "groups": _groups(worth, rows, layout, groups),
        "device": {**each, "says": says, "small": small, "similar": similar},
    }


def _groups(
    worth: Worth, rows: IntArray, layout: Blocks, groups: Groups | None
) -> list[dict[str, Any]]:
    """A verdict for every group of devices: the person's own, by rows, by who helps whom."""
    kinds: dict[str, list[Any]] = {}
    if groups is not None:
        ids = worth.table["device"].tolist()
        kinds["your groups"] = [groups.get(name) for name in ids]
    if len(rows) >= _THIRDS and rows.min() < rows.max():
        thirds = _by_rows(rows)
        if len(set(thirds)) > 1:
            kinds["rows"] = thirds
    if len(layout.starts) > 2:
        kinds["who helps whom"] = [f"block {k + 1}" for k in layout.block.tolist()]
    orders = {
        "rows": lambda names: names.map(lambda name: int(name.split()[0])),
        "who helps whom": None,
    }
    found: list[dict[str, Any]] = []
    for kind, names in kinds.items():
        table = worth.groups(names)
        if kind in orders:
            table = table.sort_values("group", key=orders[kind])
        for row in table[table["devices"] > 0].to_dict(orient="records"):
            shown = {name: row[name] for name in _SHOWN}
            found.append({"kind": kind, "name": str(row["group"]), **shown})
    return found


def _by_rows(rows: IntArray) -> list[str]:
    """The third of the devices, by number of rows, that each belongs to, by how many those have."""
    edges = np.unique(np.quantile(rows, [0, 1 / 3, 2 / 3, 1], method="lower"))
    part = np.searchsorted(edges, rows, side="right") - 1
    part = np.clip(part, 0, max(len(edges) - 2, 0))
    names = {k: _row_range(rows[part == k]) for k in np.unique(part).tolist()}
    return [names[k] for k in part.tolist()]


def _row_range(rows: IntArray) -> str:
    """How many rows the devices of a group have."""
    low = int(rows.min())
    high = int(rows.max())
    return many(low, "row") if low == high else f"{low} to {high} rows"


def plain_numbers(values: ArrayLike) -> list[float | None]:
    """Numbers as JSON has them: null for what is not one."""
    found = np.asarray(values, dtype=np.float64)
    return [float(v) if np.isfinite(v) else None for v in found]
