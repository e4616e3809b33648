"""Is this device like me? A chance for every pair that was asked, and what may be said of it.

Where the method itself has a chance for every pair (the notes `alike` of `Trust`, as the default
rule leaves them), it is taken. Elsewhere it comes from all questions that were asked anyway, and
two things must agree:

- *reward*: the peer's answers lower my loss, and lower it more than those of the peers I met do in
  the mean, by the spread of its rewards, which is drawn toward that of all my peers: a few lucky
  answers are no evidence. Rewards shrink as a target learns, and that counts as spread.
- *taste*: I like its answers more than others like them and more than I like others', and so do
  devices that are like me (`common_friends`). A peer with good rows for everybody, or a target that
  is easy to help, is no kind.

While kin is still searching, whoever looks like kin may only serve me as well: then taste must be
clear. Kinds that look different but want the same labels are such a case.

Where both devices of a pair asked each other, both must say so: a chance is even where they
contradict each other. Taste alone ranks; "helps" takes rewards too, and "hurts" takes taste. Of a
peer that few targets asked there is no taste, and rewards decide.

Where models are mixed and hidden rows leave hardly anything but one model for all, as it is, all
devices count as alike.

Verdicts hold the rate of false ones down for every target: of the peers that "help" a target, at
most one in ten is expected not to be like it, of those that "hurt" at most one in ten to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from persfl.errors import InputError
from persfl.evaluation.common_friends import by_common_friends, other_way
from persfl.rules.peer_index import peer_places

if TYPE_CHECKING:
    import pandas as pd

    from persfl.trust import Trust
    from persfl.types import Array, IntArray

HELPS, HURTS, CANNOT_TELL = range(3)
VERDICTS = ("helps", "hurts", "cannot tell")
FALSE = 0.1  # share of verdicts that may be false, for each target
SURE = 0.8  # chance that a single verdict takes at least
WHOLE = (
    0.8  # chance that all are alike, from which on it is said of the fleet as a whole
)
USUAL = 5.0  # answers of the usual spread that are added to a pair's own
KIN = 0.5  # standard errors that finding each other as kin counts
TASTE = 0.75  # the highest chance by taste alone: below what a verdict takes
SOME = 0.05  # of all pairs that must be alike before kinds are spoken of
STRANGE = 0.1  # of all pairs that must be strangers: where there are kinds, most are
# Taste that only one pair in ten has by chance: in eight fleets of linear models without kinds, 60
# devices that were all alike or all different, the ninth tenth of it was .54 to .65
CLEAR = 0.6
MET = 3  # targets that a peer must have answered before there is a taste


class Alike(NamedTuple):
    """`chance` per row of a table of pairs; `kinds`: whether there are any; `whole`: whether all
    are alike; `known`: whether the method itself said so.
    """

    chance: Array
    kinds: bool
    whole: bool
    known: bool


def alike(known: pd.DataFrame, trust: Trust) -> Alike:
    """The chance that each pair of this table (as `Trust.table` has it) is of one kind."""
    if "alike" in trust.notes:
        return _noted(known, trust)
    if not len(known):
        return Alike(np.zeros(0), False, False, False)
    rewards = _Rewards.of(known)
    chance = _of_both(known, rewards.better())
    least = np.full(len(known), 0.5)
    if "member" in trust.notes:
        chance = _of_kin(known, trust, chance)
        least[~_settled(known, trust)] = CLEAR
    _, peer = np.unique(known["peer"].to_numpy(), return_inverse=True)
    several = np.bincount(peer)[peer] >= MET
    taste = _with_taste(chance, _by_taste(known, rewards), least)
    chance = np.where(several, taste, chance)
    one = _one_for_all(trust)
    if one >= WHOLE:
        return Alike(np.maximum(chance, one), False, True, False)
    return Alike(chance, _speaks(known, chance), False, False)


def _one_for_all(trust: Trust) -> float:
    """How much of all mixes is one model for all as it is; 0 where nothing was mixed."""
    if "mix" not in trust.notes:
        return 0.0
    names = [str(name).split() for name in trust.notes["mix_names"]]
    plain = [name[1:] == ["pooled", "0"] for name in names]
    return float(trust.notes["mix"][:, plain].sum(axis=1).mean())


def _speaks(known: pd.DataFrame, chance: Array) -> bool:
    """Whether enough pairs are alike to speak of kinds."""
    found = _discovered(known["target"].to_numpy(), 1.0 - chance)
    return bool(len(found)) and float(found.mean()) >= SOME


def verdict_codes(known: pd.DataFrame, found: Alike) -> IntArray:
    """Positions in VERDICTS."""
    target = known["target"].to_numpy()
    codes = np.full(len(known), CANNOT_TELL)
    if not found.kinds and not found.whole:
        return codes
    strange = _discovered(target, found.chance)
    if found.kinds and float(strange.mean()) >= STRANGE:
        codes[strange] = HURTS
    codes[_discovered(target, 1.0 - found.chance)] = HELPS
    return codes


def what_was_found(found: Alike, codes: IntArray) -> str:
    """Whether there are kinds, in a sentence.

    >>> nothing = Alike(np.zeros(0), False, False, True)
    >>> what_was_found(nothing, np.zeros(0, dtype=int))
    'No kinds found: it cannot be told which devices are more alike than others.'
    """
    if found.whole and not found.kinds and not found.known:
        return (
            "No kinds found: one model for all serves devices best of all that was tried, so"
            " what helps is the fleet as a whole."
        )
    if found.whole and not found.kinds:
        return "No kinds found: all devices are alike, and what helps is the fleet as a whole."
    if not found.kinds:
        return "No kinds found: it cannot be told which devices are more alike than others."
    helps = int((codes == HELPS).sum())
    hurts = int((codes == HURTS).sum())
    if not hurts:
        return (
            f"Some devices are alike: {helps:,} of the {len(codes):,} pairs that met. Of the others"
            " it cannot be told."
        )
    return (
        f"There are kinds of devices: of the pairs that met {helps:,} are of one kind,"
        f" {hurts:,} are not, of {len(codes) - helps - hurts:,} it cannot be told."
    )


def _noted(known: pd.DataFrame, trust: Trust) -> Alike:
    """What the method found."""
    peers = np.asarray(trust.notes["alike_peers"])
    chance = np.asarray(trust.notes["alike"], dtype=np.float64)
    fits = peers.shape == chance.shape and peers.shape[:1] == (len(trust.targets),)
    if not fits or not ((chance >= 0) & (chance <= 1)).all():
        raise InputError("who is alike must be chances of the devices of the run.")
    row = _rows_of(known, trust)
    at, met = peer_places(peers[row], known["peer"].to_numpy()[:, None])
    found = np.where(met[:, 0], chance[row, at[:, 0]], 0.0)
    whole = float(trust.notes["alike_whole"])
    kinds = bool(trust.notes["alike_kinds"])
    return Alike(found, kinds, whole >= WHOLE, True)


def kin_members(known: pd.DataFrame, trust: Trust) -> NDArray[np.bool_]:
    """Whom kin was found in."""
    row = _rows_of(known, trust)
    at, met = peer_places(trust.notes["panel"][row], known["peer"].to_numpy()[:, None])
    member = trust.notes["member"][row, at[:, 0]] & met[:, 0]
    return np.asarray(member & trust.notes["right"][row])


def _of_kin(known: pd.DataFrame, trust: Trust, chance: Array) -> Array:
    """Where kin was looked for: two that found each other need less evidence, others never
    help.
    """
    mine = kin_members(known, trust)
    theirs, asked = _other_way(known, mine)
    each_other = mine & theirs & asked
    surer = ndtr(ndtri(_within(chance)) + KIN)
    return np.where(each_other, surer, np.minimum(chance, 0.5))


def _settled(known: pd.DataFrame, trust: Trust) -> NDArray[np.bool_]:
    """(pairs,) whether both have found their group for good: its steps cancel."""
    place = np.full(trust.n, -1)
    place[trust.targets] = np.arange(len(trust.targets))
    done = np.append(~np.isnan(trust.notes["mark"]), False)  # who is no target has none
    sides = known["target"].to_numpy(), known["peer"].to_numpy()
    return np.asarray(done[place[sides[0]]] & done[place[sides[1]]])


def _rows_of(known: pd.DataFrame, trust: Trust) -> IntArray:
    """The position of each pair's target among the targets."""
    place = np.full(trust.n, -1)
    place[trust.targets] = np.arange(len(trust.targets))
    return np.asarray(place[known["target"].to_numpy()])


