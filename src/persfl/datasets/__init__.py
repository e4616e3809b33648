"""Small real data sets with many devices, bundled with the package; loaders return a `Bunch` as scikit-learn's do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

__all__ = ["load_housing", "load_vowels"]

_HERE = Path(__file__).parent


def load_housing() -> Any:
    """Median house prices in 46 Texan cities, month by month from 2000 to 2015; each city is a device.

    `target` is the natural logarithm of the median price in dollars; `data` has the columns year, month, sales, listings and
    inventory (months of supply); `devices` says whose row it is; `frame` is all of it in one table. Incomplete months are left out.

    >>> housing = load_housing()
    >>> housing.data.shape, housing.devices.nunique(), round(float(housing.target.mean()), 2)
    ((7126, 5), 46, 11.74)
    """
    table = pd.read_csv(_HERE / "txhousing.csv").dropna().reset_index(drop=True)
    table["log_price"] = np.log(table.pop("median"))
    about = "Monthly housing sales in 46 Texan cities, 2000-2015 (ggplot2, MIT; Texas A&M Real Estate Center)."
    return _bunch(
        table, device="city", label="log_price", features=["year", "month", "sales", "listings", "inventory"], about=about
    )


def load_vowels() -> Any:
    """Which of ten vowels 76 speakers (men, women, children) said, from fundamental frequency and three formants in hertz.

    `target` is 0 to 9 in the order of `target_names`; each speaker is a device with 20 rows, two per vowel.

    >>> vowels = load_vowels()
    >>> vowels.data.shape, vowels.devices.nunique(), len(vowels.target_names)
    ((1520, 4), 76, 10)
    """
    table = pd.read_csv(_HERE / "pb52.csv")
    names, codes = np.unique(table["vowel"].to_numpy(dtype=str), return_inverse=True)
    table["vowel"] = codes
    about = "Formants of ten vowels spoken twice by 76 speakers (phonTools, MIT; Peterson and Barney 1952)."
    return _bunch(
        table, device="speaker", label="vowel", features=["f0", "f1", "f2", "f3"], about=about, target_names=names.tolist()
    )


def _bunch(table: pd.DataFrame, *, device: str, label: str, features: list[str], about: str, **more: Any) -> Any:
    return Bunch(
        data=table[features],
        target=table[label],
        devices=table[device],
        feature_names=features,
        frame=table[[device, *features, label]],
        DESCR=about,
        **more,
    )
