"""A round on tensors: every (target, peer) pair in one batched computation, on a CPU or a GPU.

Rows are moved to the device once; models live there from round to round. What crosses back is a
loss and a length per pair, from which the adopter chooses, so a round costs one wait for the
device. Targets are taken in chunks that fit into memory; where memory runs out all the same, the
chunk is halved and the round goes on.

Inside a chunk a model is a dict of named tensors; it becomes one vector only where it is kept.
"""

from __future__ import annotations

import warnings
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from persfl.checks import one_of
from persfl.devices import Devices
from persfl.errors import InputError, PersflWarning, need
from persfl.fleets.batched import Batched, column, somebody
from persfl.fleets.engine import Task
from persfl.fleets.rows import Slice
from persfl.fleets.torch_linear import LinearTensors
from persfl.fleets.torch_runtime import Rows, Runtime
from persfl.learners.linear import Linear
from persfl.proposers.gradient import GradientStep
from persfl.proposers.refit import Refit
from persfl.seeds import Stream, stream
from persfl.traits import has_statistics, has_tensors, traits_of
from persfl.types import Answers, Array, Choice, IntArray, TensorLearner

if TYPE_CHECKING:
    import torch

    Parts = dict[str, torch.Tensor]

SHARE = 0.25  # of the free memory that one chunk may take
CPU_BYTES = 256 * 2**20


def torch_engine(
    task: Task, *, compute: str, dtype: str | None, compiled: bool
) -> Torch | None:
    """The engine for these parts; None where there is none and none was asked for.

    There must be rows: how many features a module has to take is known from them.
    """
    learner, proposer = task.learners[0], task.proposer
    network = has_tensors(learner)
    near = type(proposer) is Refit and network and proposer.near(learner) > 0
    steps = type(proposer) is GradientStep or near
    if not steps or not (network or type(learner) is Linear):
        if compute != "cpu":
            raise InputError(
                f"compute={compute!r} needs steps of Linear or Network. Got {learner!r} with"
                f" {proposer!r}."
            )
        return None
    trouble = (
        _cannot_be_mapped(learner, int(task.rows.features or 0))
        if has_tensors(learner)
        else ""
    )
    if trouble:
        warnings.warn(
            "this module cannot be computed for many pairs at once, so they are asked one by one,"
            f" on this processor: {trouble}",
            PersflWarning,
            stacklevel=6,
        )
        return None
    return Torch(task, compute=compute, dtype=dtype, compiled=compiled)


def _cannot_be_mapped(learner: TensorLearner, features: int) -> str:
    """Why `torch.func.vmap` does not take this module; empty if it does."""
    import torch
    from torch.func import vmap

    dtype = getattr(torch, learner.dtype)
    w, X = (
        torch.zeros((2, learner.size(features)), dtype=dtype),
        torch.zeros((2, 2, features), dtype=dtype),
    )
    y = weight = torch.zeros((2, 2), dtype=dtype)
    try:
        vmap(learner.slopes)(w, X, y, weight + 1)
    except RuntimeError as error:
        text = str(error).strip().splitlines()[0]
        if "vmap" in str(error) or "functorch" in str(error):
            return text
        raise InputError(
            f"the module does not take rows of {features} features: {text}"
        ) from error
    return ""


