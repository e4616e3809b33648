"""The paper's loop with a bandit that learns whom to ask: UCB and Thompson sampling.

reward of an answer = by how much it lowers the asker's loss
UCB asks the peers with the largest   mean + explore * sqrt(2 log(asked) variance / times),
Thompson those with the largest draw from   N(mean, variance / times),
of their rewards so far. Both ask everybody once before they ask anybody twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from persfl.methods.method_fields import setting
from persfl.methods.paper import Paper
from persfl.samplers.bandits import UCB, Thompson
from persfl.samplers.nobody import Nobody
from persfl.types import Sampler


@dataclass(frozen=True)
class AskByUCB(Paper):
    """Ask those whose answers helped, or of whom too little is known."""

    name: ClassVar[str] = "ucb"
    about: ClassVar[str] = (
        "The paper's loop, asking by upper confidence bounds of rewards"
    )
    source: ClassVar[str] = "Auer, Cesa-Bianchi, Fischer 2002"

    explore: float = setting(1.0, "how much what is unknown counts")

    def asks(self, peers: int, n: int) -> Sampler:
        """Those of highest bound."""
        return UCB(peers, self.explore) if n > 1 else Nobody()


@dataclass(frozen=True)
class AskByThompson(Paper):
    """Ask those who may be the best, as often as they may be."""

    name: ClassVar[str] = "thompson"
    about: ClassVar[str] = (
        "The paper's loop, asking by rewards drawn from what is known"
    )
    source: ClassVar[str] = "Thompson 1933"

    def asks(self, peers: int, n: int) -> Sampler:
        """Those of highest draw."""
        return Thompson(peers) if n > 1 else Nobody()
