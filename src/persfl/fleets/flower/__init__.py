"""A real federation: the same loop between machines, over Flower (extra `flower`).

`FlowerFleet` is the fleet that `personalize` drives; `persfl.fleets.flower.server:app` and
`persfl.fleets.flower.client:app` are the ServerApp and the ClientApp of a Flower federation;
`Device` is what answers at home.
"""

from persfl.fleets.flower.device import Device, Rows
from persfl.fleets.flower.fleet import FlowerFleet
from persfl.fleets.flower.ledger import Ledger
from persfl.fleets.flower.policy import Policy
from persfl.fleets.flower.post import Failed, Post
from persfl.fleets.flower.roster import Roster
from persfl.fleets.flower.shelf import Shelf

__all__ = [
    "Device",
    "Failed",
    "FlowerFleet",
    "Ledger",
    "Policy",
    "Post",
    "Roster",
    "Rows",
    "Shelf",
]
