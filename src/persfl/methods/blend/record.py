"""The rounds of all groups and views put together, as if all devices had asked side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from persfl.trust import Trust
from persfl.types import Array, Choice, IntArray, Round


class Heard:
    """Collects rounds; `squared` says that losses have the square of the labels' units."""

    def __init__(self, n: int, squared: bool) -> None:
        self.n, self.squared = n, squared
        self._entries: dict[tuple[str, int], list[Any]] = {}

    def add(
        self,
        view: str,
        rounds: list[Round],
        mine: IntArray,
        rest: IntArray,
        each: int,
        scale: float,
    ) -> None:
        """Rounds of one group: of every `each` copies of a device the first, which has all its
        rows, counts.
        """
        unit = scale**2 if self.squared else 1.0
        for round_ in rounds:
            peers, took = round_.peers[::each], round_.choice.peers[::each]
            entry = (
                mine,
                np.where(peers >= 0, rest[peers], -1),
                round_.losses[::each] * unit,
                np.where(took >= 0, rest[took], -1),
                round_.choice.weights[::each],
            )
            self._entries.setdefault((view, round_.r), []).append(entry)

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
            wide = max(entry[1].shape[1] for entry in entries)
            peers, losses = (
                np.full((self.n, wide), -1),
                np.full((self.n, wide + 1), np.inf),
            )
            chosen, weights = np.full((self.n, wide), -1), np.zeros((self.n, wide))
            for mine, who, said, took, share in entries:
                k = who.shape[1]
                (
                    peers[mine, :k],
                    losses[mine, : k + 1],
                    chosen[mine, :k],
                    weights[mine, :k],
                ) = (
                    who,
                    said,
                    took,
                    share,
                )
            part = [
                i
                for i, name in enumerate(names)
                if name.startswith(f"{view} neighbours")
            ]
            weights = weights * mix[:, part].sum(axis=1, keepdims=True)
            chosen = np.where(weights > 0, chosen, -1)
            lengths, choice = (
                np.full(peers.shape, np.nan),
                Choice(chosen, weights, 1.0 - weights.sum(axis=1)),
            )
            trust = trust.updated(peers, losses, lengths, choice)
            found.append(Round(r, peers, losses, lengths, choice, trust))
        return tuple(found)
