"""kNN-Per: a common model, corrected by what the nearest of a device's own rows were called.

w  <- federated averaging
f_i(x) = (1 - share_i) f_w(x) + share_i * mean of the labels of the k nearest own rows

Rows are near by what they are to the common model before its last layer; each counts by
exp(-distance / scale_i), with scale_i the median distance of own rows to their k-th nearest. The
share is chosen for each device on its own rows: in five folds, each with a common model that has
not seen the fold of anybody, it is the one of 0, .1, ..., 1 with the least loss. (The original's
script chooses it on test rows.) Own rows never leave; the model of a device holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from persfl.checks import whole
from persfl.devices import Devices
from persfl.learners.near_rows import NearRows, as_seen, called, distances
from persfl.learners.responses import respond
from persfl.methods.fedavg import Averaging, FedAvg
from persfl.methods.local_task import LocalTask
from persfl.methods.method_fields import setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import FOLDS, row_folds
from persfl.training.state import Keep, State
from persfl.types import Array, IntArray, Learner

if TYPE_CHECKING:
    pass

SHARES = np.linspace(0.0, 1.0, 11)
_LEAST_CHANCE = 1e-6


def scales(seen: Array, rows: Devices, k: int) -> Array:
    """(n,) the median distance of a device's rows to the k-th nearest of its others; 1 where that
    is nothing.
    """
    found = np.ones(len(rows))
    for i in range(len(rows)):
        own = seen[rows.start[i] : rows.start[i + 1]][:_MOST]
        if len(own) < 2:
            continue
        far = distances(own, own)
        np.fill_diagonal(far, np.inf)
        many = min(k, len(own) - 1)
        kth = float(np.median(np.partition(far, many - 1, axis=1)[:, many - 1]))
        found[i] = kth if kth > 0 else 1.0
    return found


_MOST = 2000  # rows of a device that its scale is of


@dataclass(frozen=True)
class KNNPer(Averaging):
    """A common model, and the nearest of a device's own rows."""

    name: ClassVar[str] = "knn-per"
    about: ClassVar[str] = "A common model, corrected by the nearest of own rows"
    source: ClassVar[str] = "Marfoq, Neglia, Kameni, Vidal 2022"
    leaves: ClassVar[str] = (
        "Where a step on its rows takes the common model, and how many rows it has. The rows that"
        " its own model looks up stay with it."
    )

    k: int = setting(10, "how many of the nearest own rows count")

    def needs(self) -> Needs:
        holds = "Models hold rows of their device, and a coordinator keeps models."
        return replace(super().needs(), not_federated=holds, one_process=True)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        k = whole("k", self.k, least=1)
        state = super().run(task, stage=stage, keep=keep)
        model = np.asarray(state.models)[0]
        rows = task.rows
        seen = as_seen(task.learner, model, rows.X)
        models = NearRows(
            vectors=np.repeat(model[None], len(rows), axis=0),
            common=model,
            seen=seen,
            label=rows.y,
            weight=rows.weight,
            start=rows.start,
            share=self._shares(task, k),
            scale=scales(seen, rows, k),
            k=k,
        )
        return replace(state, models=models)

    def _shares(self, task: Task, k: int) -> Array:
        """(n,) how much own rows count, by folds of own rows."""
        rows = task.rows
        fold = np.where(rows.counts[rows.owner] > 1, row_folds(rows, task.seed), -1)
        missed = np.zeros((len(rows), len(SHARES)))
        for hidden in range(FOLDS):
            learn = np.flatnonzero(fold != hidden)
            judge = np.flatnonzero(fold == hidden)
            if len(judge):
                missed += self._missed(task, learn, judge, k)
        return np.asarray(SHARES[missed.argmin(axis=1)])

    def _missed(self, task: Task, learn: IntArray, judge: IntArray, k: int) -> Array:
        """(n, shares) what each share costs on rows that the common model has not seen."""
        rows = task.rows
        counts = np.bincount(rows.owner[learn], minlength=len(rows))
        start = np.append(0, np.cumsum(counts))
        part = Devices(
            rows.X[learn], rows.y[learn], rows.weight[learn], start, rows.ids
        )
        inner = LocalTask(
            part,
            task.learner,
            task.seed,
            n_jobs=task.n_jobs,
            compute=task.compute,
            classes=task.classes,
        )
        averaging = FedAvg(
            share=self.share,
            rounds=self.rounds,
            step_size=self.step_size,
            local=self.local,
        )
        shared = averaging.run(inner)
        model = np.asarray(shared.models)[0]
        seen = as_seen(task.learner, model, part.X)
        scale = scales(seen, part, k)
        found = np.zeros((len(rows), len(SHARES)))
        for i in np.unique(rows.owner[judge]).tolist():
            mine = judge[rows.owner[judge] == i]
            own = slice(int(start[i]), int(start[i + 1]))
            near = called(
                as_seen(task.learner, model, rows.X[mine]),
                seen[own],
                part.y[own],
                part.weight[own],
                k=k,
                scale=float(scale[i]),
                classes=task.classes,
            )
            said = respond(task.learner, model, rows.X[mine], task.classes)
            mixed = said + SHARES.reshape(-1, *(1,) * said.ndim) * (near - said)
            each = share_losses(task.learner, mixed, rows.y[mine])
            found[i] = each @ rows.weight[mine]
        return found


def share_losses(learner: Learner, said: Array, label: Array) -> Array:
    """(shares, rows) the squared error, or minus the logarithm of the right class's chance."""
    if said.ndim == 2:
        return np.asarray((said - label) ** 2)
    right = said[:, np.arange(len(label)), label.astype(np.int64)]
    return np.asarray(-np.log(np.maximum(right, _LEAST_CHANCE)))
