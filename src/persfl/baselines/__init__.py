"""Baselines: what persfl is compared with, as short generators over the same learners and
proposers.

Each takes an `ArrayFleet`, keeps the targets' models in it and yields the same `Round` as
`personalize`. Where models are shared instead of owned nobody is asked by a target, so `peers` is
empty. The oracle needs no file: it is `personalize` with the sampler
`SameCluster(labels, 1)`.
"""

from persfl.baselines.ditto import ditto
from persfl.baselines.fedavg import fedavg
from persfl.baselines.finetuned import finetuned
from persfl.baselines.ifca import ifca
from persfl.baselines.local import local
from persfl.baselines.pooled import pooled

__all__ = ["ditto", "fedavg", "finetuned", "ifca", "local", "pooled"]
