"""Who helps whom: what Trust knows, as a table for people, with a verdict per pair.

`alike`: is this device like me? The chance that a model for it is right for me too
(`persfl.evaluation.alike` says how it is found; the verdict follows from it). `share` is what the
model is made of. Whether a model depends on those named is another question, and no pair has rows
enough to answer it: `persfl.fitting.removal` measures it over the fleet.

A peer's *reward* is by how much its answer would have lowered the target's own loss; it shrinks as
the target learns, so its mean over rounds says more about early rounds. After blend, adopted
answers are counted as if neighbours were the whole model; how much of it they are is what
`made_of()` says.

It is a statement about the rows these devices have in this run: with other rows of the same devices
others may come out on top.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from persfl.evaluation.alike import VERDICTS, alike, verdict_codes

if TYPE_CHECKING:
    import networkx
    import pandas as pd

    from persfl.trust import Trust
    from persfl.types import Array


def helper_table(
    trust: Trust,
    ids: Sequence[Hashable],
) -> pd.DataFrame:
    """One row per pair that was asked, each device's most adopted peers first.

    >>> from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform, personalize
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=20, clusters=2, rows=10, features=5, seed=0)
    >>> fleet = ArrayFleet(
    ...     devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0]
    ... )
    >>> for round_ in personalize(
    ...     fleet, sampler=Uniform(5), adopter=Best(), rounds=200
    ... ):
    ...     pass
    >>> table = helper_table(round_.trust, devices.ids)
    >>> kin = table[table.verdict == "helps"].peer
    >>> bool((devices.clusters[kin] == devices.clusters[0]).all()), len(kin) > 0
    (True, True)
    """
    import pandas as pd

    from persfl.evaluation.helper_frame import HelperFrame

    known = pairs_known(trust)
    order = np.lexsort((known["peer"], -known["share"], known["target"]))
    known = known.iloc[order].reset_index(drop=True)
    found = alike(known, trust)
    names = np.empty(len(ids), dtype=object)
    names[:] = list(ids)
    low, high = reward_interval(known)
    columns = {
        "device": pd.Series(names[known["target"]]).infer_objects(),
        "peer": pd.Series(names[known["peer"]]).infer_objects(),
        **{name: known[name] for name in ("asked", "adopted", "share", "reward_mean")},
        "reward_low": low,
        "reward_high": high,
        "alike": found.chance,
        "verdict": np.array(VERDICTS, dtype=object)[verdict_codes(known, found)],
    }
    return HelperFrame(columns)


def pairs_known(trust: Trust) -> pd.DataFrame:
    """Trust's table; of a mix, adopted answers as if neighbours were the whole model: a round
    of questions adds up to at most 1.
    """
    known = trust.table()
    if "mix" not in trust.notes:
        return known
    part = _neighbours_part(trust)[known["target"].to_numpy()]
    return known.assign(adopted=known["adopted"] / part)


def _neighbours_part(trust: Trust) -> Array:
    """(n,) how much of each mix its neighbours' models are, in the units in which they are more
    of it; 1 where they are nothing.
    """
    kinds = [str(name).split()[:2] for name in trust.notes["mix_names"]]
    part = np.zeros(len(trust.notes["mix"]))
    for units in {kind[0] for kind in kinds}:
        mine = [kind[0] == units and kind[1].startswith("neighbours") for kind in kinds]
        part = np.maximum(part, trust.notes["mix"][:, mine].sum(axis=1))
    return np.where(part > 0, part, 1.0)


def chance(trust: Trust) -> Array:
    """(n,) per device: how often an answer is adopted if all peers are equally good."""
    known = pairs_known(trust)
    target = known["target"].to_numpy()
    asked = np.bincount(target, weights=known["asked"], minlength=trust.n)
    adopted = np.bincount(target, weights=known["adopted"], minlength=trust.n)
    return np.divide(adopted, asked, out=np.zeros(trust.n), where=asked > 0)


def reward_interval(known: pd.DataFrame) -> tuple[Array, Array]:
    """A 95 % interval (Student's) of each pair's mean reward; NaN below two answers."""
    answered = known["answered"].to_numpy(dtype=np.float64)
    mean = known["reward_mean"].to_numpy()
    spread = known["reward_spread"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        # the spread divides by answered, not by one less
        half = stdtrit(answered - 1, 0.975) * spread / np.sqrt(answered - 1)
    half = np.where(answered >= 2, half, np.nan)
    return mean - half, mean + half


def graph(table: pd.DataFrame) -> networkx.DiGraph[Any]:
    """Who helps whom as a networkx graph: an edge from a peer to the device whose model adopted its
    answers (extra `report`).

    >>> import pandas as pd
    >>> row = {
    ...     "device": "ann",
    ...     "peer": "bob",
    ...     "asked": 9,
    ...     "adopted": 4.0,
    ...     "share": 1.0,
    ...     "reward_mean": 0.5,
    ...     "reward_low": 0.1,
    ...     "reward_high": 0.9,
    ...     "verdict": "helps",
    ... }
    >>> g = graph(pd.DataFrame([row]))
    >>> list(g.edges), g["bob"]["ann"]["adopted"]
    ([('bob', 'ann')], 4.0)
    """
    from persfl.errors import need

    nx = need("networkx", extra="report", why="a graph of who helps whom")
    found: networkx.DiGraph[Any] = nx.DiGraph()
    found.add_nodes_from([*table["device"].tolist(), *table["peer"].tolist()])
    for row in table[table["adopted"] > 0].to_dict(orient="records"):
        device = row.pop("device")
        peer = row.pop("peer")
        # nothing is said of what is not known
        facts = {str(name): value for name, value in row.items() if value == value}
        found.add_edge(peer, device, **facts)
    return found
