"""Made-up numbers in the shape of a report, for examples and tests of what is drawn from them.

>>> info = example_info(devices=3)
>>> info["devices"]["ids"], round(info["worth"]["verdict"]["gain"], 2)
(['Abilene', 'Bryan', 'Corsicana'], 0.25)
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from persfl.evaluation.headline import personalized_is
from persfl.evaluation.verdicts import HELPS, TOO_FEW
from persfl.seeds import stream

_PLACES = (
    "Abilene",
    "Bryan",
    "Corsicana",
    "Denton",
    "El Paso",
    "Frisco",
    "Galveston",
    "Houston",
    "Irving",
    "Jasper",
    "Kerrville",
    "Laredo",
    "McAllen",
    "Nacogdoches",
    "Odessa",
    "Paris",
    "Quanah",
    "Round Rock",
    "San Angelo",
    "Temple",
    "Uvalde",
    "Victoria",
    "Waco",
    "Xanadu",
    "Yoakum",
    "Zapata",
)
_ARMS = (
    ("base", "always the mean", 0.7),
    ("own", "own rows only", 0.0),
    ("pooled", "one model for all", 0.45),
    ("centred", "one model for all, device-centred", 0.2),
    ("tuned", "one model for all, fine-tuned on own rows", 0.08),
)
_PEERS = 20
_ROUNDS = 400
_MOST = 150  # rows of the heat map


def example_info(
    devices: int = 8,
    seed: int = 0,
    worth: bool = True,
    task: str = "regression",
    blend: bool = False,
) -> dict[str, Any]:
    """A report's numbers for 3 to some thousand devices in a few blocks, `blend` as if models were
    mixed; nothing was trained.

    >>> info = example_info(devices=40, worth=False, task="classification")
    >>> (
    ...     info["worth"] is None,
    ...     len(info["help"]["top"][0]),
    ...     len(info["help"]["matrix"]["names"]),
    ... )
    (True, 15, 40)
    """
    rng = stream(seed, "example report").generator()
    blocks = max(1, min(5, devices // 4))
    cluster = rng.permutation(np.arange(devices) % blocks)
    ids = [
        _PLACES[i % 26] + (f" {i // 26 + 1}" if i >= 26 else "") for i in range(devices)
    ]
    held = rng.integers(2, 60, devices)
    label = "log_price" if task == "regression" else "sold"
    error = (
        "mean squared error as a share of the label's variance"
        if task == "regression"
        else "log loss"
    )
    return {
        "title": f"{label} in {devices:,} devices",
        "asked": (
            f"Which of {devices:,} devices (city) help each other to predict {label} from 5"
            " features?"
        ),
        "about": [
            ["Table", "prices.csv"],
            ["Features", ", ".join(f"month.of.sales.{i}" for i in range(12))],
        ],
        "version": "0.1.0",
        "task": task,
        "words": {"device": "city", "label": label, "error": error},
        "devices": {
            "ids": ids,
            "rows": (held * 3).tolist(),
            "held": held.tolist(),
            "cluster": cluster.tolist(),
        },
        "method": "Models were made up (method 'example').",
        "made_of": _made_of(stream(seed, "example parts").generator(), cluster)
        if blend
        else None,
        "worth": _worth(rng, held, cluster, task) if worth else None,
        "depends": {
            "sentence": "Without the 3 devices named for each, errors rise by 17 %.",
            "matters": True,
            "device": "Yes: over all devices errors rise by 17 %.",
            "many": 3,
            "refits": 21,
            "named": [0.17, 0.12, 0.22],
            "random": [0.01, -0.02, 0.04],
        },
        "missed": {
            "sentence": f"1 device is missed by the others: {ids[0]}.",
            "devices": ids[:3],
            "missed": [True, False, False],
            "rise": [0.05, 0.01, -0.02],
            "low": [0.01, -0.02, -0.05],
            "high": [0.09, 0.04, 0.01],
        },
        "help": _help(rng, ids, cluster),
        "loss": _loss(rng, devices),
        "settings": [
            ["peers", str(_PEERS), "how many peers a device asks each round"],
            ["rounds", str(_ROUNDS), "how often every device asks"],
            ["step size", "0.25", "how far a peer moves the model it was sent"],
            ["seed", str(seed), "the same seed gives the same result"],
        ],
        "notes": ["The step size 0.5 made losses grow; it was halved to 0.25."],
        "privacy": [
            (
                "Raw rows stay on their device, but an answer is computed from them and can give"
                " them away."
            ),
            "Use this between parties who may exchange models trained on their rows.",
        ],
    }


def _says(low: float, high: float) -> str:
    return "helps" if low > 0 else "hurts" if high < 0 else "no clear difference"


def _worth(
    rng: np.random.Generator, held: Any, cluster: Any, task: str
) -> dict[str, Any]:
    own = rng.lognormal(-1.6, 0.5, len(held))
    gain = (
        0.35
        + 0.12 * np.sin(2.0 * cluster)
        + rng.normal(0, 0.22, len(held))
        - (rng.random(len(held)) < 0.06)
    )
    gain = np.minimum(gain, 0.93)
    half = 1.3 / np.sqrt(held) + 0.06
    low, high = gain - 1.2 * half, np.minimum(gain + half, 0.99)
    personal = own * (1 - gain)
    measured = held > 3
    helps = measured & (low > 0)

    def interval(chosen: Any) -> dict[str, Any]:
        middle = float(np.median(gain[chosen]))
        wide = 0.5 / np.sqrt(np.sum(chosen) + 1) + 0.02
        return {
            "gain": middle,
            "low": middle - wide,
            "high": middle + wide,
            "says": _says(middle - wide, middle + wide),
            "is": personalized_is(_says(middle - wide, middle + wide)),
        }

    def error(of: Any) -> dict[str, float]:
        found = {"error": float(np.mean(of)), "median": float(np.median(of))}
        if task == "classification":
            return found | {"mistakes": float(np.mean(of) * 0.4)}
        return found | {"off_by": float(np.sqrt(np.mean(of)))}

    def known(values: Any) -> list[float | None]:
        return [
            value if m else None
            for value, m in zip(values.tolist(), measured.tolist(), strict=True)
        ]

    fleet = interval(held > 0)
    arms: list[dict[str, Any]] = []
    for key, name, better in _ARMS:
        middle = fleet["gain"] * (1 - better) - better * 0.1
        wide = (fleet["high"] - fleet["low"]) * (0.5 + better)
        found = {
            "gain": middle,
            "low": middle - wide,
            "high": middle + wide,
            "says": _says(middle - wide, middle + wide),
        }
        arms.append(
            {"key": key, "name": name}
            | error(personal / (1 - middle) if better else own)
            | found
        )
    arms.append(
        {"key": "personal", "name": "personalized"}
        | error(personal)
        | dict.fromkeys(("gain", "low", "high", "says"))
    )
    lowest = min(arms, key=lambda arm: arm["error"])
    for arm in arms:
        arm |= {"is": personalized_is(arm["says"]), "lowest": arm is lowest}
    edges = (0, 40, 90, 1000)
    groups = [
        ("rows", f"{a + 1} to {b} rows", (held * 3 > a) & (held * 3 <= b))
        for a, b in pairwise(edges)
    ]
    groups += [
        ("who helps whom", f"block {k + 1}", cluster == k)
        for k in np.unique(cluster).tolist()
    ]
    sentence = (
        f"Personalizing removes {fleet['gain']:.0%} of the error (95 % interval"
        f" {fleet['low']:.0%} to {fleet['high']:.0%}), measured on {held.sum():,} rows that no"
        " model saw.".replace("%", " %").replace("95  %", "95 %")
    )
    return {
        "rows": int(held.sum()),
        "verdict": fleet | {"sentence": sentence},
        "headline": {
            "found": sentence,
            "alone": "On those rows 70 % of devices had less error than alone, 30 % more.",
            "advice": "Use one model for all instead.",
            "says": fleet["says"],
            "use": "pooled",
            "how": "persfl fit rows.csv --device city --label y --method pooled",
        },
        "arms": arms,
        "expected": "",
        "groups": [_group(k, n, c) | interval(c) for k, n, c in groups if c.any()],
        "device": {
            "own": own.tolist(),
            "personal": personal.tolist(),
            "gain": known(gain),
            "low": known(low),
            "high": known(high),
            "says": [
                (
                    None
                    if not m
                    else (
                        HELPS
                        if h
                        else f"{TOO_FEW}; {len(held)} similar devices gained 25 % (14 % to 36 %)"
                    )
                )
                for m, h in zip(measured.tolist(), helps.tolist(), strict=True)
            ],
            "similar": (
                {"devices": [len(held)] * len(held)}
                | {k: [fleet[k]] * len(held) for k in ("gain", "low", "high")}
            ),
        },
    }


def _group(kind: str, name: str, chosen: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "devices": int(chosen.sum())}


def _made_of(rng: np.random.Generator, cluster: Any) -> dict[str, Any]:
    shares = rng.dirichlet([1.0, 3.0, 2.0], len(cluster))
    near: list[list[list[Any]]] = []
    for i, kind in enumerate(cluster.tolist()):
        kin = [j for j in np.flatnonzero(cluster == kind).tolist() if j != i][:4]
        part = 0.8 * shares[i, 2] / 2.0 ** np.arange(1, len(kin) + 1)
        near.append([[j, share] for j, share in zip(kin, part.tolist(), strict=True)])
    return {
        "names": ["own rows", "fleet", "neighbours"],
        "shares": shares.tolist(),
        "near": near,
    }


def _first(rows: list[list[Any]]) -> list[int]:
    """The first peers that help."""
    return [row[0] for row in rows if row[7] == 0][:5]


def _help(rng: np.random.Generator, ids: list[str], cluster: Any) -> dict[str, Any]:
    n = len(ids)
    peers = min(_PEERS, n - 1)
    same = cluster[:, None] == cluster[None, :]
    asked = rng.poisson(_ROUNDS * peers / (n - 1), (n, n)) * ~np.eye(n, dtype=bool)
    liking = (
        np.where(same, rng.gamma(1.2, 1.0, (n, n)), 0.06 * rng.random((n, n))) * asked
    )
    adopted = np.floor(
        _ROUNDS * liking / np.maximum(liking.sum(1, keepdims=True), 1e-9)
    )
    total = adopted.sum(1, keepdims=True)
    share = adopted / np.maximum(total, 1)
    top = []
    for i in range(n):
        rows = []
        for j in np.lexsort((-asked[i], -share[i]))[:15].tolist():
            if asked[i, j]:
                reward = (
                    0.02 * liking[i, j] / asked[i, j]
                    - 0.004
                    + 0.002 * rng.standard_normal()
                )
                wide = 0.02 / np.sqrt(asked[i, j])
                code = 0 if reward > wide else 1 if reward < -wide else 2
                numbers = [
                    float(x)
                    for x in (share[i, j], reward, reward - wide, reward + wide)
                ]
                counts = [int(asked[i, j]), float(adopted[i, j])]
                rows.append([j, *counts, *numbers, code, (0.97, 0.02, 0.5)[code]])
        top.append(rows)
    chunk = -(-n // (_MOST - 10)) if n > _MOST else 1
    kin = [np.flatnonzero(cluster == k).tolist() for k in np.unique(cluster)]
    groups = [
        block[k : k + chunk] for block in kin for k in range(0, len(block), chunk)
    ]
    starts = np.cumsum([0] + [-(-len(block) // chunk) for block in kin]).tolist()
    order = np.concatenate(groups)
    sizes = np.array([len(rows) for rows in groups])
    first = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(share[np.ix_(order, order)], first, axis=0)
    sums = np.add.reduceat(sums, first, axis=1)
    values = (sums / sizes[:, None]).tolist()
    names = [
        ids[g[0]] if len(g) == 1 else f"{ids[g[0]]} to {ids[g[-1]]}" for g in groups
    ]
    return {
        "chance": 1 / peers,
        "matrix": {
            "names": names,
            "devices": groups,
            "values": values,
            "blocks": starts,
            "never": [[] for _ in groups],
        },
        "kinds": True,
        "like": [[sum(row[7] == 0 for row in rows), *_first(rows)] for rows in top],
        "said": "There are kinds of devices.",
        "top": top,
        "verdicts": ["helps", "hurts", "cannot tell"],
        "met": (asked > 0).sum(1).tolist(),
        "answered": asked.sum(0).tolist(),
    }


def _loss(rng: np.random.Generator, n: int) -> dict[str, Any]:
    rounds = np.unique(np.linspace(0, _ROUNDS, 40).astype(int))
    speed, floor = rng.gamma(4.0, 0.008, (n, 1)), rng.lognormal(-3.2, 0.6, (n, 1))
    curves = rng.lognormal(0.4, 0.35, (n, 1)) * np.exp(-speed * rounds) + floor * (
        1 + 0.04 * rng.random((n, len(rounds)))
    )
    low, median, high = np.quantile(curves, [0.1, 0.5, 0.9], axis=0).tolist()
    return {
        "rounds": rounds.tolist(),
        "name": "loss on own rows",
        "fleet": {"low": low, "median": median, "high": high},
        "device": curves.tolist(),
    }
