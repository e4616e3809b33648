"""The loop: observe, sample, probe, adopt, remember.

Everything the paper describes is this loop with other small parts. It is a generator, so stopping
is `break`, and progress, checkpoints and live plots are the body of the caller's `for`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import numpy as np

from persfl.checks import stranger, whole
from persfl.compiled import kernels
from persfl.errors import InputError
from persfl.traits import can_keep, keeps_steps
from persfl.trust import Trust
from persfl.types import (
    Adopter,
    AnyArray,
    Array,
    Choice,
    Fleet,
    IntArray,
    Keeping,
    KeepingFleet,
    Noting,
    Round,
    Sampler,
    StayingFleet,
    WholeRound,
)

ROUNDING = 1e-6  # how far shares may be from a sum of 1, or below 0


def personalize(
    fleet: Fleet,
    *,
    sampler: Sampler,
    adopter: Adopter,
    rounds: int,
    seed: int = 0,
    trust: Trust | None = None,
    first: int = 0,
) -> Iterator[Round]:
    """Run rounds `first` to `rounds - 1` and yield a record of each.

    To go on after an interruption, hand the saved models to the fleet (`start=`), the last round's
    trust to `trust` and the number of the next round to `first`: the result is the same to the last
    bit. An adopter that keeps steps (`persfl.kin`) also needs
    `fleet.kept` set to what it was.

    >>> from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(
    ...     n=100, clusters=2, rows=10, features=20, noise=0.0, seed=0
    ... )
    >>> fleet = ArrayFleet(
    ...     devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0], seed=0
    ... )
    >>> for round_ in personalize(
    ...     fleet, sampler=Uniform(20), adopter=Best(), rounds=500, seed=0
    ... ):
    ...     pass
    >>> bool(((fleet.models[0] - devices.true_weights[0]) ** 2).sum() < 1e-20)
    True
    """
    rounds = whole("rounds", rounds, least=0)
    first = whole("first", first, least=0)
    for name, part in (("sampler", sampler), ("adopter", adopter)):
        if isinstance(part, type) or not callable(part):
            raise InputError(
                f"{name} must be a part such as Uniform(20) or Best(), or a function. Got {part!r}."
            )
    known = _known(fleet, trust)
    keeper = _keeper(fleet, adopter, known) if keeps_steps(adopter) else None
    if keeper is None and can_keep(fleet) and fleet.kept is not None:
        fleet.kept = None  # of an earlier run, with another rule or from another start
    return _rounds(fleet, sampler, adopter, range(first, rounds), seed, known, keeper)


def _known(fleet: Fleet, trust: Trust | None) -> Trust:
    """What the first round knows: nothing, or what was handed in about this fleet."""
    if not isinstance(trust, Trust | None):
        raise InputError(
            f"trust must be the Trust of an earlier round. Got {type(trust).__name__}."
        )
    known = Trust.blank(fleet) if trust is None else trust
    if known.n != fleet.n or known.targets.tolist() != fleet.targets.tolist():
        raise InputError(
            f"trust must be about this fleet's {fleet.n} devices and {len(fleet.targets)} targets."
            f" Got one about {known.n} devices and {len(known.targets)} targets, or about other"
            " targets."
        )
    return known


def _keeper(fleet: Fleet, adopter: Keeping, known: Trust) -> KeepingFleet:
    """The fleet as one that remembers steps: none yet, or those that go with what is known."""
    if not can_keep(fleet):
        raise InputError(
            f"{adopter!r} needs a fleet that keeps steps, such as LoopFleet or ArrayFleet. Got"
            f" {type(fleet).__name__}."
        )
    if known.notes and fleet.kept is None:
        raise InputError(
            "to go on with remembered steps, set fleet.kept to what it was after the last round."
        )
    if not known.notes and fleet.kept is not None:
        fleet.kept = None  # of an earlier run
    return fleet


def _rounds(
    fleet: Fleet,
    sampler: Sampler,
    adopter: Adopter,
    numbers: range,
    seed: int,
    trust: Trust,
    keeper: KeepingFleet | None,
) -> Iterator[Round]:
    noting = adopter if isinstance(adopter, Noting) else None
    keeps = keeper is not None
    whole: WholeRound | None = None
    if isinstance(fleet, StayingFleet) and noting is None and not keeps:
        whole = fleet.staying(sampler, adopter, seed)
    for r in numbers:
        fleet.observe(r)
        done = None if whole is None else whole(r)
        if done is not None:
            peers, (losses, lengths), choice = done
            trust = trust.recorded(peers, losses, choice)
            yield Round(r, peers, losses, lengths, choice, trust)
            continue
        peers = _checked_peers(sampler(trust, r, seed), fleet)
        losses, lengths = fleet.probe(peers, r)
        if noting is not None:
            kept = None if keeper is None else keeper.keep(peers, r)
            trust = trust.noted(noting.note(trust, r, peers, losses, kept))
        choice = checked_choice(
            adopter(trust, peers, losses), peers, trust.targets, trust.n, keeps
        )
        fleet.adopt(choice)
        took = _shares(choice, trust.targets) if keeps else choice
        trust = trust.recorded(
            peers, losses.copy(), took
        )  # a fleet may use its array again
        yield Round(r, peers, losses, lengths, choice, trust)


def _checked_peers(peers: object, fleet: Fleet) -> IntArray:
    """What a sampler returned, made regular: (T, S) of int64, never the target itself, -1 for
    nobody.
    """
    targets = fleet.targets
    fast = kernels()
    if (
        fast is not None
        and _plain(peers, np.int64, 2)
        and fast.sound_peers(peers, targets, fleet.n)
    ):
        return peers.copy()  # a round is a record: a sampler may use its array again
    array = np.asarray(peers)
    if array.ndim != 2 or len(array) != len(targets) or array.dtype.kind not in "iu":
        raise InputError(
            f"a sampler must return whole numbers of shape ({len(targets)}, S). Got {array.dtype}"
            f" of shape {array.shape}."
        )
    array = np.array(array, dtype=np.int64, order="C")
    if array.size and (array.min() < -1 or array.max() >= fleet.n):
        raise stranger(
            int(array.max()) if array.max() >= fleet.n else int(array.min()), fleet.n
        )
    if (array == targets[:, None]).any():
        raise InputError("a sampler must never name the target itself as its peer.")
    return array


def _shares_of_one(
    weights: Array, stay: Array, targets: IntArray, keeps: bool
) -> tuple[Array, Array]:
    """Weights and staying as shares: what rounding has put below 0 becomes 0; or an InputError."""
    least = np.minimum(weights.min(axis=1, initial=np.inf), np.inf if keeps else stay)
    total = weights.sum(axis=1) + stay
    sound = (np.abs(total - 1.0) <= ROUNDING) & (least >= -ROUNDING)
    if not sound.all():  # or NaN
        t = int(np.argmin(sound))
        raise InputError(
            "an adopter's weights and stay must be at least 0 and sum to 1 for every target. Got a"
            f" sum of {total[t]:.6g} and a least share of {least[t]:.6g} for target {targets[t]}."
        )
    below = least < 0
    if below.any():
        weights = np.where(below[:, None], np.maximum(weights, 0.0), weights)
        stay = np.where(below & ~np.bool_(keeps), np.maximum(stay, 0.0), stay)
        total = np.where(below, weights.sum(axis=1) + stay, 1.0)
        weights = weights / total[:, None]
        stay = stay / total
    return weights, stay


def _plain(array: object, kind: type, axes: int) -> TypeGuard[AnyArray]:
    """Whether compiled code can read an array as it lies."""
    return (
        type(array) is np.ndarray
        and array.dtype == kind
        and array.ndim == axes
        and array.flags.c_contiguous
    )


def _shares(choice: Choice, targets: IntArray) -> Choice:
    """What Trust remembers of a choice among kept steps: each peer's share of the move; the own
    step is nobody's.
    """
    total = np.maximum(choice.weights.sum(axis=1, keepdims=True), 1.0)
    return Choice(
        np.where(choice.peers == targets[:, None], -1, choice.peers),
        choice.weights / total,
        choice.stay,
    )


def checked_choice(
    choice: object,
    peers: IntArray,
    targets: IntArray,
    n: int,
    keeps: bool = False,
) -> Choice:
    """What an adopter returned, made regular: only peers that were asked, weights that are shares.

    Where steps are kept, peers may have been asked earlier (the fleet knows who was), and moves may
    be longer than the answers. A share below 0 by no more than rounding, as `1 - weights.sum()` may
    be, counts as 0.
    """
    if not isinstance(choice, (tuple, list)) or not 3 <= len(choice) <= 4:
        said = (
            f"an array of shape {choice.shape}"
            if isinstance(choice, np.ndarray)
            else repr(choice)
        )
        raise InputError(
            f"an adopter must return a Choice(peers, weights, stay). Got {said}."
        )
    who, weights, stay, *anew = choice
    fast = None if keeps else kernels()
    if (
        fast is not None
        and _plain(who, np.int64, 2)
        and _plain(weights, np.float64, 2)
        and _plain(stay, np.float64, 1)
        and fast.sound_choice(who, weights, stay, peers)
    ):
        return Choice(who.copy(), weights.copy(), stay.copy())
    who = np.array(who, dtype=np.int64, order="C")
    weights, stay = (
        np.array(part, dtype=np.float64, order="C") for part in (weights, stay)
    )
    if (
        who.ndim != 2
        or len(who) != len(peers)
        or weights.shape != who.shape
        or stay.shape != (len(peers),)
    ):
        raise InputError(
            f"an adopter must return peers and weights of shape ({len(peers)}, K) and stay of shape"
            f" ({len(peers)},). Got {who.shape}, {weights.shape} and {stay.shape}."
        )
    weights, stay = _shares_of_one(weights, stay, targets, keeps)
    if keeps:
        if who.max(initial=-1) >= n:  # remembered, perhaps by a foreign folder
            raise stranger(int(who.max()), n)
        return Choice(np.where(weights > 0, who, -1), weights, stay, *anew)
    known = (who[:, :, None] == peers[:, None, :]).any(axis=2) & (who >= 0)
    if (~known & (weights > 0)).any():
        raise InputError(
            "an adopter may give weight only to peers that were asked this round."
        )
    return Choice(np.ascontiguousarray(np.where(known, who, -1)), weights, stay)
