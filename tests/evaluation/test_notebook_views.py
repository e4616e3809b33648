"""What a notebook shows of a fit: tables and small pictures, and nothing of a name is markup."""

import re

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedClassifier, PersonalizedRegressor
from persfl.evaluation.html_tables import Scale, curve, html_table, whisker
from persfl.methods import Paper

ODD = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    who = np.repeat([ODD, "b", "c", "d", "e"], 12)
    X = pd.DataFrame({"x": rng.normal(size=60), "<i>": rng.normal(size=60)})
    y = X["x"] * 2 + rng.normal(size=60)
    return PersonalizedRegressor(method=Paper(rounds=6)).fit(X, y, devices=who)


def test_a_fit_shows_what_it_is_and_what_it_is_worth(model):
    shown = model.fitted_._repr_html_()
    for text in ("&lt;i&gt;", "paper", "median loss", "always the mean", "off by"):
        assert text in shown
    assert model.worth_._repr_html_() in shown
    assert "<script" not in shown
    assert "<i>" not in shown
    assert shown.count("<tr") == shown.count("</tr>")


def test_an_estimator_shows_its_fit_below_the_diagram(model):
    shown = model._repr_mimebundle_()["text/html"]
    assert shown.endswith(model.fitted_._repr_html_())
    bare = PersonalizedRegressor()._repr_mimebundle_()["text/html"]
    assert "held-out error" not in bare


def test_errors_are_those_that_were_measured(model):
    shown = model.worth_._repr_html_()
    for arm in model.worth_.summary():
        assert f"<td>{arm['name']}</td><td>{arm['error']:.3g}</td>" in shown
    assert shown.count("<svg") == len(model.worth_.arms) - 1
    assert shown.count("font-weight:bold") == 1


def test_helpers_are_a_table_with_bars_and_else_a_plain_one(model):
    found = model.helpers_
    shown = found._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert shown.count("<svg") == 2 * min(len(found), 20)
    assert type(found[found["share"] > 0]) is pd.DataFrame
    assert type(found.copy()) is pd.DataFrame
    assert found[:0]._repr_html_()


def test_nobody_asked_shows_an_empty_table(model):
    rows = model.helpers_.iloc[:0]
    assert "<svg" not in type(model.helpers_)(rows)._repr_html_()


def test_classes_show_mistakes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    who = np.repeat(list("abcde"), 12)
    model = PersonalizedClassifier(method="pooled").fit(X, y, devices=who)
    shown = model.worth_._repr_html_()
    assert "mistakes" in shown
    assert "always the most frequent class" in shown


def test_pictures_stay_inside():
    scale = Scale(-1.0, 1.0)
    far = whisker(-5.0, -9.0, 7.0, scale)
    places = [float(number) for number in re.findall(r"[ MHc]x?=?\"?([\d.]+)", far)]
    assert max(places) <= 120
    assert "circle" not in whisker(float("nan"), 0.0, 1.0, scale)
    assert "polyline" not in curve([1.0, float("nan")])
    assert "polyline" in curve([2.0, 2.0])
    assert html_table([], []).startswith("<table>")
