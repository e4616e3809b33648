"""GTVMin and network lasso: models of devices that a graph joins are pulled together.

    min  sum_i L_i(w_i) + alpha * sum over edges of A_ij * phi(w_i - w_j)

phi = ||.||^2 ("squared", GTVMin) or ||.||_2 ("norm", network lasso, which makes models of a cluster
equal). Squared loss with all rows in one place: the squared penalty by one solve, the norm by the
primal-dual iteration of the authors. Otherwise by proximal steps with momentum,

    w <- prox( v - step_size * grad L(v) )      v = w + momentum

where devices take the steps on their rows, and whoever asks them pulls models together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.sparse import block_diag, csc_array, eye_array, kron
from scipy.sparse.linalg import splu

from persfl.checks import one_of, real
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.learners.linear import Linear
from persfl.methods.graphs import (
    LEARNED,
    NEAREST,
    Graph,
    Told,
    graph_of,
    nearest,
    weighted,
)
from persfl.methods.meetings import MEETINGS, Meetings
from persfl.methods.method_fields import setting
from persfl.methods.protocol import Needs, Task
from persfl.methods.shared_method import SteppedMethod
from persfl.methods.shared_models import hold, quiet_round, start_of, step_length
from persfl.methods.single_fit import at_once
from persfl.seeds import stream
from persfl.training.state import Keep, State
from persfl.trust import Trust
from persfl.types import Array, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet

PENALTIES = ("squared", "norm")
ITERATIONS = 5000  # of the primal-dual iteration, at most
SETTLED = 1e-8  # a move below this share of a usual model is the last
DUAL_STEP = 0.45
OWN_RIDGE = 0.1  # of the models that say who is near whom
ALONE = 0.3  # the share of the rounds after which those are compared
INNER = 50  # dual steps that pull models together once


def graph_fits(
    learner: Linear, rows: Devices, graph: Graph, *, alpha: float, penalty: str
) -> Array:
    """(devices, size) for squared loss; devices without rows get what their neighbours say.

    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=20, clusters=2, rows=4, features=3, seed=0)
    >>> near = graph_of(tuple((i, i + 2) for i in range(18)), range(20))
    >>> models = graph_fits(Linear(), rows, near, alpha=0.1, penalty="squared")
    >>> models.shape
    (20, 3)
    """
    squares, products = mean_products(learner, rows)
    if penalty == "squared":
        return _solved(squares, products, graph, alpha)
    return _primal_dual(squares, products, graph, alpha)


def mean_products(learner: Linear, rows: Devices) -> tuple[Array, Array]:
    """(devices, size, size) and (devices, size): means of x x' and x y; 0 without rows."""
    A = learner.with_intercept(rows.X)
    size = A.shape[1]
    squares = np.zeros((len(rows), size, size))
    products = np.zeros((len(rows), size))
    total = np.where(rows.total > 0, rows.total, 1.0)
    weighted = A * (rows.weight / total[rows.owner])[:, None]
    for i in range(len(rows)):
        mine = slice(int(rows.start[i]), int(rows.start[i + 1]))
        squares[i] = weighted[mine].T @ A[mine]
        products[i] = weighted[mine].T @ rows.y[mine]
    return squares, products


def _solved(squares: Array, products: Array, graph: Graph, alpha: float) -> Array:
    """One solve of blockdiag(G_i) + alpha * Laplacian kron I."""
    n, d = products.shape
    together = kron(csc_array(alpha * graph.laplacian()), eye_array(d))
    # a hair of ridge where nobody has rows for a direction
    hair = 1e-10 * max(1.0, float(np.abs(squares).max(initial=0.0)))
    left = block_diag(squares, format="csc") + together + hair * eye_array(n * d)
    return np.asarray(splu(csc_array(left)).solve(products.ravel()).reshape(n, d))


def _primal_dual(squares: Array, products: Array, graph: Graph, alpha: float) -> Array:
    """Network lasso by a primal-dual iteration (Chambolle and Pock), as its authors have it.

    Primal steps are as much longer than theirs, and dual ones shorter, as models are larger than
    what may pull at them: with theirs a weak pull takes many times as long.
    """
    n, d = products.shape
    D = graph.incidence()
    degree = np.asarray(abs(D).sum(axis=0)).ravel()
    hair = 1e-6 * np.trace(squares.mean(axis=0)) * np.eye(d)
    pooled = np.linalg.solve(squares.sum(axis=0) + hair, products.sum(axis=0))
    usual = float(np.sqrt((pooled**2).sum())) + 1e-12
    most = alpha * graph.weight[:, None]
    pulls = float(np.sqrt((most**2).sum() / n)) + 1e-12
    ratio = max(usual / pulls, 1e-3)
    tau = (ratio / np.maximum(degree, 1.0))[:, None]
    sigma = DUAL_STEP / ratio
    inverse = np.linalg.inv(np.eye(d) + 2.0 * tau[:, :, None] * squares)
    add = 2.0 * tau * products
    w = np.repeat(pooled[None], n, axis=0)
    u = np.zeros((len(most), d))
    for _ in range(ITERATIONS):
        ahead = np.einsum("nij,nj->ni", inverse, w - tau * (D.T @ u) + add)
        u = u + sigma * (D @ (2.0 * ahead - w))
        u = u * np.minimum(1.0, most / np.maximum(_lengths(u), 1e-300))
        moved = float(np.abs(ahead - w).max())
        w = ahead
        if moved < SETTLED * usual:
            break
    return w


def _lengths(u: Array) -> Array:
    return np.asarray(np.sqrt((u**2).sum(axis=1, keepdims=True)))


