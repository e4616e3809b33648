"""Whole rounds on the chip: drawing peers, asking them, choosing and adopting are one recorded
computation, and one small array comes back.

The same devices are drawn and chosen as by `persfl.samplers.Uniform` and the adopters here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from persfl.adopters.best import Best, BestOrStay
from persfl.adopters.topk import TopK
from persfl.samplers.uniform import Uniform
from persfl.seeds import CHILD, GAMMA, MIXERS, stream
from persfl.traits import has_statistics
from persfl.types import Answers, AnyArray, Choice, IntArray

if TYPE_CHECKING:
    from persfl.fleets.torch_engine import Torch
    from persfl.types import Adopter, Sampler


def chip_rounds(
    engine: Torch, sampler: Sampler, adopter: Adopter, seed: int
) -> ChipRounds | None:
    """Rounds of these parts on the engine's chip; None where they need this side."""
    task = engine.task
    if type(sampler) is not Uniform or type(adopter) not in (Best, BestOrStay, TopK):
        return None
    if task.local is not None or has_statistics(task.learners[0]):
        return None
    peers = sampler.peers
    if type(peers) is not int or not 0 < peers < engine.rows.n:
        return None
    if not _is_whole(engine, peers):
        return None
    return ChipRounds(engine, peers, adopter, seed)


def _is_whole(engine: Torch, peers: int) -> bool:
    """Whether a round can be recorded in one piece."""
    if not engine.runtime.records or not engine.pairs.compiled:
        return False
    rows = engine.rows
    longest = max(
        engine.moved(some).longest for some in (rows.static, rows.scoring.rows)
    )
    targets = len(rows.targets)
    return engine.runtime.fitting(targets, engine.fits_in(peers, longest)) == targets


class ChipRounds:
    """A function of a round's number to whom was asked, what came of it, and what was chosen."""

    def __init__(self, engine: Torch, peers: int, adopter: Adopter, seed: int) -> None:
        self.engine = engine
        self.peers = peers
        self.adopter = adopter
        self.seed = seed
        self.width = 1  # answers that a target adopts
        if isinstance(adopter, TopK):
            self.width = min(adopter.k, peers)
        self.targets = torch.as_tensor(engine.rows.targets).to(engine.device)
        steps = [_signed(k * GAMMA % 2**64) for k in range(1, peers + 1)]
        self.steps = torch.tensor(steps).to(engine.device)
        self.before: Tensor | None = None
        self.lost = False  # whether memory ran out

    def __call__(self, r: int) -> tuple[IntArray, Answers, Choice] | None:
        """Draw, ask, choose and adopt; None where memory runs out, from then on."""
        if self.lost:
            return None
        key = stream(self.seed, "sample", r).key
        place = np.array([key], dtype=np.uint64).view(np.int64)
        try:
            told = self._told(place)
        except torch.cuda.OutOfMemoryError:
            self.lost = True
            self.engine.runtime.forget()
            torch.cuda.empty_cache()
            return None
        S, K = self.peers, self.width
        shapes = [(len(self.targets), wide) for wide in (S, S + 1, S, K, K)]
        ends = np.cumsum([many * wide for many, wide in shapes]).tolist()
        starts = [0, *ends]
        peers, losses, lengths, chosen, weights = (
            told[lo:hi].reshape(shape)
            for lo, hi, shape in zip(starts, ends, shapes, strict=False)
        )
        stay = (weights.sum(axis=1) == 0).astype(np.float64)
        # the next round writes to the same memory
        choice = Choice(_own(chosen, np.int64), _own(weights), stay)
        return _own(peers, np.int64), Answers(_own(losses), _own(lengths)), choice

    def undo(self) -> None:
        """The models as they were before the last round, which nobody can go on from."""
        if self.before is not None:
            self.engine.there.copy_(self.before)

    def _told(self, place: AnyArray) -> AnyArray:
        """What comes back of a round that is drawn at this place."""
        runtime = self.engine.runtime
        if not runtime.records:
            return np.asarray(self._round(runtime.tensor(place)).cpu().numpy())
        key = ("round", self.peers, self.adopter)
        found = runtime.replayed(key, self._round, self.engine.there, place)
        assert found is not None
        return found

    def _round(self, key: Tensor) -> Tensor:
        """All that comes back, part after part."""
        engine = self.engine
        w = engine.there
        if self.before is None:
            self.before = torch.empty_like(w)
        self.before.copy_(w)
        draw = engine.pairs.compiled_once(_drawn)
        peers = draw(key, self.steps, self.targets, engine.rows.n - 1)
        static = engine.moved(engine.rows.static)
        rows = [static, engine.moved(engine.rows.scoring.rows)]
        tensors = [w, engine.mine(), peers]
        both = engine.pairs.whole(engine.pairs.answers, tensors, rows, None)
        losses = both[:, : self.peers + 1]
        losses = torch.where(losses.isfinite(), losses, torch.inf)
        chosen, weights = self._chosen(peers, losses)
        stay = (weights.sum(dim=1, keepdim=True) == 0).double()
        tensors = [w, chosen, torch.cat([stay, weights], dim=1)]
        w.copy_(engine.pairs.whole(engine.pairs.mixes, tensors, [static], None))
        parts = (peers, losses, both[:, self.peers + 1 :], chosen, weights)
        return torch.cat([part.double().flatten() for part in parts])

    def _chosen(self, peers: Tensor, losses: Tensor) -> tuple[Tensor, Tensor]:
        """(T, K) whom, and with which share."""
        if isinstance(self.adopter, TopK):
            order = losses[:, 1:].argsort(dim=1, stable=True)[:, : self.width]
            usable = losses[:, 1:].gather(1, order).isfinite()
            count = usable.sum(dim=1, keepdim=True).clamp_min(1)
            whom = torch.where(usable, peers.gather(1, order), -1)
            return whom, usable.double() / count
        least = losses[:, 1:].amin(dim=1, keepdim=True)
        places = torch.arange(self.peers, device=losses.device)
        first = torch.where(losses[:, 1:] == least, places, self.peers - 1)
        whom = peers.gather(1, first.amin(dim=1, keepdim=True))
        took = least.isfinite()
        if isinstance(self.adopter, BestOrStay):
            took = took & (least < losses[:, :1])
        return torch.where(took, whom, -1), took.double()


