"""What the paper says in words about its figures, each as a test of the curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from persfl.experiments.runner import Result
from persfl.experiments.spec import is_the_papers
from persfl.types import Array


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds, and the numbers behind it."""

    figure: str
    sentence: str
    holds: bool
    numbers: str


def claims(results: Mapping[str, Result]) -> list[Claim]:
    """Every claim whose figures are there, with the settings of the paper: it says nothing about others."""
    found = []
    for needs, check in _CHECKS:
        if all(name in results and is_the_papers(results[name].spec, whole=name not in _PARTS) for name in needs):
            medians = [{s: np.median(c, axis=0) for s, c in results[name].curves.items()} for name in needs]
            sentence, holds, numbers = check(*medians)
            found.append(Claim(needs[0], sentence, bool(holds), numbers))
    return found


Medians = dict[str, Array]
Found = tuple[str, bool, str]


def reach(curve: Array, level: float) -> float:
    """The first round in which a curve is at or below a level; infinity if never.

    >>> reach(np.array([np.nan, 5.0, 0.5]), 1.0)
    2.0
    """
    below = np.flatnonzero(curve <= level)
    return float(below[0]) if len(below) else np.inf


def _rising(values: Mapping[str, float]) -> bool:
    return all(a < b for a, b in pairwise(values.values()))


def _list(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {value:.3g}" for name, value in values.items())


def _slower(fig2a: Medians) -> Found:
    rounds = {name: reach(curve, 1e-3) for name, curve in fig2a.items()}
    return "convergence is slower with larger d/m", _rising(rounds), "rounds to 1e-3: " + _list(rounds)


def _floor(fig2b: Medians) -> Found:
    floors = {name: float(np.median(curve[-len(curve) // 3 :])) for name, curve in fig2b.items()}
    return "the floor grows with the noise", _rising(floors), "floors: " + _list(floors)


def _settles(fig2c: Medians) -> Found:
    last = {name: float(np.median(curve[-len(curve) // 3 :])) for name, curve in fig2c.items()}
    holds = last["S=5"] > 1e-6 and all(value < 1e-20 for name, value in last.items() if name != "S=5")
    return "S=5 does not settle, S>=10 does", holds, "error in the last third: " + _list(last)


def _right(fig3: Medians) -> Found:
    rounds = {name: reach(curve, 1e-6) for name, curve in fig3.items()}
    pairs = [(rounds[name], rounds[f"IFCA {name}"]) for name in rounds if not name.startswith("IFCA")]
    holds = all(np.isfinite(a) and np.isfinite(b) and max(a, b) <= 4 * min(a, b) for a, b in pairs)
    return "IFCA told the right number of clusters is comparable", holds, "rounds to 1e-6: " + _list(rounds)


def _wrong(fig4: Medians) -> Found:
    last = {name: float(curve[-1]) for name, curve in fig4.items()}
    holds = all(last[f"IFCA {name}"] > 1e3 * last[name] for name in last if not name.startswith("IFCA"))
    return "IFCA told the wrong number of clusters is far worse", holds, "error at the end: " + _list(last)


def _oracle(fig5: Medians) -> Found:
    rounds = {name: reach(curve, 1e-10) for name, curve in fig5.items()}
    a, b = rounds.values()
    return "Algorithm 1 is comparable with the oracle", max(a, b) <= 2 * min(a, b) < np.inf, "rounds to 1e-10: " + _list(rounds)


def _online(fig6: Medians, fig2a: Medians) -> Found:
    names = [name for name in fig6 if float(name.split("=")[1]) >= 2]
    rounds = {
        f"{name} {kind}": reach(curves[name], 1e-6) for name in names for kind, curves in (("online", fig6), ("offline", fig2a))
    }
    holds = all(rounds[f"{name} online"] < rounds[f"{name} offline"] for name in names)
    return "online is faster when d/m >= 2", holds, "rounds to 1e-6: " + _list(rounds)


def _between(fig7: Medians) -> Found:
    ends = {name: float(np.median(curve[-len(curve) // 3 :])) for name, curve in fig7.items()}
    alone = {f"{name} local": float(curve[0]) for name, curve in fig7.items()}
    holds = all(0.95 <= ends[name] < alone[f"{name} local"] for name in ends)
    return "the personalized tree lies between the oracle's (1) and the local one", holds, _list(ends | alone)


_PARTS = ("fig6", "fig7")  # whose claims are about each series by itself, so that some of them will do
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
