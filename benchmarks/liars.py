"""What liars cost: the error with some devices lying, over the error when nobody does.

    python benchmarks/liars.py            kin where 30 % lie: the table of docs/kin.md; some minutes
    python benchmarks/liars.py --paper    the paper's rule where 80 % lie, without a guard and with
    one python benchmarks/liars.py --quick    two seeds of a few lies, for a smoke test

20 devices of 24 rows in two clusters, 6 coefficients, noise 0.1, 9 peers a round, steps of 0.05, at
most 400 rounds, eight seeds. Every honest device is a target; its squared error is averaged over
them. The lies aim at one wrong model, N(0, 4) in every coefficient. Those who lie do nothing but
answer falsely.
"""

from __future__ import annotations

import os

for name in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
):
    os.environ[name] = "1"

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from persfl import ArrayFleet, Best, GradientStep, Linear, Uniform, kin, personalize
from persfl.fleets import Guarded
from persfl.rules import finished
from persfl.sources import clustered_regression

N, ROWS, FEATURES, NOISE, PEERS, ROUNDS = 20, 24, 6, 0.1, 9, 400
SEEDS = range(50, 58)
Lie = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Lying:
    """Gradient steps of which some devices' are lies; a device is known by its first number."""

    lie: Lie
    liars: Any
    step: GradientStep

    ask = property(lambda self: self.step.ask)
    length = property(lambda self: self.step.length)
    advice = property(lambda self: self.step.advice)

    def answer(self, learner: Any, probe: Any, data: Any, place: Any) -> Any:
        honest = self.step.answer(learner, probe, data, place)
        lies = np.isin(data.X[..., 0, 0], self.liars)[..., None]
        return np.where(lies, self.lie(probe, honest, place), honest)


def anyhow(shape: Any, place: Any) -> Any:
    """A direction of its own for every question, of length 1."""
    drawn = place.uniform(shape[-1]).reshape(shape) - 0.5
    return drawn / np.sqrt((drawn**2).sum(axis=-1, keepdims=True))


def length(step: Any) -> Any:
    """How long steps are."""
    return np.sqrt((step**2).sum(axis=-1, keepdims=True))


def at_first(probe: Any, honest: Any, later: Any) -> Any:
    """Honest to the first question, which comes from the start."""
    return np.where(np.abs(probe).sum(axis=-1, keepdims=True) == 0, honest, later)


def lies(wrong: Any) -> dict[str, Lie]:
    """What is answered instead, from the question, the honest answer and a place for randomness."""
    return {
        "creep, 5 % toward a wrong model": lambda q, h, _: h + 0.05 * (wrong - h),
        "creep, 1 %": lambda q, h, _: h + 0.01 * (wrong - h),
        "creep, 0.2 % (as long as noise)": lambda q, h, _: h + 0.002 * (wrong - h),
        "random steps of length 1": lambda q, h, place: q + anyhow(h.shape, place),
        "random steps as long as honest": lambda q, h, place: (
            q + length(h - q) * anyhow(h.shape, place)
        ),
        "the model zero": lambda q, h, _: 0 * h,
        "decoy: steps to the wrong model": lambda q, h, _: q + 0.1 * (wrong - q),
        "the wrong model": lambda q, h, _: wrong + 0 * h,
        "sign flipped": lambda q, h, _: 2 * q - h,
        "100 times the step": lambda q, h, _: q + 100 * (h - q),
        "copies of the question": lambda q, h, _: q + 0 * h,
        "copies but for 1e-9": lambda q, h, _: q + 1e-9 * (h - q),
        "a hundredth of the step": lambda q, h, _: q + 0.01 * (h - q),
        "honest at first, then copies": lambda q, h, _: at_first(q, h, q),
        "honest at first, then creeping": lambda q, h, _: at_first(
            q, h, q + 0.003 * (wrong - q)
        ),
    }


def error(seed: int, how: str, share: float, rule: Any, guard: bool) -> float:
    """The mean squared error of the honest devices' models."""
    devices = clustered_regression(
        n=N, clusters=2, rows=ROWS, features=FEATURES, noise=NOISE, seed=seed
    )
    rng = np.random.default_rng(1000 + seed)
    bad = rng.permutation(N)[: round(share * N)]
    wrong = 2 * rng.standard_normal(FEATURES)
    step: Any = GradientStep(0.05)
    if how:
        step = Lying(lies(wrong)[how], devices.X[devices.start[:-1][bad], 0], step)
    honest = sorted(set(range(N)) - set(bad.tolist()))
    fleet = ArrayFleet(
        devices, learner=Linear(), proposer=step, targets=honest, seed=seed
    )
    used: Any = Guarded(fleet) if guard else fleet
    sampler, adopter = rule
    for round_ in personalize(
        used, sampler=sampler, adopter=adopter, rounds=ROUNDS, seed=seed
    ):
        if finished(round_.trust):
            break
    return float(
        ((fleet.models - devices.true_weights[honest]) ** 2).sum(axis=1).mean()
    )


def table(
    title: str, share: float, rule: Any, seeds: Any, names: Any, guards: Any
) -> None:
    """Print median and worst ratio of a rule, without a guard or with one."""
    print(f"\n{title}, {share:.0%} of the devices lie")
    heads = [
        f"{'guarded' if guard else 'as it is'}: median | worst" for guard in guards
    ]
    print(f"| lie | {' | '.join(heads)} |\n|---{'|---|---' * len(guards)}|")
    honest = {seed: error(seed, "", share, rule, False) for seed in seeds}
    for name in names:
        cells = []
        for guard in guards:
            ratios = [
                error(seed, name, share, rule, guard) / honest[seed] for seed in seeds
            ]
            cells += [f"{np.median(ratios):.3g}", f"{max(ratios):.3g}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("quick", "paper"):
        parser.add_argument(f"--{name}", action="store_true")
    chosen = parser.parse_args()
    seeds = SEEDS[:2] if chosen.quick else SEEDS
    names = list(lies(np.zeros(FEATURES)))
    names = names[:2] if chosen.quick else names
    if chosen.paper:
        table(
            "the paper's rule",
            0.8,
            (Uniform(PEERS), Best()),
            seeds,
            names,
            (False, True),
        )
    else:
        rule = kin(PEERS)
        table("kin", 0.3, (rule.sampler, rule.adopter), seeds, names, (False,))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of answers that overflow
    main()
