"""Blend: a device's model as a mix of what its own rows, the whole fleet and its neighbours offer.

Devices are dealt into at most eight groups. What a device is offered comes from devices of the
other groups, so its own folds can judge it honestly. Every offer is a linear model; so is their
mix.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners import Linear
from persfl.methods.blend.evidence import shares
from persfl.methods.blend.linear_rows import Folding, route
from persfl.methods.blend.local_site import Here
from persfl.methods.blend.mixture import Blended, dealt, start_of
from persfl.methods.blend.record import Heard
from persfl.methods.blend.site import Homes
from persfl.methods.blend.views import VIEWS, Look
from persfl.seeds import stream
from persfl.types import IntArray


def blend(
    rows: Devices,
    learner: Linear,
    *,
    seed: int = 0,
    budget: int = 640,
    ordered: bool = False,
    classes: int = 0,
) -> Blended:
    """A model for every device; each asks others for at most `budget` refits (see `budget`).

    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=40, clusters=2, rows=12, features=5, noise=0.5, seed=0
    ... )
    >>> found = blend(devices, Linear(intercept=True))
    >>> own = blend(devices, Linear(intercept=True), budget=1)
    >>> away = lambda models: float(
    ...     ((models[:, :5] - devices.true_weights) ** 2).sum(axis=1).mean()
    ... )
    >>> (
    ...     away(found.models) < away(own.models),
    ...     bool(found.shares.sum(axis=1).round(6).max() == 1),
    ... )
    (True, True)
    """
    if not isinstance(learner, Linear):
        raise InputError(
            "blend mixes linear models, and models that are refitted, such as trees. Got"
            f" {learner!r}: use method='paper' or 'kin'."
        )
    return blend_over(
        Here(rows, learner, Folding(classes, ordered, seed)), seed=seed, budget=budget
    )


def blend_over(homes: Homes, *, seed: int = 0, budget: int = 640) -> Blended:
    """The same, wherever the devices are; everything that needs rows is asked of `homes`."""
    learner, n = homes.learner, homes.n
    way = route(learner)
    views = VIEWS if learner.intercept else VIEWS[:1]
    each = budget * way.QUESTIONS / len(views)
    group, told = dealt(n, seed), homes.spreads()
    wanted = np.isin(np.arange(n), homes.targets)
    lines = []
    for name in views:
        for h in range(group.max() + 1):
            mine, rest = (
                np.flatnonzero((group == h) & wanted),
                np.flatnonzero(group != h),
            )
            if len(mine):
                look = Look.of(name, type(told)(*(array[rest] for array in told)))
                lines.append(
                    (look, mine, rest, stream(seed, "blend", name, h).integer())
                )

    def work(
        look: Look, mine: IntArray, rest: IntArray, place: int, homes: Homes
    ) -> Any:
        part = homes.part(look, mine, rest, place, each)
        starts, asked = way.starts(part)
        return part.evidence(starts), asked

    done = homes.side_by_side([partial(work, *line) for line in lines])
    names = [f"{view} {name}" for view in views for name in way.names(learner)]
    losses, weight = np.full((n, len(names)), np.inf), np.zeros((len(views), n))
    heard = Heard(n, learner.kind == "squared")
    missing: set[str] = set()
    for (look, mine, rest, _), (evidence, asked) in zip(lines, done, strict=True):
        first = views.index(look.name) * len(names) // len(views)
        losses[mine, first : first + evidence.losses.shape[1]] = evidence.losses
        weight[views.index(look.name), mine] = evidence.weight
        missing |= asked.missing
        heard.add(look.name, asked.rounds, mine, rest, homes.copies, look.label_scale)
    behind = weight.min(axis=0)
    sure = (
        float(behind.sum() / max(told.weight[behind > 0].sum(), 1e-12))
        if homes.classes
        else 1.0
    )
    paid = [
        column for column, name in enumerate(names) if start_of(name) not in missing
    ]
    mix = np.zeros(losses.shape)
    known = np.ascontiguousarray(losses[:, paid])
    mix[:, paid] = shares(
        known, behind, relative=not homes.classes, sure=min(1.0, sure)
    )
    mix *= wanted[:, None]
    models = homes.mixed(
        [
            (look, mine, evidence.kept)
            for (look, mine, _, _), (evidence, _) in zip(lines, done, strict=True)
        ],
        mix,
    )
    return Blended(models, tuple(names), mix, heard.rounds(mix, tuple(names)))
