"""Is it worth it? Errors on rows that were used neither to fit nor to choose, of personalized
models and of their simple rivals.

Every device keeps back some rows. All rivals see the same remaining rows, and nothing (no round, no
setting) is chosen by the rows kept back. (The names of categories and, with imputing, column means
are those of the whole table.) A device has too few of them to carry a verdict about itself; many
devices together can. So:

- fleet: the gain of the mean errors over devices (see `intervals`), with a bootstrap over devices,
  the share of devices better and worse off, and a rank test. Where the mean and the ranks
  disagree, the verdict says both.
- device: its difference of errors over the larger one (or over a tenth of the fleet's error, where
  both are smaller than that: such errors are shown as errors). Only "helps here" or "not enough
  ... to tell" is ever said, with what devices of about as many rows gained: their mean carries an
  interval, a single device's few rows do not.

Models that are judged learn from fewer rows than those that predict, and help is larger there. One
more trial learns from fewer rows still; what both errors fall by from there to here tells what they
fall by from here to all rows. Where it was run, gains are those expected with all rows; errors
are always those measured.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from persfl.checks import one_of, percent
from persfl.errors import InputError
from persfl.evaluation.device_gains import (
    ONE_ROW,
    drawn_below_zero,
    filled_falls,
    similar_gains,
)
from persfl.evaluation.few_false import few_false, luck_of_mean
from persfl.evaluation.intervals import (
    NO_ERROR,
    Verdict,
    gains_of,
    over_devices,
)

if TYPE_CHECKING:
    from persfl.evaluation.shared_moments import SharedMoments
    from persfl.types import Array

ARMS = {
    "base": "always the mean",
    "own": "own rows only",
    "pooled": "one model for all",
    "centred": "one model for all, device-centred",
    "tuned": "one model for all, fine-tuned on own rows",
    "personal": "personalized",
}
BASE_OF_CLASSES = "always the most frequent class"
HELPS = "helps here"
SMALL_ERRORS = "both errors are small"
TOO_FEW = "not enough of your own rows to tell"
SMALL = 0.1  # of the fleet's mean error: what is smaller is shown as an error, not in percent
# of an error, that more rows can take off: models of own rows gain most by them. One trial tells
# of the fall only roughly
MOST_FALL = 0.2
MOST_FALL_ALONE = 0.5
_TOLD = ("gain", "low", "high", "says", "better", "worse")
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
    moments: SharedMoments | None = None
    """What rows share beside their devices, where they were held back by it."""

    @property
    def ahead(self) -> bool:
        """Whether the latest rows were held back: then intervals are for as many rows to come."""
        return self.moments is not None and self.moments.ahead

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

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from persfl.evaluation.worth_view import worth_html

        return worth_html(self)

    def _column(self, kind: str, arm: str) -> Array:
        return np.asarray(self.table[f"{kind}_{one_of('arm', arm, self.arms)}"])

    @property
    def small(self) -> float:
        """The error below which a device's errors are told as errors."""
        own = self.error("own")
        usual = float(np.nanmean(own)) if np.isfinite(own).any() else 0.0
        return max(SMALL * usual, NO_ERROR)

    def without_error(self, arm: str) -> bool:
        """Whether an arm has no error to speak of: tables show it as 0.0000."""
        return bool(np.nanmean(self.error(arm)) < NO_ERROR)

    def fall(self, arm: str) -> Array | None:
        """(devices,) what an error is expected to fall by with all rows to learn from; NaN where it
        was not measured, None where it was nowhere.
        """
        if f"fall_{arm}" not in self.table:
            return None
        return np.asarray(self.table[f"fall_{arm}"]) / self.scale

    def _expected(self, arm: str) -> Array:
        """(devices,) errors as they are expected with all rows, by what the fleet's fall by."""
        error = self.error(arm)
        fall = self.fall(arm)
        if fall is None or not np.isfinite(fall).any():
            return error
        level = float(np.nanmean(error[np.isfinite(fall)]))
        left = 1.0 - float(np.nanmean(fall)) / level if level > 0 else 1.0
        return error * float(np.clip(left, 1.0 - self._most_fall(arm), 1.0))

    def _most_fall(self, arm: str) -> float:
        """The share of an arm's error that more rows can take off."""
        alone = arm == "own" or (arm == "personal" and self.is_personal("own"))
        return MOST_FALL_ALONE if alone else MOST_FALL

    def name(self, arm: str) -> str:
        """What an arm is called."""
        if arm == "base" and self.classes:
            return BASE_OF_CLASSES
        return ARMS.get(arm, arm)

    def is_personal(self, arm: str) -> bool:
        """Whether an arm is what the method makes: `--method own` has the errors of own rows."""
        mine = self.error("personal")
        return np.array_equal(self.error(arm), mine, equal_nan=True)

    def fleet(
        self, against: str = "own", which: Mask | None = None, of: str = "personal"
    ) -> Verdict:
        """Personalized, or another arm, against a rival, over all devices or those of a mask."""
        rival = self.error(against)
        personal = self.error(of)
        known = np.isfinite(rival) & np.isfinite(personal)
        some = known if which is None else known & np.asarray(which)
        theirs = self.fall(against)
        ours = self.fall(of)
        if some.sum() < 2 or np.array_equal(rival[some], personal[some]):
            return over_devices(rival[some], personal[some])
        # a group of a few devices has the months and the falls of the whole fleet
        both = self.moments
        shared = None if both is None else both.spread(against, of)
        if theirs is None or ours is None:
            return over_devices(rival[some], personal[some], moments=shared)
        falls = (
            filled_falls(theirs, rival, known)[some],
            filled_falls(ours, personal, known)[some],
        )
        most = self._most_fall(against), self._most_fall(of)
        return over_devices(rival[some], personal[some], falls, most, shared)

    def summary(self) -> list[dict[str, Any]]:
        """Per arm: its key and name, mean and median error over devices, the verdict of the
        personalized model against it; the share of wrong classes, or by how much numbers are off in
        the label's own units (the root of the mean squared error).
        """
        found = []
        for arm in self.arms:
            errors = self.error(arm)
            entry: dict[str, Any] = {"key": arm, "name": self.name(arm)}
            entry["error"] = float(np.nanmean(errors))
            entry["median"] = float(np.nanmedian(errors))
            if not self.classes:
                entry["off_by"] = float(np.sqrt(entry["error"] * self.scale))
            verdict = self.fleet(arm)._asdict() if arm != "personal" else {}
            entry |= {k: verdict.get(k) for k in _TOLD}
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
        gain, few of them by luck), and what similar devices gained.
        """
        rows = self.table["evidence"].to_numpy()
        spread = self.table["spread"].to_numpy() / self.scale
        own = self._expected("own")
        personal = self._expected("personal")
        gain = gains_of(own, personal, self.small)
        level = np.maximum(np.maximum(own, personal), self.small)
        with np.errstate(invalid="ignore", divide="ignore"):
            half = stdtrit(rows - 1, 0.975) * spread / np.sqrt(rows) / level
        half = np.where((level > 0) & (rows > ONE_ROW), half, np.nan)
        low = np.clip(gain - half, -1.0, 1.0)
        alike = self.similar()
        small = np.maximum(self.error("own"), self.error("personal")) < self.small
        luck = luck_of_mean(gain * level, spread, rows)
        sure = few_false(np.where(small, np.nan, luck))
        surely = np.where(sure, low, np.minimum(low, 0.0))
        each = zip(surely, alike.itertuples(index=False), small.tolist(), strict=True)
        says = [_may_say(mine, theirs, tiny) for mine, theirs, tiny in each]
        found = self.table[["device", "held"]].assign(
            **{arm: self.error(arm) for arm in self.arms},
            gain=gain,
            low=low,
            high=np.clip(gain + half, -1.0, 1.0),
            small=small,
            verdict=pd.Series(says, dtype=object),
        )
        return found.join(alike.add_prefix("similar_"))

    def similar(self) -> pd.DataFrame:
        """Per device, what others that kept back about as many rows gained: how many `devices`,
        `gain`, `low` and `high`.

        Similar are the nearest by number of rows (their ratio): a quarter of the devices, at least
        eight, and all that are as near as the last of them. Where devices have equally many rows
        that is everybody else.
        """
        own = self._expected("own")
        personal = self._expected("personal")
        found = similar_gains(own, personal, self.table["held"].to_numpy())
        if self.moments is None:
            return found
        spread = self.moments.spread("own", "personal")
        ends = spread.ends(found["gain"], found["low"], found["high"])
        return found.assign(low=ends[0], high=ends[1])

    def better_alone(self) -> Mask:
        """(devices,) where the own model is the better bet, by the evidence of the whole fleet.

        A device's own difference is drawn toward the fleet's mean: the more, the fewer rows it kept
        back and the less devices really differ (the variance between devices beyond what rows
        explain). What is left decides.
        """
        own = self._expected("own")
        personal = self._expected("personal")
        evidence = self.table["evidence"].to_numpy()
        spread = self.table["spread"].to_numpy() / self.scale
        return drawn_below_zero(own, personal, evidence, spread, self.small)


def _may_say(low: float, alike: Any, small: bool) -> str | None:
    """What may be said to a device whose own gain is above `low`, given what similar devices
    gained; None without any of both.
    """
    if small:
        return SMALL_ERRORS
    if low > 0 and not alike.low <= 0:
        return HELPS
    if not alike.devices:
        return None if np.isnan(low) else TOO_FEW
    between = f"{percent(alike.low)} to {percent(alike.high)}"
    did = f"gained {percent(alike.gain)} ({between})"
    if alike.gain < 0:
        did = f"lost {percent(-alike.gain)} (gain {between})"
    return f"{TOO_FEW}; {alike.devices} similar devices {did}"
