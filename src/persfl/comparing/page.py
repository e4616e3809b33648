"""Standings as text: tables in Markdown, losses included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from persfl.comparing.standings import REFERENCE, Standing, least, mean_regret, standings, variants
from persfl.worth import percent

LOSES, LOWEST = "loses", -9.99


def regret_table(cells: Mapping[str, Sequence[Mapping[str, Any]]], reference: str = REFERENCE) -> str:
    """Errors of all methods on all sets, the least of a row bold; the reference's regret with its interval, and where it loses."""
    found = {name: standings(some, reference) for name, some in cells.items()}
    methods = _methods(found, reference)
    lines = [f"| | {' | '.join(methods)} | regret of {reference} | |", "|---" * (len(methods) + 3) + "|"]
    for name, table in found.items():
        best, mine = least(table), table[reference]
        errors = [_bold(short(table[m].error), m == best) if m in table else "" for m in methods]
        regret = signed_interval(mine.regret, mine.regret_low, mine.regret_high)
        loss = f"{LOSES} to {least(table, reference)}" if mine.regret > 0 else ""
        lines.append(f"| {name} | {' | '.join(errors)} | {regret} | {loss} |")
    means = [signed(mean_regret(cells, m, reference)[0]) if all(m in t for t in found.values()) else "" for m in methods]
    lines.append(f"| *mean regret* | {' | '.join(means)} | {signed_interval(*mean_regret(cells, reference, reference))} | |")
    return "\n".join(lines)


def removed_table(cells: Mapping[str, Sequence[Mapping[str, Any]]], reference: str = REFERENCE) -> str:
    """The typical share of each method's error that the reference removes, device by device, with its interval; losses bold."""
    found = {name: standings(some, reference) for name, some in cells.items()}
    methods = [name for name in _methods(found, reference) if name != reference]
    lines = [f"| | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for name, table in found.items():
        shown = [_bold(removed(table[m]), table[m].removed_high < 0) if m in table else "" for m in methods]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def removed(one: Standing) -> str:
    """A share with its interval; nothing for the reference itself."""
    if np.isnan(one.removed):
        return ""
    low = "below " * (one.removed_low < LOWEST) + percent(max(one.removed_low, LOWEST))
    return f"{percent(one.removed)} ({low} to {percent(one.removed_high)})"


def variants_table(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The units and setting of every method that counted."""
    chosen = {name: variants(some) for name, some in cells.items()}
    methods = list(dict.fromkeys(method for each in chosen.values() for method in each))
    lines = [f"| | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    return "\n".join(lines + [f"| {name} | {' | '.join(each.get(m, '') for m in methods)} |" for name, each in chosen.items()])


def seconds_line(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """What it took, set by set."""
    each = {name: float(np.mean([cell["total"] for cell in some])) for name, some in cells.items()}
    total = sum(cell["total"] for some in cells.values() for cell in some)
    listed = ", ".join(f"{name} {seconds:.0f}" for name, seconds in each.items())
    return f"Seconds of one core per seed: {listed}; {total:,.0f} in all."


def page(title: str, about: str, cells: Mapping[str, Sequence[Mapping[str, Any]]], reference: str = REFERENCE) -> str:
    """The whole page of a comparison."""
    seeds = sorted({cell["seed"] for some in cells.values() for cell in some})
    return "\n".join(
        [
            f"# {title}\n\n{about}\n",
            f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]}). Errors are means over devices, then over seeds: squared error over "
            "the label's variance, or the share of wrong labels. Of every method the best of its variants counts, in hindsight. "
            f"Regret is log(error of {reference} / least error of the others), with Student's 95 % interval over seeds.\n",
            regret_table(cells, reference),
            f"\n## What {reference} removes of the others' error\n",
            "Device by device, typical share, 95 % interval over seeds. Bold: clearly worse than that method.\n",
            removed_table(cells, reference),
            "\n## Variants that counted\n",
            variants_table(cells),
            f"\n{seconds_line(cells)}\n",
        ]
    )


def short(error: float) -> str:
    """Three digits, as in .137."""
    text = f"{error:.3f}" if error < 10 else f"{error:.3g}"
    return text.removeprefix("0") if error < 1 else text


def signed(value: float) -> str:
    """A regret, as in −.05.

    >>> signed(-0.05), signed(0.2)
    ('−.05', '+.20')
    """
    return ("−" if round(value, 2) < 0 else "+") + f"{abs(value):.2f}".removeprefix("0")  # noqa: RUF001


def signed_interval(middle: float, low: float, high: float) -> str:
    """A regret with its interval, where it has one."""
    return signed(middle) if np.isnan(low) else f"{signed(middle)} ({signed(low)} to {signed(high)})"


def _bold(text: str, yes: bool) -> str:
    return f"**{text}**" if yes and text else text


def _methods(found: Mapping[str, Mapping[str, Standing]], reference: str) -> list[str]:
    """All methods of all sets, the reference last."""
    every = list(dict.fromkeys(name for table in found.values() for name in table))
    return [name for name in every if name != reference] + [reference]
