"""Standings as text: tables in Markdown, losses included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from persfl.checks import percent
from persfl.lab.standings import (
    REFERENCE,
    CellRecord,
    CellsBySet,
    Standing,
    least,
    mean_regret,
    standings,
    variants,
    with_equal_questions,
)

LOSES = "loses"
LOWEST = -9.99  # shares below this are not spelled out


def regret_table(cells: CellsBySet, reference: str = REFERENCE) -> str:
    """Errors of all methods on all sets, the least of a set bold, the least mean regret first.

    Below them the reference's regret with its interval, and to whom it loses.
    """
    found = {name: standings(some, reference) for name, some in cells.items()}
    best = {name: least(table) for name, table in found.items()}
    lines = [f"| | {' | '.join(found)} | mean regret |", _rule(len(found) + 2)]
    for method, regret in _by_regret(cells, reference):
        errors = []
        for name, table in found.items():
            one = table.get(method)
            bold = best[name] == method
            errors.append("" if one is None else _bold(short(one.error), bold))
        shown = "" if np.isnan(regret) else signed(regret)
        lines.append(_row(method, *errors, shown))
    mine = [table[reference] for table in found.values()]
    regrets = [signed_interval(*one.regret_interval) for one in mine]
    ours = signed_interval(*mean_regret(cells, reference, reference))
    lines.append(_row(f"*regret of {reference}*", *regrets, ours))
    rivals = [least(table, reference) for table in found.values()]
    beaten = [one.regret > 0 for one in mine]
    words = [r if lost else "" for r, lost in zip(rivals, beaten, strict=True)]
    lines.append(_row(f"*{reference} {LOSES} to*", *words, ""))
    return "\n".join(lines)


def _by_regret(cells: CellsBySet, reference: str) -> list[tuple[str, float]]:
    """Methods with their mean regrets, the least first; those that some set lacks come last."""
    there = {name: variants(some) for name, some in cells.items()}
    every = dict.fromkeys(m for known in there.values() for m in known)
    found = {}
    for method in every:
        everywhere = all(method in known for known in there.values())
        found[method] = np.nan
        if everywhere:
            found[method] = mean_regret(cells, method, reference)[0]
    return sorted(found.items(), key=lambda one: (np.isnan(one[1]), one[1]))


def equal_table(cells: CellsBySet, reference: str = REFERENCE) -> str:
    """As `regret_table`, after equally many questions."""
    same = {name: with_equal_questions(some) for name, some in cells.items()}
    return regret_table(same, reference)


def questions_table(cells: CellsBySet) -> str:
    """What every method asks of a device, sends, and tries: means over sets and seeds."""
    every = [cell["picked"] for some in cells.values() for cell in some]
    names = dict.fromkeys(name for picked in every for name in picked)
    head = "| | settings tried | questions | messages | kB | with equal questions | leaves |"
    lines = [head, _rule(7)]
    for name in names:
        mine = [picked[name] for picked in every if name in picked]
        shown = []
        for key in ("tried", "questions", "messages", "kilobytes", "equal_questions"):
            shown.append(f"{np.mean([one[key] for one in mine]):,.3g}")
        leaves = ", ".join(dict.fromkeys(one["leaves"] for one in mine))
        lines.append(_row(name, *shown, leaves))
    return "\n".join(lines)


def removed_table(cells: CellsBySet, reference: str = REFERENCE) -> str:
    """The typical share of each method's error that the reference removes, device by device.

    With its interval; losses are bold.
    """
    found = {name: standings(some, reference) for name, some in cells.items()}
    lines = _head(list(found))
    for method, _ in _by_regret(cells, reference):
        if method == reference:
            continue
        shown = []
        for table in found.values():
            one = table.get(method)
            shown.append(
                "" if one is None else _bold(removed(one), one.removed_high < 0)
            )
        lines.append(_row(method, *shown))
    return "\n".join(lines)


def removed(one: Standing) -> str:
    """A share with its interval; nothing for the reference itself."""
    if np.isnan(one.removed):
        return ""
    low = "below " * (one.removed_low < LOWEST) + percent(max(one.removed_low, LOWEST))
    return f"{percent(one.removed)} ({low} to {percent(one.removed_high)})"


def variants_table(cells: CellsBySet) -> str:
    """The units and setting of every method that were chosen most often."""
    lines = _head(list(cells))
    names = dict.fromkeys(m for some in cells.values() for m in some[0]["errors"])
    for name in names:
        shown = [often_chosen(some, name) for some in cells.values()]
        lines.append(_row(name, *shown))
    return "\n".join(lines)


def failures(cells: CellsBySet) -> str:
    """Which methods could not run where, a line each; "" where all could."""
    lines = []
    for name, some in cells.items():
        told = {m: why for cell in some for m, why in cell.get("failed", {}).items()}
        lines += [f"- {name}, {method}: {why}" for method, why in told.items()]
    return "\n".join(lines)


def often_chosen(cells: Sequence[CellRecord], name: str) -> str:
    """What a method's settings were on most of these seeds."""
    told = [cell["picked"][name] for cell in cells if name in cell.get("picked", {})]
    counted = Counter(one["variant"] for one in told)
    return counted.most_common(1)[0][0] if counted else ""


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
