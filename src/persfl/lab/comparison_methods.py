"""Every method as a function from the same terms to a model per device.

Terms are rows to learn from in one kind of units, a learner, rounds and a seed. Methods that take
steps begin with the step size that the estimators choose and halve it where losses run away, so
that none is a straw man.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np

from persfl.adopters import Best
from persfl.baselines import ditto, fedavg, ifca
from persfl.devices import Devices
from persfl.errors import Diverged
from persfl.evaluation.rivals import own_fits, pooled_fit, tuned_fits
from persfl.fleets import ArrayFleet
from persfl.lab.cluster_fits import clustered_fits
from persfl.learners import Linear
from persfl.learners.shrunk import OTHERS, shrunk
from persfl.methods.blend import blend
from persfl.proposers import GradientStep
from persfl.rules import kin, members
from persfl.training import (
    HALVINGS,
    KIN_ROUNDS,
    STEP_ROUNDS,
    Plan,
    State,
    peers_asked,
    peers_of,
    step_of,
    train,
)
from persfl.traits import has_gradients
from persfl.types import Adopter, Array, Learner, Model, Round, Sampler

UNITS = ("shared", "centred")
CLUSTERS = 4  # of k-means
TOLD, PULLS = (2, 4), (0.1, 1.0)  # what IFCA is told, how strongly Ditto is pulled
# a mean loss that ends so many times above its first round's has run away somewhere
WORSE = 1.1


@dataclass(frozen=True, eq=False)
class ComparisonTerms:
    """What all methods are given; `step_size` None begins where the estimators do."""

    rows: Devices
    learner: Learner
    classes: int = 0
    rounds: int = STEP_ROUNDS
    seed: int = 0
    budget: int = 640  # questions per device that blend may ask
    step_size: float | None = None
    ordered: bool = False  # rows come in the order of time, which blend's folds go by

    @property
    def step(self) -> float:
        """The step size to begin with."""
        if self.step_size is not None:
            return self.step_size
        return step_of("auto", self.learner, self.rows.features)

    def everybody(self, model: Model) -> Array:
        """One model, for every device."""
        return np.repeat(np.asarray(model)[None], len(self.rows), axis=0)


Maker = Callable[[ComparisonTerms], Array | None]  # None where it does not apply


class MethodVariants(NamedTuple):
    """Makers by the name of a setting that is the user's to choose ("" where there is none).

    Each is tried in all these units. Nobody can say in advance which units and setting are best, so
    of a rival the best counts, in hindsight. A method that is tried in one kind of units only looks
    at both by itself.
    """

    makers: Mapping[str, Maker]
    units: tuple[str, ...] = UNITS


def _own(terms: ComparisonTerms) -> Array:
    """Own rows alone, shrunk as far as leaving rows out says."""
    return np.asarray(own_fits(terms.learner, terms.rows, terms.seed))


def _hardly_shrunk(terms: ComparisonTerms) -> Array | None:
    """Own rows alone, where there are classes.

    Halves of a few rows hide classes, and what they say shrinks too much.
    """
    if not terms.classes or not isinstance(terms.learner, Linear):
        return None
    return shrunk(terms.learner, terms.rows, strength=OTHERS[0])


def _pooled(terms: ComparisonTerms) -> Array:
    """One model fitted to everybody's rows."""
    return terms.everybody(pooled_fit(terms.learner, terms.rows, terms.seed))


def _clustered(terms: ComparisonTerms) -> Array:
    """One model per cluster of devices."""
    how = {"told": CLUSTERS, "classes": terms.classes, "seed": terms.seed}
    return clustered_fits(terms.learner, terms.rows, **how)


def _fine_tuned(terms: ComparisonTerms) -> Array:
    """One model for all, refitted to own rows."""
    return _refitted(terms, pooled_fit(terms.learner, terms.rows, terms.seed))


def _refitted(terms: ComparisonTerms, model: Model) -> Array:
    """A shared model, refitted to every device's own rows."""
    steps = GradientStep(terms.step, steps=terms.rounds)
    return np.asarray(
        tuned_fits(terms.learner, terms.rows, model, None, steps, terms.seed)
    )


def _averaged(terms: ComparisonTerms) -> Array:
    """FedAvg."""
    return _descended(
        terms, lambda fleet: fedavg(fleet, rounds=terms.rounds, seed=terms.seed)
    )


def _averaged_refitted(terms: ComparisonTerms) -> Array:
    """FedAvg, refitted to own rows."""
    return _refitted(terms, _averaged(terms)[0])


