"""The rule on the rows of a panel, and what is kept of it for all other devices."""

from __future__ import annotations

import numpy as np

from persfl.devices import Devices
from persfl.evaluation.row_course import found_order
from persfl.evaluation.row_order import RowOrder
from persfl.methods.mixed.likeness import FleetFacts, same_place
from persfl.methods.mixed.linear_rule import judged_offers
from persfl.methods.mixed.panel_knowledge import PanelKnowledge
from persfl.methods.mixed.principal_axes import PrincipalAxes
from persfl.methods.mixed.sums_blend import SumsBlend


def learned_from_panel(
    rows: Devices,
    *,
    level: bool,
    seed: int,
    order: RowOrder | None = None,
    trees: bool = True,
) -> PanelKnowledge:
    """The rule on the rows of a panel, as if there were no others.

    >>> from persfl.methods.mixed.device_sums import DeviceSums
    >>> from persfl.methods.mixed.latest_rows import LatestRows
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=30, clusters=2, rows=8, features=3, seed=0)
    >>> known = learned_from_panel(rows, level=True, seed=0)
    >>> Z = known.axes.inside(rows.X)
    >>> given = Z, rows.y, rows.weight, rows.start
    >>> latest = LatestRows.of(*given)
    >>> known.told(DeviceSums.of(*given), latest, np.arange(30), 5).models.shape
    (30, 4)
    """
    order = found_order(rows, order or RowOrder())
    known, axes = judged_offers(
        rows,
        level=level,
        seed=seed,
        order=order,
        trees=trees,
        panel=len(rows),
        strangers=True,
    )
    return knowledge_of(known, axes)


def knowledge_of(known: SumsBlend, axes: PrincipalAxes) -> PanelKnowledge:
    """What the rule has found of the panel."""
    offers = known.offers
    d = offers.columns
    unknown = np.zeros((len(offers.names), d, d))
    for k, name in enumerate(offers.names):
        kind = offers.kind(name)
        if kind.loud:
            var = known.whole.learned[k].variances
            unknown[k] = kind.unknown_centre(known.sums, var)
    population = known.population(axes)
    close = known.whole.learned[offers.names.index("near")]
    alike = offers.likeness(known.sums, known.whole)
    spread = close.variances.Sigma
    same = same_place(population.centres, close.Sigma, spread)
    return PanelKnowledge(
        population=population,
        level=offers.level,
        names=known.names,
        shares=known.shares,
        spread=spread,
        unknown=unknown,
        facts=FleetFacts(same, alike.whole, alike.kinds),
        trees=known.shared_trees,
    )