class _Rewards(NamedTuple):
    """What answers were worth, pair by pair: `reward`, how much of it is `above` the mean of the
    target's answers, and its standard `error`; `usable`: whether there was an answer.
    """

    reward: Array
    above: Array
    error: Array
    usable: NDArray[np.bool_]

    @staticmethod
    def of(known: pd.DataFrame) -> _Rewards:
        """From a table of pairs."""
        _, place = np.unique(known["target"].to_numpy(), return_inverse=True)
        answered = known["answered"].to_numpy(dtype=np.float64)
        usable = np.isfinite(known["reward_mean"].to_numpy()) & (answered > 0)
        many = np.where(usable, answered, 0.0)
        reward = np.where(usable, known["reward_mean"].to_numpy(), 0.0)
        square = np.where(usable, known["reward_spread"].to_numpy() ** 2, 0.0)
        # a pair's spread as if it had got as many answers again of its target's usual spread
        usual = _means(place, square, many)[place]
        variance = (square * many + usual * USUAL) / (many + USUAL)
        error = np.sqrt(variance / np.maximum(many, 1.0)) + 1e-300
        above = reward - _means(place, reward, many)[place]
        return _Rewards(reward, above, error, usable)

    def better(self) -> Array:
        """(pairs,) chances that answers lower the loss, and more than those of others do."""
        high = np.minimum(self.reward, self.above)
        low = np.maximum(self.reward, self.above)
        z = np.where(high > 0, high, np.where(low < 0, low, 0.0)) / self.error
        return np.where(self.usable, ndtr(z), 0.5)


