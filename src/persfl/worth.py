"""Is it worth it? Errors on rows that were used neither to fit nor to choose, of asking peers and
of its simple rivals.

Every device keeps back some rows. All rivals see the same remaining rows, and nothing (no round, no
setting) is chosen by the rows kept back. (The names of categories and, with imputing, column means
are those of the whole table.) A device has too few of them to carry a verdict about itself; many
devices together can. So:

    d_i = 2 (rival error - personalized error) / (rival error + personalized error)      per device,
    between -2 and 2 fleet: mean of d_i over devices, with Student's 95 % interval; shown as the
    typical share of the error removed, 2d / (2 + d) device: the same of its own rows' paired
    differences; only "helps here" or "not enough ... to tell" is ever said, with what
        devices of about as many rows gained: their mean carries an interval, a single device's few
        rows do not
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from persfl.checks import one_of, real
from persfl.devices import Devices, offsets
from persfl.errors import InputError
from persfl.learners import Linear
from persfl.learners.shrunk import shrunk
from persfl.predicting import respond, respond_each
from persfl.proposers import GradientStep, Refit
from persfl.seeds import stream
from persfl.traits import has_gradients
from persfl.types import Array, Data, Differentiable, IntArray, Learner
from persfl.units import Units

ARMS = {
    "own": "own rows only",
    "pooled": "one model for all",
    "centred": "one model for all, device-centred",
    "tuned": "one model for all, fine-tuned on own rows",
    "personal": "personalized",
}
HELPS, TOO_FEW = "helps here", "not enough of your own rows to tell"
# devices that a statement about similar ones takes, at least; and a quarter of the fleet
SIMILAR = 8
_NUMBERS = 2**22  # of rows and models that are fitted at a time
# times a fine-tuning step is quartered before the device keeps the pooled model
_SHORTER = 6
# d of an error 4,000 times the rival's: intervals of very few devices end here
_LOWEST = -1.999


class Verdict(NamedTuple):
    """The typical share of a rival's error that personalizing removes, its 95 % interval, and
    what may be said.
    """

    gain: float
    low: float
    high: float
    says: str
    devices: int


@dataclass(frozen=True, eq=False)
class Worth:
    """What was measured: one row per device in `table`, errors NaN where a device kept nothing
    back.

    `scale` is the label's variance over the rows kept back (1 for classification), by which errors
    are divided when shown.
    """

    table: pd.DataFrame
    scale: float
    classes: int

    @property
    def arms(self) -> list[str]:
        """Who was compared: the keys of ARMS, and further rivals by their names."""
        return [
            name.removeprefix("error_")
            for name in self.table.columns
            if name.startswith("error_")
        ]

    def error(self, arm: str) -> Array:
        """(devices,) mean squared error over the label's variance, or the Brier score of a
        classification.
        """
        return (
            self.table[f"error_{one_of('arm', arm, self.arms)}"].to_numpy() / self.scale
        )

    def mistakes(self, arm: str) -> Array:
        """(devices,) the share of wrong labels (classification)."""
        if not self.classes:
            raise InputError(
                "mistakes are counted for classification. A regression has errors."
            )
        return np.asarray(
            self.table[f"mistakes_{one_of('arm', arm, self.arms)}"].to_numpy()
        )

    def fleet(self, against: str = "own", which: Any = None) -> Verdict:
        """Personalized against a rival, over all devices or those of a mask."""
        rival, personal = self.error(against), self.error("personal")
        known = np.isfinite(rival) & np.isfinite(personal)
        return verdict(
            relative(rival, personal)[
                known if which is None else known & np.asarray(which)
            ]
        )

    def summary(self) -> list[dict[str, Any]]:
        """Per arm: its key and name, mean and median error over devices, and the verdict of the
        personalized model against it.
        """
        found = []
        for arm in self.arms:
            errors = self.error(arm)
            entry: dict[str, Any] = {"key": arm, "name": ARMS.get(arm, arm)}
            entry |= {
                "error": float(np.nanmean(errors)),
                "median": float(np.nanmedian(errors)),
            }
            verdict = self.fleet(arm)._asdict() if arm != "personal" else {}
            entry |= {k: verdict.get(k) for k in ("gain", "low", "high", "says")}
            if self.classes:
                entry["mistakes"] = float(np.nanmean(self.mistakes(arm)))
            found.append(entry)
        return found

    def groups(
        self, groups: Mapping[Any, Any] | Sequence[Any], against: str = "own"
    ) -> pd.DataFrame:
        """A verdict for each group of devices: a group per device in the order of the table, or
        a dict of device id to group.
        """
        ids = self.table["device"].tolist()
        named = (
            [groups.get(name) for name in ids]
            if isinstance(groups, Mapping)
            else list(groups)
        )
        if len(named) != len(ids):
            raise InputError(
                f"groups must name a group for each of the {len(ids)} devices. Got {len(named)}."
            )
        kinds = pd.factorize(pd.Series(named, dtype=object))
        rows = [
            {"group": name, **self.fleet(against, kinds[0] == code)._asdict()}
            for code, name in enumerate(list(kinds[1]))
        ]
        return pd.DataFrame(rows, columns=["group", *Verdict._fields])

    def device(self) -> pd.DataFrame:
        """Per device: rows kept back, errors of all arms, the gain over its own model with its
        interval, what may be said ("helps here" where its own rows and similar devices both show a
        gain), and what similar devices gained.
        """
        own, personal = self.error("own"), self.error("personal")
        rows, spread = (
            self.table["evidence"].to_numpy(),
            self.table["spread"].to_numpy() / self.scale,
        )
        d, level = relative(own, personal), (own + personal) / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            half = np.where(
                level > 0,
                stdtrit(rows - 1, 0.975) * spread / np.sqrt(rows) / level,
                np.nan,
            )
        half = np.where(rows > 1.0 + 1e-9, half, np.nan)
        gain, low, high = (_removed(x) for x in (d, d - half, d + half))
        alike = self.similar()
        told = [
            _told(own_low, one)
            for own_low, one in zip(low, alike.itertuples(index=False), strict=True)
        ]
        errors = {arm: self.error(arm) for arm in self.arms}
        return pd.DataFrame(
            {"device": self.table["device"], "held": self.table["held"]}
            | errors
            | {
                "gain": gain,
                "low": low,
                "high": high,
                "verdict": pd.Series(told, dtype=object),
            }
        ).join(alike.add_prefix("similar_"))

    def similar(self) -> pd.DataFrame:
        """Per device, what others that kept back about as many rows gained: how many `devices`,
        `gain`, `low` and `high`.

        Similar are the nearest by number of rows (their ratio): a quarter of the devices, at least
        eight, and all that are as near as the last of them. Where devices have equally many rows
        that is everybody else.
        """
        own, personal = self.error("own"), self.error("personal")
        known = np.isfinite(own) & np.isfinite(personal)
        d, place = (
            relative(own, personal)[known],
            np.log1p(self.table["held"].to_numpy(dtype=np.float64)),
        )
        order = np.argsort(place[known], kind="stable")
        ranked, sums = (
            place[known][order],
            np.cumsum(np.stack([np.ones(len(d)), d[order], d[order] ** 2]), axis=1),
        )
        sums = np.concatenate([np.zeros((3, 1)), sums], axis=1)
        found = np.full((len(place), 3), np.nan)
        least = max(SIMILAR, len(d) // 4)
        for value in np.unique(place) if len(d) > SIMILAR else []:
            here = np.flatnonzero(place == value)
            away = np.abs(ranked - value)
            reach = (
                np.partition(away, min(least, len(away) - 1))[min(least, len(away) - 1)]
                + 1e-12
            )
            total = (
                sums[:, np.searchsorted(ranked, value + reach)]
                - sums[:, np.searchsorted(ranked, value - reach)]
            )
            found[here] = total
        mine = np.zeros((len(place), 3))
        mine[known] = np.stack([np.ones(len(d)), d, d**2], axis=1)
        count, first, second = (found - mine).T
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = first / count
            half = stdtrit(count - 1, 0.975) * np.sqrt(
                np.maximum(second / count - mean**2, 0.0) / (count - 1)
            )
        many = np.nan_to_num(count).astype(np.int64)
        return pd.DataFrame(
            {
                "devices": many,
                "gain": _removed(mean),
                "low": _removed(mean - half),
                "high": _removed(mean + half),
            }
        )

    def better_alone(self) -> Any:
        """(devices,) where the own model is the better bet, by the evidence of the whole fleet.

        A device's own difference is drawn toward the fleet's mean: the more, the fewer rows it kept
        back and the less devices really differ (the variance between devices beyond what rows
        explain). What is left decides.
        """
        own, personal = self.error("own"), self.error("personal")
        known = np.isfinite(own) & np.isfinite(personal)
        d = np.where(known, relative(own, personal), np.nan)
        if not known.any():
            return np.zeros(len(d), dtype=bool)
        held = self.table["evidence"].to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            level = (own + personal) / 2
            variance = np.where(
                level > 0,
                (self.table["spread"].to_numpy() / self.scale / level) ** 2,
                0.0,
            )
        several = known & (held > 1.0 + 1e-9)
        freedom = float((held[several] - 1).sum())
        within = (
            float((variance[several] * (held[several] - 1)).sum()) / freedom
            if freedom
            else 1.0
        )
        noise = within / np.maximum(held, 1.0)
        fleet = float(np.nanmean(d))
        between = max(0.0, float(np.nanvar(d)) - float(noise[known].mean()))
        pull = between / np.maximum(between + noise, np.finfo(float).tiny)
        return np.asarray(np.where(known, fleet + pull * (d - fleet), fleet) < 0)


def percent(share: float) -> str:
    """A share for a sentence.

    >>> percent(0.314), percent(-0.02)
    ('31 %', '−2 %')
    """
    return f"{'−' if round(share * 100) < 0 else ''}{abs(round(share * 100))} %"  # noqa: RUF001


def _told(low: float, alike: Any) -> str | None:
    """What may be said to a device whose own gain is above `low`, given what similar devices
    gained; None without any of both.
    """
    if low > 0 and not alike.low <= 0:
        return HELPS
    if not alike.devices:
        return None if np.isnan(low) else TOO_FEW
    between = f"{percent(alike.low)} to {percent(alike.high)}"
    did = (
        f"gained {percent(alike.gain)} ({between})"
        if alike.gain >= 0
        else f"lost {percent(-alike.gain)} (gain {between})"
    )
    return f"{TOO_FEW}; {alike.devices} similar devices {did}"


def verdict(d: Array) -> Verdict:
    """The mean of relative differences with its interval, as a share of the error removed.

    >>> (
    ...     verdict(np.array([0.5, 0.4, 0.6, 0.5])).says,
    ...     verdict(np.array([0.5, -0.5])).says,
    ... )
    ('helps', 'no clear difference')
    """
    n = len(d)
    if not n:
        return Verdict(np.nan, np.nan, np.nan, "not measured", 0)
    mean = float(d.mean())
    half = (
        float(stdtrit(n - 1, 0.975) * d.std(ddof=1) / np.sqrt(n)) if n >= 2 else np.inf
    )
    low, high = mean - half, mean + half
    says = "helps" if low > 0 else "hurts" if high < 0 else "no clear difference"
    return Verdict(
        float(_removed(mean)), float(_removed(low)), float(_removed(high)), says, n
    )


def split(
    devices: Devices,
    share: float,
    *,
    seed: int,
    part: int = 0,
    classes: int = 0,
    first: int = 0,
    ordered: bool = False,
) -> tuple[Devices, Devices]:
    """Rows to learn from and rows kept back: about `share` of each device with at least four rows,
    drawn at random.

    Parts 0, 1, ... keep back different rows, as long as there are any left. With `classes`, each
    part takes its share of every class a device has; a class with a single row there comes last,
    since without it the device would not know the class.
    `first` is the position of the first of these devices in the fleet: between machines each holds
    back its own rows. Where rows are `ordered` by time, the latest are kept back.

    >>> from persfl.sources import clustered_regression
    >>> train, test = split(clustered_regression(n=3, rows=10, features=2), 0.3, seed=0)
    >>> train.counts.tolist(), test.counts.tolist()
    ([7, 7, 7], [3, 3, 3])
    """
    share = real("holdout", share, least=0.0)
    if share >= 1:
        raise InputError(f"holdout must be a share below 1. Got {share}.")
    n, counts = len(devices), devices.counts
    owner = devices.owner
    row = np.arange(len(owner)) - devices.start[owner]
    mark = (
        -row + 0.0
        if ordered
        else stream(seed, "held").at(owner + first, row).uniform(1)[:, 0]
    )
    rank = np.empty(len(owner), dtype=np.int64)
    # with classes: how far through the rows of its class, on its device, a row comes
    turn = np.zeros(len(owner))
    if classes and not ordered:
        group = owner * classes + devices.y.astype(np.int64)
        order = np.lexsort((mark, group))
        lowest = np.searchsorted(group[order], group[order])
        many = np.bincount(group, minlength=n * classes)[group[order]]
        turn[order] = np.where(
            many > 1, (np.arange(len(order)) - lowest + 0.5) / many, 1.0
        )
    order = np.lexsort((mark, turn, owner))
    rank[order] = row
    many = np.where(
        counts >= 4, np.clip(np.round(share * counts), 1, np.maximum(counts - 2, 1)), 0
    ) * (share > 0)
    begin = (part * many)[owner]
    held = (rank >= begin) & (rank < begin + many[owner]) & (devices.weight > 0)
    left = np.bincount(owner[~held], weights=devices.weight[~held], minlength=n)
    # a device keeps back nothing if that would leave it only rows of weight 0
    held &= left[owner] > 0
    return _rows(devices, ~held, owner), _rows(devices, held, owner)


def _rows(devices: Devices, which: Any, owner: IntArray) -> Devices:
    start = offsets(np.bincount(owner[which], minlength=len(devices)))
    return Devices(
        devices.X[which],
        devices.y[which],
        devices.weight[which],
        start,
        devices.ids,
        columns=devices.columns,
    )


def pooled_fit(learner: Learner, rows: Devices, seed: int = 0) -> Any:
    """One model fitted to everybody's rows (for squared loss through sums over devices, shrunk
    a hair to be unique).
    """
    if not isinstance(learner, Linear) or learner.kind != "squared":
        return learner.fit(Data(rows.X, rows.y, rows.weight), stream(seed, "pooled"))
    size = learner.size(rows.features)
    gram, pull = np.zeros((size, size)), np.zeros(size)
    for i in range(0, len(rows.X), 2**16):
        part = slice(i, i + 2**16)
        A = (
            np.column_stack([rows.X[part], np.ones(len(rows.y[part]))])
            if learner.intercept
            else rows.X[part]
        )
        weighted = A * rows.weight[part, None]
        gram += weighted.T @ A
        pull += weighted.T @ rows.y[part]
    ridge = np.full(size, max(1e-9 * float(np.trace(gram)), np.finfo(float).tiny))
    if learner.intercept:
        ridge[-1] = 0.0
    return np.linalg.solve(gram + np.diag(ridge), pull)


def own_fits(learner: Learner, rows: Devices, seed: int = 0) -> Any:
    """Every device's model from its own rows alone."""
    if isinstance(learner, Linear):
        return shrunk(learner, rows)
    if has_gradients(learner):
        place = stream(seed, "own").at(np.arange(len(rows)))
        return np.concatenate(
            [
                learner.fit(rows.gather(part), place[part])
                for part in _batches(learner, rows)
            ]
        )
    return [learner.fit(rows[i], stream(seed, "own", i)) for i in range(len(rows))]


