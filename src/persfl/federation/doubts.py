"""Exchanges in which devices may tell what no rows can have, or far more than is usual: who does,
and what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from persfl.checks import those
from persfl.errors import InputError
from persfl.federation.blend_exchange import NOTHING, BlendExchange, BlendScene
from persfl.federation.letters import Letters, capital
from persfl.methods.blend.forms import ModelFamily


class DoubtfulExchange(BlendExchange):
    """As `BlendExchange`; `wrong` are those who told such things, `heavy` who counts for less."""

    def __init__(
        self, letters: Letters, family: ModelFamily, scene: BlendScene
    ) -> None:
        super().__init__(letters, family, scene)
        self.wrong: set[int] = set()
        self.heavy: set[int] = set()

    def doubted(self, i: int, told: Mapping[str, Any], number: int) -> None:
        """Note that a device answered an exchange with what no rows can be behind, if it did."""
        if told is not NOTHING:
            self.wrong.add(i)
            self.roster.count(self.ids[i], "answered", -1)
            self.roster.failed(self.ids[i], number, "format")

    def nobody(self) -> InputError:
        """What to say where there is nothing to go by."""
        return InputError(
            "no device tells sums over its rows, which these models are made of."
            " Allow sums in the nodes' policies, or use --method paper."
        )

    def noted(self) -> None:
        """Say who is left out, or counts for less."""
        wrong = [self.ids[i] for i in sorted(self.wrong)]
        heavy = [self.ids[i] for i in sorted(self.heavy)]
        if wrong:
            one = "tells what no rows can have"
            said = capital(those(wrong, one, one.replace("tells", "tell")))
            self.notes.append(f"{said}, which does not count.")
        if heavy:
            one = "tells sums that are far larger than usual"
            said = capital(those(heavy, one, one.replace("tells", "tell")))
            self.notes.append(
                f"{said}, and {'count' if heavy[1:] else 'counts'} for less."
            )
