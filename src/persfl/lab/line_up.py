"""Who is compared: the methods of `persfl.methods`, in settings that people would choose.

All get the same rows, units and seed. Those that take steps begin with the step size that the
estimators choose and halve it where losses run away, so that none is a straw man. A method with a
setting that is the user's to choose comes with two values of it, the default first; which of them
counts is chosen on rows to learn from (`setting_choice`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from persfl.devices import Devices
from persfl.learners.shrunk import OTHERS
from persfl.methods import (
    IFCA,
    METHODS,
    Blend,
    Clustered,
    Ditto,
    FedAvg,
    FedAvgFineTuned,
    FedRelax,
    FineTuned,
    Kin,
    LocalTask,
    Method,
    Own,
    Paper,
    Pooled,
    cannot_run,
)
from persfl.training.state import KIN_ROUNDS, STEP_ROUNDS
from persfl.types import Learner

# By the word for a setting that is the user's to choose ("" where there is none).
Variants = Mapping[str, Method]

HARDLY = "hardly shrunk"
_USUAL: dict[str, Variants] = {
    # Halves of a few rows hide classes, and what they say shrinks too much.
    "own": {"": Own(), HARDLY: Own(shrink=OTHERS[0])},
    "pooled": {"": Pooled()},
    "clustered": {"": Clustered(4)},
    "fine-tuned": {"": FineTuned(rounds=STEP_ROUNDS)},
    "fedavg": {"": FedAvg(rounds=STEP_ROUNDS)},
    "fedavg+fine-tuning": {"": FedAvgFineTuned(rounds=STEP_ROUNDS)},
    "ifca (2)": {"": IFCA(2, rounds=STEP_ROUNDS)},
    "ifca (4)": {"": IFCA(4, rounds=STEP_ROUNDS)},
    "ditto": {f"pull {pull:g}": Ditto(pull, rounds=STEP_ROUNDS) for pull in (0.1, 1.0)},
    "paper": {"": Paper(rounds=STEP_ROUNDS)},
    "kin": {"": Kin(rounds=KIN_ROUNDS)},
    "blend": {"": Blend()},
}
# A setting of each of the others, and two values of it.
_SETTINGS: dict[str, tuple[str, tuple[Any, Any]]] = {
    "dummies": ("slopes", (False, True)),
    "gtvmin": ("alpha", (0.1, 1.0)),
    "fedprox": ("pull", (0.1, 1.0)),
    "per-fedavg": ("hessian", (True, False)),
    "apfl": ("own", (0.5, 0.25)),
    "pfedme": ("pull", (15.0, 5.0)),
    "cfl": ("still", (0.1, 0.3)),
    "werner": ("quantile", (0.2, "groups")),
    "fedem": ("models", (3, 2)),
    "mr-mtl": ("pull", (1.0, 0.1)),
    "mocha": ("pull", (0.003, 0.03)),
    "pens": ("best", (2, 1)),
    "dac": ("focus", (30.0, 5.0)),
    "fedfomo": ("random", (0.3, 1.0)),
    "all-for-one": ("form", ("binary", "continuous")),
    "clove": ("clusters", (2, 4)),
    "pfedgraph": ("alpha", (0.8, 0.2)),
    "cobo": ("pull", (0.01, 0.1)),
    "fedper": ("local", (5, 1)),
    "fedrep": ("head", (10, 3)),
    "knn-per": ("k", (10, 5)),
    "mixed": ("effects", ("diagonal", "full")),
    "boosting": ("levels", (False, True)),
}
# Second values that of classes are the first: trying them would be the same again.
NUMBERS_ONLY = ("effects full", "levels True")
# Beside what every fit is compared with anyway (see `persfl.evaluation`).
_RIVALS = ("fedavg", "fedavg+fine-tuning", "ifca (2)", "ifca (4)")


def line_up() -> dict[str, Variants]:
    """Everybody by name: the usual ones, and whatever else is on the list of methods and can run
    here.
    """
    known = {type(one) for variants in _USUAL.values() for one in variants.values()}
    known.add(FedRelax)  # of linear models it is gtvmin
    others = {name: kind() for name, kind in METHODS.items() if kind not in known}
    able = {name: one for name, one in others.items() if not cannot_run(one)}
    return _USUAL | {name: _variants(name, one) for name, one in able.items()}


def _variants(name: str, method: Method) -> Variants:
    """A method with two values of its setting, the default first; as it is where it has none."""
    usual = _with_rounds(method)
    if name not in _SETTINGS:
        return {"": usual}
    setting, values = _SETTINGS[name]
    word = "{} {}".format
    return {word(setting, one): usual.set_params(**{setting: one}) for one in values}


def _with_rounds(method: Method) -> Method:
    """A method with as many rounds as others, which a comparison may make fewer."""
    if method.get_params().get("rounds") != "auto":
        return method
    return method.set_params(rounds=STEP_ROUNDS)


def _added(name: str) -> bool:
    """Whether a method is somebody's own: those of this package are too many for every fit."""
    kind = METHODS.get(name)
    return kind is not None and not kind.__module__.startswith("persfl.methods.")


def on_terms(
    method: Method, *, rounds: int, budget: int = 640, step_size: Any = "auto"
) -> Method:
    """A method with these settings, as far as it has them.

    Rounds are a share of those that a method has here: kin may take four times as many as others.

    >>> on_terms(Kin(rounds=400), rounds=10), on_terms(Blend(), rounds=10, budget=40)
    (Kin(peers='auto', rounds=40, step_size='auto'), Blend(budget=40, trees=True, panel=4000))
    """
    has = method.get_params()
    new: dict[str, Any] = {"budget": budget, "step_size": step_size}
    if isinstance(has.get("rounds"), int):
        new["rounds"] = has["rounds"] * rounds // STEP_ROUNDS
    return method.set_params(**{name: new[name] for name in new if name in has})


def rivals(
    inside: Devices, learner: Learner, step_size: float, rounds: int, seed: int
) -> dict[str, Any]:
    """Models, one per device, of those that take steps on a shared model.

    None for learners without gradients. Whatever somebody added to the list of methods comes too.
    """
    everybody = line_up()
    names = [*_RIVALS, *(name for name in everybody if _added(name))]
    models = {}
    for name in names:
        method = next(iter(everybody[name].values()))
        task = LocalTask(inside, learner, seed)
        told = method.get_params().get("clusters", 0)
        if cannot_run(method, learner) or told >= len(inside):
            continue
        fair = on_terms(method, rounds=rounds, step_size=step_size)
        models[name] = fair.run(task).models
    return models
