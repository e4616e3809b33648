"""Was it worth it, judged at home: errors on rows the run never saw, of the personalized model and
of the device's own.

Only a few sums leave: squared errors of the two models, the spread of their differences, and what
gives the label's variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from persfl.devices import Devices
from persfl.evaluation.rivals import own_fits
from persfl.evaluation.verdicts import Worth
from persfl.federation.moment_rows import by_moments, rows_alike
from persfl.learners.responses import respond
from persfl.types import Array, Data
from persfl.wire.models import LARGE
from persfl.wire.terms import Terms

ARMS = ("own", "personal")
# held, weight, weight squared, label sum, label squares, squared differences about their mean,
# weighted difference
FIELDS = 7

SIZES = {"judged": FIELDS, "errors": 2, "mistakes": 2}


def sound(told: Mapping[str, Any]) -> bool:
    """Whether sums over rows can be sums over rows: one target's nonsense must not spoil what
    is said of all.
    """
    for name, size in SIZES.items():
        array = told.get(name)
        if (
            array is None
            or array.dtype != np.float64
            or array.shape != (size,)
            or not np.isfinite(array).all()
        ):
            return False
    sums = np.concatenate([told["judged"], told["errors"], told["mistakes"]])
    plain = np.concatenate(
        [told["judged"][[0, 1, 2, 4, 5]], told["errors"], told["mistakes"]]
    )
    return bool(
        (np.abs(sums) <= LARGE**2).all()
        and (plain >= 0).all()
        and told["judged"][0] <= LARGE
    )


def judged(
    asked: Terms | tuple[Terms, Terms],
    model: Any,
    learn: Data,
    held: Data,
    seed: int,
    *,
    single: bool = False,
) -> dict[str, Array]:
    """Sums over the rows held back, in the label's own units; rows are those of the table.

    All 0 where there are fewer than two: a sum over one is the row's. Unless the owner allows that
    single rows are told of, all of it comes from rows alike under squared loss: also the own model,
    whose strength is chosen by leaving rows out, and the spread of errors, which is then that of
    rows of which none stands out. Both would tell more than moments, in units and of models of the
    asker's choice. Where a device has a family of its own, `asked` are the terms of the run and
    what they come to there; the own model is of that family.
    """
    terms, mine = asked if isinstance(asked, tuple) else (asked, asked)
    if held.rows < 2:
        return {
            "judged": np.zeros(FIELDS),
            "errors": np.zeros(2),
            "mistakes": np.zeros(2),
        }
    if by_moments(mine) and not single:
        learn = rows_alike(learn)
    if by_moments(terms) and not single:
        held = rows_alike(held)
    learn = terms.inside(learn)
    held = terms.inside(held)
    alone = Devices(learn.X, learn.y, learn.weight, np.array([0, learn.rows]), [0])
    own = own_fits(mine.learner(), alone, seed)[0]
    weight = held.weight
    losses, mistakes = _missed(((mine, own), (terms, model)), held)
    y = held.y * terms.label_scale + terms.label_mean
    middle = float(weight @ (losses[0] - losses[1])) / float(weight.sum())
    spread = float(weight @ (losses[0] - losses[1] - middle) ** 2)
    spread = spread if single else rounded_size(spread)
    labels = [weight @ y, weight @ y**2]
    sums = [held.rows, weight.sum(), (weight**2).sum(), *labels, spread, middle]
    return {
        "judged": np.array(sums, dtype=np.float64),
        "errors": np.array([weight @ loss for loss in losses]),
        "mistakes": np.array(mistakes),
    }


def _missed(
    models: Sequence[tuple[Terms, Any]], rows: Data
) -> tuple[list[Array], list[float]]:
    """Per model: the error of every row, and the weight of those whose class is missed."""
    losses = list[Array]()
    mistakes = list[float]()
    for terms, model in models:
        found = respond(terms.learner(), model, rows.X, terms.classes)
        if terms.classes:
            code = rows.y.astype(np.int64)
            truth = code[:, None] == np.arange(terms.classes)
            losses.append(((found - truth) ** 2).sum(axis=1))
            mistakes.append(float(rows.weight @ (found.argmax(axis=1) != code)))
        else:
            losses.append(((found - rows.y) * terms.label_scale) ** 2)
            mistakes.append(0.0)
    return losses, mistakes


def rounded_size(value: float) -> float:
    """A size to within a sixteenth.

    >>> rounded_size(93.243), rounded_size(0.0)
    (96.0, 0.0)
    """
    if not value or not np.isfinite(value):
        return value
    fraction, exponent = np.frexp(value)
    return float(np.ldexp(np.round(fraction * 16) / 16, exponent))


def worth_of(
    ids: Sequence[Any], told: Mapping[int, Mapping[str, Array]], classes: int
) -> Worth | None:
    """What all devices told, as the `Worth` of a run in one process; None where nobody kept
    rows back.
    """
    n = len(ids)
    sums = np.zeros((n, FIELDS))
    errors = np.zeros((n, 2))
    mistakes = np.zeros((n, 2))
    for i, found in told.items():
        sums[i], errors[i], mistakes[i] = (
            found["judged"],
            found["errors"],
            found["mistakes"],
        )
    total = sums[:, 1]
    if not total.sum() > 0:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        evidence = np.nan_to_num(total**2 / sums[:, 2])
        table: dict[str, Any] = {
            "device": list(ids),
            "held": sums[:, 0].astype(np.int64),
            "evidence": evidence,
        }
        for k, arm in enumerate(ARMS):
            table[f"error_{arm}"] = errors[:, k] / total
            if classes:
                table[f"mistakes_{arm}"] = mistakes[:, k] / total
        table["spread"] = np.sqrt(
            sums[:, 5] / total * evidence / np.maximum(evidence - 1, 1e-9)
        )
    level = sums[:, 3].sum() / total.sum()
    variance = 1.0 if classes else float(sums[:, 4].sum() / total.sum() - level**2)
    return Worth(pd.DataFrame(table), variance if variance > 0 else 1.0, classes)
