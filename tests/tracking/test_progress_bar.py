"""A bar knows where it is: in a notebook, on a terminal, or where nobody looks."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from persfl import PersonalizedRegressor
from persfl.methods import Paper
from persfl.tracking import Callback, ProgressBar


class ZMQInteractiveShell:
    """What a notebook's shell is called."""


class Display:
    """As much of IPython.display as a bar uses."""

    def __init__(self):
        self.shown = []

    def HTML(self, text):
        return text

    def display(self, text, display_id):
        assert display_id
        self.shown.append(text)
        return SimpleNamespace(update=self.shown.append)


def fitted(*callbacks, rounds=3):
    X = np.random.default_rng(0).normal(size=(16, 3))
    y = np.random.default_rng(1).normal(size=16)
    model = PersonalizedRegressor(method=Paper(rounds=rounds), trials=1)
    return model.fit(X, y, devices=list("aaaabbbb" * 2), callbacks=callbacks)


def test_in_a_notebook_it_stands_under_the_cell(monkeypatch):
    display = Display()
    shell = SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    fitted(ProgressBar())
    last = '<progress value="3" max="3"></progress> final: round 3 of 3, median loss'
    assert any(text.startswith(last) for text in display.shown)
    assert any("trial-0: round 3 of 3" in text for text in display.shown)
    assert display.shown[-1] == ""
    before = len(display.shown)
    ProgressBar().on_fit(None)  # nothing was shown, so nothing is taken away
    assert len(display.shown) == before


def test_on_a_terminal_it_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    fitted(ProgressBar())
    said = capsys.readouterr().err
    assert "|████████████████████| final: round 3 of 3" in said
    assert said.endswith("\r\x1b[2K")


def test_where_nobody_looks_nothing_is_written(capsys):
    fitted(ProgressBar())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_stage_says_how_many_rounds_are_to_come(rounds):
    told = []

    class Stages(Callback):
        def on_stage(self, stage, rounds):
            told.append((stage, rounds))

    fitted(Stages(), rounds=rounds)
    assert set(told) == {("trial-0", rounds), ("final", rounds)}
