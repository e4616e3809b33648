"""The promises of fleets: every engine gives what the reference gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from persfl.devices import Devices
from persfl.fleets.loop_fleet import LoopFleet
from persfl.loop import personalize
from persfl.samplers import Nobody, Uniform
from persfl.sources import clustered_regression
from persfl.testing.promises import expect, same
from persfl.traits import can_keep
from persfl.trust import Trust
from persfl.types import Adopter, Fleet, Learner, Proposer, Round, Sampler


def check_fleet(
    make: Callable[..., Fleet],
    *,
    learner: Learner,
    proposer: Proposer,
    adopter: Adopter,
    devices: Devices | None = None,
    rounds: int = 30,
    peers: int = 5,
    sampler: Sampler | None = None,
    **options: object,
) -> None:
    """A fleet: LoopFleet's rounds, to 1e-9; probing changes no model; a run cut in two equals a
    whole one.

    `sampler` is `Uniform(peers)` unless the adopter belongs to another.
    """
    if devices is None:
        devices = clustered_regression(
            n=12, clusters=2, rows=(4, 15), features=3, noise=0.1, seed=1
        )
    parts: dict[str, Any] = {"learner": learner, "proposer": proposer, "seed": 5}
    trial = _Trial(
        make,
        devices,
        parts | options,
        adopter,
        sampler or Uniform(peers),
        Uniform(peers),
        rounds,
    )
    _check_rounds(trial)
    _check_probing(trial)
    _check_resuming(trial)
    if options.get("local") is None:
        _check_staying(trial)


@dataclass(frozen=True)
class _Trial:
    """How a fleet is made, and how it runs."""

    make: Callable[..., Fleet]
    devices: Devices
    parts: dict[str, Any] = field(repr=False)
    adopter: Adopter
    sampler: Sampler
    question: Sampler
    rounds: int

    def fleet(self, **more: object) -> Fleet:
        """A new one."""
        return self.make(self.devices, **(self.parts | more))

    def run(
        self,
        fleet: Fleet,
        rounds: int | None = None,
        first: int = 0,
        trust: Trust | None = None,
    ) -> list[Round]:
        """Its rounds."""
        return list(
            personalize(
                fleet,
                sampler=self.sampler,
                adopter=self.adopter,
                rounds=self.rounds if rounds is None else rounds,
                seed=9,
                trust=trust,
                first=first,
            )
        )


def _check_rounds(trial: _Trial) -> None:
    """The rounds of LoopFleet."""
    fleet = trial.fleet()
    reference = LoopFleet(trial.devices, **trial.parts)
    known = fleet.n == len(trial.devices) and same(fleet.targets, reference.targets)
    expect(known, "a fleet must know its devices and targets")
    scale = 0.0
    for ours, theirs in zip(trial.run(fleet), trial.run(reference), strict=True):
        about = f"round {ours.r}: {{}} must be those of LoopFleet"
        expect(same(ours.peers, theirs.peers), about.format("peers"))
        losses = np.allclose(ours.losses, theirs.losses, rtol=1e-9, atol=1e-9)
        expect(losses, about.format("losses"))
        lengths = np.allclose(
            ours.lengths, theirs.lengths, rtol=1e-9, atol=1e-9, equal_nan=True
        )
        expect(lengths, about.format("lengths"))
        finite = theirs.losses[np.isfinite(theirs.losses)]
        scale = max(scale, float(finite.max()))
        expect(_same_choice(ours, theirs, scale), about.format("choices"))


def _check_probing(trial: _Trial) -> None:
    """Probing changes nothing."""
    fleet = trial.fleet()
    fleet.observe(0)
    asked = trial.question(Trust.blank(fleet), 0, 9)
    first, second = (fleet.probe(asked, 0).losses for _ in range(2))
    expect(same(first, second), "probing must not change anything")


def _check_resuming(trial: _Trial) -> None:
    """A run cut in two equals a whole one."""
    cut = trial.rounds // 2
    begun = trial.fleet()
    half = trial.run(begun, rounds=cut)
    trust = Trust.from_arrays(half[-1].trust.to_arrays())
    resumed = trial.fleet(start=list(begun.models))
    if can_keep(begun) and can_keep(resumed) and begun.kept is not None:
        resumed.kept = {name: np.array(value) for name, value in begun.kept.items()}
    rest = trial.run(resumed, first=cut, trust=trust)
    whole = trial.run(trial.fleet())
    pairs = zip(half + rest, whole, strict=True)
    equal = all(same(ours.losses, theirs.losses) for ours, theirs in pairs)
    expect(equal, "a run cut in two must equal a whole one")
    known = rest[-1].trust.table().equals(whole[-1].trust.table())
    expect(known, "trust must not depend on interruptions")


def _check_staying(trial: _Trial) -> None:
    """Nobody asked, nothing changed."""
    fleet = trial.fleet()
    asked = trial.question(Trust.blank(fleet), 0, 9)
    before = np.array(fleet.probe(asked, 0).losses[:, 0])
    alone = personalize(
        fleet, sampler=Nobody(), adopter=trial.adopter, rounds=2, seed=0
    )
    *_, last = alone
    stays = np.allclose(before, last.losses[:, 0], rtol=1e-12)
    expect(stays, "a fleet that asks nobody must keep its models")


def _same_choice(ours: Round, theirs: Round, scale: float) -> bool:
    """Equal choices; where they differ, the answers must be so good that only rounding can tell
    them apart.
    """
    differ = (ours.choice.peers != theirs.choice.peers).any(axis=1)
    answers = theirs.losses[:, 1:]
    usable = np.where(np.isfinite(answers), answers, np.inf)
    best = usable.min(axis=1, initial=np.inf)
    return bool((best[differ] <= 1e-20 * scale).all())
