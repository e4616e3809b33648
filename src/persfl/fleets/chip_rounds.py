"""Whole rounds on the chip: drawing peers, asking them, choosing and adopting are one recorded
computation, and one small array comes back.

The same devices are drawn and chosen as by `persfl.samplers.Uniform` and the adopters here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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

    Told = Callable[[], AnyArray | None]  # waits for a round

RECORD_BYTES = 2**23  # bytes that records share,
RECORDS_TOGETHER = 16  # and how many do: who keeps one round keeps its piece


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
    if engine.pairs.program is not None:  # which takes no memory
        return True
    rows = engine.rows
    longest = max(
        engine.moved(some).longest for some in (rows.static, rows.scoring.rows)
    )
    targets = len(rows.targets)
    return engine.runtime.fitting(targets, engine.fits_in(peers, longest)) == targets


class ChipRounds:
    """A function of a round's number to whom was asked, what came of it, and what was chosen.

    Where another round follows, it begins before this side has looked at the last one: nothing
    that happens here changes it. Whoever looks at the models meanwhile sees those in between
    (`take_back`), and it is then done again.
    """

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
        self.under_way: tuple[int, Told] | None = None
        self.lost = False  # whether memory ran out
        self.records = Records()

    def __call__(
        self, r: int, more: bool = False
    ) -> tuple[IntArray, Answers, Choice] | None:
        """Draw, ask, choose and adopt; None where memory runs out, from then on. With `more` the
        next round is begun.
        """
        if self.lost:
            return None
        try:
            told = self._begun(r)()
        except torch.cuda.OutOfMemoryError:
            self.lost = True
            self.engine.runtime.forget()
            torch.cuda.empty_cache()
            return None
        self._now_under_way(None)
        if more:
            self._now_under_way((r + 1, self._begun(r + 1)))
        return self._read(told)

    def take_back(self) -> None:
        """The models as they were before the round that nobody asked for yet."""
        if self.under_way is not None:
            self._now_under_way(None)
            self.engine.there.copy_(self.engine.past[0])

    def undo(self) -> None:
        """The models as they were before the last round, which nobody can go on from."""
        last = self.engine.past[0 if self.under_way is None else 1]
        self._now_under_way(None)
        self.engine.there.copy_(last)

    def _now_under_way(self, what: tuple[int, Told] | None) -> None:
        self.under_way = what
        self.engine.ahead = None if what is None else self

    def _begun(self, r: int) -> Told:
        """What comes back of a round, once it is over; begun here, if it is not yet."""
        if self.under_way is not None and self.under_way[0] == r:
            return self.under_way[1]
        engine = self.engine
        models = engine.there
        key = stream(self.seed, "sample", r).key
        place = np.array([key], dtype=np.uint64).view(np.int64)
        if not engine.runtime.records:
            told = self._round(engine.runtime.tensor(place)).cpu().numpy()
            return lambda: told
        name = ("round", self.peers, self.adopter)
        recorded = engine.runtime.replayed(name, self._round, models, place)
        return lambda: recorded.wait()

    def _read(self, told: AnyArray | None) -> tuple[IntArray, Answers, Choice]:
        """What came back, part by part."""
        assert told is not None
        # the round after the next writes to the same memory
        block = self.records.copied(told)
        T, S, K = len(self.targets), self.peers, self.width
        shapes = [(T, S), (T, S + 1), (T, S), (T, K), (T, K), (T,)]
        ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
        peers, losses, lengths, chosen, weights, stay = (
            block[hi - math.prod(shape) : hi].reshape(shape)
            for hi, shape in zip(ends, shapes, strict=True)
        )
        choice = Choice(chosen.view(np.int64), weights, stay)
        return peers.view(np.int64), Answers(losses, lengths), choice

    def _round(self, key: Tensor) -> Tensor:
        """All that comes back, part after part; whole numbers as they lie in memory."""
        engine = self.engine
        w = engine.there
        before, earlier = engine.past
        earlier.copy_(before)
        before.copy_(w)
        draw = engine.pairs.compiled_once(_drawn)
        peers = draw(key, self.steps, self.targets, engine.rows.n - 1)
        static = engine.moved(engine.rows.static)
        rows = [static, engine.moved(engine.rows.scoring.rows)]
        tensors = [w, engine.mine(), peers]
        both = engine.pairs.whole(engine.pairs.answers, tensors, rows, None)
        losses, lengths, chosen, shares = self._chosen(peers, both)
        tensors = [w, chosen, shares]
        w.copy_(engine.pairs.whole(engine.pairs.mixes, tensors, [static], None))
        weights, stay = shares[:, 1:], shares[:, 0]
        parts = (_bits(peers), losses, lengths, _bits(chosen), weights, stay)
        return torch.cat([part.flatten() for part in parts])

    def _chosen(self, peers: Tensor, both: Tensor) -> tuple[Tensor, ...]:
        """Losses and lengths, (T, K) whom, and (T, 1 + K) the shares of staying and of them."""
        losses = both[:, : self.peers + 1]
        losses = torch.where(losses.isfinite(), losses, torch.inf)
        if isinstance(self.adopter, TopK):
            whom, weights = _first(peers, losses, self.width)
        else:
            stays = isinstance(self.adopter, BestOrStay)
            whom, weights = _best(peers, losses, stays)
        stay = (weights.sum(dim=1, keepdim=True) == 0).double()
        shares = torch.cat([stay, weights], dim=1)
        return losses.double(), both[:, self.peers + 1 :].double(), whom, shares


class Records:
    """Copies of what comes back, several in one piece of memory.

    Half a megabyte a round in memory that was never used takes longer to touch, page by page, than
    the round takes the chip. A piece of megabytes has large pages, where the system has some.

    >>> records = Records()
    >>> one, other = (records.copied(np.full(3, x)) for x in (1.0, 2.0))
    >>> one.tolist(), other.tolist(), one.base is other.base
    ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], True)
    """

    def __init__(self) -> None:
        self._free: list[AnyArray] = []

    def copied(self, told: AnyArray) -> AnyArray:
        """The same numbers, which nobody can change."""
        if not self._free or self._free[-1].shape != told.shape:
            count = min(RECORDS_TOGETHER, max(1, RECORD_BYTES // max(1, told.nbytes)))
            self._free = list(np.empty((count, *told.shape), told.dtype))
        block = self._free.pop()
        np.copyto(block, told)
        block.flags.writeable = False
        return block


def _first(peers: Tensor, losses: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(T, width) the best answers in equal shares."""
    order = losses[:, 1:].argsort(dim=1, stable=True)[:, :width]
    usable = losses[:, 1:].gather(1, order).isfinite()
    count = usable.sum(dim=1, keepdim=True).clamp_min(1)
    whom = torch.where(usable, peers.gather(1, order), -1)
    return whom, usable.double() / count


def _best(peers: Tensor, losses: Tensor, stays: bool) -> tuple[Tensor, Tensor]:
    """(T, 1) the best answer; `stays` where it is no better than staying."""
    least = losses[:, 1:].amin(dim=1, keepdim=True)
    count = peers.shape[1]
    places = torch.arange(count, device=losses.device)
    first = torch.where(losses[:, 1:] == least, places, count - 1)
    whom = peers.gather(1, first.amin(dim=1, keepdim=True))
    took = least.isfinite()
    if stays:
        took = took & (least < losses[:, :1])
    return torch.where(took, whom, -1), took.double()


def _bits(numbers: Tensor) -> Tensor:
    """Whole numbers in the memory of others: one array holds both."""
    return numbers.contiguous().view(torch.float64)


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
