"""What every device's model is made of, in shares, and which neighbours by name: plain numbers for
the report.

After blend: own rows, the fleet, neighbours, by what the parts of a mix started from; after kin:
own rows and kin, each device counting as much. A device that fell back to its own model is made of
own rows alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.evaluation.alike import kin_members
from persfl.evaluation.who_helps import pairs_known
from persfl.fitting.fitted import Fitted, HasFitted, fitted_of

# neighbours named per device, and on the whole page: it must stay small
MOST = 8
IN_ALL = 16_000
LEAST = 0.005  # the share of a model that is worth a name
NAMES = {
    "own": "own rows",
    "fleet": "fleet",
    "neighbours": "neighbours",
    "others": "kin",
}


def makeup(model: Fitted | HasFitted) -> dict[str, Any] | None:
    """`names` of the parts, `shares` per device in their order, `near`: each one's neighbours as
    [position, share of the model].

    >>> from persfl import PersonalizedRegressor
    >>> from persfl.methods import Blend
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(
    ...     n=16, clusters=2, rows=12, features=2, noise=0.1, seed=0
    ... )
    >>> found = makeup(
    ...     PersonalizedRegressor(holdout=0, method=Blend(budget=40)).fit(
    ...         rows.X, rows.y, devices=rows.owner
    ...     )
    ... )
    >>> found["names"], round(sum(found["shares"][0]), 6)
    (['own rows', 'fleet', 'neighbours'], 1.0)
    """
    fitted = fitted_of(model)
    trust = fitted.trust
    # a target at home knows of no other's model
    if not {"mix", "member"} & set(trust.notes) or len(trust.targets) < trust.n:
        return None
    made = fitted.made_of()
    parts = [name for name in NAMES if name in made]
    shares = made[parts].to_numpy(dtype=np.float64)
    known = pairs_known(trust)
    target = known["target"].to_numpy()
    peer = known["peer"].to_numpy()
    if "mix" in trust.notes:
        found = [
            str(name).split()[1].startswith("neighbours")
            for name in trust.notes["mix_names"]
        ]
        part = np.minimum(
            trust.notes["mix"][:, found].sum(axis=1), shares[:, -1]
        )  # those who were asked; steps of many have no names
        share = known["share"].to_numpy() * part[target]
    else:
        kin = kin_members(known, trust)
        group = np.bincount(target[kin], minlength=len(shares))
        share = np.where(kin, shares[target, -1] / np.maximum(group[target], 1), 0.0)
    near: list[list[list[Any]]] = [[] for _ in range(len(shares))]
    many = min(MOST, max(1, IN_ALL // len(shares)))
    for k in np.lexsort((peer, -share, target)).tolist():
        if share[k] >= LEAST and len(near[target[k]]) < many:
            near[target[k]].append([int(peer[k]), float(share[k])])
    return {
        "names": [NAMES[name] for name in parts],
        "shares": shares.tolist(),
        "near": near,
    }
