"""From settings to rounds: which generator runs over a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from persfl.adopters import Best, TopK
from persfl.baselines import ditto, fedavg, finetuned, ifca, local, pooled
from persfl.fleets import ArrayFleet
from persfl.lab.figure_specs import Settings
from persfl.loop import personalize
from persfl.samplers import SameCluster
from persfl.types import Adopter, IntArray, Round


def rounds_of(
    settings: Settings,
    fleet: ArrayFleet,
    run: IntArray,
    clusters: IntArray,
    seed: int,
) -> Iterator[Round]:
    """The rounds of the settings' method.

    Devices belong to a run, whose others they may ask, and in it to a cluster.
    """
    s = settings
    length: dict[str, Any] = {"rounds": s.rounds, "seed": seed}
    match s.method:
        case "ifca":
            return ifca(fleet, told=s.told, share=s.share, **length)
        case "fedavg":
            return fedavg(fleet, share=s.share, **length)
        case "finetuned":
            return finetuned(
                fleet, alone=min(s.alone, s.rounds), share=s.share, **length
            )
        case "ditto":
            return ditto(fleet, pull=s.pull, share=s.share, **length)
        case "pooled":
            return pooled(fleet, **length)
        case "local":
            return local(fleet, **length)
        case "oracle":
            sampler = SameCluster(run * s.clusters + clusters, 1)
        case _:
            # A uniform draw among the devices of the target's own run.
            sampler = SameCluster(run, s.peers)
    adopter: Adopter = Best() if s.top == 1 else TopK(s.top)
    return personalize(fleet, sampler=sampler, adopter=adopter, **length)