def _own(part: AnyArray, kind: type = np.float64) -> AnyArray:
    """A copy that nobody can change, and that may therefore be kept as it is."""
    copied: AnyArray = part.astype(kind)
    copied.flags.writeable = False
    return copied


def _drawn(key: Tensor, steps: Tensor, targets: Tensor, others: int) -> Tensor:
    """(T, size) what `Uniform` draws; `steps` (size,) lead from number to number."""
    size = len(steps)
    places = _mixed((key ^ _signed(CHILD)) + (targets + 1) * _signed(GAMMA))
    bits = _shifted(_mixed(places[:, None] + steps), 11)
    numbers = bits.double() * 2.0**-53
    drawn: list[Tensor] = []
    for k in range(size):
        last = others - size + k
        pick = (numbers[:, k] * (last + 1)).long()
        taken = torch.zeros_like(pick, dtype=torch.bool)
        for other in drawn:
            taken = taken | (other == pick)
        drawn.append(torch.where(taken, last, pick))
    picks = torch.stack(drawn, dim=1)
    peers: Tensor = picks + (picks >= targets[:, None])
    return peers


def _signed(number: int) -> int:
    """The same 64 bits; torch has no whole numbers without a sign that it can multiply."""
    return number - 2**64 if number >= 2**63 else number


def _shifted(x: Tensor, by: int) -> Tensor:
    """To the right, as if there were no sign."""
    found: Tensor = (x >> by) & (2 ** (64 - by) - 1)
    return found


def _mixed(x: Tensor) -> Tensor:
    """`persfl.seeds` on tensors."""
    for by, times in MIXERS:
        x = (x ^ _shifted(x, by)) * _signed(times)
    found: Tensor = x ^ _shifted(x, 31)
    return found
