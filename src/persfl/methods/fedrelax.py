"""FedRelax: every device fits its rows and, at public points, what its neighbours say there.

h_i <- argmin_h  L_i(h) + alpha * mean over public x of (h(x) - mean_j A_ij h_j(x))^2

all devices at once, `rounds` times, from models of own rows alone. For any model that can be
fitted: trees, forests, boosting. Classes are told as chances, averaged over neighbours. Models with
gradients need no points: w_i <- argmin L_i(w) + alpha * sum_j A_ij ||w - w_j||^2, repeated until
nothing moves, is where GTVMin ends, and is left to it.

A graph that is not given joins devices whose own models say like things at the public points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from persfl.checks import real, whole
from persfl.device_checks import refuse_rowless
from persfl.errors import InputError
from persfl.learners.responses import respond
from persfl.methods.graphs import NEAREST, Graph, Told, graph_of, nearest
from persfl.methods.gtvmin import GTVMin
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.single_fit import at_once
from persfl.proposers.refit import Refit
from persfl.seeds import Stream, stream
from persfl.training.state import Keep, State
from persfl.traits import has_chances, has_gradients
from persfl.types import Array, Learner, Model, Probe

ROUNDS = 10  # of its authors


@dataclass(frozen=True)
class FedRelax(MethodSettings):
    """Refits to own rows and to what neighbours say at public points."""

    name: ClassVar[str] = "fedrelax"
    about: ClassVar[str] = "Any models, refitted toward what neighbours in a graph say"
    source: ClassVar[str] = "Jung 2023; SarcheshmehPour, Tian, Zhang, Jung 2023"

    alpha: float = setting(1.0, "how much neighbours count beside own rows")
    graph: Told = setting(  # noqa: RUF009
        NEAREST, "neighbours: pairs as JSON, a CSV file; nearest: like models"
    )
    neighbours: int = setting(4, "how many each device has in the graph of like models")
    rounds: int | str = setting("auto", "times that everybody refits; auto: 10")

    def needs(self) -> Needs:
        return Needs(
            one_process=True,
            told="how much neighbours count, public points, and a graph if there is one",
            leaves="What its model says at the public points; linear models: the model.",
            not_federated="Devices there refit to one model's labels, not to a mean of several.",
        )

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        alpha = real("alpha", self.alpha, above=0)
        rounds = ROUNDS
        if self.rounds != "auto":
            rounds = whole("rounds", self.rounds, least=1)
        if has_gradients(task.learner):
            same = GTVMin(alpha, graph=self.graph, neighbours=self.neighbours)
            same = same.set_params(rounds=self.rounds)
            return same.run(task, stage=stage, keep=keep)
        models = Relaxation(self, task, alpha).models(rounds)
        return at_once(task, models, stage=stage, keep=keep)


class Relaxation:
    """The refits of one task."""

    def __init__(self, method: FedRelax, task: Task, alpha: float) -> None:
        if task.public is None:
            raise InputError(
                "fedrelax needs public points for models that are refitted."
            )
        self.rows = task.rows
        self.learner = task.learner
        self.classes = task.classes
        self.seed = task.seed
        soft = bool(task.classes) and has_chances(task.learner)
        self.refit = Refit(task.public, step_size=1.0 / alpha, soft=soft)
        self.method = method
        refuse_rowless(self.rows)

    def models(self, rounds: int) -> list[Model]:
        """After so many rounds from own fits."""
        own = [
            self.learner.fit(self.rows[i], stream(self.seed, "own").at(i))
            for i in range(len(self.rows))
        ]
        said = self._said(own)
        graph = self._graph(said)
        toward = _means(graph)
        alone = toward.sum(axis=1) == 0
        for r in range(rounds):
            told = np.tensordot(toward, said, axes=1)
            place = stream(self.seed, "relaxed", r)
            own = [
                model if alone[i] else self._answer(told[i], i, place.at(i))
                for i, model in enumerate(own)
            ]
            said = self._said(own)
        return own

    def _answer(self, told: Array, i: int, place: Stream) -> Model:
        """The refit of one device."""
        return self.refit.answer(self.learner, self._probe(told), self.rows[i], place)

    def _probe(self, told: Array) -> Probe:
        """What neighbours say, as a refit takes it."""
        if not self.classes:
            return told
        if self.refit.soft:
            return told, np.arange(self.classes, dtype=np.float64)
        return told.argmax(axis=1).astype(np.float64)

    def _said(self, models: list[Model]) -> Array:
        """(devices, points) values, or (devices, points, classes) chances."""
        public = self.refit.public
        learner: Learner = self.learner
        return np.stack([respond(learner, m, public, self.classes) for m in models])

    def _graph(self, said: Array) -> Graph:
        method = self.method
        if method.graph != NEAREST:
            return graph_of(method.graph, self.rows.ids)
        return nearest(said.reshape(len(said), -1), method.neighbours)


def _means(graph: Graph) -> Array:
    """(n, n) what makes of everybody's answers the mean of each one's neighbours."""
    near = np.zeros((graph.n, graph.n))
    i, j = graph.pairs.T
    near[i, j] = near[j, i] = graph.weight
    total = near.sum(axis=1, keepdims=True)
    return near / np.where(total > 0, total, 1.0)
