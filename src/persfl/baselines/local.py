"""Training alone: the target's own rows and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from persfl.adopters import Best
from persfl.errors import InputError
from persfl.fleets.array_fleet import ArrayFleet
from persfl.loop import personalize
from persfl.samplers import Nobody
from persfl.types import Round


def local(fleet: ArrayFleet, *, rounds: int, seed: int = 0) -> Iterator[Round]:
    """The fleet's `local` step, round after round.

    >>> from persfl import GradientStep, Linear
    >>> from persfl.sources import clustered_regression
    >>> devices = clustered_regression(n=2, rows=20, features=3)
    >>> fleet = ArrayFleet(
    ...     devices,
    ...     learner=Linear(),
    ...     proposer=GradientStep(0.1),
    ...     local=GradientStep(0.1),
    ... )
    >>> *_, last = local(fleet, rounds=200)
    >>> bool(last.loss.max() < 1e-6)
    True
    """
    if fleet.local is None:
        raise InputError(
            "training alone needs the fleet's local step. Make the fleet with"
            " local=GradientStep(...)."
        )
    return personalize(
        fleet, sampler=Nobody(), adopter=Best(), rounds=rounds, seed=seed
    )
