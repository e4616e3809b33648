"""The promises of samplers and adopters."""

from __future__ import annotations

import numpy as np

from persfl.errors import InputError
from persfl.loop import checked_choice
from persfl.testing.promises import expect, same
from persfl.traits import keeps_steps
from persfl.trust import Trust
from persfl.types import Adopter, Array, Choice, IntArray, Sampler


def check_sampler(sampler: Sampler, *, n: int = 30) -> None:
    """Whom to ask: different devices, never oneself, a function of seed, round and target alone."""
    everyone = Trust(n, np.arange(n))
    for r in range(5):
        peers = np.array(sampler(everyone, r, 7))  # a sampler may use its array again
        regular = peers.dtype == np.int64 and peers.ndim == 2 and len(peers) == n
        expect(regular, "peers must be (T, S) of int64")
        known = ((peers >= -1) & (peers < n)).all()
        expect(known, "peers must be device indices, or -1 for nobody")
        itself = (peers == np.arange(n)[:, None]).any()
        expect(not itself, "a target must never be asked by itself")
        for row in peers:
            asked = row[row >= 0].tolist()
            expect(len(set(asked)) == len(asked), "peers of a target must differ")
        again = same(peers, sampler(everyone, r, 7))
        expect(again, "the same seed and round must give the same peers")
        few = sampler(Trust(n, np.array([3, n - 1])), r, 7)
        alone = same(few, peers[[3, n - 1]])
        expect(alone, "whom a target asks must not depend on the other targets")


def check_adopter(adopter: Adopter) -> None:
    """Which answers to take: weights that sum to 1, only usable answers, staying where there
    are none.
    """
    n = 30
    T = 6
    S = 5
    rng = np.random.default_rng(0)
    trust = Trust(n, np.arange(T))
    peers = np.stack([rng.choice(np.arange(T, n), S, replace=False) for _ in range(T)])
    losses = rng.uniform(0.5, 1.5, (T, S + 1))
    losses[1, 1:] = np.inf  # no usable answer
    losses[2, 3] = np.inf
    losses[3] = losses[3, 0]  # all the same
    losses[4] *= 1e-30
    choice = _choice_of(adopter, trust, peers, losses)
    for t in range(T):
        usable = set(peers[t][np.isfinite(losses[t, 1:])].tolist())
        taken = set(choice.peers[t][choice.weights[t] > 0].tolist())
        expect(taken <= usable, "only usable answers may be adopted")
    expect(choice.stay[1] == 1, "a target without usable answers must stay")
    again = _choice_of(adopter, trust, peers, losses)
    equal = same(choice.peers, again.peers) and same(choice.weights, again.weights)
    expect(equal, "the same losses must give the same choice")
    nobody = _choice_of(adopter, trust, peers[:, :0], losses[:, :1])
    expect((nobody.stay == 1).all(), "a target that asked nobody must stay")


def _choice_of(
    adopter: Adopter, trust: Trust, peers: IntArray, losses: Array
) -> Choice:
    """What the loop would make of an adopter's choice; what the loop refuses is a broken
    promise.
    """
    choice = adopter(trust, peers, losses)
    keeps = keeps_steps(adopter)
    try:
        return checked_choice(choice, peers, trust.targets, trust.n, keeps)
    except InputError as error:
        raise AssertionError(f"broken promise: {error}") from error
