"""Methods: complete ways to personalize, one file each, and the one list of them.

Estimators, `persfl fit`, `persfl compare`, experiments and federations take any method of this list
that its needs allow. To add one, write a file with a frozen dataclass as `persfl.methods.paper` has
it, and name it here; `persfl.testing.check_method` says whether it keeps the contract.

>>> from persfl import Linear, Tree
>>> method_of("blend", budget=300)
Blend(budget=300, trees=True, panel=4000)
>>> cannot_run(method_of("ditto"), Linear()), cannot_run(method_of("ditto"), Tree())
('', 'ditto needs a model with gradients. Got Tree(max_depth=3).')
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from persfl import late_names
from persfl.errors import InputError
from persfl.methods.method_fields import MethodSettings, Setting, setting, settings_of
from persfl.methods.protocol import Method, Needs, Online, Task
from persfl.traits import traits_of
from persfl.types import Learner

if TYPE_CHECKING:
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
    from persfl.methods.single_fit import at_once
    from persfl.methods.werner import Werner

# Classes by the file that has them: one is imported when it is first used, since all together take
# a second that reading a run need not wait.
_HOMES = {
    "APFL": "apfl",
    "AllForOne": "all_for_one",
    "AskByThompson": "ask_by_rewards",
    "AskByUCB": "ask_by_rewards",
    "Blend": "blend_method",
    "Boosting": "boosting",
    "CFL": "cfl",
    "CLoVE": "clove",
    "Clustered": "clustered",
    "CoBo": "cobo",
    "DAC": "dac",
    "Ditto": "ditto",
    "Dummies": "dummies",
    "FedAvg": "fedavg",
    "FedAvgFineTuned": "fedavg_fine_tuned",
    "FedEM": "fedem",
    "FedFomo": "fedfomo",
    "FedPer": "fedper",
    "FedProx": "fedprox",
    "FedRelax": "fedrelax",
    "FedRep": "fedrep",
    "FineTuned": "fine_tuned",
    "GPBoost": "gpboost_method",
    "GTVMin": "gtvmin",
    "IFCA": "ifca",
    "KNNPer": "knn_per",
    "Kin": "kin",
    "LocalTask": "local_task",
    "MRMTL": "mr_mtl",
    "Mixed": "mixed_effects",
    "Mocha": "mocha",
    "Own": "own",
    "PENS": "pens",
    "PFedGraph": "pfedgraph",
    "PFedMe": "pfedme",
    "Paper": "paper",
    "PerFedAvg": "per_fedavg",
    "Pooled": "pooled",
    "Private": "private.private_method",
    "Werner": "werner",
    "at_once": "single_fit",
}
_NAMES = {
    "blend": "Blend",
    "paper": "Paper",
    "kin": "Kin",
    "own": "Own",
    "pooled": "Pooled",
    "fine-tuned": "FineTuned",
    "clustered": "Clustered",
    "fedavg": "FedAvg",
    "fedavg+fine-tuning": "FedAvgFineTuned",
    "ditto": "Ditto",
    "ifca": "IFCA",
    "dummies": "Dummies",
    "gtvmin": "GTVMin",
    "fedprox": "FedProx",
    "per-fedavg": "PerFedAvg",
    "apfl": "APFL",
    "pfedme": "PFedMe",
    "cfl": "CFL",
    "werner": "Werner",
    "fedem": "FedEM",
    "mr-mtl": "MRMTL",
    "mocha": "Mocha",
    "pens": "PENS",
    "dac": "DAC",
    "fedfomo": "FedFomo",
    "ucb": "AskByUCB",
    "thompson": "AskByThompson",
    "all-for-one": "AllForOne",
    "clove": "CLoVE",
    "pfedgraph": "PFedGraph",
    "cobo": "CoBo",
    "fedrelax": "FedRelax",
    "fedper": "FedPer",
    "fedrep": "FedRep",
    "knn-per": "KNNPer",
    "mixed": "Mixed",
    "boosting": "Boosting",
    "gpboost": "GPBoost",
    "private": "Private",
}

__getattr__ = late_names(__name__, _HOMES)


class MethodTable(MutableMapping[str, type[Method]]):
    """Methods by name, imported when they are first looked at; a person may add their own."""

    def __init__(self, names: MutableMapping[str, str]) -> None:
        self._kinds: dict[str, type[Method] | str] = dict(names)

    def __getitem__(self, name: str) -> type[Method]:
        kind = self._kinds[name]
        if isinstance(kind, str):
            kind = __getattr__(kind)
            self._kinds[name] = kind
        return kind

    def __setitem__(self, name: str, kind: type[Method]) -> None:
        self._kinds[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def __contains__(self, name: object) -> bool:
        return name in self._kinds


METHODS = MethodTable(_NAMES)

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
    "MethodTable",
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
            close = get_close_matches(method, METHODS, 1)
            near = f" Did you mean {close[0]!r}?" if close else ""
            raise InputError(f"method must be one of {known}. Got {method!r}.{near}")
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
    if federated and needs.not_federated:
        return f"{method.name} does not run over a federation. {needs.not_federated}"
    if federated and needs.together:
        return f"{method.name} needs all rows in one place, which no federation has."
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
