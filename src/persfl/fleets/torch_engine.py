"""A round on tensors: every (target, peer) pair in one batched computation, on a CPU or a GPU.

Rows are moved to the device once; models live there from round to round. What crosses back is a
loss and a length per pair, from which the adopter chooses, so a round costs one wait for the
device. Targets are taken in chunks that fit into memory; where memory runs out all the same, the
chunk is halved and the round goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import refuse_strangers
from persfl.errors import need
from persfl.fleets.batched import Batched, column, somebody
from persfl.fleets.handed_in_models import chunk_ends, scored, stepped
from persfl.fleets.pair_memory import pair_bytes
from persfl.fleets.tensor_models import TensorModels
from persfl.fleets.torch_pairs import TensorPairs
from persfl.fleets.torch_runtime import Runtime, TensorJob, TensorRows
from persfl.seeds import Stream, stream
from persfl.traits import TensorLearner, has_statistics
from persfl.types import (
    Adopter,
    Answers,
    AnyArray,
    Array,
    Choice,
    IntArray,
    Sampler,
)

if TYPE_CHECKING:
    import torch

    from persfl.devices import Devices
    from persfl.fleets.chip_rounds import ChipRounds
    from persfl.fleets.engine import EngineTask, Slice
    from persfl.learners.linear import Linear
    from persfl.proposers.gradient import GradientStep
    from persfl.proposers.refit import Refit


class Torch(TensorModels):
    """Steps and scores of all pairs on tensors; holds the targets' models there."""

    def __init__(
        self,
        task: EngineTask,
        learner: Linear | TensorLearner,
        proposer: GradientStep | Refit,
        *,
        compute: str,
        dtype: str | None,
        compiled: bool,
        precision: str,
        memory: float | None,
    ) -> None:
        need("torch", extra="torch", why=f"compute={compute!r}")
        from persfl.learners.network_module import device_named

        self.device: torch.device = device_named(compute)
        self.task = task
        self.rows = task.rows
        self.learner = learner
        self.proposer = proposer
        # What few rounds need, and tensors would not speed up: first models, and local steps.
        self.arrays = Batched(task)
        self.pairs = TensorPairs(
            learner,
            proposer,
            features=int(task.rows.features or 0),
            device=self.device,
            dtype=dtype,
            compiled=compiled,
            precision=precision,
        )
        self._there: dict[int, TensorRows] = {}
        # by peers and rows: a stream's rows may grow
        self._fits: dict[tuple[int, int], int] = {}
        # where the targets' own rows are, here and there
        self._own: tuple[IntArray, torch.Tensor] | None = None
        # Rows of a stream lie elsewhere every round, and a minibatch is drawn on this side: those
        # are launched kernel by kernel.
        stays = self.rows.source is None and self.pairs.batch is None
        records = self.device.type == "cuda" and stays
        targets = len(self.rows.targets)
        self.runtime = Runtime(
            self.device, targets=targets, records=records, memory=memory
        )

    def moved(self, rows: Devices) -> TensorRows:
        """Rows on the device; those of a fleet that stays are moved once."""
        held = self._there.get(id(rows))
        if held is None or held.devices is not rows:
            if len(self._there) > 3:  # a stream: what has passed is not needed again
                self._there.clear()
            held = TensorRows(rows, self.device, self.pairs.dtype, self.pairs.features)
            self._there[id(rows)] = held
        return held

    # A round

    def started(self, start: str | None) -> Array:
        """(T, size) the targets' first models by this rule."""
        return self.arrays.started(start)

    def answers(self, peers: IntArray, asked: Slice, r: int) -> Answers:
        """Losses and lengths of all pairs."""
        refuse_strangers(peers, self.rows.n)
        T, S = peers.shape
        theirs = self.moved(asked.rows)
        own = self.moved(self.rows.scoring.rows)
        mine = self.mine()

        def work(part: slice) -> AnyArray:
            # Whatever a recording reads must be an input or stay where it is: rows and models do.
            def answered(their: torch.Tensor) -> torch.Tensor:
                place = self._place(part, peers, r)
                tensors = [self.there[part], mine[part], their]
                return self.pairs.whole(
                    self.pairs.answers, tensors, [theirs, own], place
                )

            return self.run(
                ("answers", chunk_ends(part), S), answered, asked.which[part]
            )

        parts = self.chunked(T, S, max(theirs.longest, own.longest), work)
        both = parts[0] if len(parts) == 1 else np.concatenate(parts)
        losses = both[:, : S + 1].astype(np.float64)
        lengths = both[:, S + 1 :].astype(np.float64)
        nobody = asked.which < 0
        losses[:, 1:][nobody] = np.inf
        lengths[nobody] = np.nan
        return Answers(losses, lengths)

    def advice(self) -> str:
        """What to change when every answer overflows."""
        return self.proposer.advice()

    def own_answers(self, r: int) -> Array:
        """(T, size) where the proposer's step on their own rows would take the targets."""
        own = column(self.rows.training)
        return self.proposals(self.rows.targets[:, None], own, r)[:, 0]

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
        return somebody(
            asked, self.there.shape[1], lambda: self._asked(peers, asked, r)
        )

    def _asked(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what these peers answer from these rows, on this side."""
        theirs = self.moved(asked.rows)
        S = peers.shape[1]
        same = self.stays(asked)

        def work(part: slice) -> AnyArray:
            def answered(their: torch.Tensor) -> torch.Tensor:
                place = self._place(part, peers, r)
                tensors = [self.there[part], their]
                return self.pairs.whole(self.pairs.proposals, tensors, [theirs], place)

            key = ("proposals", chunk_ends(part), S, same)
            return np.array(self.run(key, answered, asked.which[part]))

        parts = self.chunked(peers.shape[0], S, theirs.longest, work)
        return np.asarray(np.concatenate(parts), dtype=np.float64)

    def hold(self, models: Array, r: int) -> None:
        """These models from now on: statistics renewed, and a local step further."""
        self.models = models
        self._settle(r)

    def _settle(self, r: int) -> None:
        learner = self.task.learners[0]
        own = self.rows.training
        if has_statistics(learner):
            self.models = [
                learner.settled(model, own[t]) for t, model in enumerate(self.models)
            ]
        if self.task.local is not None:
            self.models = np.ascontiguousarray(self.arrays.after_local(self.models, r))

    def _mix(self, choice: Choice, r: int) -> None:
        T, K = choice.peers.shape
        asked = self.rows.peers(choice.peers)
        theirs = self.moved(asked.rows)
        single = K == 1 and bool((choice.weights == 1.0).all())
        mixing = [] if single else [np.column_stack([choice.stay, choice.weights])]
        rule = self.pairs.firsts if single else self.pairs.mixes

        def work(part: slice) -> None:
            def adopted(their: torch.Tensor, *weights: torch.Tensor) -> None:
                w = self.there[part]
                place = self._place(part, choice.peers, r)
                tensors = [w, their, *weights]
                w.copy_(self.pairs.whole(rule, tensors, [theirs], place))

            inputs = [asked.which, *mixing]
            key = ("adopt", chunk_ends(part), K, single)
            self.run(key, adopted, *(array[part] for array in inputs))

        self.chunked(T, K, theirs.longest, work)

    def staying(
        self, sampler: Sampler, adopter: Adopter, seed: int
    ) -> ChipRounds | None:
        """Rounds of these parts that stay on the chip; None where they need this side."""
        from persfl.fleets.chip_rounds import chip_rounds

        return chip_rounds(self, sampler, adopter, seed)

    def step(self, models: Array, movers: Slice, place: Stream) -> Array:
        """(D, size) where a step on these devices' rows takes these models."""
        return stepped(self, models, movers, place)

    def score(self, models: Array, judges: Slice) -> Array:
        """(D, K) the losses of K models on these devices' rows."""
        return scored(self, models, judges)

    # Running

    def stays(self, some: Slice) -> bool:
        """Whether these are rows of everybody, which lie where they are in every round."""
        return self.rows.source is None and some.rows is self.rows.static

    def mine(self) -> torch.Tensor:
        """Where the targets' own rows are."""
        which = self.rows.scoring.which
        if self._own is None or self._own[0] is not which:
            self._own = (which, self.runtime.tensor(which))
            self.runtime.forget()
        return self._own[1]

    def _place(self, part: slice, peers: IntArray, r: int) -> Stream | None:
        """Where these pairs draw minibatches, if they do."""
        if self.pairs.batch is None:
            return None
        targets = self.rows.targets[part, None]
        return stream(self.task.seed, "answer", r).at(targets, peers[part])

    def run(self, key: Hashable, function: TensorJob, *inputs: AnyArray) -> Any:
        """What a function says of these arrays, as an array."""
        return self.runtime.run(key, function, self.there, *inputs)

    def chunked(
        self, targets: int, peers: int, longest: int, work: Callable[[slice], Any]
    ) -> list[Any]:
        """Do the work for all targets, in chunks; `longest` is how many rows every device that
        takes part is padded to.
        """
        return self.runtime.chunks(targets, self.fits_in(peers, longest), work)

    def fits_in(self, peers: int, longest: int) -> int:
        """How many targets fit into the room for a chunk, each with so many peers."""
        if (peers, longest) not in self._fits:
            each = pair_bytes(self, longest) * max(1, peers)
            self._fits[peers, longest] = max(1, int(self.runtime.room() // each))
        return self._fits[peers, longest]
