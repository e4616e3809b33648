"""What the paper says in words about its figures, each as a test of the curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from persfl.lab.figure_specs import Spec, is_the_papers
from persfl.types import Array

if TYPE_CHECKING:
    from persfl.lab.figure_runs import Result

Medians = dict[str, Array]
Found = tuple[str, bool, str]


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
    for needs, check in _CHECKS:
        if all(
            name in results and _is_whole(results[name].spec, name) for name in needs
        ):
            sentence, holds, numbers = check(
                *(_medians(results[name]) for name in needs)
            )
            found.append(Claim(needs[0], sentence, bool(holds), numbers))
    return found


def _is_whole(spec: Spec, name: str) -> bool:
    return is_the_papers(spec, whole=name not in _PARTS)


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


def _slower(fig2a: Medians) -> Found:
    rounds = {name: reach(curve, 1e-3) for name, curve in fig2a.items()}
    sentence = "convergence is slower with larger d/m"
    return sentence, _rising(rounds), "rounds to 1e-3: " + _list(rounds)


def _floor(fig2b: Medians) -> Found:
    floors = _last_third(fig2b)
    return "the floor grows with the noise", _rising(floors), "floors: " + _list(floors)


def _settles(fig2c: Medians) -> Found:
    last = _last_third(fig2c)
    others = [value for name, value in last.items() if name != "S=5"]
    holds = last["S=5"] > 1e-6 and max(others) < 1e-20
    return (
        "S=5 does not settle, S>=10 does",
        holds,
        "error in the last third: " + _list(last),
    )


def _right(fig3: Medians) -> Found:
    rounds = {name: reach(curve, 1e-6) for name, curve in fig3.items()}
    ours = [name for name in rounds if not name.startswith("IFCA")]
    holds = all(_comparable(rounds[name], rounds[f"IFCA {name}"], 4) for name in ours)
    sentence = "IFCA told the right number of clusters is comparable"
    return sentence, holds, "rounds to 1e-6: " + _list(rounds)


def _wrong(fig4: Medians) -> Found:
    last = {name: float(curve[-1]) for name, curve in fig4.items()}
    ours = [name for name in last if not name.startswith("IFCA")]
    holds = all(last[f"IFCA {name}"] > 1e3 * last[name] for name in ours)
    sentence = "IFCA told the wrong number of clusters is far worse"
    return sentence, holds, "error at the end: " + _list(last)


def _oracle(fig5: Medians) -> Found:
    rounds = {name: reach(curve, 1e-10) for name, curve in fig5.items()}
    one, other = rounds.values()
    holds = _comparable(one, other, 2)
    sentence = "Algorithm 1 is comparable with the oracle"
    return sentence, holds, "rounds to 1e-10: " + _list(rounds)


def _online(fig6: Medians, fig2a: Medians) -> Found:
    names = [name for name in fig6 if float(name.split("=")[1]) >= 2]
    rounds = {}
    for name in names:
        rounds[f"{name} online"] = reach(fig6[name], 1e-6)
        rounds[f"{name} offline"] = reach(fig2a[name], 1e-6)
    holds = all(rounds[f"{name} online"] < rounds[f"{name} offline"] for name in names)
    return "online is faster when d/m >= 2", holds, "rounds to 1e-6: " + _list(rounds)


def _between(fig7: Medians) -> Found:
    ends = _last_third(fig7)
    alone = {f"{name} local": float(curve[0]) for name, curve in fig7.items()}
    holds = all(0.95 <= ends[name] < alone[f"{name} local"] for name in ends)
    sentence = "the personalized tree lies between the oracle's (1) and the local one"
    return sentence, holds, _list(ends | alone)


# claims about each series by itself: some of the series will do
_PARTS = ("fig6", "fig7")
_CHECKS: list[tuple[tuple[str, ...], Callable[..., Found]]] = [
    (("fig2a",), _slower),
    (("fig2b",), _floor),
    (("fig2c",), _settles),
    (("fig3",), _right),
    (("fig4",), _wrong),
    (("fig5",), _oracle),
    (("fig6", "fig2a"), _online),
    (("fig7",), _between),
]
