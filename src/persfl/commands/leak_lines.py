"""What a device's answers would give away, by attacks on its own rows, at home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from persfl.checks import many, percent
from persfl.devices import Devices
from persfl.lab.leak_meter import NONE, Leak, leaks_of
from persfl.learners.linear import Linear
from persfl.learners.tree import Tree
from persfl.privacy.exposure import exposure_of
from persfl.types import Data

if TYPE_CHECKING:
    from persfl.federation.ledger import Ledger
    from persfl.federation.privacy_settings import PrivacySettings

MOST = 2_000  # rows that attacks are tried on: each refits models without a row
STEPS = ("answer", "steps", "slopes")  # answers that are steps of models
WHOLE = ("parts", "draw")  # one of these is all that squared loss can tell
DEPTH = 3
NOTHING = "nothing has left that rows had a part in."
EXACT = "But {count} answers left without protection."


def known_now(ledger: Ledger, features: int, settings: PrivacySettings | None) -> str:
    """What others know by what the ledger says has left."""
    size = features + 1
    if settings is not None:
        account = ledger.protected.account(settings.budget)
        now = exposure_of(size, 0, squared=True, mu=account.spent**0.5)
        exact = ledger.unprotected()
        text = now.sentence if account.spent else NOTHING
        return f"{text} {EXACT.format(count=exact)}" if exact else text
    told = [line for line in ledger.table() if line["numbers"]]
    if not told:
        return NOTHING
    if any(line["kind"] in WHOLE for line in told):
        return exposure_of(size, size + 1, squared=True).sentence
    steps = sum(int(line["different"]) for line in told if line["kind"] in STEPS)
    rest = [line for line in told if line["kind"] not in STEPS]
    text = f"{many(sum(int(line['different']) for line in told), 'different answer')} left."
    if rest:
        numbers = sum(int(line["numbers"]) for line in rest)
        text += (
            f" {many(numbers, 'number')} that rows may have a part in left with them."
        )
    if steps:
        known = exposure_of(size, steps, squared=True).sentence
        which = f"{steps} of them" if rest else "they"
        text += f" If {which} were steps of a linear regression: {known}"
    return text


def lone_rows(data: Data) -> int:
    """How many rows are alone with another value, in a column where all others have the same one.
    Products with that column, summed, are such a row.

    >>> X = np.array([[0.0, 5.0], [0.0, 6.0], [1.0, 7.0], [0.0, 8.0]])
    >>> lone_rows(Data(X, np.ones(4))), lone_rows(Data(X[:, 1:], np.arange(4.0)))
    (1, 0)
    """
    found = set[int]()
    for column in np.column_stack([data.X, data.y]).T:
        values, first, times = np.unique(column, return_index=True, return_counts=True)
        if len(values) == 2 and times.min() == 1:
            found.add(int(first[times.argmin()]))
    return len(found)


def leak_lines(
    data: Data, ledger: Ledger, settings: PrivacySettings | None, seed: int = 0
) -> str:
    """What others know now, and what attacks find without protection and with it."""
    rows = _in_own_units(data, seed)
    part = "" if len(rows.y) == data.rows else f" on {many(len(rows.y), 'row')} of them"
    lines = [
        f"What answers give away, by attacks on these rows{part} (here; nothing of it leaves):",
        f"  Now: {known_now(ledger, data.X.shape[1], settings)}",
    ]
    if len(rows.y) < 3:
        return (
            "\n".join([*lines, "  Too few rows to attack: few answers tell them."])
            + "\n"
        )
    budgets = [NONE] if settings is None else [NONE, settings.epsilon]
    delta = 1e-5 if settings is None else settings.delta
    linear = leaks_of(rows, Linear(intercept=True), budgets, delta=delta, seed=seed)
    tree = leaks_of(rows, Tree(DEPTH), [NONE], delta=delta, seed=seed)[0]
    size = data.X.shape[1] + 1
    alone = linear[0].by_model
    lines.append(
        f"  Without protection: {size + 1} answers of a linear regression determine its sums, and"
        " with these, or a model of own\n    rows alone, whoever knows all other rows finds each"
        " one. Whoever knows none finds, by losses of such a model,\n"
        f"    {percent(alone, digits=1)} of rows at 1 % false alarms, of a tree"
        f" {percent(tree.by_model, digits=1)}; {percent(tree.labels, digits=1)} of labels stand"
        f" alone in a leaf of a\n    tree of depth {DEPTH}."
    )
    lone = lone_rows(data)
    if lone:
        lines.append(
            f"    {many(lone, 'row')} can be read off the sums of one answer as they stand:"
            " in some column all other\n    rows have the same value."
        )
    if settings is not None:
        lines.append(_with_noise(linear[1]))
    return "\n".join(lines) + "\n"


def _with_noise(leak: Leak) -> str:
    return (
        f"  With epsilon {leak.epsilon:g}, all of it spent: sums over rows are off by"
        f" {leak.moments:.2g} times their size, a guess of a row that\n    were alone here by"
        f" {leak.row:.2g} times its length; {percent(leak.found, digits=1)} of rows are found"
        " at 1 % false alarms, the one that\n    stands out most"
        f" {percent(leak.worst, digits=1)} of the time. Models and trees that"
        " others make of it tell no more."
    )


def _in_own_units(data: Data, seed: int) -> Devices:
    """Some of the rows as a device of its own, in standard units; without what is no number."""
    sound = np.isfinite(data.X).all(axis=1) & np.isfinite(data.y) & (data.weight > 0)
    place = np.flatnonzero(sound)
    if len(place) > MOST:
        place = np.sort(np.random.default_rng(seed).permutation(place)[:MOST])
    values = np.column_stack([data.X[place], data.y[place]])
    spread = values.std(axis=0) if len(values) else np.ones(values.shape[1])
    middle = values.mean(axis=0) if len(values) else np.zeros(values.shape[1])
    values = (values - middle) / np.where(spread > 0, spread, 1.0)
    start = np.array([0, len(values)])
    return Devices(values[:, :-1], values[:, -1], np.ones(len(values)), start, ["own"])
