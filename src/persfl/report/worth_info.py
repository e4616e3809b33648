"""What a report says of a run: what learning together is worth, in sentences and in numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from persfl.checks import many
from persfl.evaluation.headline import (
    expected_words,
    headline,
    lowest_arm,
    personalized_is,
)
from persfl.evaluation.verdicts import Worth
from persfl.report.about_run import counted_devices

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
    return f"Which of {counted_devices(devices, device)} help each other to predict {what}?"


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
    told = headline(worth)
    verdict = fleet._asdict() | {"sentence": " ".join(told.sentences)}
    del verdict["devices"]
    lowest = lowest_arm(worth)
    arms = [
        arm | {"is": personalized_is(arm["says"]), "lowest": arm["key"] == lowest}
        for arm in worth.summary()
    ]
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
        "headline": told._asdict() | {"how": ""},
        "arms": arms,
        "expected": expected_words(worth),
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
            shown |= {"is": personalized_is(row["says"])}
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
