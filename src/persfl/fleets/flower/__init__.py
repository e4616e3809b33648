"""A real federation: the same loop between machines, over Flower (extra `flower`).

`FlowerFleet` is the fleet that `personalize` drives; `persfl.fleets.flower.server:app` and
`persfl.fleets.flower.client:app` are the ServerApp and the ClientApp of a Flower federation;
`Device` is what answers at home. The code is in `persfl.federation`.
"""

from persfl.federation.device import Device
from persfl.federation.fleet import FlowerFleet
from persfl.federation.ledger import Ledger
from persfl.federation.model_store import Shelf
from persfl.federation.policy import Policy
from persfl.federation.post import Post
from persfl.federation.reply_inbox import Failed
from persfl.federation.roster import Roster
from persfl.federation.row_table import Rows

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
