"""Columns that say what repeats: dates, numbers, texts, and sentences about what is none."""

import datetime

import numpy as np
import pandas as pd
import pytest

from persfl.errors import InputError
from persfl.fitting.row_columns import OrderWords, keys_of, moments_of

DAY = 86400.0
DAYS = ["2024-03-01", "2024-03-02", "2024-03-04"]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(DAYS),
        pd.Series(pd.to_datetime(DAYS)),
        pd.Series(pd.to_datetime(DAYS)).dt.tz_localize("Europe/Helsinki"),
        pd.Series([datetime.date.fromisoformat(day) for day in DAYS]),
        pd.Series(pd.PeriodIndex(DAYS, freq="D")),
        pd.Series(DAYS, dtype="category"),
        pd.Series([f"{day}T00:00:00Z" for day in DAYS]),
        pd.Series(["1.3.2024", "02.03.2024", "4.3.2024"]),
        pd.Series(["1.3.2024 00:00", "2.3.2024 0:00", "4.3.2024 0:00:00"]),
        pd.Series(["Mar 1 2024", "March 2, 2024", "Mar 4 2024"]),
        pd.Series(["01-Mar-2024", "2 March 2024", "4 Mar. 2024"]),
    ],
    ids=[
        "text",
        "dates",
        "zone",
        "objects",
        "periods",
        "categories",
        "zulu",
        "dots",
        "times",
        "month first",
        "month between",
    ],
)
def test_dates_of_every_kind_are_seconds(values):
    found, dates = moments_of(values, "column 'day'")
    assert dates
    np.testing.assert_allclose(np.diff(found), [DAY, 2 * DAY])
    keys = keys_of(values, "column 'day'")
    assert len(set(keys.tolist())) == 3


def test_days_and_months_are_told_apart_where_an_entry_shows_it():
    days = pd.Series(["1/3/2024", "31/3/2024"])
    months = pd.Series(["3/1/2024", "3/31/2024"])
    for values in (days, months):
        assert moments_of(values, "when")[0].tolist() == [1709251200.0, 1711843200.0]


def test_numbers_stay_numbers():
    found, dates = moments_of(pd.Series([3, 1, 2]), "time")
    assert (found.tolist(), dates) == ([3.0, 1.0, 2.0], False)
    same = keys_of(pd.Series([1, 2]), "x"), keys_of(pd.Series([1.0, 2.0]), "x")
    np.testing.assert_array_equal(*same)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            ["2024-03-01", "03/04/2024"],
            "column 'day' must hold numbers.*'03/04/2024' in row 1",
        ),
        (["5/4/2024", "6/4/2024"], "must hold numbers.*'5/4/2024' in row 0"),
        (["2024-03-01", None], "1 of 2 rows have nothing in column 'day'"),
        ([1.0, np.inf], "must hold numbers, or dates .* row 1"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(values, says):
    with pytest.raises(InputError, match=says):
        moments_of(pd.Series(values), "column 'day'")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"time": "when"}, "time='when' must name a column.*'day'"),
        ({"blocks": [1, 2]}, "blocks must have an entry for each of the 3 rows. Got 2"),
        ({"time": "day", "gap": 7}, "gap must say how long, such as '7D'.* Got 7"),
        ({"time": "day", "gap": "7"}, "gap must say how long"),
        ({"time": "day", "horizon": "soon"}, "horizon must say how long.*'soon'"),
        ({"ordered": True, "gap": 0.5}, "gap must be a whole number of rows"),
        ({"ordered": True, "gap": "7D"}, "gap must be a number, in rows. Got '7D'"),
        ({"time": "x", "gap": -1}, "gap must be at least 0"),
        ({"time": "x", "horizon": 0}, "horizon must be more than 0"),
    ],
)
def test_wrong_words_get_a_sentence(words, says):
    table = pd.DataFrame({"day": DAYS, "x": [1.0, 2.0, 3.0]})
    with pytest.raises(InputError, match=says):
        OrderWords(**words).read(table, None, 3)


def test_spans_are_in_the_units_of_the_column():
    table = pd.DataFrame({"day": DAYS, "x": [1.0, 2.0, 3.0]})
    order = OrderWords(time="day", gap="1D", horizon="12h").read(table, None, 3)
    assert (order.gap, order.horizon, order.ordered) == (DAY, DAY / 2, True)
    order = OrderWords(time="x", gap="0.5", horizon=2).read(table, None, 3)
    assert (order.gap, order.horizon) == (0.5, 2.0)
