"""Methods: complete ways to personalize, one file each, and the one list of them.

Estimators, `persfl fit`, `persfl compare`, experiments and federations take any method of this list
that its needs allow. To add one, write a file with a frozen dataclass as `persfl.methods.paper` has
it, and name it here; `persfl.testing.check_method` says whether it keeps the contract.

>>> from persfl import Linear, Tree
>>> method_of("blend", budget=300)
Blend(budget=300, trees=True)
>>> cannot_run(method_of("ditto"), Linear()), cannot_run(method_of("ditto"), Tree())
('', 'ditto needs a model with gradients. Got Tree(max_depth=3).')
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from persfl.errors import InputError
from persfl.methods.all_for_one import AllForOne
from persfl.methods.apfl import APFL
from persfl.methods.ask_by_rewards import AskByThompson, AskByUCB
from persfl.methods.blend_method import Blend
from persfl.methods.boosting import Boosting
from persfl.methods.cfl import CFL
from persfl.methods.clove import CLoVE
from persfl.methods.clustered import Clustered
from persfl.methods.cobo import CoBo
from persfl.methods.dac import DAC
from persfl.methods.ditto import Ditto
from persfl.methods.dummies import Dummies
from persfl.methods.fedavg import FedAvg
from persfl.methods.fedavg_fine_tuned import FedAvgFineTuned
from persfl.methods.fedem import FedEM
from persfl.methods.fedfomo import FedFomo
from persfl.methods.fedper import FedPer
from persfl.methods.fedprox import FedProx
from persfl.methods.fedrelax import FedRelax
from persfl.methods.fedrep import FedRep
from persfl.methods.fine_tuned import FineTuned
from persfl.methods.gpboost_method import GPBoost
from persfl.methods.gtvmin import GTVMin
from persfl.methods.ifca import IFCA
from persfl.methods.kin import Kin
from persfl.methods.knn_per import KNNPer
from persfl.methods.local_task import LocalTask
from persfl.methods.method_fields import MethodSettings, Setting, setting, settings_of
from persfl.methods.mixed_effects import Mixed
from persfl.methods.mocha import Mocha
from persfl.methods.mr_mtl import MRMTL
from persfl.methods.own import Own
from persfl.methods.paper import Paper
from persfl.methods.pens import PENS
from persfl.methods.per_fedavg import PerFedAvg
from persfl.methods.pfedgraph import PFedGraph
from persfl.methods.pfedme import PFedMe
from persfl.methods.pooled import Pooled
from persfl.methods.private.private_method import Private
from persfl.methods.protocol import Method, Needs, Online, Task
from persfl.methods.single_fit import at_once
from persfl.methods.werner import Werner
from persfl.traits import traits_of
from persfl.types import Learner

METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        Blend,
        Paper,
        Kin,
        Own,
        Pooled,
        FineTuned,
        Clustered,
        FedAvg,
        FedAvgFineTuned,
        Ditto,
        IFCA,
        Dummies,
        GTVMin,
        FedProx,
        PerFedAvg,
        APFL,
        PFedMe,
        CFL,
        Werner,
        FedEM,
        MRMTL,
        Mocha,
        PENS,
        DAC,
        FedFomo,
        AskByUCB,
        AskByThompson,
        AllForOne,
        CLoVE,
        PFedGraph,
        CoBo,
        FedRelax,
        FedPer,
        FedRep,
        KNNPer,
        Mixed,
        Boosting,
        GPBoost,
        Private,
    )
}

__all__ = [
    "APFL",
    "CFL",
    "DAC",
    "IFCA",
    "METHODS",
    "MRMTL",
    "PENS",
    "AllForOne",
    "AskByThompson",
    "AskByUCB",
    "Blend",
    "Boosting",
    "CLoVE",
    "Clustered",
    "CoBo",
    "Ditto",
    "Dummies",
    "FedAvg",
    "FedAvgFineTuned",
    "FedEM",
    "FedFomo",
    "FedPer",
    "FedProx",
    "FedRelax",
    "FedRep",
    "FineTuned",
    "GPBoost",
    "GTVMin",
    "KNNPer",
    "Kin",
    "LocalTask",
    "Method",
    "MethodSettings",
    "Mixed",
    "Mocha",
    "Needs",
    "Online",
    "Own",
    "PFedGraph",
    "PFedMe",
    "Paper",
    "PerFedAvg",
    "Pooled",
    "Private",
    "Setting",
    "Task",
    "Werner",
    "at_once",
    "cannot_run",
    "method_of",
    "setting",
    "settings_of",
]


def method_of(method: str | Method, **settings: Any) -> Method:
    """The method of a name on the list, or a method itself, with these settings.

    >>> method_of("blend", peers=3)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: Blend has no setting 'peers'. It has: budget.
    """
    if isinstance(method, str):
        if method not in METHODS:
            known = ", ".join(map(repr, METHODS))
            raise InputError(f"method must be one of {known}. Got {method!r}.")
        method = METHODS[method]()
    if isinstance(method, type) or not isinstance(method, Method):
        what = "method must be a name such as 'blend', or a method such as Blend(budget=300)."
        raise InputError(f"{what} Got {method!r}.")
    return method.set_params(**settings)


def cannot_run(
    method: Method, learner: Learner | None = None, *, federated: bool = False
) -> str:
    """Why a method cannot run with a learner, or over a federation, in a sentence; "" if it can."""
    needs = method.needs()
    if federated and needs.together:
        return f"{method.name} needs all rows in one place, which no federation has."
    if federated and needs.not_federated:
        return f"{method.name} does not run over a federation. {needs.not_federated}"
    if needs.package and find_spec(needs.package) is None:
        return (
            f"{method.name} needs the package {needs.package}, which is not installed here: pip"
            f" install {needs.package}."
        )
    if learner is not None:
        traits = traits_of(learner)
        if needs.gradients and not traits.gradients:
            return f"{method.name} needs a model with gradients. Got {learner!r}."
        if needs.mixes and not traits.mixes:
            return f"{method.name} needs models that can be averaged. Got {learner!r}."
        if needs.numbers and traits.task != "numbers":
            return f"{method.name} is for labels that are numbers. Got {learner!r}."
    return ""
