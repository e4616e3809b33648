"""From a figure's settings to rounds over a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from persfl.adopters.best import Best
from persfl.adopters.topk import TopK
from persfl.lab.figure_settings import Settings
from persfl.loop import personalize
from persfl.methods.ditto import Ditto
from persfl.methods.fedavg import FedAvg
from persfl.methods.fedavg_fine_tuned import finetuned
from persfl.methods.ifca import IFCA
from persfl.methods.own import local
from persfl.methods.pooled import pooled
from persfl.samplers.same_cluster import SameCluster
from persfl.types import Adopter, IntArray, Round

if TYPE_CHECKING:
    from persfl.fleets.in_process import InProcessFleet


def rounds_of(
    settings: Settings,
    fleet: InProcessFleet,
    run: IntArray,
    clusters: IntArray,
    seed: int,
) -> Iterator[Round]:
    """The rounds of the settings' method.

    Devices belong to a run, whose others they may ask, and in it to a cluster.
    """
    s = settings
    rounds = s.rounds
    match s.method:
        case "ifca":
            return IFCA(s.told, share=s.share).rounds_over(fleet, rounds, seed)
        case "fedavg":
            return FedAvg(share=s.share).rounds_over(fleet, rounds, seed)
        case "ditto":
            return Ditto(s.pull, share=s.share).rounds_over(fleet, rounds, seed)
        case "finetuned":
            alone = min(s.alone, rounds)
            return finetuned(
                fleet, alone=alone, rounds=rounds, share=s.share, seed=seed
            )
        case "pooled":
            return pooled(fleet, rounds=rounds, seed=seed)
        case "local":
            return local(fleet, rounds=rounds, seed=seed)
        case "oracle":
            sampler = SameCluster(run * s.clusters + clusters, 1)
        case _:
            # A uniform draw among the devices of the target's own run.
            sampler = SameCluster(run, s.peers)
    adopter: Adopter = Best() if s.top == 1 else TopK(s.top)
    return personalize(
        fleet, sampler=sampler, adopter=adopter, rounds=rounds, seed=seed
    )
