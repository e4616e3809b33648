"""The rounds of all groups and views put together, as if all devices had asked side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from persfl.methods.blend.site import GroupPlan
from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Round


class GroupRound(NamedTuple):
    """A round of one group: of all its targets, by their numbers in the fleet."""

    mine: IntArray
    peers: IntArray
    losses: Array
    chosen: IntArray
    weights: Array


class Record:
    """Collects rounds."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._entries: dict[tuple[str, int], list[GroupRound]] = {}

    def add(self, plan: GroupPlan, rounds: Sequence[Round], each: int) -> None:
        """Rounds of one group: of every `each` copies of a device the first, which has all its
        rows, counts.
        """
        for round_ in rounds:
            peers = round_.peers[::each]
            took = round_.choice.peers[::each]
            entry = GroupRound(
                plan.mine,
                np.where(peers >= 0, plan.rest[peers], -1),
                round_.losses[::each],
                np.where(took >= 0, plan.rest[took], -1),
                round_.choice.weights[::each],
            )
            self._entries.setdefault((plan.look.name, round_.r), []).append(entry)

    def rounds(self, mix: Array, names: tuple[str, ...]) -> tuple[Round, ...]:
        """One record per view and round; what was adopted counts by how much of the mix came by
        neighbours in that view.
        """
        found: list[Round] = []
        trust = Trust(self.n, np.arange(self.n)).noted(
            {
                "mix": mix,
                "mix_names": np.array(names),
                "mix_rounds": np.array(len(self._entries)),
            }
        )
        for r, ((view, _), entries) in enumerate(self._entries.items()):
            wide = max(entry.peers.shape[1] for entry in entries)
            peers = np.full((self.n, wide), -1)
            chosen = np.full((self.n, wide), -1)
            losses = np.full((self.n, wide + 1), np.inf)
            weights = np.zeros((self.n, wide))
            for entry in entries:
                mine = entry.mine
                k = entry.peers.shape[1]
                peers[mine, :k] = entry.peers
                losses[mine, : k + 1] = entry.losses
                took = entry.chosen.shape[
                    1
                ]  # of trees one answer, whoever else was asked
                chosen[mine, :took] = entry.chosen
                weights[mine, :took] = entry.weights
            part = [
                i
                for i, name in enumerate(names)
                if name.startswith(f"{view} neighbours")
            ]
            weights = weights * mix[:, part].sum(axis=1, keepdims=True)
            chosen = np.where(weights > 0, chosen, -1)
            lengths = np.full(peers.shape, np.nan)
            choice = Choice(chosen, weights, 1.0 - weights.sum(axis=1))
            trust = trust.updated(peers, losses, lengths, choice)
            found.append(Round(r, peers, losses, lengths, choice, trust))
        return tuple(found)
