"""GPBoost: boosted trees of all rows and own levels of devices, fitted together.

y = trees(x) + u_i + noise,   u_i ~ N(0, s)

Trees and the variance of levels are learned in turn by the package gpboost, if it is installed.
Trees do not know the device; unlike `boosting` with `levels`, levels are estimated beside the trees
instead of before them. How many steps are taken left-out rows of every device tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.learners.shared_trees import WORDS, BoostedModels, SharedTrees
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once, row_folds
from persfl.training.state import Keep, State

PACKAGE = "gpboost"
Node = Mapping[str, Any]  # of a tree, as the package writes it


@dataclass(frozen=True)
class GPBoost(MethodSettings):
    """Boosted trees and random levels, by the package gpboost."""

    name: ClassVar[str] = "gpboost"
    about: ClassVar[str] = "Boosted trees of all rows and own levels, fitted together"
    source: ClassVar[str] = "Sigrist 2022; the package gpboost"

    steps: int = setting(300, "steps of boosting at most; left-out rows say how many")
    rate: float = setting(0.1, "how far a step goes")
    leaves: int = setting(31, "leaves of a tree at most")

    def needs(self) -> Needs:
        return Needs(
            gradients=True,
            together=True,
            one_process=True,
            numbers=True,
            package=PACKAGE,
            leaves="All of its rows.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        learner = task.learner
        if find_spec(PACKAGE) is None:
            raise InputError(
                "gpboost needs the package gpboost, which is not installed here: pip install"
                " gpboost."
            )
        if not isinstance(learner, Linear) or not learner.intercept:
            what = (
                "gpboost is for squared loss, beside linear models with an intercept."
            )
            raise InputError(f"{what} Got {learner!r}.")
        if not task.rows.total.sum() > 0:
            raise InputError("gpboost needs rows. Got none.")
        how = {
            "learning_rate": real("rate", self.rate, above=0),
            "num_leaves": whole("leaves", self.leaves, least=2),
            "min_data_in_leaf": 5,
            "objective": "regression",
            "verbose": -1,
            "num_threads": 1,
            "deterministic": True,
            "seed": 0,
        }
        steps = whole("steps", self.steps, least=1)
        models = gpboost_fits(learner, task.rows, how, steps=steps, seed=task.seed)
        return at_once(task, models, stage=stage, keep=keep)


def gpboost_fits(
    learner: Linear, rows: Devices, how: dict[str, Any], *, steps: int, seed: int
) -> BoostedModels:
    """Trees of the whole fleet, beside vectors that are 0 but for own levels."""
    gpboost: Any = import_module(PACKAGE)
    used = np.flatnonzero(rows.weight > 0)
    left = row_folds(rows, seed)[used] == 0
    several = 0 < left.sum() < len(left)
    if several:
        learn = used[~left]
        judge = used[left]
        model = gpboost.GPModel(group_data=rows.owner[learn], likelihood="gaussian")
        model.set_prediction_data(group_data_pred=rows.owner[judge])
        told = gpboost.Dataset(rows.X[learn], rows.y[learn])
        hidden = gpboost.Dataset(rows.X[judge], rows.y[judge], reference=told)
        tried = gpboost.train(
            how,
            told,
            num_boost_round=steps,
            gp_model=model,
            valid_sets=hidden,
            early_stopping_rounds=20,
            use_gp_model_for_validation=True,
            verbose_eval=False,
        )
        steps = max(int(tried.best_iteration), 1)
    model = gpboost.GPModel(group_data=rows.owner[used], likelihood="gaussian")
    told = gpboost.Dataset(rows.X[used], rows.y[used])
    found = gpboost.train(how, told, steps, gp_model=model, verbose_eval=False)
    every = np.arange(len(rows))
    nothing = np.zeros((len(rows), rows.features))
    said = found.predict(nothing, group_data_pred=every, pred_latent=True)
    vectors = np.zeros((len(rows), learner.size(rows.features)))
    vectors[:, -1] = np.ravel(said["random_effect_mean"])
    trees = trees_of(found.dump_model(), len(rows))
    return BoostedModels(vectors, ((1.0, trees),), np.zeros(len(rows), dtype=bool))


def trees_of(dumped: Mapping[str, Any], devices: int) -> SharedTrees:
    """The arrays of trees that the package has written out."""
    feature: list[int] = []
    numbers: list[tuple[float, float, bool]] = []
    sides: list[tuple[int, int]] = []
    root = []
    for tree in dumped["tree_info"]:
        root.append(len(feature))
        for node, below in _nodes(tree["tree_structure"], len(feature)):
            inner = "split_feature" in node
            # the first column of a row is its device, which these trees do not ask for
            feature.append(int(node["split_feature"]) + 1 if inner else -1)
            numbers.append(
                (
                    float(node["threshold"]) if inner else 0.0,
                    0.0 if inner else float(node["leaf_value"]),
                    bool(node.get("default_left", False)),
                )
            )
            sides.append(below)
    threshold, value, missing = (np.array(part) for part in zip(*numbers, strict=True))
    left, right = np.array(sides, dtype=np.int64).T
    return SharedTrees(
        base=0.0,
        place=np.full(devices, -1),
        root=np.array(root, dtype=np.int64),
        feature=np.array(feature, dtype=np.int64),
        threshold=np.asarray(threshold, dtype=np.float64),
        left=left,
        right=right,
        missing_left=np.asarray(missing, dtype=bool),
        value=np.asarray(value, dtype=np.float64),
        sides=np.full(len(feature), -1),
        goes_left=np.zeros((1, WORDS), dtype=np.uint32),
    )


def _nodes(top: Node, first: int) -> Iterator[tuple[Node, tuple[int, int]]]:
    """All nodes of a tree, each before those below it, and where these two stand."""
    waiting = [top]
    known = first + 1
    while waiting:
        node = waiting.pop(0)
        below = (0, 0)
        if "split_feature" in node:
            below = (known, known + 1)
            known += 2
            waiting += [node["left_child"], node["right_child"]]
        yield node, below
