"""What each target has learned about each peer, and nothing else.

Trust is a value: `trust.updated(...)` returns a new one. It stores only pairs that were asked, so
one target among a million devices costs memory for the few it met. Updates are queued and folded in
later, in the order in which they came; sums are therefore the same to the last bit whenever the
folding happens, and a resumed run equals an uninterrupted one.

>>> trust = Trust(n=1_000_000, targets=np.array([0]))
>>> choice = Choice(np.array([[7]]), np.array([[1.0]]), np.array([0.0]))
>>> trust = trust.updated(
...     np.array([[7, 9]]),
...     np.array([[3.0, 1.0, np.inf]]),
...     np.array([[0.5, np.nan]]),
...     choice,
... )
>>> print(trust.table().to_string(index=False))
 target  peer  asked  answered  reward_mean  reward_spread  adopted  share
      0     7      1         1          2.0            0.0      1.0    1.0
      0     9      1         0          NaN            NaN      0.0    0.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from persfl.compiled import kernels
from persfl.errors import InputError
from persfl.types import AnyArray, Array, Choice, Fleet, IntArray

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("asked", "answered", "reward", "reward_squared", "adopted")
_NOTE = "note_"  # how saved notes begin
_QUEUE = 2**17  # fold at least this many entries at a time: folding costs a sort
_OWNED: tuple[Literal["C", "W"], ...] = ("C", "W")  # what compiled code takes
# the newest round and the queue before it
_Queue = tuple[tuple[IntArray, Array, IntArray, Array], Any] | None


@dataclass(frozen=True)
class Pairs:
    """One row per (target, peer) pair that was asked, sorted by `key = target position * n +
    peer`.
    """

    key: IntArray
    asked: Array
    answered: Array
    reward: Array
    reward_squared: Array
    adopted: Array

    def columns(self) -> list[Array]:
        """Everything but the keys, in order."""
        return [vars(self)[name] for name in _COLUMNS]

    @staticmethod
    def none() -> Pairs:
        return Pairs(np.empty(0, dtype=np.int64), *(np.empty(0) for _ in _COLUMNS))


@dataclass(frozen=True, eq=False)
class Trust:
    """Sums over rounds, per (target, peer); `n` devices, `targets` their indices."""

    n: int
    targets: IntArray
    _folded: Pairs = field(default_factory=Pairs.none, repr=False)
    _queue: _Queue = field(default=None, repr=False)
    _queued: int = field(default=0, repr=False)
    # what an adopter remembers beyond these sums: plain arrays
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def blank(fleet: Fleet) -> Trust:
        """Knowing nothing about anyone."""
        return Trust(fleet.n, fleet.targets)

    def updated(
        self, peers: IntArray, losses: Array, lengths: Array, choice: Choice
    ) -> Trust:
        """Trust after one more round; `lengths` are not remembered by these sums.

        Folding comes later, so it keeps copies: whoever made the arrays may use them again.
        """
        own = Choice(choice.peers.copy(), choice.weights.copy(), choice.stay)
        return self.recorded(peers.copy(), losses.copy(), own)

    def recorded(self, peers: IntArray, losses: Array, choice: Choice) -> Trust:
        """As `updated`, with arrays that nobody will change."""
        folded = self._folded
        queue = self._queue
        queued = self._queued
        # somebody has read it, so the folding is done already
        if "pairs" in self.__dict__:
            folded = self.pairs
            queue = None
            queued = 0
        if queue is not None and (
            queue[0][0].shape != peers.shape or queue[0][2].shape != choice.peers.shape
        ):
            # a queue holds rounds of one shape
            folded = self.pairs
            queue = None
            queued = 0
        size = peers.size + choice.peers.size
        entry = ((peers, losses, choice.peers, choice.weights), queue)
        longer = Trust(self.n, self.targets, folded, entry, queued + size, self.notes)
        if longer._queued > max(
            _QUEUE, 4 * len(folded.key), min(96 * size, 16 * _QUEUE)
        ):
            return Trust(self.n, self.targets, longer.pairs, notes=self.notes)
        return longer

    def noted(self, notes: Mapping[str, AnyArray]) -> Trust:
        """The same trust with these notes: arrays by name, whatever an adopter needs to remember to
        choose as it does.

        >>> trust = Trust(3, np.array([0])).noted({"level": np.array([0.5])})
        >>> Trust.from_arrays(trust.to_arrays()).notes["level"].tolist()
        [0.5]
        """
        return replace(self, notes=dict(notes))

    @cached_property
    def pairs(self) -> Pairs:
        """Everything known, folded."""
        entries = []
        rest = self._queue
        while rest is not None:
            entries.append(rest[0])
            rest = rest[1]
        if not entries:
            return self._folded
        # (rounds, T, ...)
        peers, losses, chosen, weights = (
            np.stack(part) for part in zip(*reversed(entries), strict=True)
        )
        self._refuse_strangers(peers, chosen)
        span = self.n * len(self.targets)
        # a row for every possible pair must not cost more than the queue
        fast = kernels() if span <= 4 * peers.size else None
        if fast is not None:
            key = np.require(self._folded.key, requirements=_OWNED)
            known = [
                np.require(sums, requirements=_OWNED) for sums in self._folded.columns()
            ]
            rounds = (peers, losses, chosen, weights)
            met, sums = fast.fold(key, tuple(known), *rounds, self.n)
            return Pairs(met, *sums)
        base = np.arange(len(self.targets))[:, None] * self.n
        asked = peers >= 0
        took = chosen >= 0
        usable = np.isfinite(losses[..., 1:]) & asked
        with np.errstate(invalid="ignore", over="ignore"):
            reward = np.where(usable, losses[..., :1] - losses[..., 1:], 0.0)[asked]
            squared = reward**2
        many = len(reward)
        new = [np.ones(many), usable[asked] + 0.0, reward, squared]
        key = np.concatenate([self._folded.key, (base + peers)[asked]])
        *sums, taken = self._folded.columns()
        columns = [np.concatenate(both) for both in zip(sums, new, strict=True)]
        adopted = np.concatenate([taken, np.zeros(many), weights[took]])
        return _fold(key, columns, (base + chosen)[took], adopted)

    def _refuse_strangers(self, *who: IntArray) -> None:
        """Stop where a round names devices that there are not: compiled code believes every index.

        What an adopter remembers may have come from a folder that somebody else made.
        """
        for devices in who:
            if (
                devices.shape[1] != len(self.targets)
                or devices.max(initial=-1) >= self.n
            ):
                known = f"{len(self.targets)} targets and {self.n} devices"
                raise InputError(f"rounds must be of {known}.")

    def widened(self, n: int) -> Trust:
        """The same knowledge about a fleet in which every device is a target, after others have
        joined behind them.

        Notes are about the fleet as it was, and are left behind.

        >>> once = {column: np.ones(1) for column in _COLUMNS}
        >>> trust = Trust.from_arrays(
        ...     Trust(2, np.arange(2)).to_arrays() | {"key": np.array([2])} | once
        ... )
        >>> (
        ...     trust.table().peer.tolist(),
        ...     trust.widened(5).table()[["target", "peer"]].values.tolist(),
        ... )
        ([0], [[1, 0]])
        """
        if n < self.n or len(self.targets) != self.n:
            raise InputError(
                f"n must be at least {self.n}, and every device a target. Got {n} and"
                f" {len(self.targets)} targets."
            )
        target, peer = np.divmod(self.pairs.key, self.n)
        known = {name: getattr(self.pairs, name) for name in _COLUMNS}
        return Trust(n, np.arange(n), Pairs(target * n + peer, **known))

    def table(self) -> pd.DataFrame:
        """One row per pair: target and peer (device indices), times asked and answered, reward,
        share of the model adopted.

        `reward_spread` is the standard deviation of the rewards, exact to about 1e-8 of their size.
        """
        import pandas as pd

        pairs = self.pairs
        position, peer = np.divmod(pairs.key, self.n)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = pairs.reward / pairs.answered
            spread = np.sqrt(
                np.maximum(pairs.reward_squared / pairs.answered - mean**2, 0.0)
            )
            total = np.bincount(
                position, weights=pairs.adopted, minlength=len(self.targets)
            )[position]
            share = np.where(total > 0, pairs.adopted / total, 0.0)
        return pd.DataFrame(
            {
                "target": self.targets[position],
                "peer": peer,
                "asked": pairs.asked.astype(np.int64),
                "answered": pairs.answered.astype(np.int64),
                "reward_mean": mean,
                "reward_spread": spread,
                "adopted": pairs.adopted,
                "share": share,
            }
        )

    def __reduce__(self) -> Any:
        return Trust.from_arrays, (self.to_arrays(),)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Plain arrays, ready for `numpy.savez`; `from_arrays` takes them back, exactly."""
        pairs = self.pairs
        notes = {f"{_NOTE}{name}": value for name, value in self.notes.items()}
        about = {"n": np.array(self.n), "targets": self.targets, "key": pairs.key}
        return about | dict(zip(_COLUMNS, pairs.columns(), strict=True)) | notes

    @staticmethod
    def from_arrays(arrays: Mapping[str, AnyArray]) -> Trust:
        """The inverse of `to_arrays`.

        >>> again = Trust.from_arrays(Trust(3, np.array([0])).to_arrays())
        >>> again.n, len(again.table())
        (3, 0)
        """
        wanted = {"n", "targets", "key", *_COLUMNS}
        notes = {
            name.removeprefix(_NOTE): np.asarray(value)
            for name, value in arrays.items()
            if name.startswith(_NOTE)
        }
        if {name for name in arrays if not name.startswith(_NOTE)} != wanted:
            raise InputError(
                f"saved trust must hold the arrays {', '.join(sorted(wanted))}. Got"
                f" {', '.join(sorted(arrays))}."
            )
        n = int(arrays["n"])
        targets = np.asarray(arrays["targets"], dtype=np.int64)
        key = np.asarray(arrays["key"], dtype=np.int64)
        columns = [np.asarray(arrays[name], dtype=np.float64) for name in _COLUMNS]
        if any(column.shape != key.shape for column in columns) or key.ndim != 1:
            raise InputError("saved trust is damaged: its columns differ in length.")
        # Compared one by one: a difference of two forged keys may overflow to one above 0.
        ordered = bool((key[1:] > key[:-1]).all())
        if len(key) and (key[0] < 0 or key[-1] >= n * len(targets) or not ordered):
            raise InputError(
                "saved trust is damaged: its pairs are out of order or out of range."
            )
        return Trust(n, targets, Pairs(key, *columns), notes=notes)


def _fold(
    key: IntArray, columns: Sequence[Array], chosen: IntArray, adopted: Array
) -> Pairs:
    """Add up entries of equal key; `columns` belong to `key`, `adopted` to `key` followed by
    `chosen`.

    `bincount` adds in the order of its input, which is what keeps sums independent of when they are
    folded.
    """
    known, place = np.unique(np.concatenate([key, chosen]), return_inverse=True)
    sums: list[Any] = [
        np.bincount(place[: len(key)], weights=column, minlength=len(known))
        for column in columns
    ]
    sums.append(np.bincount(place, weights=adopted, minlength=len(known)))
    # of nothing it makes whole numbers, and a run that goes on from a file has others
    return Pairs(known, *(column.astype(np.float64, copy=False) for column in sums))
