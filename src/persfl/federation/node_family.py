"""The family of models that a device answers in, where a run lets every device have its own.

A run with `--model any` names no family. Its peers answer each in the one that their `node.toml`
names, and its targets adopt what predicts best on their own rows, whatever it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sklearn.tree import DecisionTreeRegressor

from persfl.checks import one_of
from persfl.errors import InputError
from persfl.federation.policy import trees_asked
from persfl.files import read_toml
from persfl.learners.any_family import ANY, DEEPEST, TREES, AnyFamily
from persfl.learners.estimator import Estimator
from persfl.learners.tree import Tree
from persfl.types import Learner
from persfl.wire.terms import Terms

FAMILIES = ("linear", "ridge", "tree", "forest", "boosting")
_RUNS_OWN = {"loss", "delta"}  # settings that are the run's to choose


@dataclass(frozen=True, eq=False)
class NodeFamily:
    """`model` is one of the families, with its settings.

    >>> family = NodeFamily.of({"model": "forest", "n_estimators": 10})
    >>> family.terms(Terms(model="any", columns=("a",))).learner().estimator
    RandomForestRegressor(max_depth=6, n_estimators=10)
    """

    model: str = "linear"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> NodeFamily:
        """The `family` of a node.toml; linear where it names none."""
        told = read_toml(path, f"the family in {path.name!r}")
        return NodeFamily.of(told.get("family", "linear"))

    @staticmethod
    def of(told: object) -> NodeFamily:
        """A family from its name, or from a table of its name and settings."""
        words = {"model": told} if isinstance(told, str) else told
        if not isinstance(words, dict) or not isinstance(words.get("model"), str):
            how = "family = 'forest' or family = {model = 'forest', max_depth = 4}"
            raise InputError(
                f"a node names its family as in {how}. Got {str(told)[:80]!r}."
            )
        model = one_of("family", words["model"], FAMILIES)
        settings = {name: words[name] for name in words if name != "model"}
        found = NodeFamily(model, settings)
        found._check()
        return found

    def _check(self) -> None:
        odd = sorted(_RUNS_OWN & set(self.settings))
        if odd:
            raise InputError(f"{odd[0]} is not a family's to choose. Leave it out.")
        mine = self.terms(Terms(model=ANY, columns=("x",)))
        try:
            mine.learner()
        except InputError:  # a setting that only classes have
            self.terms(Terms(model=ANY, columns=("x",), classes=2)).learner()
        deep = self.settings.get("max_depth", 1)
        if not isinstance(deep, int) or deep > DEEPEST or trees_asked(mine) > TREES:
            most = f"at most {TREES} trees of depth {DEEPEST}"
            raise InputError(f"a model between machines has {most}. Ask for fewer.")

    def terms(self, asked: Terms) -> Terms:
        """What the terms of a run come to at this device."""
        if asked.model != ANY:
            return asked
        return replace(asked, model=self.model, settings=self.settings)

    def learner(self, asked: Terms) -> Learner:
        """What grows this device's own models, not yet made fit to leave."""
        learner: Learner = self.terms(asked).learner()
        if asked.model == ANY and isinstance(learner, Tree):
            # one that compares rows as all trees of scikit-learn's do
            return Estimator(DecisionTreeRegressor(max_depth=learner.max_depth))
        return learner

    def grower(self, asked: Terms, shelter: Learner) -> Learner:
        """What grows models as they travel; `shelter` is `learner`, made fit to leave."""
        return AnyFamily(asked.classes, shelter) if asked.model == ANY else shelter
