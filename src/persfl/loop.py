"""The loop: observe, sample, probe, adopt, remember.

Everything the paper describes is this loop with other small parts. It is a generator, so stopping is `break`, and progress,
checkpoints and live plots are the body of the caller's `for`.
"""

from __future__ import annotations

from collections.abc import Iterator

from persfl.checks import whole
from persfl.errors import InputError
from persfl.trust import Trust
from persfl.types import Adopter, Fleet, Round, Sampler


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

    To go on after an interruption, hand the saved models to the fleet (`start=`), the last round's trust to `trust` and the number
    of the next round to `first`: the result is the same to the last bit.

    >>> from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=100, clusters=2, rows=10, features=20, noise=0.0, seed=0)
    >>> fleet = ArrayFleet(devices, learner=Linear(), proposer=GradientStep(0.05), targets=[0], seed=0)
    >>> for round_ in personalize(fleet, sampler=Uniform(20), adopter=Best(), rounds=500, seed=0):
    ...     pass
    >>> bool(((fleet.models[0] - devices.true_weights[0]) ** 2).sum() < 1e-20)
    True
    """
    rounds, first = whole("rounds", rounds, least=0), whole("first", first, least=0)
    known = Trust.blank(fleet) if trust is None else trust
    if known.n != fleet.n or known.targets.tolist() != fleet.targets.tolist():
        raise InputError(
            f"trust must be about this fleet's {fleet.n} devices and {len(fleet.targets)} targets. "
            f"Got one about {known.n} devices and {len(known.targets)} targets, or about other targets."
        )
    return _rounds(fleet, sampler, adopter, range(first, rounds), seed, known)


def _rounds(fleet: Fleet, sampler: Sampler, adopter: Adopter, numbers: range, seed: int, trust: Trust) -> Iterator[Round]:
    for r in numbers:
        fleet.observe(r)
        peers = sampler(trust, r, seed)
        losses, lengths = fleet.probe(peers, r)
        choice = adopter(trust, peers, losses)
        fleet.adopt(choice)
        trust = trust.updated(peers, losses, lengths, choice)
        yield Round(r, peers, losses, lengths, choice, trust)