class Torch:
    """Steps and scores of all pairs on tensors; holds the targets' models there."""

    _w: Any

    def __init__(
        self, task: Task, *, compute: str, dtype: str | None, compiled: bool
    ) -> None:
        torch = need("torch", extra="torch", why=f"compute={compute!r}")
        try:
            self.device = torch.device(compute)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            said = str(error).splitlines()[0]
            raise InputError(
                f"compute={compute!r} cannot be used here: {said}"
            ) from None
        self.task, self.rows = task, task.rows
        # one of the two that `torch_engine` lets through
        self.proposer = cast("Any", task.proposer)
        # What few rounds need, and tensors would not speed up: first models, and local steps.
        self.arrays = Batched(task)
        learner = task.learners[0]
        inside = (
            LinearTensors(learner, fused=compiled)
            if isinstance(learner, Linear)
            else learner
        )
        self.learner = cast("Any", inside)
        self.compiled = compiled
        kind = one_of("dtype", dtype or self.learner.dtype, ("float32", "float64"))
        self.dtype = getattr(torch, kind)
        self.public: Any = None
        if isinstance(self.proposer, Refit):
            self.public = torch.as_tensor(self.proposer.public).to(
                self.device, self.dtype
            )
            self.steps, self.step_size = (
                self.proposer.near(learner),
                float(self.proposer.rate),
            )
            self.batch: int | None = None
        else:
            self.steps, self.step_size = (
                self.proposer.steps,
                float(self.proposer.step_size),
            )
            self.batch = self.proposer.batch
        self._there: dict[int, Rows] = {}
        # by peers and rows: a stream's rows may grow
        self._fits: dict[tuple[int, int], int] = {}
        self._own: Any = None  # where the targets' own rows are, here and there
        self._w = None
        self._compiled: dict[str, Any] = {}
        # Rows of a stream lie elsewhere every round, and a minibatch is drawn on this side: those
        # are launched kernel by kernel.
        records = (
            self.device.type == "cuda"
            and self.rows.source is None
            and self.batch is None
        )
        self.runtime = Runtime(
            self.device, targets=len(self.rows.targets), records=records
        )

    # Models

    @property
    def models(self) -> Array:
        """(T, size) a copy on this side."""
        assert self._w is not None
        return np.asarray(self._w.detach().cpu().numpy())

    @models.setter
    def models(self, models: Any) -> None:
        import torch

        new = torch.tensor(np.stack(models)).to(self.device, self.dtype)
        if self._w is None or self._w.shape != new.shape:
            self._w = new
            self.runtime.forget()
        else:
            self._w.copy_(new)  # recordings read this place

    def moved(self, rows: Devices) -> Rows:
        """Rows on the device; those of a fleet that stays are moved once."""
        held = self._there.get(id(rows))
        if held is None or held.devices is not rows:
            if len(self._there) > 3:  # a stream: what has passed is not needed again
                self._there.clear()
            held = self._there[id(rows)] = Rows(rows, self.device, self.dtype)
        return held

    # A round

    def started(self, start: str | None) -> Array:
        """(T, size) the targets' first models by this rule."""
        return self.arrays.started(start)

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of all pairs."""
        T, S = peers.shape
        theirs, own, mine = (
            self.moved(asked.rows),
            self.moved(self.rows.scoring.rows),
            self._mine(),
        )

        def work(part: slice) -> Any:
            # Whatever a recording reads must be an input or stay where it is: rows and models do.
            def answered(their: Any) -> Any:
                return self._whole("_answered")(
                    self._w[part],
                    mine[part],
                    their,
                    theirs,
                    own,
                    self._place(part, peers, r),
                )

            return self._run(
                ("answers", part.start, part.stop, S), answered, asked.which[part]
            )

        parts = self._parts(T, S, max(theirs.longest, own.longest), work)
        both = parts[0] if len(parts) == 1 else np.concatenate(parts)
        losses, lengths = (
            both[:, : S + 1].astype(np.float64),
            both[:, S + 1 :].astype(np.float64),
        )
        nobody = asked.which < 0
        if nobody.any():
            losses[:, 1:][nobody], lengths[nobody] = np.inf, np.nan
        return Answers(losses, lengths)

    def advice(self) -> str:
        """What to change when every answer overflows."""
        return self.proposer.advice()

    def own_answers(self, r: int) -> Array:
        """(T, size) where the proposer's step on their own rows would take the targets."""
        return self.proposals(
            self.rows.targets[:, None], column(self.rows.training), r
        )[:, 0]

    def own_lengths(self, r: int) -> Array:
        """(T,) how far that is."""
        learner = self.task.learners[0]
        probe = self.proposer.ask(learner, self.models)
        return np.asarray(self.proposer.length(learner, probe, self.own_answers(r)))

    def adopt(self, choice: Choice, r: int) -> None:
        """Every target's model becomes the mix it chose."""
        if choice.peers.shape[1]:
            self._mix(choice, r)
        self._settle(r)

    def proposals(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what these peers answer, on this side; NaN for nobody."""
        return somebody(asked, self._w.shape[1], lambda: self._asked(peers, asked, r))

    def _asked(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what these peers answer from these rows, on this side."""
        theirs, S = self.moved(asked.rows), peers.shape[1]
        same = self._stays(asked)

        def work(part: slice) -> Any:
            def answered(their: Any) -> Any:
                return self._whole("_answers_of")(
                    self._w[part], their, theirs, self._place(part, peers, r)
                )

            return np.array(
                self._run(
                    ("proposals", part.start, part.stop, S, same),
                    answered,
                    asked.which[part],
                )
            )

        parts = self._parts(peers.shape[0], S, theirs.longest, work)
        return np.asarray(np.concatenate(parts), dtype=np.float64)

    def hold(self, models: Array, r: int) -> None:
        """These models from now on: statistics renewed, and a local step further."""
        self.models = models
        self._settle(r)

    def _settle(self, r: int) -> None:
        learner, own = self.task.learners[0], self.rows.training
        if has_statistics(learner):
            self.models = np.stack(
                [learner.settled(model, own[t]) for t, model in enumerate(self.models)]
            )
        if self.task.local is not None:
            self.models = np.ascontiguousarray(self.arrays.after_local(self.models, r))

    def _mix(self, choice: Choice, r: int) -> None:
        T, K = choice.peers.shape
        asked = self.rows.peers(choice.peers)
        theirs = self.moved(asked.rows)
        single = K == 1 and bool((choice.weights == 1.0).all())
        mixing = [] if single else [np.column_stack([choice.stay, choice.weights])]

        def work(part: slice) -> None:
            def adopted(their: Any, *weights: Any) -> None:
                w = self._w[part]
                w.copy_(
                    self._whole("_adopted")(
                        w, their, theirs, self._place(part, choice.peers, r), *weights
                    )
                )

            self._run(
                ("adopt", part.start, part.stop, K, single),
                adopted,
                asked.which[part],
                *(array[part] for array in mixing),
            )

        self._parts(T, K, theirs.longest, work)

    # Steps and scores of models that are handed in, for baselines

    def step(self, models: Array, movers: Slice, place: Stream) -> Array:
        """(D, size) where a step on these devices' rows takes these models."""
        rows, who, everybody = (
            self.moved(movers.rows),
            movers.which,
            self._stays(movers),
        )

        def work(part: slice) -> Any:
            at = None if self.batch is None else place[part, None]

            def moved(their: Any, start: Any) -> Any:
                return self._answers_of(start.to(self.dtype), their[:, None], rows, at)[
                    :, 0
                ]

            return np.array(
                self._run(
                    ("stepped", part.start, part.stop, everybody),
                    moved,
                    who[part],
                    models[part],
                )
            )

        return np.concatenate(self._parts(len(who), 1, rows.longest, work))

    def score(self, models: Array, judges: Slice) -> Array:
        """(D, K) the losses of K models on these devices' rows."""
        from torch.func import vmap

        rows = self.moved(judges.rows)

        def work(part: slice) -> Any:
            def score(their: Any, kept: Any) -> Any:
                moving, fixed = vmap(self.learner.parts)(kept.to(self.dtype))
                each = vmap(self.learner.part_loss, in_dims=(0, None, None, None))
                return vmap(each, in_dims=(None, 0, 0, 0))(moving | fixed, *rows[their])

            return np.array(
                self._run(
                    ("scored", part.start, part.stop, len(models)),
                    score,
                    judges.which[part],
                    models,
                )
            )

        parts = self._parts(len(judges.which), len(models), rows.longest, work)
        found = np.concatenate(parts).astype(np.float64)
        return np.where(np.isfinite(found), found, np.inf)

    def _stays(self, some: Slice) -> bool:
        """Whether these are rows of everybody, which lie where they are in every round."""
        return self.rows.source is None and some.rows is self.rows.static

    def _mine(self) -> torch.Tensor:
        """Where the targets' own rows are."""
        which = self.rows.scoring.which
        if self._own is None or self._own[0] is not which:
            self._own = (which, self.runtime.tensor(which))
            self.runtime.forget()
        return self._own[1]

    def _answered(
        self,
        w: torch.Tensor,
        mine: torch.Tensor,
        their: torch.Tensor,
        theirs: Rows,
        own: Rows,
        place: Any,
    ) -> torch.Tensor:
        """(C, 1 + 2 S): the own loss, the answers' losses, their lengths."""
        import torch
        from torch.func import vmap

        own_rows = own[mine]
        moving, fixed = vmap(self.learner.parts)(w)
        now = vmap(self.learner.part_loss)(moving | fixed, *own_rows)[:, None]
        if not their.shape[1]:
            return now
        proposals = self._proposals(moving, fixed, theirs[their], place)

        def scored(some: Parts, held: Parts, *rows: torch.Tensor) -> torch.Tensor:
            return self.learner.part_loss(some | held, *rows)

        losses = vmap(vmap(scored, in_dims=(0, None, None, None, None)))(
            proposals, fixed, *own_rows
        )
        squares = [
            ((proposals[k] - moving[k][:, None]) ** 2).flatten(start_dim=2).sum(dim=2)
            for k in proposals
        ]
        return torch.cat([now, losses, sum(squares[1:], squares[0]).sqrt()], dim=1)

    def _adopted(
        self,
        w: torch.Tensor,
        their: torch.Tensor,
        theirs: Rows,
        place: Any,
        weights: Any = None,
    ) -> torch.Tensor:
        import torch

        proposals = self._answers_of(w, their, theirs, place)
        if weights is None:
            return proposals[:, 0]
        shares = weights.to(self.dtype)[..., None]
        return torch.where(
            shares > 0, shares * torch.cat([w[:, None], proposals], dim=1), 0.0
        ).sum(dim=1)

    def _answers_of(
        self, w: torch.Tensor, their: torch.Tensor, theirs: Rows, place: Any
    ) -> torch.Tensor:
        """(C, S, size) what peers answer, each a vector again."""
        import torch
        from torch.func import vmap

        moving, fixed = vmap(self.learner.parts)(w)
        proposals = vmap(vmap(self.learner.joined))(
            self._proposals(moving, fixed, theirs[their], place)
        )
        if not fixed:
            return proposals
        return torch.cat(
            [
                proposals,
                w[:, None, proposals.shape[2] :].expand(-1, proposals.shape[1], -1),
            ],
            dim=2,
        )

    def _whole(self, name: str) -> Any:
        """A chunk's whole computation, compiled in one piece where that was asked for."""
        import torch

        if not self.compiled or self.batch is not None:
            return getattr(self, name)
        if name not in self._compiled:
            # The compiler counts what it made of a code object and gives up after a few; so every
            # fleet brings its own copy.
            method = getattr(type(self), name)
            copy = FunctionType(
                method.__code__.replace(),
                method.__globals__,
                name,
                method.__defaults__,
                method.__closure__,
            )
            self._compiled[name] = torch.compile(MethodType(copy, self), dynamic=False)
        return self._compiled[name]

    def _proposals(
        self, moving: Parts, fixed: Parts, rows: tuple[torch.Tensor, ...], place: Any
    ) -> Parts:
        """(C, S, ...) each: what peers answer, by part.

        That the first step starts from the target's one model lets its forward pass be one product
        for all peers.
        """
        from torch.func import vmap

        def step(parts: Parts, held: Parts, *rows: torch.Tensor) -> Parts:
            slopes = self.learner.part_slopes(parts, held, *rows)
            return {
                name: value - self.step_size * slopes[name]
                for name, value in parts.items()
            }

        if self.public is not None:
            rows = self._with_public(moving | fixed, rows)
        now = moving
        for number in range(self.steps):
            seen = (
                rows
                if self.batch is None
                else self._minibatch(rows, place.at("batch", number))
            )
            now = vmap(vmap(step, in_dims=(0 if number else None, None, 0, 0, 0)))(
                now, fixed, *seen
            )
        return now

    def _place(self, part: slice, peers: IntArray, r: int) -> Any:
        return (
            None
            if self.batch is None
            else stream(self.task.seed, "answer", r).at(
                self.rows.targets[part, None], peers[part]
            )
        )

    def _minibatch(
        self, rows: tuple[torch.Tensor, ...], place: Any
    ) -> tuple[torch.Tensor, ...]:
        """The rows that `persfl.proposers.gradient.minibatch` draws, here."""
        import torch

        X, y, weight = rows
        marks = torch.as_tensor(place.uniform(X.shape[-2])).to(self.device)
        order = torch.where(weight > 0, marks, torch.inf).argsort(dim=-1, stable=True)[
            ..., : self.batch
        ]
        picked = order[..., None].expand(*order.shape, X.shape[-1])
        return X.gather(-2, picked), y.gather(-1, order), weight.gather(-1, order)

    def _with_public(
        self, parts: Parts, rows: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        """Private rows and the public points that carry the target's model, as
        `persfl.proposers.refit` puts them together.
        """
        import torch
        from torch.func import vmap

        X, y, weight = rows
        C, S = X.shape[:2]
        points, proposer = self.public, self.proposer
        z = vmap(self.learner.said, in_dims=(0, None))(parts, points)
        chances = None
        if traits_of(self.task.learners[0]).chances:
            chances = (
                z.softmax(dim=-1)
                if self.learner.kind == "cross_entropy"
                else torch.cat([-z, z], dim=-1).sigmoid()
            )
        if chances is None:
            labels, mass = z[..., 0], torch.full_like(z[..., 0], proposer.point_weight)
        elif proposer.softly(self.learner):
            k = chances.shape[-1]
            labels = (
                torch.arange(k, device=self.device)
                .to(self.dtype)
                .repeat(C, len(points))
            )
            points, mass = (
                points.repeat_interleave(k, dim=0),
                proposer.point_weight * chances.flatten(start_dim=1),
            )
        else:
            labels = chances.argmax(dim=-1).to(self.dtype)
            mass = torch.full_like(labels, proposer.point_weight)
        if proposer.private_weight is None:
            total = weight.sum(dim=-1, keepdim=True)
            weight = proposer.step_size * weight / torch.where(total > 0, total, 1.0)
        else:
            weight = proposer.private_weight * weight
        size = labels.shape[-1]
        return (
            torch.cat([X, points.expand(C, S, size, -1)], dim=2),
            torch.cat([y, labels[:, None].expand(C, S, size)], dim=2),
            torch.cat([weight, mass[:, None].expand(C, S, size)], dim=2),
        )

    # Running

    def _run(self, key: Any, function: Any, *inputs: Any) -> Any:
        return self.runtime.run(key, function, self._w, *inputs)

    def _parts(self, targets: int, peers: int, longest: int, work: Any) -> list[Any]:
        """Do the work for all targets, in chunks; `longest` is how many rows every device that
        takes part is padded to.
        """
        if (peers, longest) not in self._fits:
            self._fits[peers, longest] = self._fitting(peers, longest)
        return self.runtime.chunks(targets, self._fits[peers, longest], work)

    def _fitting(self, peers: int, longest: int) -> int:
        """How many targets' pairs of that many rows fit into a share of the free memory."""
        import torch

        rows = longest + (
            0 if self.public is None else len(self.public) * self._classes()
        )
        width = 3 * self.rows.scoring.rows.features + int(self.learner.width)
        pair = self.dtype.itemsize * (6 * self._w.shape[1] + rows * width)
        free = (
            SHARE * torch.cuda.mem_get_info(self.device)[0]
            if self.device.type == "cuda"
            else CPU_BYTES
        )
        return max(1, int(free // (pair * max(1, peers))))

    def _classes(self) -> int:
        """How often a public point counts: once per class where it carries chances."""
        if not self.proposer.softly(self.learner):
            return 1
        moving, fixed = self.learner.parts(self._w[0])
        return max(2, int(self.learner.said(moving | fixed, self.public[:1]).shape[-1]))
