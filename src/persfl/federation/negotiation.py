"""What all devices must agree on before a run: columns, units, public points."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from persfl.checks import some
from persfl.errors import InputError
from persfl.federation.device import Device
from persfl.federation.letters import Limited, ends, why
from persfl.federation.post import Post
from persfl.federation.run_plan import RunPlan
from persfl.federation.wait_notices import Waiting
from persfl.public_points import made_up
from persfl.training import step_of
from persfl.types import Array
from persfl.wire import Terms, WireError, pack, unpack
from persfl.wire.models import finite
from persfl.wire.terms import COLUMNS


class Agreement(NamedTuple):
    """What a run begins with: its terms, and who said that it wants no model of its own."""

    terms: Terms
    unwilling: list[str]


def agreed(
    post: Post,
    plan: RunPlan,
    ids: Sequence[str],
    home: Mapping[str, Device],
    waiting: Waiting,
) -> Agreement:
    """The terms of a run, from what the devices that are there tell of themselves."""
    ask = _Asking(post, plan, home)
    there = ask.described(ids, waiting)
    unwilling = [name for name in sorted(there) if there[name].get("target") is False]
    return Agreement(
        _terms(ask, plan, ids, there), [name for name in unwilling if name not in home]
    )


def _terms(
    ask: _Asking, plan: RunPlan, ids: Sequence[str], there: Mapping[str, Any]
) -> Terms:
    columns = _columns(there)
    me = {name: i for i, name in enumerate(ids)}
    raw = Terms(
        model=plan.model,
        columns=tuple(columns),
        classes=plan.classes,
        settings=plan.settings,
        seed=plan.seed,
        step_size=1.0,
        steps=plan.steps,
        batch=plan.batch,
        holdout=plan.holdout,
        start=plan.start,
        local=plan.local,
    )
    learner = raw.learner()
    steps = hasattr(learner, "grad") and not plan.points
    units = plan.units if plan.units != "auto" else "shared" if steps else "raw"
    changes: dict[str, Any] = {
        "step_size": (
            step_of(plan.step_size, learner, len(columns))
            if steps
            else _refit_step(plan)
        )
    }
    if units == "shared" or not steps:
        mean, scale, binary = ask.sums(raw, there, me)
        if units == "shared":
            changes |= {
                "mean": mean[:-1],
                "scale": np.where(scale[:-1] > 0, scale[:-1], 1.0),
            }
            if not plan.classes and getattr(learner, "kind", "") != "poisson":
                changes |= {
                    "label_mean": float(mean[-1]),
                    "label_scale": float(scale[-1] or 1.0),
                }
        if not steps:
            points = made_up(
                mean[:-1],
                scale[:-1],
                binary[:-1].astype(bool),
                plan.points or 100,
                seed=plan.seed,
            )
            if units == "shared":
                points = (points - changes["mean"]) / changes["scale"]
            changes |= {
                "public": points,
                "soft": bool(plan.classes) and getattr(learner, "kind", "") == "log",
            }
    head, arrays = raw.to_wire()
    head["terms"] |= {k: v for k, v in changes.items() if not isinstance(v, np.ndarray)}
    return Terms.from_wire(
        head,
        arrays
        | {f"terms.{k}": v for k, v in changes.items() if isinstance(v, np.ndarray)},
    )


def _refit_step(plan: RunPlan) -> float:
    return 1.0 if plan.step_size == "auto" else float(plan.step_size)


def _columns(there: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The columns that everybody has, in the order of the first device that has them.

    One device may say anything, so whoever differs from most is named.

    >>> three = {
    ...     "ann": {"columns": ["z"]},
    ...     "bob": {"columns": ["x"]},
    ...     "eve": {"columns": ["x"]},
    ... }
    >>> _columns(three)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: every device must have the same columns: device 'ann' differs in ...
    """
    sets = {name: frozenset(there[name]["columns"]) for name in sorted(there)}
    times = Counter(sets.values())
    usual = max(sets.values(), key=lambda each: times[each])
    for name, found in sets.items():
        if found != usual:
            odd = some(sorted(found ^ usual))
            who = f"device {name!r} differs in {odd}"
            raise InputError(f"every device must have the same columns: {who}.")
    return list(there[next(iter(sets))]["columns"])


def _names(columns: Any) -> bool:
    """Whether what a device says of its columns can be names: each once, none a book."""
    if not isinstance(columns, list) or not 0 < len(columns) <= COLUMNS:
        return False
    good = all(isinstance(name, str) and len(name) <= _LONGEST for name in columns)
    return good and len(set(columns)) == len(columns)


_LONGEST = 1_000  # letters of a column's name


