"""What a fleet says about the gain of one of its devices: a device has few rows, the fleet many."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from persfl.evaluation.intervals import gains_of
from persfl.types import Array, Mask

# devices that a statement about similar ones takes, at least; and a quarter of the fleet
SIMILAR = 8
ONE_ROW = 1.0 + 1e-9  # evidence of a single row, but for rounding


def similar_gains(own: Array, personal: Array, held: Array) -> pd.DataFrame:
    """Per device, what others that kept back about as many rows gained; see `Worth.similar`."""
    place = np.log1p(np.asarray(held, dtype=np.float64))
    known = np.isfinite(own) & np.isfinite(personal)
    parts = np.stack([own, personal, own**2, personal**2, own * personal])
    mine = np.where(known, [np.ones(len(own)), *parts], 0.0)
    others = _sums_nearby(parts[:, known], place[known], place) - mine
    count = others[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b, aa, bb, ab = others[1:] / count
        gain = np.where(np.isfinite(a), gains_of(a, b), np.nan)
        # of own - personal - gain * larger, whose mean is 0
        lower = gain >= 0
        left = np.where(lower, 1.0 - gain, 1.0)
        right = np.where(lower, 1.0, 1.0 + gain)
        both = 2 * left * right * ab
        square = left**2 * aa + right**2 * bb - both
        larger = np.maximum(a, b)
        level = np.maximum(larger, np.finfo(float).tiny)
        variance = np.maximum(square, 0.0) / (count - 1)
        error = np.sqrt(variance) / level
        half = stdtrit(count - 1, 0.975) * error
    return pd.DataFrame(
        {
            "devices": np.nan_to_num(count).astype(np.int64),
            "gain": gain,
            "low": np.clip(gain - half, -1.0, 1.0),
            "high": np.clip(gain + half, -1.0, 1.0),
        }
    )


def _sums_nearby(parts: Array, place: Array, at: Array) -> Array:
    """(1 + parts, len(at)) how many devices are near each of `at`, and the sums of their parts;
    NaN where there are too few.
    """
    many = parts.shape[1]
    found = np.full((1 + len(parts), len(at)), np.nan)
    if many <= SIMILAR:
        return found
    order = np.argsort(place, kind="stable")
    ranked = place[order]
    counted = [np.ones(many), *parts[:, order]]
    sums = np.zeros((len(counted), many + 1))
    np.cumsum(counted, axis=1, out=sums[:, 1:])
    least = min(max(SIMILAR, many // 4), many - 1)
    for value in np.unique(at):
        away = np.abs(ranked - value)
        reach = np.partition(away, least)[least] + 1e-12
        first, end = np.searchsorted(ranked, [value - reach, value + reach])
        nearby = sums[:, end] - sums[:, first]
        found[:, at == value] = nearby[:, None]
    return found


def drawn_below_zero(
    own: Array, personal: Array, evidence: Array, spread: Array, small: float
) -> Mask:
    """(devices,) whose gain, drawn toward the fleet's mean as far as its few rows and the variance
    between devices say, is below 0; see `Worth.better_alone`.
    """
    level = np.maximum((own + personal) / 2, small)
    known = np.isfinite(level)
    if not known.any():
        return np.zeros(len(level), dtype=bool)
    nothing = np.where(known, 0.0, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        gain = np.where(level > 0, (own - personal) / level, nothing)
        variance = np.where(level > 0, (spread / level) ** 2, 0.0)
    several = known & (evidence > ONE_ROW)
    free = evidence[several] - 1
    freedom = float(free.sum())
    total = float((variance[several] * free).sum())
    within = total / freedom if freedom else 1.0
    noise = within / np.maximum(evidence, 1.0)
    fleet = float(np.nanmean(gain))
    by_rows = float(noise[known].mean())
    between = max(0.0, float(np.nanvar(gain)) - by_rows)
    both = np.maximum(between + noise, np.finfo(float).tiny)
    pull = between / both
    drawn = fleet + pull * (gain - fleet)
    return np.asarray(np.where(known, drawn, fleet) < 0)


def filled_falls(fall: Array, error: Array, known: Mask) -> Array:
    """(devices,) falls, and the fleet's share of the error where a device's was not measured."""
    told = known & np.isfinite(fall)
    level = float(error[told].mean()) if told.any() else 0.0
    share = float(fall[told].mean()) / level if level > 0 else 0.0
    return np.where(told, fall, share * error)
