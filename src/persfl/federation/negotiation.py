"""What all devices must agree on before a run: columns, units, public points."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from persfl.errors import InputError
from persfl.federation.category_levels import in_order
from persfl.federation.column_sums import Totals
from persfl.federation.device_words import (
    are_names,
    go_on_without,
    other_version,
    usual_columns,
    with_other_columns,
    without,
)
from persfl.federation.letters import (
    Letters,
    Limited,
    Lost,
    capital,
    ends,
    why,
)
from persfl.federation.messages import Arrays, Head, Responder
from persfl.federation.node_family import FAMILIES
from persfl.federation.paid_answers import (
    paying_in,
    protected_in,
    ranges_in,
    telling_units,
    without_unfit,
)
from persfl.federation.post import Post
from persfl.federation.run_plan import RunPlan
from persfl.federation.told_terms import (
    has_own_labels,
    tells_leaves,
    tells_sums,
    with_units,
    within_ranges,
)
from persfl.federation.wait_notices import Waiting
from persfl.learners.any_family import ANY
from persfl.methods import Blend, Mixed, Own
from persfl.privacy.noised_spread import spread_from
from persfl.public_points import made_up
from persfl.training.state import step_of
from persfl.traits import has_gradients, traits_of
from persfl.types import Array, Data
from persfl.wire.terms import Terms

WIDE = 3.0  # times as wide: a step moves others' slopes a tenth as far


class _Others(NamedTuple):
    """Who tells sums for units, and the ranges that protected devices have declared."""

    there: Mapping[str, Head]
    ranges: Array | None


class Agreement(NamedTuple):
    """What a run begins with: its terms, who said that it wants no model of its own, who pays for
    each answer, with how many are left, who is protected, which family devices named, where
    everybody has their own, and who is left out, with the reason.
    """

    terms: Terms
    unwilling: list[str]
    paying: dict[str, int]
    protected: list[str]
    families: dict[str, str]
    left_out: dict[str, str]


def agreement(
    post: Post,
    plan: RunPlan,
    ids: Sequence[str],
    home: Mapping[str, Responder],
    waiting: Waiting,
) -> Agreement:
    """The terms of a run, from what the devices that are there tell of themselves."""
    ask = _Inquiry(post, plan, ids, home, waiting)
    there = ask.described()
    left_out = with_other_columns(there)
    if left_out and not go_on_without(left_out, there, home):
        raise InputError(next(iter(left_out.values())))
    raw = in_raw_units(plan, usual_columns(there))
    alike = {name: there[name] for name in there if name not in left_out}
    ids = [name for name in ids if name not in left_out]
    left_out |= without_unfit(plan, raw, ids, alike)
    there = {name: there[name] for name in there if name not in left_out}
    paying = paying_in(raw, there)
    unwilling = [name for name in sorted(there) if there[name].get("target") is False]
    tell = telling_units(there, paying)
    ranges = ranges_in(raw, tell, paying)
    terms = _terms(ask, plan, raw, _Others(tell, ranges))
    left_out |= ask.refused
    for name in sorted(left_out):
        waiting(f"{capital(left_out[name])} {without(name)}", ())
    peers_only = [name for name in unwilling if name not in home]
    families = {}
    if plan.model == ANY:
        told = {name: there[name].get("family") for name in sorted(there)}
        # the word of somebody else: it is printed
        families = {name: str(word) for name, word in told.items() if word in FAMILIES}
    paying = {name: left for name, left in paying.items() if name not in ask.refused}
    protected = protected_in(there)
    return Agreement(terms, peers_only, paying, protected, families, left_out)


def kept_agreement(terms: Terms, told: Mapping[str, Any]) -> Agreement:
    """What a run began with, from its folder's words; somebody else may have written these.

    >>> kept_agreement(Terms(columns=("a",)), {"paying": ["ann"]})
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: paying must be a dict of devices.
    """
    found: dict[str, Any] = {}
    for name, kind in _KEPT.items():
        value = told.get(name, kind())
        if type(value) is not kind or not all(isinstance(one, str) for one in value):
            raise InputError(f"{name} must be a {kind.__name__} of devices.")
        found[name] = value
    if not all(type(left) is int and left >= 0 for left in found["paying"].values()):
        raise InputError("whoever pays for answers must have a number of them left.")
    return Agreement(terms, **found)


_KEPT: dict[str, type[list[Any]] | type[dict[str, Any]]] = {
    "unwilling": list,
    "paying": dict,
    "protected": list,
    "families": dict,
    "left_out": dict,
}
# what the plan alone decides of the terms
ASKED = ("seed", "steps", "batch", "holdout", "start", "local")


def in_raw_units(plan: RunPlan, columns: Sequence[str]) -> Terms:
    """The terms of a plan before anything is known of rows."""
    return Terms(
        model=plan.model,
        columns=tuple(in_order(columns, plan.levels)),
        classes=plan.classes,
        settings=plan.settings,
        seed=plan.seed,
        step_size=1.0,
        steps=plan.own_steps,
        batch=plan.batch,
        holdout=plan.holdout,
        start="alone" if isinstance(plan.personalization, Own) else plan.start,
        local=plan.local,
    )


def _terms(ask: _Inquiry, plan: RunPlan, raw: Terms, others: _Others) -> Terms:
    learner = raw.learner()
    if others.ranges is not None and tells_leaves(raw):
        return _checked(within_ranges(raw, others.ranges))
    if has_gradients(learner) and not plan.points:
        step = step_of(plan.first_step, learner, raw.features)
        terms = replace(raw, step_size=step)
        if plan.units == "raw":
            return _checked(terms)
        return _checked(with_units(terms, learner, *ask.units(raw, others)[:2]))
    step = 1.0 if plan.first_step == "auto" else float(plan.first_step)
    mean, scale, binary = ask.units(raw, others)
    count = plan.points or 100
    points = made_up(mean[:-1], scale[:-1], binary[:-1], count, seed=plan.seed)
    terms = replace(raw, step_size=step)
    if plan.units == "shared":
        terms = with_units(terms, learner, mean, scale)
        points = terms.inside(Data(points, np.zeros(count))).X
    soft = bool(plan.classes) and traits_of(learner).loss == "log"
    return _checked(replace(terms, public=points, soft=soft))


def _checked(terms: Terms) -> Terms:
    """As devices will read them."""
    return Terms.from_wire(*terms.to_wire())


class _Inquiry:
    """Questions before the first round."""

    def __init__(
        self,
        post: Post,
        plan: RunPlan,
        ids: Sequence[str],
        home: Mapping[str, Responder],
        waiting: Waiting,
    ) -> None:
        self.waiting = waiting
        self.post = post
        self.plan = plan
        self.ids = ids
        self.home = home
        # whose owners allow no sums of the run any more, and what to say of it
        self.refused: dict[str, str] = {}

    def _all(
        self,
        names: Sequence[str],
        terms: Terms | None = None,
        head: Head | None = None,
        arrays: Arrays | None = None,
    ) -> dict[str, tuple[Head, Arrays]]:
        """What these devices say; without those that say nothing usable."""
        plan = self.plan
        letters = Letters(
            self.post, terms, run=plan.run, home=self.home, deadline=plan.deadline
        )
        bodies = {
            name: letters.letter(0, self.ids.index(name), head or {}, arrays)
            for name in names
        }
        found: dict[str, tuple[Head, Arrays]] = {}
        for name, reply in letters.ask("describe", 0, bodies).items():
            if not isinstance(reply, Lost):
                found[name] = reply
            elif ends(reply.code):
                self.refused[name] = why(name, reply.code)
        refused = self.refused
        if refused and not go_on_without(refused, self.ids, self.home):
            # units without all of these would be others
            raise Limited(f"{capital(refused[min(refused)])} Nothing was begun.")
        return found

    def described(self) -> dict[str, Head]:
        """Who is there and which columns they have; waits for a quorum."""
        plan = self.plan
        ids = self.ids
        begin = time.monotonic()
        found: dict[str, Head] = {}
        others: dict[str, str] = {}
        while True:
            missing = [name for name in ids if name not in found]
            for name, (head, _) in self._all(missing).items():
                other = other_version(name, head)
                if other and name not in others:
                    self.waiting(other, ())
                    others[name] = other
                elif not other and are_names(head.get("columns")):
                    found[name] = head
            missing = [name for name in ids if name not in found]
            enough = len(found) >= max(2, plan.quorum * len(ids))
            enough &= any(name not in self.home for name in found)
            waited = time.monotonic() - begin
            if enough and (not missing or waited > plan.gather):
                return found
            few = f"{len(found)} of {len(ids)} devices are there"
            if waited > max(plan.patience, plan.gather):
                more = "".join(f" {capital(text)}" for text in others.values())
                raise InputError(
                    f"{few}, which is too few to begin. Start the others first.{more}"
                )
            self.waiting(few, missing)
            time.sleep(1.0)

    def units(self, terms: Terms, others: _Others) -> tuple[Array, Array, Array]:
        """Mean, root mean square deviation and whether all are 0 or 1, per column and the
        label; from totals, in two steps, or in one about the middle of declared ranges.
        """
        there, ranges = others
        if ranges is not None:
            return self._units_within(terms, there, ranges)
        first = self._totals(terms, there, {})
        mean = first.mean
        second = self._totals(terms, there, {"about": mean})
        self._say_widest(terms, first, second)
        scale = second.spread
        steady = scale <= 1e-12 * np.abs(mean)
        return mean, np.where(steady, 0.0, scale), first.binary

    def _units_within(
        self, terms: Terms, there: Mapping[str, Head], ranges: Array
    ) -> tuple[Array, Array, Array]:
        """The same from noised totals."""
        middle = ranges.mean(axis=1)
        half = np.ptp(ranges, axis=1) / 2.0
        found = self._totals(terms, there, {"about": middle}, noised=True)
        mean, spread = spread_from(*found.within(half))
        return middle + half * mean, half * spread, found.binary

    def _totals(
        self, terms: Terms, who: Iterable[str], arrays: Arrays, noised: bool = False
    ) -> Totals:
        replies = self._all(sorted(who), terms, {"sums": True}, arrays)
        told = {name: replies[name][1] for name in sorted(replies)}
        return Totals(told, terms.features + 1, noised)

    def _say_widest(self, terms: Terms, *told: Totals) -> None:
        """Name the one device by whose units all others learn slowly, if there is one."""
        learner = terms.learner()
        solved = isinstance(self.plan.personalization, Blend | Mixed)
        if not has_gradients(learner) or (solved and tells_sums(terms)):
            return
        labels = not has_own_labels(terms, learner)
        # who lies in the first step alone moves the middle, and looks usual in the second
        each = [totals.farthest(labels) for totals in told]
        found = max(each, key=lambda one: one.times)
        if found.times < WIDE:
            return
        what = "the label"
        slow = "others' models begin that much farther off"
        if found.column < terms.features:
            what = repr(terms.columns[found.column])
            slow = f"others learn about {found.times**2:.0f} times as slowly there"
        self.waiting(
            f"shared units are mostly those of device {found.name!r}: by its sums, values of"
            f" {what} are {found.times:.0f} times as far apart as without it, and {slow}. Look at"
            " its table, leave it out, or use --units raw.",
            (),
        )