def _told(clusters: int) -> Maker:
    """IFCA, told so many clusters."""

    def maker(terms: ComparisonTerms) -> Array:
        told = min(clusters, len(terms.rows))
        how = {"told": told, "rounds": terms.rounds, "seed": terms.seed}
        return _descended(terms, lambda fleet: ifca(fleet, **how))

    return maker


def _pulled(pull: float) -> Maker:
    """Ditto, its models pulled so strongly toward the average."""

    def maker(terms: ComparisonTerms) -> Array:
        how = {"rounds": terms.rounds, "seed": terms.seed}
        # A longer step would overshoot the average.
        short = replace(terms, step_size=min(terms.step, 0.5 / pull))
        return _descended(short, lambda fleet: ditto(fleet, pull=pull, **how))

    return maker


def _descended(
    terms: ComparisonTerms, run: Callable[[ArrayFleet], Iterator[Round]]
) -> Array:
    """Models after a baseline's rounds, with half the step as long as it makes the loss grow."""
    step = terms.step
    for _ in range(HALVINGS):
        proposer = GradientStep(step)
        fleet = ArrayFleet(
            terms.rows, learner=terms.learner, proposer=proposer, seed=terms.seed
        )
        try:
            losses = [float(round_.loss.mean()) for round_ in run(fleet)]
            if losses[-1] <= WORSE * losses[0]:
                return np.asarray(fleet.models).copy()
        except Diverged:
            pass
        step /= 2
    grew = f"steps from {terms.step:g} down to {step:g} made losses grow."
    raise Diverged(grew, round=0, device=None)


def _paper(terms: ComparisonTerms) -> Array:
    """Algorithm 1 as printed."""
    state = _trained(terms, peers_of("auto", len(terms.rows)), Best(), terms.rounds)
    return np.asarray(state.models)


def _kindred(terms: ComparisonTerms) -> Array:
    """The kin rule; a device that finds none keeps the model of its own rows."""
    rule = kin(peers_asked("auto", len(terms.rows)))
    rounds = KIN_ROUNDS * terms.rounds // STEP_ROUNDS
    state = _trained(terms, rule.sampler, rule.adopter, rounds)
    return np.where(members(state.trust).right[:, None], state.models, _own(terms))


def _trained(
    terms: ComparisonTerms, sampler: Sampler, adopter: Adopter, rounds: int
) -> State:
    step = (GradientStep, terms.step)
    return train(
        terms.rows, Plan(terms.learner, *step, sampler, adopter, rounds, terms.seed)
    )


def _blended(terms: ComparisonTerms) -> Array:
    """Blend, which looks at both units itself."""
    found = blend(
        terms.rows,
        cast("Linear", terms.learner),
        seed=terms.seed,
        budget=terms.budget,
        classes=terms.classes,
        ordered=terms.ordered,
    )
    return np.asarray(found.models)


METHODS: dict[str, MethodVariants] = {
    "local": MethodVariants({"": _own, "hardly shrunk": _hardly_shrunk}),
    "pooled": MethodVariants({"": _pooled}),
    "clustered": MethodVariants({"": _clustered}),
    "fine-tuned": MethodVariants({"": _fine_tuned}),
    "FedAvg": MethodVariants({"": _averaged}),
    "FedAvg + fine-tuning": MethodVariants({"": _averaged_refitted}),
    **{f"IFCA ({told})": MethodVariants({"": _told(told)}) for told in TOLD},
    "Ditto": MethodVariants({f"pull {pull:g}": _pulled(pull) for pull in PULLS}),
    "paper": MethodVariants({"": _paper}),
    "kin": MethodVariants({"": _kindred}),
    "blend": MethodVariants({"": _blended}, ("shared",)),
}


def rivals(
    inside: Devices,
    learner: Learner,
    step_size: float,
    rounds: int,
    seed: int,
) -> dict[str, Array | None]:
    """Models of those that take steps on a shared model, one per device.

    None for learners without gradients.
    """
    if not has_gradients(learner):
        return {}
    terms = ComparisonTerms(
        inside, learner, rounds=rounds, seed=seed, step_size=step_size
    )
    told = [f"IFCA ({clusters})" for clusters in TOLD if clusters < len(inside)]
    names = ["FedAvg", "FedAvg + fine-tuning", *told]
    return {name: METHODS[name].makers[""](terms) for name in names}