class _Asking:
    """Questions before the first round."""

    def __init__(self, post: Post, plan: RunPlan, home: Mapping[str, Device]) -> None:
        self.post, self.plan, self.home = post, plan, home

    def _all(
        self, names: Sequence[str], body: Callable[[str], bytes]
    ) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        letters = {name: ("describe", body(name)) for name in names}
        replies: dict[str, Any] = {
            name: self.home[name].reply(*letters[name])
            for name in names
            if name in self.home
        }
        far = {
            name: letter for name, letter in letters.items() if name not in self.home
        }
        replies |= self.post.exchange(far, float(self.plan.deadline))
        found = {}
        for name, reply in replies.items():
            try:
                head, arrays = unpack(reply) if isinstance(reply, bytes) else ({}, {})
            except WireError:
                continue
            if ends(head.get("code")):  # units without it would be others
                raise Limited(f"{_upper(why(name, head['code']))} Nothing was begun.")
            if head.get("code") == "ok" and head.get("device") == name:
                found[name] = (head, arrays)
        return found

    def described(
        self, ids: Sequence[str], waiting: Waiting
    ) -> dict[str, dict[str, Any]]:
        """Who is there and which columns they have; waits for a quorum."""
        begin = time.monotonic()
        found: dict[str, dict[str, Any]] = {}
        while True:
            for name, (head, _) in self._all(
                [n for n in ids if n not in found], lambda _: self._body({})
            ).items():
                columns = head.get("columns")
                if _names(columns):
                    found[name] = head
            others = [name for name in found if name not in self.home]
            enough = (
                len(found) >= max(2, self.plan.quorum * len(ids)) and len(others) >= 1
            )
            patience = time.monotonic() - begin
            if enough and (len(found) == len(ids) or patience > self.plan.gather):
                return found
            if patience > max(self.plan.patience, self.plan.gather):
                raise InputError(
                    f"{len(found)} of {len(ids)} devices are there, which is too few to begin."
                    " Start the others first."
                )
            missing = [name for name in ids if name not in found]
            waiting(f"{len(found)} of {len(ids)} devices are there", missing)
            time.sleep(1.0)

    def sums(
        self, terms: Terms, there: Mapping[str, Any], me: Mapping[str, int]
    ) -> tuple[Array, Array, Array]:
        """Mean, root mean square deviation and whether all are 0 or 1, per column and the
        label; from totals, in two steps.
        """
        width = terms.features + 1
        told, arrays = terms.to_wire()

        def body(about: Array | None) -> Callable[[str], bytes]:
            more = {} if about is None else {"about": about}
            return lambda name: self._body(
                {"sums": True, "me": me[name], **told}, {**arrays, **more}
            )

        first = self._totals(self._all(sorted(there), body(None)), width)
        mean = first["sums"] / first["weight"]
        second = self._totals(self._all(sorted(there), body(mean)), width)
        scale = np.sqrt(np.maximum(second["squares"] / second["weight"], 0.0))
        steady = scale <= 1e-12 * np.abs(mean)
        return mean, np.where(steady, 0.0, scale), first["binary"]

    def _totals(
        self, replies: Mapping[str, tuple[dict[str, Any], dict[str, Any]]], width: int
    ) -> dict[str, Any]:
        weight, sums, squares, binary = (
            0.0,
            np.zeros(width),
            np.zeros(width),
            np.ones(width, dtype=np.int64),
        )
        for _, arrays in (replies[name] for name in sorted(replies)):
            try:
                one = float(finite(arrays["weight"], (1,))[0])
                told, squared = (
                    finite(arrays["sums"], (width,)),
                    _squares(arrays["squares"], width),
                )
                if arrays["binary"].shape != (width,) or not one > 0:
                    continue
            except (WireError, KeyError):
                continue
            weight, sums, squares, binary = (
                weight + one,
                sums + told,
                squares + squared,
                binary & (arrays["binary"] != 0),
            )
        if not weight:
            raise InputError(
                "no device tells the sums that shared units need. Use --units raw, or allow sums in"
                " a node's policy."
            )
        return {"weight": weight, "sums": sums, "squares": squares, "binary": binary}

    def _body(
        self, head: Mapping[str, Any], arrays: Mapping[str, Any] | None = None
    ) -> bytes:
        return pack({"run": self.plan.run, "round": 0, "ask": 0} | dict(head), arrays)


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _squares(array: Any, width: int) -> Array:
    """Sums of squares may be larger than other numbers."""
    if (
        array.dtype != np.float64
        or array.shape != (width,)
        or not np.isfinite(array).all()
        or (array < 0).any()
    ):
        raise WireError("squares must be finite.")
    return np.asarray(array)
