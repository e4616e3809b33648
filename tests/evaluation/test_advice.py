"""What to do with what was measured: every branch, on errors made up for it."""

import numpy as np
import pandas as pd
import pytest

from persfl.checks import percent
from persfl.evaluation.advice import advice
from persfl.evaluation.headline import expected_words, headline, lowest_arm
from persfl.evaluation.verdicts import Worth

BESIDE = np.linspace(0.8, 1.2, 24)
NOISE = np.random.default_rng(0).normal(0, 0.25, (6, 24))


def judged(classes=0, **levels):
    """Devices' errors about these levels, with noise of their own for each arm."""
    columns = {
        f"error_{arm}": level * BESIDE * np.exp(noise)
        for (arm, level), noise in zip(levels.items(), NOISE, strict=False)
    }
    return Worth(pd.DataFrame(columns).assign(held=5), 1.0, classes)


@pytest.mark.parametrize(
    ("levels", "best", "use", "clear", "says"),
    [
        (
            {"base": 4, "own": 2, "pooled": 1.5, "personal": 0.8},
            *("pooled", "personal", True, "Use the personalized models."),
        ),
        (
            {"base": 4, "own": 2, "pooled": 0.6, "personal": 1.2},
            *("pooled", "pooled", True, "Use one model for all instead."),
        ),
        (
            {"base": 4, "own": 0.6, "pooled": 2, "personal": 1.2},
            *("own", "own", True, "Use own rows only instead."),
        ),
        (
            {"base": 4, "own": 2, "centred": 1, "personal": 1},
            *("centred", "personal", False, "more rows would tell them apart"),
        ),
        (
            {"base": 1, "own": 2, "pooled": 1.6, "personal": 1.05},
            *("base", "", False, "Collect more rows"),
        ),
    ],
)
def test_advice_follows_the_best_simple_alternative(levels, best, use, clear, says):
    worth = judged(**levels)
    found = advice(worth)
    assert (found.best, found.use, found.clear) == (best, use, clear)
    told = headline(worth)
    assert says in told.advice
    assert bool(told.use) == (use != "" and not (use == "personal" and clear))
    assert worth.name(best) in told.found
    assert ("Against own rows" in told.alone) == (best != "own")


def test_a_method_that_is_a_simple_way_is_not_compared_with_itself():
    worth = judged(base=4, own=2, pooled=1, personal=1)
    same = worth.table.assign(error_personal=worth.table["error_pooled"])
    worth = Worth(same, 1.0, 0)
    found = advice(worth)
    assert (found.best, found.itself) == ("own", "pooled")
    assert lowest_arm(worth) == "personal"
    assert worth.fleet("pooled").gain == 0
    told = headline(worth)
    assert told.found.startswith("These models remove")
    assert told.advice == "Use these models."
    assert "ersonaliz" not in " ".join(told.sentences)


def test_own_rows_are_judged_alike_by_whatever_name():
    """`--method own` falls with more rows as the rival of that name does."""
    worth = judged(base=4, own=1, pooled=1.5, personal=1)
    own = worth.table["error_own"]
    falls = {f"fall_{arm}": 0.4 * own for arm in ("base", "own", "pooled", "personal")}
    same = worth.table.assign(error_personal=own, **falls)
    same = Worth(same, 1.0, 0)
    assert same.fleet("pooled") == same.fleet("pooled", of="own")
    assert "can differ from what the errors say" in expected_words(same)
    assert expected_words(worth) == ""
    assert headline(same).alone == ""


def test_of_two_that_cannot_be_told_apart_one_may_beat_the_base_rate():
    worth = judged(base=1.6, own=1, personal=1)
    wild = np.where(np.arange(24) % 6 == 0, 6.0, 0.1) * BESIDE
    worth = Worth(worth.table.assign(error_personal=wild), 1.0, 0)
    found = advice(worth)
    assert (found.best, found.use, found.clear) == ("own", "own", False)
    told = headline(worth)
    assert told.advice.startswith("Use own rows only instead: it clearly beats")
    assert (told.says, told.use) == ("no clear difference", "own")


def test_a_larger_error_is_told_by_one_measure_with_its_interval():
    worth = judged(base=9, own=1, personal=1)
    wild = np.where(np.arange(24) % 6 == 0, 15.0, 0.1) * BESIDE
    worth = Worth(worth.table.assign(error_personal=wild), 1.0, 0)
    verdict = worth.fleet("own")
    assert verdict.gain < -0.5 < 0 < verdict.high
    lower = f"its error is {percent(-verdict.gain)} lower, and that may be chance"
    ends = f"{percent(-verdict.high)} to {percent(-verdict.low)}"
    assert f"{lower} (95 % interval {ends})" in headline(worth).found


