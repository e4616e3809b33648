"""Samplers: whom to ask. A sampler is a function of (trust, round, seed) to (T, S) device
indices, never the target itself.
"""

from persfl.samplers.bandits import UCB, Thompson
from persfl.samplers.nobody import Nobody
from persfl.samplers.same_cluster import SameCluster
from persfl.samplers.uniform import Uniform

__all__ = ["UCB", "Nobody", "SameCluster", "Thompson", "Uniform"]
