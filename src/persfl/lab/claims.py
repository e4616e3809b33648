"""What the paper says in words about its figures, each as a test of the curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from persfl.lab.figure_specs import is_the_papers
from persfl.types import Array

if TYPE_CHECKING:
    from persfl.lab.figure_runs import Result

Medians = dict[str, Array]
Found = tuple[bool, str]  # whether it holds, and the numbers behind it


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds, and the numbers behind it."""

    figure: str
    sentence: str
    holds: bool
    numbers: str


def claims(results: Mapping[str, Result]) -> list[Claim]:
    """Every claim whose figures are there with the paper's settings: it speaks of no others."""
    found = []
    for figures, sentence, check in _CHECKS:
        names = figures.split()
        there = [results[name] for name in names if _is_whole(results.get(name))]
        if len(there) == len(names):
            holds, numbers = check(*map(_medians, there))
            found.append(Claim(names[0], sentence, bool(holds), numbers))
    return found


def _is_whole(result: Result | None) -> bool:
    """Whether a figure is there with all the series that claims about it need."""
    if result is None:
        return False
    return is_the_papers(result.spec, whole=result.spec.name not in _PARTS)


def _medians(result: Result) -> Medians:
    return {name: np.median(curves, axis=0) for name, curves in result.curves.items()}


def _last_third(medians: Medians) -> dict[str, float]:
    """The level at which every curve ends."""
    return {
        name: float(np.median(curve[-len(curve) // 3 :]))
        for name, curve in medians.items()
    }


def reach(curve: Array, level: float) -> float:
    """The first round in which a curve is at or below a level; infinity if never.

    >>> reach(np.array([np.nan, 5.0, 0.5]), 1.0)
    2.0
    """
    below = np.flatnonzero(curve <= level)
    return float(below[0]) if len(below) else np.inf


def _rising(values: Mapping[str, float]) -> bool:
    return all(a < b for a, b in pairwise(values.values()))


def _comparable(one: float, other: float, factor: float) -> bool:
    """Whether both got there, neither later than so many times the other."""
    return max(one, other) <= factor * min(one, other) < np.inf


def _list(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {value:.3g}" for name, value in values.items())


def _rounds_to(level: float, medians: Medians) -> dict[str, float]:
    return {name: reach(curve, level) for name, curve in medians.items()}


def _ours(medians: Medians) -> list[str]:
    """Series of our own, each of which has one of IFCA beside it."""
    return [name for name in medians if not name.startswith("IFCA")]


def _slower(fig2a: Medians) -> Found:
    rounds = _rounds_to(1e-3, fig2a)
    return _rising(rounds), "rounds to 1e-3: " + _list(rounds)


def _floor(fig2b: Medians) -> Found:
    floors = _last_third(fig2b)
    return _rising(floors), "floors: " + _list(floors)


def _settles(fig2c: Medians) -> Found:
    last = _last_third(fig2c)
    others = [value for name, value in last.items() if name != "S=5"]
    holds = last["S=5"] > 1e-6 and max(others) < 1e-20
    return holds, "error in the last third: " + _list(last)


def _right(fig3: Medians) -> Found:
    rounds = _rounds_to(1e-6, fig3)
    pairs = [(rounds[name], rounds[f"IFCA {name}"]) for name in _ours(fig3)]
    holds = all(_comparable(one, other, 4) for one, other in pairs)
    return holds, "rounds to 1e-6: " + _list(rounds)


def _wrong(fig4: Medians) -> Found:
    last = {name: float(curve[-1]) for name, curve in fig4.items()}
    holds = all(last[f"IFCA {name}"] > 1e3 * last[name] for name in _ours(fig4))
    return holds, "error at the end: " + _list(last)


def _oracle(fig5: Medians) -> Found:
    rounds = _rounds_to(1e-10, fig5)
    one, other = rounds.values()
    return _comparable(one, other, 2), "rounds to 1e-10: " + _list(rounds)


def _online(fig6: Medians, fig2a: Medians) -> Found:
    names = [name for name in fig6 if float(name.split("=")[1]) >= 2]
    rounds = {}
    for name in names:
        rounds[f"{name} online"] = reach(fig6[name], 1e-6)
        rounds[f"{name} offline"] = reach(fig2a[name], 1e-6)
    holds = all(rounds[f"{name} online"] < rounds[f"{name} offline"] for name in names)
    return holds, "rounds to 1e-6: " + _list(rounds)


def _between(fig7: Medians) -> Found:
    ends = _last_third(fig7)
    alone = {f"{name} local": float(curve[0]) for name, curve in fig7.items()}
    holds = all(0.95 <= ends[name] < alone[f"{name} local"] for name in ends)
    return holds, _list(ends | alone)


# claims about each series by itself: some of the series will do
_PARTS = ("fig6", "fig7")
_CHECKS: list[tuple[str, str, Callable[..., Found]]] = [
    ("fig2a", "convergence is slower with larger d/m", _slower),
    ("fig2b", "the floor grows with the noise", _floor),
    ("fig2c", "S=5 does not settle, S>=10 does", _settles),
    ("fig3", "IFCA told the right number of clusters is comparable", _right),
    ("fig4", "IFCA told the wrong number of clusters is far worse", _wrong),
    ("fig5", "Algorithm 1 is comparable with the oracle", _oracle),
    ("fig6 fig2a", "online is faster when d/m >= 2", _online),
    (
        "fig7",
        "the personalized tree lies between the oracle's (1) and the local one",
        _between,
    ),
]
