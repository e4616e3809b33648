"""Learners and their models as plain data, and back: one codec per family, for disk and wire.

Nothing here can name a type or hold code. Everything that is read is checked before it is used: no
index leads out of its tree, every number is finite, every size is known.
"""

from persfl.learners.storage.family_table import (
    learner_from,
    learner_to,
    model_to,
    models_from,
    models_to,
    read_model,
    refuse_unfit,
)
from persfl.learners.storage.mixtures import mixtures_from, mixtures_to
from persfl.learners.storage.named_arrays import AnyArray, Arrays, prefixed, under
from persfl.learners.storage.network_files import (
    AbsentNetwork,
    check_network_size,
    network_from,
    networks_from,
    networks_to,
)

__all__ = [
    "AbsentNetwork",
    "AnyArray",
    "Arrays",
    "check_network_size",
    "learner_from",
    "learner_to",
    "mixtures_from",
    "mixtures_to",
    "model_to",
    "models_from",
    "models_to",
    "network_from",
    "networks_from",
    "networks_to",
    "prefixed",
    "read_model",
    "refuse_unfit",
    "under",
]
