"""Every method as a function from the same terms to a model per device.

Terms are rows to learn from in one kind of units, a learner, rounds and a seed. Methods that take steps begin with the step size
that the estimators choose and halve it where losses run away, so that none is a straw man.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from persfl.adopters import Best
from persfl.baselines import ditto, fedavg, ifca
from persfl.blending import blend
from persfl.comparing.clustered import clustered_fits
from persfl.devices import Devices
from persfl.errors import Diverged
from persfl.fleets import ArrayFleet
from persfl.learners.shrunk import OTHERS, shrunk
from persfl.proposers import GradientStep
from persfl.rules import kin, members
from persfl.training import HALVINGS, KIN_ROUNDS, STEP_ROUNDS, Plan, State, peers_asked, peers_of, step_of, train
from persfl.types import Array, Round
from persfl.worth import own_fits, pooled_fit, tuned_fits

UNITS = ("shared", "centred")
CLUSTERS, TOLD, PULLS = 4, (2, 4), (0.1, 1.0)
WORSE = 1.1  # a mean loss that ends this many times above its first round's has run away on some device


@dataclass(frozen=True, eq=False)
class Terms:
    """What all methods are given; `step_size` None begins where the estimators do."""

    rows: Devices
    learner: Any
    classes: int = 0
    rounds: int = STEP_ROUNDS
    seed: int = 0
    budget: int = 640  # questions per device that blend may ask
    step_size: float | None = None
    ordered: bool = False  # rows come in the order of time, which blend's folds go by

    @property
    def step(self) -> float:
        """The step size to begin with."""
        return step_of("auto", self.learner, self.rows.features) if self.step_size is None else self.step_size

    def everybody(self, model: Any) -> Array:
        """One model, for every device."""
        return np.repeat(np.asarray(model)[None], len(self.rows), axis=0)


Maker = Callable[[Terms], Array | None]  # None where it does not apply


class Method(NamedTuple):
    """Makers by the name of a setting that is the user's to choose ("" where there is none), each tried in all these units.

    Nobody can say in advance which units and setting are best, so of a rival the best counts, in hindsight. A method that is tried
    in one kind of units only looks at both by itself.
    """

    makers: Mapping[str, Maker]
    units: tuple[str, ...] = UNITS


def local(terms: Terms) -> Array:
    """Own rows alone, shrunk as far as leaving rows out says."""
    return np.asarray(own_fits(terms.learner, terms.rows, terms.seed))


def hardly_shrunk(terms: Terms) -> Array | None:
    """Own rows alone where there are classes: halves of a few rows hide classes, and what they say shrinks too much."""
    return shrunk(terms.learner, terms.rows, strength=OTHERS[0]) if terms.classes else None


def pooled(terms: Terms) -> Array:
    """One model fitted to everybody's rows."""
    return terms.everybody(pooled_fit(terms.learner, terms.rows, terms.seed))


def clustered(terms: Terms) -> Array:
    """One model per cluster of devices."""
    return clustered_fits(terms.learner, terms.rows, told=CLUSTERS, classes=terms.classes, seed=terms.seed)


def fine_tuned(terms: Terms) -> Array:
    """One model for all, refitted to own rows."""
    return tuned(terms, pooled_fit(terms.learner, terms.rows, terms.seed))


def tuned(terms: Terms, model: Any) -> Array:
    """A shared model, refitted to every device's own rows."""
    steps = GradientStep(terms.step, steps=terms.rounds)
    return np.asarray(tuned_fits(terms.learner, terms.rows, model, None, steps, terms.seed))


def averaged(terms: Terms) -> Array:
    """FedAvg."""
    return descended(terms, lambda fleet: fedavg(fleet, rounds=terms.rounds, seed=terms.seed))


def averaged_tuned(terms: Terms) -> Array:
    """FedAvg, refitted to own rows."""
    return tuned(terms, averaged(terms)[0])


def told_clusters(told: int) -> Maker:
    """IFCA, told so many clusters."""
    return lambda terms: descended(
        terms, lambda fleet: ifca(fleet, told=min(told, len(terms.rows)), rounds=terms.rounds, seed=terms.seed)
    )


def pulled(pull: float) -> Maker:
    """Ditto, its models pulled so strongly toward the average."""

    def maker(terms: Terms) -> Array:
        short = replace(terms, step_size=min(terms.step, 0.5 / pull))  # a longer one would overshoot the average
        return descended(short, lambda fleet: ditto(fleet, pull=pull, rounds=terms.rounds, seed=terms.seed))

    return maker


def descended(terms: Terms, run: Callable[[ArrayFleet], Iterator[Round]]) -> Array:
    """The models after a baseline's rounds, with half the step as long as it makes the mean loss grow."""
    step = terms.step
    for _ in range(HALVINGS):
        fleet = ArrayFleet(terms.rows, learner=terms.learner, proposer=GradientStep(step), seed=terms.seed)
        try:
            losses = [float(round_.loss.mean()) for round_ in run(fleet)]
            if losses[-1] <= WORSE * losses[0]:
                return np.asarray(fleet.models).copy()
        except Diverged:
            pass
        step /= 2
    raise Diverged(f"steps from {terms.step:g} down to {step:g} made losses grow.", round=0, device=None)


def paper(terms: Terms) -> Array:
    """Algorithm 1 as printed."""
    return np.asarray(_trained(terms, peers_of("auto", len(terms.rows)), Best(), terms.rounds).models)


def kindred(terms: Terms) -> Array:
    """The kin rule; a device that finds none keeps the model of its own rows."""
    rule = kin(peers_asked("auto", len(terms.rows)))
    state = _trained(terms, rule.sampler, rule.adopter, KIN_ROUNDS * terms.rounds // STEP_ROUNDS)
    return np.where(members(state.trust).right[:, None], state.models, local(terms))


def _trained(terms: Terms, sampler: Any, adopter: Any, rounds: int) -> State:
    return train(terms.rows, Plan(terms.learner, GradientStep, terms.step, sampler, adopter, rounds, terms.seed))


def blended(terms: Terms) -> Array:
    """Blend, which looks at both units itself."""
    found = blend(
        terms.rows,
        terms.learner,
        seed=terms.seed,
        budget=terms.budget,
        classes=terms.classes,
        ordered=terms.ordered,
    )
    return np.asarray(found.models)


METHODS: dict[str, Method] = {
    "local": Method({"": local, "hardly shrunk": hardly_shrunk}),
    "pooled": Method({"": pooled}),
    "clustered": Method({"": clustered}),
    "fine-tuned": Method({"": fine_tuned}),
    "FedAvg": Method({"": averaged}),
    "FedAvg + fine-tuning": Method({"": averaged_tuned}),
    **{f"IFCA ({told})": Method({"": told_clusters(told)}) for told in TOLD},
    "Ditto": Method({f"pull {pull:g}": pulled(pull) for pull in PULLS}),
    "paper": Method({"": paper}),
    "kin": Method({"": kindred}),
    "blend": Method({"": blended}, ("shared",)),
}


def rivals(inside: Devices, learner: Any, step_size: float, rounds: int, seed: int) -> dict[str, Any]:
    """Models of those that take steps on a shared model, one per device; none for learners without gradients."""
    if not hasattr(learner, "grad"):
        return {}
    terms = Terms(inside, learner, rounds=rounds, seed=seed, step_size=step_size)
    names = ["FedAvg", "FedAvg + fine-tuning", *(f"IFCA ({told})" for told in TOLD if told < len(inside))]
    return {name: METHODS[name].makers[""](terms) for name in names}
