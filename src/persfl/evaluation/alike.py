"""Is this device like me? A chance for every pair that was asked, and what may be said of it.

Where the method itself has a chance for every pair (the notes `alike` of `Trust`, as the default
rule leaves them), it is taken. Elsewhere it comes from all questions that were asked anyway. A peer
is like me if its answers lower my loss, and lower it more than those of the peers I met do in the
mean; the chance is that of the smaller of both, by the spread of its rewards, which is drawn toward
that of all my peers: a few lucky answers are no evidence. Rewards shrink as a target learns, and
that counts as spread, so these chances are careful. Where both devices asked each other, both must
say so: their evidence is averaged, and a chance is even where they contradict each other.

Verdicts hold the rate of false ones down for every target: of the peers that "help" a target, at
most one in ten is expected not to be like it, of those that "hurt" at most one in ten to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from persfl.errors import InputError
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
SOME = 0.02  # of all pairs that must be alike before kinds are spoken of


class Alike(NamedTuple):
    """`chance` per row of a table of pairs; `kinds`: whether there are any; `whole`: whether all
    are alike; `known`: whether the method itself said so; `tells`: whether its chances are
    calibrated, so that anything may be said of kinds.
    """

    chance: Array
    kinds: bool
    whole: bool
    known: bool
    tells: bool = True


def alike(known: pd.DataFrame, trust: Trust) -> Alike:
    """The chance that each pair of this table (as `Trust.table` has it) is of one kind."""
    if "alike" in trust.notes:
        return _noted(known, trust)
    if not len(known):
        return Alike(np.zeros(0), False, False, False)
    chance = _of_both(known, _of_rewards(known))
    if "member" in trust.notes:
        chance = _of_kin(known, trust, chance)
    some = _discovered(known["target"].to_numpy(), 1.0 - chance).mean()
    return Alike(chance, bool(some >= SOME), False, False)


def verdict_codes(known: pd.DataFrame, found: Alike) -> IntArray:
    """Positions in VERDICTS."""
    target = known["target"].to_numpy()
    codes = np.full(len(known), CANNOT_TELL)
    if not found.kinds and not found.whole:
        return codes
    if found.kinds:
        codes[_discovered(target, found.chance)] = HURTS
    codes[_discovered(target, 1.0 - found.chance)] = HELPS
    return codes


def what_was_found(found: Alike, codes: IntArray) -> str:
    """Whether there are kinds, in a sentence.

    >>> nothing = Alike(np.zeros(0), False, False, True)
    >>> what_was_found(nothing, np.zeros(0, dtype=int))
    'No kinds found: nobody can be told to be more like a device than the others are.'
    """
    if not found.tells:
        return "Who is like whom cannot be told for these models: they are ranked, not judged."
    if found.whole and not found.kinds:
        return "No kinds found: all devices are alike, and what helps is the fleet as a whole."
    if not found.kinds:
        return "No kinds found: nobody can be told to be more like a device than the others are."
    helps = int((codes == HELPS).sum())
    hurts = int((codes == HURTS).sum())
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
    whole = float(trust.notes["alike_whole"])  # NaN: not calibrated
    kinds = bool(trust.notes["alike_kinds"])
    return Alike(found, kinds, whole >= WHOLE, True, not np.isnan(whole))


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


def _rows_of(known: pd.DataFrame, trust: Trust) -> IntArray:
    """The position of each pair's target among the targets."""
    place = np.full(trust.n, -1)
    place[trust.targets] = np.arange(len(trust.targets))
    return np.asarray(place[known["target"].to_numpy()])


def _of_rewards(known: pd.DataFrame) -> Array:
    """(pairs,) chances by what answers were worth."""
    _, place = np.unique(known["target"].to_numpy(), return_inverse=True)
    answered = known["answered"].to_numpy(dtype=np.float64)
    usable = np.isfinite(known["reward_mean"].to_numpy()) & (answered > 0)
    many = np.where(usable, answered, 0.0)
    reward = np.where(usable, known["reward_mean"].to_numpy(), 0.0)
    square = np.where(usable, known["reward_spread"].to_numpy() ** 2, 0.0)

    def pooled(values: Array) -> Array:
        """(targets,) over all answers that a target got."""
        total = np.maximum(np.bincount(place, weights=many), 1.0)
        return np.asarray(np.bincount(place, weights=values * many) / total)

    # a pair's spread as if it had got as many answers again of its target's usual spread
    usual = pooled(square)[place]
    variance = (square * many + usual * USUAL) / (many + USUAL)
    error = np.sqrt(variance / np.maximum(many, 1.0)) + 1e-300
    above = np.minimum(reward, reward - pooled(reward)[place])
    below = np.maximum(reward, reward - pooled(reward)[place])
    z = np.where(above > 0, above, np.where(below < 0, below, 0.0)) / error
    return np.where(usable, ndtr(z), 0.5)


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
    """(pairs,) the value of the pair the other way round, and whether there is such a pair."""
    target = known["target"].to_numpy(dtype=np.int64)
    peer = known["peer"].to_numpy(dtype=np.int64)
    n = int(max(target.max(), peer.max())) + 1
    there = target * n + peer
    order = np.argsort(there)
    back = peer * n + target
    at = np.minimum(np.searchsorted(there[order], back), len(there) - 1)
    return values[order][at], there[order][at] == back


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