def _means(place: IntArray, values: Array, weight: Array) -> Array:
    """(places,) weighted."""
    total = np.maximum(np.bincount(place, weights=weight), 1e-300)
    return np.asarray(np.bincount(place, weights=values * weight) / total)


def _by_taste(known: pd.DataFrame, rewards: _Rewards) -> Array:
    """(pairs,) chances by what is special about a pair, as third devices see it too."""
    weight = rewards.usable.astype(np.float64)
    z = np.where(rewards.usable, rewards.above / rewards.error, 0.0)
    for side in ("peer", "target"):
        _, place = np.unique(known[side].to_numpy(), return_inverse=True)
        z = z - _means(place, z, weight)[place]
    special = np.where(rewards.usable, ndtr(z), 0.5)
    both = _of_both(known, special)
    target = known["target"].to_numpy(dtype=np.int64)
    return by_common_friends(target, known["peer"].to_numpy(dtype=np.int64), both)


def _with_taste(rewarded: Array, taste: Array, least: Array) -> Array:
    """(pairs,) where both agree, taste by more than `least` (pairs,), the surer; taste alone is
    never sure that a peer helps.
    """
    ranked = np.minimum(taste, TASTE)
    liked = (taste > least) & (rewarded > 0.5)
    return np.where(liked, np.maximum(rewarded, ranked), ranked)


def _of_both(known: pd.DataFrame, chance: Array) -> Array:
    """(pairs,) what both devices of a pair say; what one says, where the other never asked."""
    other, asked = _other_way(known, chance)
    other = np.where(asked, other, chance)
    agree = (chance - 0.5) * (other - 0.5) > 0
    both = (ndtri(_within(chance)) + ndtri(_within(other))) / 2
    return np.where(agree, ndtr(both), 0.5)


def _other_way(
    known: pd.DataFrame, values: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """As `other_way`, of a table of pairs."""
    return other_way(known["target"].to_numpy(), known["peer"].to_numpy(), values)


def _within(chance: Array) -> Array:
    """Chances that are never quite sure."""
    return np.clip(chance, 1e-12, 1 - 1e-12)


def _discovered(target: IntArray, false: Array) -> NDArray[np.bool_]:
    """(pairs,) whether a pair is among those of its target whose chances of being false are least
    and are `FALSE` in the mean.
    """
    order = np.lexsort((false, target))
    ranked = target[order]
    first = np.searchsorted(ranked, ranked)
    before = np.concatenate([[0.0], np.cumsum(false[order])])
    count = np.arange(len(order)) - first + 1
    mean = (before[1:] - before[first]) / count
    found = np.zeros(len(order), dtype=bool)
    found[order] = (mean <= FALSE) & (false[order] <= 1.0 - SURE)
    return found
