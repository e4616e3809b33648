"""One model for each cluster of devices: k-means on what a device's rows are like.

    a device is   mean of x,  mean of x y' (and of y')      y' = the label, or one column per class

each divided by its spread over devices. It sees features directly, so it is hard to beat where
those are what devices differ in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from persfl.checks import many, whole
from persfl.device_checks import refuse_rowless
from persfl.devices import Devices
from persfl.evaluation.rivals import pooled_fit
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once
from persfl.seeds import stream
from persfl.training.state import Keep, State
from persfl.types import Array, Data, IntArray, Learner


def clustered_fits(
    learner: Learner,
    rows: Devices,
    *,
    told: int = 4,
    classes: int = 0,
    seed: int = 0,
) -> Array:
    """(devices, size) every device's model is that of its cluster, one of `told`.

    >>> from persfl import Linear
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=40, clusters=2, rows=20, features=3, seed=0)
    >>> models = clustered_fits(Linear(intercept=True), rows, told=2)
    >>> float(np.abs(models[:, :3] - rows.true_weights).max().round(6))
    0.0
    """
    group = clusters(rows, told, classes=classes, seed=seed)
    models = []
    for cluster in range(group.max() + 1):
        members = np.flatnonzero(group == cluster).tolist()
        theirs = Devices.of([rows[i] for i in members], quiet=True)
        models.append(pooled_fit(learner, theirs, seed))
    return np.stack(models)[group]


def clusters(rows: Devices, told: int, *, classes: int = 0, seed: int = 0) -> IntArray:
    """(devices,) the cluster of each, numbered from 0 without gaps."""
    marks = [_marks(rows[i], float(rows.total[i]), classes) for i in range(len(rows))]
    means = np.array(marks)
    alike = (means - means.mean(axis=0)) / (means.std(axis=0) + 1e-9)
    draw = stream(seed, "clusters").integer()
    from sklearn.cluster import KMeans  # takes long to import, and few need it

    group = KMeans(min(told, len(rows)), n_init=5, random_state=draw).fit_predict(alike)
    return np.asarray(np.unique(group, return_inverse=True)[1])


def _marks(data: Data, total: float, classes: int) -> Array:
    """What one device's rows are like: the means of the module's docstring."""
    weight = data.weight / total
    labels = data.y[:, None]
    if classes:
        labels = (labels == np.arange(classes)) + 0.0
    with_one = np.column_stack([data.X, np.ones(len(data.y))])
    products = with_one.T @ (weight[:, None] * labels)
    return np.concatenate([weight @ data.X, products.ravel()])


@dataclass(frozen=True)
class Clustered(MethodSettings):
    """One model for each cluster of devices whose rows look alike."""

    name: ClassVar[str] = "clustered"
    about: ClassVar[str] = "One model per cluster of devices, by k-means on their rows"
    source: ClassVar[str] = "k-means, Lloyd 1982"

    clusters: int = setting(4, "how many clusters there are")

    def needs(self) -> Needs:
        return Needs(
            gradients=True,
            together=True,
            one_process=True,
            told="the number of clusters",
            leaves="All of its rows.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        refuse_rowless(task.rows)
        n = task.n
        why = many(n, "device")
        told = whole("clusters", self.clusters, least=1, most=n, why=why)
        models = clustered_fits(
            task.learner,
            task.rows,
            told=told,
            classes=task.classes,
            seed=task.seed,
        )
        return at_once(task, models, stage=stage, keep=keep)