def test_of_two_that_cannot_be_told_apart_the_lower_error_comes_first():
    orders = set()
    for factor in (0.9, 1.1):
        worth = judged(base=4, own=2, centred=1, personal=1)
        middle = worth.table["error_personal"].mean()
        scaled = factor * worth.table["error_centred"].mean() / middle
        mine = worth.table["error_personal"] * scaled
        found = Worth(worth.table.assign(error_personal=mine), 1.0, 0)
        assert not advice(found).clear
        orders.add((factor < 1, headline(found).advice.startswith("Use the pers")))
    assert orders == {(True, True), (False, False)}


def test_a_federation_knows_own_rows_alone():
    found = advice(judged(own=2, personal=0.8))
    assert (found.best, found.use, found.clear) == ("own", "personal", True)


def test_one_device_is_no_evidence():
    few = judged(own=2, personal=1).table[:1]
    assert advice(Worth(few, 1.0, 0)) is None
    assert headline(Worth(few, 1.0, 0)).sentences == [headline(None).found]


def test_classes_have_a_base_rate_of_their_own():
    worth = judged(classes=2, base=1, own=2, personal=1.05)
    table = worth.table.assign(
        mistakes_base=0.1, mistakes_own=0.1, mistakes_personal=0.1
    )
    worth = Worth(table, 1.0, 2)
    assert "always the most frequent class" in headline(worth).advice
    assert worth.summary()[0]["name"] == "always the most frequent class"
    assert "off_by" not in worth.summary()[0]


def test_shares_of_devices_are_said_of_the_rows_held_back():
    """A few rows of a device do not tell whether it will fare better with all of them."""
    worth = judged(base=4, own=2, pooled=1.5, personal=0.8)
    share = round(100 * (worth.error("own") > worth.error("personal")).mean())
    said = f"On those rows {share} % of devices had less error than alone"
    assert said in headline(worth).alone


def test_errors_that_tables_show_as_none_are_none():
    """A column that tells the label: one of two errors of 0.0000 is not 100 % lower."""
    tiny = {"own": 1e-9, "pooled": 1e-7, "tuned": 1e-9, "personal": 1e-5}
    worth = judged(classes=3, base=0.6, **tiny)
    mistakes = {f"mistakes_{arm}": 0.0 for arm in worth.arms}
    worth = Worth(worth.table.assign(**mistakes), 1.0, 3)
    told = headline(worth)
    assert told.found.startswith("Nothing is left to remove: personalizing and the")
    assert told.advice.startswith("Use own rows only instead: it is simpler")
    assert (told.use, told.says) == ("own", "no clear difference")
    for entry in worth.summary()[1:-1]:
        assert (entry["gain"], entry["low"], entry["high"]) == (0, 0, 0)
        assert (entry["better"], entry["worse"]) == (0, 0)
    assert worth.summary()[0]["says"] == "helps"


def test_a_flawless_simple_way_is_used_itself():
    tiny = judged(base=1, own=1e-9, pooled=1e-9, personal=1e-9)
    same = tiny.table.assign(error_personal=tiny.table["error_pooled"])
    told = headline(Worth(same, 1.0, 0))
    assert told.advice == "Use these models."
    assert told.use == ""


def test_the_only_rival_was_not_picked_among_several():
    """Two devices of a federation: ranks of two tell nothing, and own rows are the only rival."""
    table = pd.DataFrame(
        {"error_own": [0.011, 0.0112], "error_personal": [0.23, 0.234]}
    )
    worth = Worth(table.assign(held=10), 1.0, 0)
    assert worth.summary()[0]["says"].startswith("hurts")
    found = advice(worth)
    assert (found.use, found.clear) == ("own", True)
    told = headline(worth)
    assert told.found.startswith("A simple way does better than personalizing")
    assert told.advice == "Use own rows only instead."


def test_errors_that_hardly_differ_ask_for_no_more_rows():
    base = 4 * BESIDE
    for hair, ends in ((0.001, "at most."), (0.5, "tell them apart.")):
        noise = np.exp(hair * np.random.default_rng(1).normal(size=24))
        table = pd.DataFrame({"error_base": base, "error_own": BESIDE})
        table = table.assign(error_personal=BESIDE * noise, held=5)
        told = headline(Worth(table, 1.0, 0))
        assert told.advice.endswith(ends), told