def _batches(learner: Differentiable, rows: Devices) -> list[IntArray]:
    """Devices in batches of similar memory, in their order."""
    each = learner.size(rows.features) + int(rows.counts.max(initial=1)) * rows.features
    step = max(1, _NUMBERS // each)
    return [np.arange(i, min(i + step, len(rows))) for i in range(0, len(rows), step)]


def tuned_fits(
    learner: Learner,
    rows: Devices,
    pooled: Any,
    public: Array | None,
    steps: GradientStep | None,
    seed: int = 0,
) -> Any:
    """The pooled model, fine-tuned on every device's own rows: shrunk toward it, stepped from
    it, or refitted with its labels.
    """
    if isinstance(learner, Linear):
        return shrunk(learner, rows, pooled)
    if steps is not None and has_gradients(learner):
        return np.concatenate(
            [
                _stepped(learner, pooled, rows.gather(part), steps)
                for part in _batches(learner, rows)
            ]
        )
    proposer = Refit(public if public is not None else rows.X[:0])
    probe = proposer.ask(learner, pooled)
    return [
        proposer.answer(learner, probe, rows[i], stream(seed, "tuned", i))
        for i in range(len(rows))
    ]


def _stepped(learner: Learner, pooled: Array, data: Data, steps: GradientStep) -> Array:
    """Own steps from the pooled model; where they do not lower a device's loss it takes shorter
    ones. A rival is no straw man.
    """
    models = np.tile(pooled, (len(data.y), 1))
    now, todo = learner.loss(models, data), np.arange(len(models))
    for _ in range(_SHORTER):
        some = Data(data.X[todo], data.y[todo], data.weight[todo])
        tuned = steps.answer(learner, models[todo], some, None)
        lower = learner.loss(tuned, some) <= now[todo]
        models[todo[lower]] = tuned[lower]
        todo, steps = todo[~lower], replace(steps, step_size=steps.step_size / 4)
        if not len(todo):
            break
    return models


class Tried(NamedTuple):
    """One trial's losses on the rows it kept back: (rows,) per arm, mistakes too where there
    are classes.
    """

    held: Devices
    losses: dict[str, Array]
    mistakes: dict[str, Array]


def tried(
    train: Devices,
    test: Devices,
    *,
    learner: Learner,
    units: Units,
    models: Any,
    classes: int = 0,
    public: Array | None = None,
    steps: GradientStep | None = None,
    seed: int = 0,
    more: Mapping[str, Any] | None = None,
) -> Tried:
    """Losses on `test` of personalized `models` (fitted on `train` in `units`) and of the rivals,
    fitted here on the same rows.

    `public` are the points, in `units`, that carry a pooled model to a device's own refit (learners
    without gradients). `more` are further rivals: a name and a model per device.
    """
    owner = test.owner
    inside = units.inside(train)
    centred = Units.of(train, "centred", labels=not classes)
    pooled = pooled_fit(learner, inside, seed)
    X, Z = units.features(test.X, owner), centred.features(test.X, owner)
    arms = {
        "own": respond_each(
            learner, own_fits(learner, inside, seed), X, owner, classes
        ),
        "pooled": respond(learner, pooled, X, classes),
        "centred": respond(
            learner, pooled_fit(learner, centred.inside(train), seed), Z, classes
        ),
        "tuned": respond_each(
            learner,
            tuned_fits(learner, inside, pooled, public, steps, seed),
            X,
            owner,
            classes,
        ),
        "personal": respond_each(learner, models, X, owner, classes),
    }
    arms |= {
        name: respond_each(learner, theirs, X, owner, classes)
        for name, theirs in (more or {}).items()
    }
    if classes:
        code = test.y.astype(np.int64)
        true = code[:, None] == np.arange(classes)
        losses = {
            arm: ((response - true) ** 2).sum(axis=1) for arm, response in arms.items()
        }
        return Tried(
            test,
            losses,
            {
                arm: (response.argmax(axis=1) != code) + 0.0
                for arm, response in arms.items()
            },
        )
    losses = {}
    for arm, response in arms.items():
        losses[arm] = (
            (centred if arm == "centred" else units).outside(response, owner) - test.y
        ) ** 2
    return Tried(test, losses, {})


def measured(trials: Sequence[Tried], classes: int) -> Worth:
    """The trials together: every row that was kept back once counts once."""
    held = [trial.held for trial in trials]
    owner = np.concatenate([part.owner for part in held])
    weight, y = (
        np.concatenate([part.weight for part in held]),
        np.concatenate([part.y for part in held]),
    )
    n = len(held[0])

    def means(values: Any) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = np.bincount(owner, weights=values * weight, minlength=n)
            return np.asarray(sums / np.bincount(owner, weights=weight, minlength=n))

    count = np.bincount(owner, minlength=n)
    # how many equal rows carry as much evidence as these weighted ones
    with np.errstate(invalid="ignore", divide="ignore"):
        evidence = np.bincount(owner, weights=weight, minlength=n) ** 2 / np.bincount(
            owner, weights=weight**2, minlength=n
        )
    found: dict[str, Any] = {
        "device": list(held[0].ids),
        "held": count,
        "evidence": np.nan_to_num(evidence),
    }
    losses = {
        arm: np.concatenate([trial.losses[arm] for trial in trials])
        for arm in trials[0].losses
    }
    for arm in losses:
        found[f"error_{arm}"] = means(losses[arm])
        if classes:
            found[f"mistakes_{arm}"] = means(
                np.concatenate([trial.mistakes[arm] for trial in trials])
            )
    difference = losses["own"] - losses["personal"]
    away = difference - np.nan_to_num(means(difference))[owner]
    found["spread"] = np.sqrt(
        means(away**2) * evidence / np.maximum(evidence - 1, 1e-9)
    )
    level = float(np.average(y, weights=weight))
    variance = (
        float(np.average((y - level) ** 2, weights=weight)) if not classes else 1.0
    )
    return Worth(pd.DataFrame(found), variance if variance > 0 else 1.0, classes)


def _removed(d: Any) -> Any:
    """The share of a rival's error that is gone where the relative difference is `d`."""
    d = np.clip(d, _LOWEST, 2.0)
    return 2 * d / (2 + d)


def relative(rival: Array, personal: Array) -> Array:
    """(devices,) d of the module's docstring; 0 where neither errs.

    >>> relative(np.array([3.0, 0.0]), np.array([1.0, 0.0])).tolist()
    [1.0, 0.0]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        d = 2 * (rival - personal) / (rival + personal)
    return np.where(rival + personal == 0, 0.0, d)
