"""FedRep: a body that all devices share, and heads that are fitted to it before it moves.

head_i <- `head` steps of device i on its head, at the common body
body_i <- `local` steps on the body, at that head
body   <- mean over participants of body_i, weighted by their rows

FedPer moves both at once. The head is a network's last layer, or a linear model's level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from persfl.checks import whole
from persfl.methods.fedper import Stages
from persfl.methods.method_fields import setting
from persfl.methods.shared_method import SharedMethod
from persfl.methods.shared_models import participants, quiet_round
from persfl.seeds import stream
from persfl.trust import Trust
from persfl.types import Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


@dataclass(frozen=True)
class FedRep(SharedMethod):
    """One body for everybody; heads are fitted to it first."""

    name: ClassVar[str] = "fedrep"
    about: ClassVar[str] = "One body for all devices; own heads are fitted to it first"
    source: ClassVar[str] = "Collins, Hassani, Mokhtari, Shakkottai 2021"
    leaves: ClassVar[str] = (
        "Where its steps take the common body, and how many rows it has. Over a federation its"
        " whole model, and its losses."
    )

    head: int = setting(10, "steps of a head in a round")
    local: int = setting(1, "steps of the body in a round")
    share: float = setting(1.0, "the share of the devices that take part in a round")

    def rounds_over(
        self, fleet: InProcessFleet, rounds: int, seed: int
    ) -> Iterator[Round]:
        """Each round participants fit their heads, then step the body, which is averaged."""
        fits = whole("head", self.head, least=1)
        local = whole("local", self.local, least=1)
        stages = Stages(fleet, seed)
        trust = Trust.blank(fleet)
        for r in range(rounds):
            who = participants(fleet, self.share, r, seed)
            place = stream(seed, "answer", r)
            mine = stages.models[who]
            head = stages.head
            mine = stages.stepped(mine, who, place.at(0), steps=fits, part=head)
            mine = stages.stepped(mine, who, place.at(1), steps=local, part=~head)
            stages.share(mine, who)
            stages.hand_out(r)
            yield quiet_round(fleet, r, trust)
