"""Pairs of targets and peers on tensors: steps, scores and mixes of one chunk of targets.

A model is a dict of named tensors here; it becomes one vector only where it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from persfl.fleets.carried_points import CarriedPoints
from persfl.fleets.pair_programs import linear_program, perceptron_program
from persfl.fleets.torch_graphs import Graphs, by_torch
from persfl.fleets.torch_linear import LinearTensors
from persfl.fleets.torch_runtime import TensorRows, tensor_dtype
from persfl.learners.linear import Linear
from persfl.learners.network import Network
from persfl.proposers.refit import Refit
from persfl.traits import TensorLearner, TensorMath

if TYPE_CHECKING:
    import torch

    from persfl.fleets.pair_programs import PairProgram
    from persfl.proposers.gradient import GradientStep
    from persfl.seeds import Stream
    from persfl.traits import Parts

    Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # X, y, weight
    Whole = Callable[..., torch.Tensor]
    Made = TypeVar("Made", bound=Callable[..., object])


class TensorPairs:
    """What peers answer and what answers are worth, for a learner and a proposer.

    Axes: C targets of a chunk, S peers of each. Everything is written for one pair; `vmap` adds
    the axes.
    """

    def __init__(
        self,
        learner: Linear | TensorLearner,
        proposer: GradientStep | Refit,
        *,
        features: int,
        device: torch.device,
        dtype: str | None,
        compiled: bool,
        precision: str = "float32",
    ) -> None:
        import torch

        self.math: TensorMath
        # what a frozen body makes of rows, where there is one
        self.features: Callable[[torch.Tensor], torch.Tensor] | None = None
        cut = learner.cut(features) if isinstance(learner, Network) else None
        if isinstance(learner, Linear):
            self.math = LinearTensors(learner, fused=compiled)
        elif cut is not None:
            self.features, self.math = cut
        else:
            self.math = learner
        self.learner = learner
        self.proposer = proposer
        kind = "float64" if isinstance(learner, Linear) else learner.dtype
        self.dtype = tensor_dtype(dtype or kind)
        self.device = device
        self.compiled = compiled
        self.precision = precision
        self.batch: int | None = None  # how many of a peer's rows a step takes
        self.public: CarriedPoints | None = None
        if isinstance(proposer, Refit):
            points = torch.as_tensor(proposer.public).to(device, self.dtype)
            points = points if self.features is None else self.features(points)
            self.public = CarriedPoints(points, proposer, learner, self.math)
            self.steps, self.step_size = proposer.near(learner), float(proposer.rate)
        else:
            self.steps, self.step_size = proposer.steps, float(proposer.step_size)
            self.batch = proposer.batch
        # what a GPU computes of a pair in one piece, where it can
        self.program: PairProgram | None = None
        if compiled and device.type == "cuda" and self.batch is None:
            self.program = self._program(features)
        self.graphs = Graphs()
        self._alone: dict[Callable[..., object], Any] = {}

    def whole(
        self,
        method: Whole,
        tensors: list[torch.Tensor],
        rows: list[TensorRows],
        place: Stream | None,
    ) -> torch.Tensor:
        """A chunk's whole computation, compiled in one piece where that was asked for."""
        from persfl.learners.precision import computed_in

        with computed_in(self.precision):
            if not self.compiled or self.batch is not None:
                return method(*tensors, *rows, place)
            if self.program is not None and method == self.answers:
                w, mine, their = tensors
                return self.program.answers(w, mine, their, *rows)
            if self.program is not None and method == self.mixes:
                w, their, weights = tensors
                return self.program.mixes(w, their, weights, *rows)
            return self.graphs(method, tensors, rows)

    def _program(self, features: int) -> PairProgram | None:
        """The chip's program for these models and steps; None where there is none."""
        proposer = self.proposer
        if self.dtype != tensor_dtype("float32") or isinstance(proposer, Refit):
            return None
        if isinstance(self.learner, Linear):
            return linear_program(self.learner, features, proposer)
        if self.math is not self.learner or not isinstance(self.learner, Network):
            return None
        math = self.learner.tensors
        return perceptron_program(math, features, proposer, self.precision)

    def compiled_once(self, function: Made) -> Made:
        """A function of tensors and whole numbers, compiled where that was asked for."""
        if not self.compiled:
            return function
        if function not in self._alone:
            self._alone[function] = by_torch(function)
        found: Made = self._alone[function]
        return found

    def tried(
        self, w: torch.Tensor, mine: torch.Tensor, own: TensorRows, peers: int
    ) -> torch.Tensor:
        """Answers to one target from so many, uncompiled: what memory they take is measured."""
        from persfl.learners.precision import computed_in

        with computed_in(self.precision):
            their = mine[:, None].expand(1, peers)
            return self.answers(w, mine, their, own, own, None)

    def answers(
        self,
        w: torch.Tensor,
        mine: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        own: TensorRows,
        place: Stream | None,
    ) -> torch.Tensor:
        """(C, 1 + 2 S): the own loss, the answers' losses, their lengths."""
        import torch
        from torch.func import vmap

        own_rows = own[mine]
        moving, fixed = vmap(self.math.parts)(w)
        now = vmap(self.math.part_loss)(moving | fixed, *own_rows)[:, None]
        if not their.shape[1]:
            return now
        proposals = self._proposals(moving, fixed, theirs[their], place)

        def scored(some: Parts, held: Parts, *rows: torch.Tensor) -> torch.Tensor:
            return self.math.part_loss(some | held, *rows)

        losses = vmap(vmap(scored, in_dims=(0, None, None, None, None)))(
            proposals, fixed, *own_rows
        )
        squares = [
            ((proposals[k] - moving[k][:, None]) ** 2).flatten(start_dim=2).sum(dim=2)
            for k in proposals
        ]
        return torch.cat([now, losses, sum(squares[1:], squares[0]).sqrt()], dim=1)

    def firsts(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        place: Stream | None,
    ) -> torch.Tensor:
        """(C, size) the first answers."""
        return self.proposals(w, their, theirs, place)[:, 0]

    def mixes(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        weights: torch.Tensor,
        theirs: TensorRows,
        place: Stream | None,
    ) -> torch.Tensor:
        """(C, size) models and answers by these weights."""
        import torch

        proposals = self.proposals(w, their, theirs, place)
        shares = weights.to(self.dtype)[..., None]
        everything = torch.cat([w[:, None], proposals], dim=1)
        # a share of 0 takes nothing, not even of what is no number
        return torch.where(shares > 0, shares * everything, 0.0).sum(dim=1)

    def proposals(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        place: Stream | None,
    ) -> torch.Tensor:
        """(C, S, size) what peers answer, each a vector again."""
        import torch
        from torch.func import vmap

        moving, fixed = vmap(self.math.parts)(w)
        found = self._proposals(moving, fixed, theirs[their], place)
        vectors = vmap(vmap(self.math.joined))(found)
        if not fixed:
            return vectors
        rest = w[:, None, vectors.shape[2] :].expand(-1, vectors.shape[1], -1)
        return torch.cat([vectors, rest], dim=2)

    def losses(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        theirs: TensorRows,
        place: Stream | None,
    ) -> torch.Tensor:
        """(D, K) the losses of K models on the rows of D devices."""
        from torch.func import vmap

        moving, fixed = vmap(self.math.parts)(w.to(self.dtype))
        each = vmap(self.math.part_loss, in_dims=(0, None, None, None))
        found: torch.Tensor = vmap(each, in_dims=(None, 0, 0, 0))(
            moving | fixed, *theirs[their]
        )
        return found

    def _proposals(
        self, moving: Parts, fixed: Parts, rows: Rows, place: Stream | None
    ) -> Parts:
        """(C, S, ...) each: what peers answer, by part.

        That the first step starts from the target's one model lets its forward pass be one product
        for all peers.
        """
        from torch.func import vmap

        def step(parts: Parts, held: Parts, *rows: torch.Tensor) -> Parts:
            slopes = self.math.part_slopes(parts, held, *rows)
            return {
                name: value - self.step_size * slopes[name]
                for name, value in parts.items()
            }

        if self.public is not None:
            rows = self.public.beside(rows, moving | fixed)
        now = moving
        for number in range(self.steps):
            seen = rows
            if self.batch is not None and place is not None:
                seen = self._minibatch(rows, place.at("batch", number))
            models = 0 if number else None
            now = vmap(vmap(step, in_dims=(models, None, 0, 0, 0)))(now, fixed, *seen)
        return now

    def _minibatch(self, rows: Rows, place: Stream) -> Rows:
        """The rows that `persfl.proposers.gradient.minibatch` draws, here."""
        import torch

        X, y, weight = rows
        marks = torch.as_tensor(place.uniform(X.shape[-2])).to(self.device)
        order = torch.where(weight > 0, marks, torch.inf).argsort(dim=-1, stable=True)
        order = order[..., : self.batch]
        picked = order[..., None].expand(*order.shape, X.shape[-1])
        return X.gather(-2, picked), y.gather(-1, order), weight.gather(-1, order)

    def row_numbers(self, longest: int, features: int, model: torch.Tensor) -> int:
        """About how many numbers the rows of one pair take, there and back."""
        rows = longest
        if self.public is not None:
            rows += self.public.rows_of(model)
        return rows * (3 * features + int(self.math.width))