class Pull:
    """What pulls models together after a step: the proximal map of the penalty."""

    def __init__(self, graph: Graph, penalty: str, strength: float) -> None:
        self.graph = graph
        self.penalty = penalty
        self.strength = strength
        self._dual: Array | None = None  # of the last call, to begin with

    def __call__(self, models: Array) -> Array:
        graph = self.graph
        if not len(graph.pairs):
            return models
        if self.penalty == "squared":
            left = np.eye(graph.n) + 2.0 * self.strength * graph.laplacian()
            return np.asarray(np.linalg.solve(left, models))
        D = graph.incidence()
        step = 0.5 / abs(D).sum(axis=0).max()
        most = self.strength * graph.weight[:, None]
        u = self._dual
        u = np.zeros((len(graph.pairs), models.shape[1])) if u is None else u
        for _ in range(INNER):
            u = u + step * (D @ (models - D.T @ u))
            u = u * np.minimum(1.0, most / np.maximum(_lengths(u), 1e-300))
        self._dual = u
        return np.asarray(models - D.T @ u)


def gtvmin(
    fleet: InProcessFleet,
    *,
    alpha: float,
    penalty: str,
    graph: Told,
    neighbours: int,
    rounds: int,
    seed: int = 0,
) -> Iterator[Round]:
    """Proximal steps with momentum. A graph that is not given is that of the models that devices
    have after a share of the rounds alone, or what they learned of each other in those.
    """
    model = start_of(fleet, seed)
    own = np.repeat(model[None], len(fleet.targets), axis=0)
    trust = Trust.blank(fleet)
    step = step_length(fleet, "GTVMin")
    ids = [fleet.ids[int(i)] for i in fleet.targets]
    pull = None
    meetings = Meetings(fleet, 1.0, seed) if graph == LEARNED else None
    if graph not in (NEAREST, LEARNED):
        pull = Pull(graph_of(graph, ids), penalty, alpha * step)
    ahead = own
    t = 1.0
    for r in range(rounds):
        if pull is None and r >= ALONE * rounds:
            near = nearest(own, neighbours)
            if meetings is not None:
                near = weighted(meetings.weights)
            pull = Pull(near, penalty, alpha * step)
            ahead, t = own, 1.0
        if pull is None and meetings is not None:
            meetings.meet(own, r, MEETINGS)
        # by name: a step that goes far would take neighbours along, and is left out
        who = fleet.targets
        moved = fleet.stepped(ahead, who, stream(seed, "own", r).at(who))
        new = moved if pull is None else pull(moved)
        longer = (1.0 + np.sqrt(1.0 + 4.0 * t**2)) / 2.0
        uphill = ((ahead - new) * (new - own)).sum() > 0
        longer = 1.0 if uphill else longer
        ahead = new + (0.0 if uphill else (t - 1.0) / longer) * (new - own)
        own, t = new, longer
        hold(fleet, own, r)
        yield quiet_round(fleet, r, trust)


@dataclass(frozen=True)
class GTVMin(SteppedMethod):
    """Models of devices that a graph joins are pulled together."""

    name: ClassVar[str] = "gtvmin"
    about: ClassVar[str] = (
        "Own models, pulled toward those of their neighbours in a graph"
    )
    source: ClassVar[str] = (
        "network lasso: Hallac, Leskovec, Boyd 2015; GTVMin: SarcheshmehPour, Tian, Zhang, Jung"
        " 2023"
    )
    leaves: ClassVar[str] = (
        "Its own model, for its neighbours. Over a federation where a step takes that, and its"
        " losses."
    )
    told: ClassVar[str] = (
        "how strongly neighbours are pulled together, and a graph if there is one"
    )

    alpha: float = setting(0.1, "how strongly; 0 is every device alone")
    penalty: str = setting(
        "squared", "of differences: squared, or norm (network lasso)"
    )
    graph: Told = setting(  # noqa: RUF009
        NEAREST,
        "neighbours: pairs as JSON, a CSV file; nearest: like models; learned: as cobo",
    )
    neighbours: int = setting(4, "how many each device has in the graph of like models")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        return gtvmin(
            fleet,
            alpha=real("alpha", self.alpha, least=0),
            penalty=one_of("penalty", self.penalty, PENALTIES),
            graph=self.graph,
            neighbours=self.neighbours,
            rounds=rounds,
            seed=seed,
        )

    def needs(self) -> Needs:
        return replace(super().needs(), one_process=self.graph != LEARNED)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        """Exactly where all rows are in one place and the loss is squared; else by rounds."""
        learner = task.learner
        alpha = real("alpha", self.alpha, least=0)
        penalty = one_of("penalty", self.penalty, PENALTIES)
        exact = isinstance(learner, Linear) and learner.kind == "squared"
        if not task.together or not exact or self.graph == LEARNED:
            return super().run(task, stage=stage, keep=keep)
        assert isinstance(learner, Linear)
        graph = self.graph_for(learner, task.rows)
        models = graph_fits(learner, task.rows, graph, alpha=alpha, penalty=penalty)
        return at_once(task, models, stage=stage, keep=keep)

    def graph_for(self, learner: Linear, rows: Devices) -> Graph:
        """The graph that was told, or that of devices whose ridge models are alike."""
        if self.graph != NEAREST:
            return graph_of(self.graph, rows.ids)
        empty = np.flatnonzero(rows.counts == 0)
        if len(empty):
            name = rows.ids[int(empty[0])]
            raise InputError(
                f"device {name!r} has no rows to find its neighbours by: give gtvmin a graph."
            )
        squares, products = mean_products(learner, rows)
        ridge = OWN_RIDGE * np.eye(products.shape[1])
        own = np.linalg.solve(squares + ridge, products[:, :, None])[:, :, 0]
        return nearest(np.asarray(own, dtype=np.float64), self.neighbours)
