"""Is it worth it? Errors on rows that were used neither to fit nor to choose, of asking peers and
of its simple rivals.

Every device keeps back some rows. All rivals see the same remaining rows, and nothing (no round, no
setting) is chosen by the rows kept back. (The names of categories and, with imputing, column means
are those of the whole table.) A device has too few of them to carry a verdict about itself; many
devices together can. So:

    d_i = 2 (rival error - personalized error) / (rival error + personalized error)

- fleet: the mean of d_i over devices, with Student's 95 % interval; shown as the typical share of
  the error removed, 2d / (2 + d)
- device: the same of its own rows' paired differences. Only "helps here" or "not enough ... to
  tell" is ever said, with what devices of about as many rows gained: their mean carries an
  interval, a single device's few rows do not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from persfl.checks import one_of
from persfl.errors import InputError
from persfl.evaluation.intervals import Verdict, gain_of, percent, relative, verdict

if TYPE_CHECKING:
    from persfl.types import Array

ARMS = {
    "own": "own rows only",
    "pooled": "one model for all",
    "centred": "one model for all, device-centred",
    "tuned": "one model for all, fine-tuned on own rows",
    "personal": "personalized",
}
HELPS = "helps here"
TOO_FEW = "not enough of your own rows to tell"
# devices that a statement about similar ones takes, at least; and a quarter of the fleet
SIMILAR = 8
_ONE = 1.0 + 1e-9  # evidence of a single row, but for rounding
Mask = NDArray[np.bool_]


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
        columns = [str(name) for name in self.table.columns]
        return [name[6:] for name in columns if name.startswith("error_")]

    def error(self, arm: str) -> Array:
        """(devices,) mean squared error over the label's variance, or the Brier score of a
        classification.
        """
        return self._column("error", arm) / self.scale

    def mistakes(self, arm: str) -> Array:
        """(devices,) the share of wrong labels (classification)."""
        if not self.classes:
            raise InputError(
                "mistakes are counted for classification. A regression has errors."
            )
        return self._column("mistakes", arm)

    def _column(self, kind: str, arm: str) -> Array:
        return np.asarray(self.table[f"{kind}_{one_of('arm', arm, self.arms)}"])

    def _difference(self, against: str = "own") -> Array:
        """(devices,) d against a rival; NaN where it is not known."""
        return relative(self.error(against), self.error("personal"))

    def fleet(self, against: str = "own", which: Mask | None = None) -> Verdict:
        """Personalized against a rival, over all devices or those of a mask."""
        d = self._difference(against)
        known = np.isfinite(d)
        return verdict(d[known if which is None else known & np.asarray(which)])

    def summary(self) -> list[dict[str, Any]]:
        """Per arm: its key and name, mean and median error over devices, and the verdict of the
        personalized model against it.
        """
        found = []
        for arm in self.arms:
            errors = self.error(arm)
            entry: dict[str, Any] = {"key": arm, "name": ARMS.get(arm, arm)}
            entry["error"] = float(np.nanmean(errors))
            entry["median"] = float(np.nanmedian(errors))
            verdict = self.fleet(arm)._asdict() if arm != "personal" else {}
            entry |= {k: verdict.get(k) for k in ("gain", "low", "high", "says")}
            if self.classes:
                entry["mistakes"] = float(np.nanmean(self.mistakes(arm)))
            found.append(entry)
        return found

    def groups(
        self, groups: Mapping[Hashable, object] | Sequence[object], against: str = "own"
    ) -> pd.DataFrame:
        """A verdict for each group of devices: a group per device in the order of the table, or
        a dict of device id to group.
        """
        ids = self.table["device"].tolist()
        named: list[Any] = list(groups)
        if isinstance(groups, Mapping):
            named = [groups.get(name) for name in ids]
        if len(named) != len(ids):
            raise InputError(
                f"groups must name a group for each of the {len(ids)} devices. Got {len(named)}."
            )
        codes, names = pd.factorize(pd.Series(named, dtype=object))
        rows = [self.fleet(against, codes == code) for code in range(len(names))]
        found = pd.DataFrame(rows, columns=Verdict._fields)
        found.insert(0, "group", list(names))
        return found

    def device(self) -> pd.DataFrame:
        """Per device: rows kept back, errors of all arms, the gain over its own model with its
        interval, what may be said ("helps here" where its own rows and similar devices both show a
        gain), and what similar devices gained.
        """
        rows = self.table["evidence"].to_numpy()
        spread = self.table["spread"].to_numpy() / self.scale
        d = self._difference()
        level = self._level()
        with np.errstate(invalid="ignore", divide="ignore"):
            half = stdtrit(rows - 1, 0.975) * spread / np.sqrt(rows) / level
        half = np.where((level > 0) & (rows > _ONE), half, np.nan)
        low = gain_of(d - half)
        alike = self.similar()
        says = [
            _may_say(mine, theirs)
            for mine, theirs in zip(low, alike.itertuples(index=False), strict=True)
        ]
        found = self.table[["device", "held"]].assign(
            **{arm: self.error(arm) for arm in self.arms},
            gain=gain_of(d),
            low=low,
            high=gain_of(d + half),
            verdict=pd.Series(says, dtype=object),
        )
        return found.join(alike.add_prefix("similar_"))

    def _level(self) -> Array:
        """(devices,) the error halfway between own and personalized."""
        return (self.error("own") + self.error("personal")) / 2

    def similar(self) -> pd.DataFrame:
        """Per device, what others that kept back about as many rows gained: how many `devices`,
        `gain`, `low` and `high`.

        Similar are the nearest by number of rows (their ratio): a quarter of the devices, at least
        eight, and all that are as near as the last of them. Where devices have equally many rows
        that is everybody else.
        """
        d = self._difference()
        place = np.log1p(self.table["held"].to_numpy(dtype=np.float64))
        known = np.isfinite(d)
        mine = np.where(known, [np.ones(len(d)), d, d**2], 0.0)
        others = _sums_nearby(d[known], place[known], place) - mine
        count = others[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, square = others[1:] / count
            variance = np.maximum(square - mean**2, 0.0)
            half = stdtrit(count - 1, 0.975) * np.sqrt(variance / (count - 1))
        return pd.DataFrame(
            {
                "devices": np.nan_to_num(count).astype(np.int64),
                "gain": gain_of(mean),
                "low": gain_of(mean - half),
                "high": gain_of(mean + half),
            }
        )

    def better_alone(self) -> Mask:
        """(devices,) where the own model is the better bet, by the evidence of the whole fleet.

        A device's own difference is drawn toward the fleet's mean: the more, the fewer rows it kept
        back and the less devices really differ (the variance between devices beyond what rows
        explain). What is left decides.
        """
        d = self._difference()
        level = self._level()
        known = np.isfinite(d)
        if not known.any():
            return np.zeros(len(d), dtype=bool)
        held = self.table["evidence"].to_numpy()
        spread = self.table["spread"].to_numpy() / self.scale
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.where(level > 0, (spread / level) ** 2, 0.0)
        several = known & (held > _ONE)
        freedom = float((held[several] - 1).sum())
        total = float((variance[several] * (held[several] - 1)).sum())
        within = total / freedom if freedom else 1.0
        noise = within / np.maximum(held, 1.0)
        fleet = float(np.nanmean(d))
        between = max(0.0, float(np.nanvar(d)) - float(noise[known].mean()))
        pull = between / np.maximum(between + noise, np.finfo(float).tiny)
        return np.asarray(np.where(known, fleet + pull * (d - fleet), fleet) < 0)


def _sums_nearby(d: Array, place: Array, at: Array) -> Array:
    """(3, len(at)) how many devices are near each of `at`, the sum of their d and of its square;
    NaN where there are too few.
    """
    found = np.full((3, len(at)), np.nan)
    if len(d) <= SIMILAR:
        return found
    order = np.argsort(place, kind="stable")
    ranked = place[order]
    d = d[order]
    sums = np.zeros((3, len(d) + 1))
    np.cumsum([np.ones(len(d)), d, d**2], axis=1, out=sums[:, 1:])
    least = min(max(SIMILAR, len(d) // 4), len(d) - 1)
    for value in np.unique(at):
        reach = np.partition(np.abs(ranked - value), least)[least] + 1e-12
        first, end = np.searchsorted(ranked, [value - reach, value + reach])
        found[:, at == value] = (sums[:, end] - sums[:, first])[:, None]
    return found


def _may_say(low: float, alike: Any) -> str | None:
    """What may be said to a device whose own gain is above `low`, given what similar devices
    gained; None without any of both.
    """
    if low > 0 and not alike.low <= 0:
        return HELPS
    if not alike.devices:
        return None if np.isnan(low) else TOO_FEW
    between = f"{percent(alike.low)} to {percent(alike.high)}"
    did = f"gained {percent(alike.gain)} ({between})"
    if alike.gain < 0:
        did = f"lost {percent(-alike.gain)} (gain {between})"
    return f"{TOO_FEW}; {alike.devices} similar devices {did}"
