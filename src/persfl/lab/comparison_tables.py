"""Standings as text: tables in Markdown, losses included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from persfl.evaluation.intervals import percent
from persfl.lab.standings import (
    REFERENCE,
    CellsBySet,
    Standing,
    least,
    mean_regret,
    standings,
    variants,
)

LOSES = "loses"
LOWEST = -9.99  # shares below this are not spelled out
Standings = Mapping[str, Standing]


def regret_table(cells: CellsBySet, reference: str = REFERENCE) -> str:
    """Errors of all methods on all sets, the least of a row bold.

    Beside them the reference's regret with its interval, and where it loses.
    """
    found = {name: standings(some, reference) for name, some in cells.items()}
    methods = _methods(found, reference)
    lines = [
        f"| | {' | '.join(methods)} | regret of {reference} | |",
        _rule(len(methods) + 3),
    ]
    for name, table in found.items():
        best = least(table)
        mine = table[reference]
        errors = []
        for method in methods:
            one = table.get(method)
            errors.append(
                "" if one is None else _bold(short(one.error), method == best)
            )
        loss = f"{LOSES} to {least(table, reference)}" if mine.regret > 0 else ""
        lines.append(_row(name, *errors, signed_interval(*mine.regret_interval), loss))
    means = []
    for method in methods:
        everywhere = all(method in table for table in found.values())
        means.append(
            signed(mean_regret(cells, method, reference)[0]) if everywhere else ""
        )
    ours = signed_interval(*mean_regret(cells, reference, reference))
    lines.append(f"{_row('*mean regret*', *means, ours)} |")
    return "\n".join(lines)


def removed_table(cells: CellsBySet, reference: str = REFERENCE) -> str:
    """The typical share of each method's error that the reference removes, device by device.

    With its interval; losses are bold.
    """
    found = {name: standings(some, reference) for name, some in cells.items()}
    methods = _methods(found, reference)[:-1]
    lines = _head(methods)
    for name, table in found.items():
        shown = []
        for method in methods:
            one = table.get(method)
            shown.append(
                "" if one is None else _bold(removed(one), one.removed_high < 0)
            )
        lines.append(_row(name, *shown))
    return "\n".join(lines)


def removed(one: Standing) -> str:
    """A share with its interval; nothing for the reference itself."""
    if np.isnan(one.removed):
        return ""
    low = "below " * (one.removed_low < LOWEST) + percent(max(one.removed_low, LOWEST))
    return f"{percent(one.removed)} ({low} to {percent(one.removed_high)})"


def variants_table(cells: CellsBySet) -> str:
    """The units and setting of every method that counted."""
    chosen = {name: variants(some) for name, some in cells.items()}
    methods = list(dict.fromkeys(method for each in chosen.values() for method in each))
    lines = _head(methods)
    for name, each in chosen.items():
        lines.append(_row(name, *(each.get(method, "") for method in methods)))
    return "\n".join(lines)


def seconds_line(cells: CellsBySet) -> str:
    """What it took, set by set."""
    totals = {name: [cell["total"] for cell in some] for name, some in cells.items()}
    listed = ", ".join(f"{name} {np.mean(each):.0f}" for name, each in totals.items())
    total = sum(seconds for each in totals.values() for seconds in each)
    return f"Seconds of one core per seed: {listed}; {total:,.0f} in all."


def short(error: float) -> str:
    """Three digits, as in .137."""
    text = f"{error:.3f}" if error < 10 else f"{error:.3g}"
    return text.removeprefix("0") if error < 1 else text


def signed(value: float) -> str:
    """A regret, as in −.05.

    >>> signed(-0.05), signed(0.2)
    ('−.05', '+.20')
    """
    sign = "\N{MINUS SIGN}" if round(value, 2) < 0 else "+"
    return sign + f"{abs(value):.2f}".removeprefix("0")


def signed_interval(middle: float, low: float, high: float) -> str:
    """A regret with its interval, where it has one."""
    if np.isnan(low):
        return signed(middle)
    return f"{signed(middle)} ({signed(low)} to {signed(high)})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---" * columns + "|"


def _head(names: Sequence[str]) -> list[str]:
    """The first two lines of a table whose first column has no name."""
    return [f"| | {' | '.join(names)} |", _rule(len(names) + 1)]


def _bold(text: str, yes: bool) -> str:
    return f"**{text}**" if yes and text else text


def _methods(found: Mapping[str, Standings], reference: str) -> list[str]:
    """All methods of all sets, the reference last."""
    every = dict.fromkeys(name for table in found.values() for name in table)
    return [name for name in every if name != reference] + [reference]
