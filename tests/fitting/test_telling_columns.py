"""Columns that are the label under another name are told of, and no others."""

import numpy as np
import pandas as pd
import pytest

from persfl import PersonalizedClassifier

WHO = np.repeat([f"d{i}" for i in range(6)], 20)


def said(table, y):
    model = PersonalizedClassifier(method="own", holdout=0)
    notes = model.fit(table, y, devices=WHO).notes_
    return [each for each in notes if "the class of every row" in each]


@pytest.fixture
def table():
    draw = np.random.default_rng(0)
    answer = draw.choice(["no", "perhaps", "yes"], size=120)
    columns = {"answer": answer, "age": draw.normal(size=120).round(1)}
    return pd.DataFrame(columns).assign(kind=draw.choice(["a", "b"], size=120))


def test_a_text_that_tells_the_class_is_named(table):
    (note,) = said(table, np.where(table["answer"] == "no", "N", "Y"))
    assert note == (
        "Column 'answer' tells the class of every row: it may be the label by another name. If it"
        " is not known when predicting, leave it out (command line: --drop answer)."
    )


def test_a_number_that_tells_the_class_is_named(table):
    table["old"] = table["age"] * 12
    (note,) = said(table, np.digitize(table["age"], [-0.5, 0.5]))
    assert note.startswith("Columns 'age', 'old' tell the class of every row: each")
    assert note.endswith("--drop age,old).")


def test_what_tells_most_classes_or_few_rows_is_not(table):
    y = np.where(table["answer"] == "no", "N", "Y")
    y[0] = "N" if y[0] == "Y" else "Y"
    assert said(table, y) == []
    rare = np.arange(120) == int(table["age"].argmax())
    assert said(table, np.where(rare, "rare", "usual")) == []
