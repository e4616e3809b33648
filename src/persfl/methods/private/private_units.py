"""Units of a private run: from ranges that are declared, or from noised counts that are paid for.

Where ranges are declared and models take steps, which want columns about their means, noised means
and squares within the ranges are paid for as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from persfl.checks import some
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.methods.private.private_budget import RunBudget
from persfl.privacy.choice import WIDTH
from persfl.privacy.noised_ranges import counts_of, spread_of
from persfl.privacy.noised_spread import spread_from, spread_room, told_spread
from persfl.types import Array, IntArray
from persfl.units import Units

LABEL = "label"  # under which the range of the label is declared

Ranges = Mapping[str, Sequence[float]]


def table_ranges(rows: Devices) -> dict[str, tuple[float, float]]:
    """What owners who know their tables would declare: lowest and highest values, rounded away
    from the middle to the next number of one digit.

    A simulation may look; protected devices may not, and have their owners declare it.

    >>> table_ranges(Devices.of([([[1.2], [87.0]], [0.0, 3.1])]))
    {'0': (1.0, 90.0), 'label': (0.0, 4.0)}
    """
    values = np.column_stack([rows.X, rows.y])
    low = _rounded(values.min(axis=0), up=False)
    high = _rounded(values.max(axis=0), up=True)
    high = np.where(high > low, high, low + 1.0)
    pairs = zip(low.tolist(), high.tolist(), strict=True)
    return dict(zip([*column_names(rows), LABEL], pairs, strict=True))


def _rounded(values: Array, *, up: bool) -> Array:
    """To one digit, upwards or downwards."""
    size = np.where(values == 0, 1.0, np.abs(values))
    unit = 10.0 ** np.floor(np.log10(size))
    return np.asarray((np.ceil if up else np.floor)(values / unit) * unit)


def column_names(rows: Devices) -> list[str]:
    """What columns are called: their numbers where they have no names."""
    return [str(name) for name in rows.columns or range(rows.features)]


def declared_units(rows: Devices, ranges: Ranges, *, labels: bool) -> Units:
    """Units from what is known without looking: a range is as wide as even values of spread 1.

    >>> rows = Devices.of([([[1.0]], [2.0])])
    >>> units = declared_units(rows, {"0": [0, 12], "label": [0, 4]}, labels=True)
    >>> units.mean.tolist(), round(units.label_mean, 6)
    ([6.0], 2.0)
    """
    wanted = [*column_names(rows), *([LABEL] if labels else [])]
    absent = [name for name in wanted if name not in ranges]
    if absent:
        raise InputError(
            f"ranges must have the lowest and the highest value of every column and of {LABEL!r}."
            f" There is none of {some(absent)}."
        )
    pairs = np.array([ranges[name] for name in wanted], dtype=np.float64)
    if pairs.shape != (len(wanted), 2) or not (pairs[:, 0] < pairs[:, 1]).all():
        raise InputError("each of ranges must be a lowest and a highest value.")
    return _units(rows, pairs.mean(axis=1), np.ptp(pairs, axis=1) / WIDTH)


def centred_units(
    rows: Devices, ranges: Ranges, spend: RunBudget, *, labels: bool
) -> Units:
    """Units within declared ranges, about noised means; where noise drowns them, about the
    middle of the range.
    """
    wide = declared_units(rows, ranges, labels=labels)
    inside = wide.inside(rows)
    values = np.column_stack([inside.X, inside.y]) if labels else inside.X
    values = values * 2.0 / WIDTH  # a range is -1 to 1
    many = values.shape[1]
    z = spend.noise_of_units(looks=1)
    told = np.zeros(2 * many + 1)
    for i in range(len(rows)):
        mine = values[rows.start[i] : rows.start[i + 1]]
        told += told_spread(mine, z, spend.source(i, "units"))
    deviation = z * spread_room(many) * np.sqrt(len(rows))
    mean, spread = spread_from(told, deviation)
    usual = np.append(wide.scale, wide.label_scale)[:many] * (WIDTH / 2.0)
    middle = np.append(wide.mean, wide.label_mean)[:many]
    return _units(rows, middle + mean * usual, spread * usual)


def noised_units(rows: Devices, spend: RunBudget, *, labels: bool) -> Units:
    """Units from every device's noised counts."""
    values = np.column_stack([rows.X, rows.y]) if labels else rows.X
    z = spend.noise_of_units(looks=2)
    looks = iter(range(2))

    def counted(binned: Callable[[Array], IntArray], bins: int) -> Array:
        look = next(looks)
        total = np.zeros((values.shape[1], bins))
        for i in range(len(rows)):
            mine = values[rows.start[i] : rows.start[i + 1]]
            source = spend.source(i, "units", look)
            total += counts_of(mine, binned, bins, z, source)
        return total

    deviation = z * float(np.sqrt(values.shape[1] * len(rows)))
    found = spread_of(counted, deviation)
    return _units(rows, found.mean, found.scale)


def _units(rows: Devices, mean: Array, scale: Array) -> Units:
    d = rows.features
    label = (float(mean[d]), float(scale[d])) if len(mean) > d else (0.0, 1.0)
    n = len(rows)
    nothing = np.zeros((n, d)), np.zeros(n)
    return Units("shared", mean[:d], scale[:d], *label, *nothing)
