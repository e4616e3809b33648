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
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from persfl.checks import one_of
from persfl.errors import InputError
from persfl.evaluation.intervals import Verdict, gain_of, percent, relative, verdict
from persfl.types import Array

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
        gain, low, high = (gain_of(x) for x in (d, d - half, d + half))
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
                "gain": gain_of(mean),
                "low": gain_of(mean - half),
                "high": gain_of(mean + half),
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
