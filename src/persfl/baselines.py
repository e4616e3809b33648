"""Rivals as short generators over the same learners and proposers; they live in `persfl.methods`.

Each takes an `ArrayFleet`, keeps the targets' models in it and yields the same `Round` as
`personalize`. Where models are shared instead of owned nobody is asked by a target, so `peers` is
empty. The oracle needs no file: it is `personalize` with the sampler
`SameCluster(labels, 1)`.
"""

from persfl.methods.ditto import ditto
from persfl.methods.fedavg import fedavg
from persfl.methods.fedavg_fine_tuned import finetuned
from persfl.methods.ifca import ifca
from persfl.methods.own import local
from persfl.methods.pooled import pooled

__all__ = ["ditto", "fedavg", "finetuned", "ifca", "local", "pooled"]
