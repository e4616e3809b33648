"""`persfl.kin`: the rule as a sampler and an adopter."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from persfl.checks import named, whole
from persfl.errors import InputError
from persfl.rules.kin_adopter import KinAdopter
from persfl.rules.kin_by_loss import AskLikely, Likely
from persfl.rules.kin_notes import KinNotes, Mask
from persfl.rules.kin_sampler import AskKin
from persfl.trust import Trust
from persfl.types import Adopter, IntArray, Sampler

# rows of a group per coefficient below which a wrong group can pass for a right one (docs/kin.md)
ENOUGH = 4


@dataclass(frozen=True)
class Rule:
    """Two parts for `personalize(fleet, sampler=rule.sampler, adopter=rule.adopter, ...)`."""

    sampler: Sampler
    adopter: Adopter


def kin(peers: int = 20, *, among: int = 200, steps: bool = True) -> Rule:
    """Find the devices that answer from the same truth, and learn from all of them at once.

    Each target asks `peers` others per round and gets to know at most `among`. `steps=False` is for
    models that cannot be averaged, such as trees: it goes by own losses alone and adopts the
    answers of those who have been good in turn.

    >>> from persfl import ArrayFleet, GradientStep, Linear, personalize
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=100, clusters=5, rows=10, features=20, noise=0.1, seed=0
    ... )
    >>> fleet = ArrayFleet(
    ...     devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0], seed=0
    ... )
    >>> rule = kin(peers=20)
    >>> for round_ in personalize(
    ...     fleet, sampler=rule.sampler, adopter=rule.adopter, rounds=400
    ... ):
    ...     if finished(round_.trust):
    ...         break
    >>> group = members(round_.trust)
    >>> set(devices.clusters[group.panel[group.member]].tolist()) == {
    ...     int(devices.clusters[0])
    ... }
    True
    """
    peers = whole("peers", peers, least=1)
    among = whole("among", among, least=1)
    if steps:
        part = KinAdopter(peers=peers, among=among)
        return Rule(AskKin(part), part)
    likely = Likely(peers=peers, among=among)
    return Rule(AskLikely(likely), likely)


def members(trust: Trust) -> KinNotes:
    """What kin knows: `panel` and `member` (T, P) say who is kin; `right` and `done` (T,),
    whether a group is found and final.
    """
    if "member" not in trust.notes:
        raise InputError(
            "this trust has no notes of kin. Run rounds with the adopter of persfl.kin(...) first."
        )
    return KinNotes.of(trust.notes, len(trust.targets))


def finished(trust: Trust) -> bool:
    """Whether every target has found its kin and settled, so that further rounds would change
    nothing.
    """
    return "mark" in trust.notes and bool(members(trust).done.all())


def doubtful(
    trust: Trust, rows: Sequence[int] | IntArray, size: int
) -> tuple[Mask, Mask]:
    """(T,) which targets found no group, and which found one with too few rows to be sure of it."""
    known = members(trust)
    group = (1 + known.member.sum(axis=1)) * np.asarray(rows)
    return ~known.right, known.right & (group < ENOUGH * size)


def doubts(
    trust: Trust,
    rows: Sequence[int] | IntArray,
    size: int,
    ids: Sequence[Hashable] | None = None,
) -> list[str]:
    """Why a result of kin should not be trusted, in sentences; `rows` (T,) of each target, `size`
    numbers in a model.

    >>> doubts(Trust(2, np.array([0])).noted(KinNotes.blank(1).notes()), [10], 20)
    ['device 0 found no group that it fits into: too few of its kind, or rows too few or too noisy
    to tell. Its model is a guess.']
    """
    lost, thin = doubtful(trust, rows, size)
    names = np.asarray(
        trust.targets if ids is None else np.array(ids, dtype=object)[trust.targets],
        dtype=object,
    )
    found = []
    one = lost.sum() == 1
    if lost.any():
        found.append(
            f"{named(names[lost].tolist(), 'device')} found no group that"
            f" {'it fits' if one else 'they fit'} into: too few of {'its' if one else 'their'}"
            " kind, or rows too few or too noisy to tell."
            f" {'Its model is a guess.' if one else 'Their models are guesses.'}"
        )
    if thin.any():
        found.append(
            f"{named(names[thin].tolist(), 'device')} and {'its' if thin.sum() == 1 else 'their'}"
            f" kin have fewer than {ENOUGH} rows per coefficient together: with so few, strangers"
            " can be fitted until they look like kin."
        )
    return found
