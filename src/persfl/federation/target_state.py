"""What is known at the coordinator of each target: its probe, its model, what it still has to
be told to adopt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from persfl.errors import InputError
from persfl.federation.adoptions import Adoption, adoption_from, adoptions_to
from persfl.federation.messages import Arrays
from persfl.federation.run_codec import RunCodec
from persfl.traits import has_statistics
from persfl.types import Model, Probe
from persfl.wire.codec import nested, within


class TargetStates:
    """`count` targets of a run.

    `probes` are None where a target must be asked for its own, `models` where it still has the one
    it made at home.
    """

    def __init__(self, codec: RunCodec, count: int) -> None:
        self.codec = codec
        self.probes: list[Probe | None] = [None] * count
        self.models: list[Model | None] = [None] * count
        self.pending: list[list[Adoption]] = [[] for _ in range(count)]
        self.own = np.full(count, np.inf)
        # A local step or running statistics are known to the target alone.
        self.eager = codec.terms.local is not None or has_statistics(codec.learner)

    def adopt(self, t: int, told: Adoption) -> None:
        """Note what a target is to adopt, and what its probe will then be."""
        self.pending[t].append(told)
        if self.models[t] is not None or told.stay == 0:
            self.models[t] = self.codec.mixed(
                self.models[t], told.pieces, told.weights, told.stay
            )
        if not self.eager and len(self.pending[t]) > 1:
            # It missed a round: the model it comes to says all, and a message does not grow with
            # every round it is away.
            self._replace(t, told.round)
        if self.eager:
            self.probes[t] = None
        elif told.pieces:
            self.probes[t] = self.codec.probe_of(self.models[t])

    def tell(self, t: int, arrays: Arrays) -> None:
        """A target's own probe, as it sent it."""
        self.probes[t] = self.codec.probe_from(arrays)
        if self.codec.models_travel:
            self.models[t] = self.probes[t]

    def hand_in(self, start: Sequence[Model]) -> None:
        """Models to start from."""
        if len(start) != len(self.probes):
            raise InputError(
                f"start must hold one model per target ({len(self.probes)}). Got {len(start)}."
            )
        for t, given in enumerate(start):
            self.models[t] = self.codec.model_from(self.codec.model_to(given))
            self._replace(t, -1)
            self.probes[t] = self.codec.probe_of(self.models[t])

    def before(self, r: int) -> None:
        """Models that were handed in are those before the first round that is run."""
        for waiting in self.pending:
            if waiting and waiting[0].anew and waiting[0].round < 0:
                waiting[0] = waiting[0]._replace(round=r - 1)

    def recover(self, t: int, r: int) -> None:
        """A target that has lost its model gets back the one that was seen here last, if any."""
        self._replace(t, r - 1)

    def _replace(self, t: int, r: int) -> None:
        """Have a target take the model that is known here, if any, as that after round `r`."""
        if self.models[t] is not None:
            self.pending[t] = [Adoption.whole(r, self.models[t], anew=True)]

    def to_wire(self) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
        """A head per target, and arrays."""
        heads: list[dict[str, Any]] = []
        arrays: dict[str, NDArray[Any]] = {"own": self.own}
        for t, (probe, model) in enumerate(zip(self.probes, self.models, strict=True)):
            waiting, more = adoptions_to(self.codec, self.pending[t])
            heads.append(
                {
                    "probe": probe is not None,
                    "model": model is not None,
                    "pending": [
                        [a["round"], a["stay"], a["weights"], a["set"]] for a in waiting
                    ],
                }
            )
            if probe is not None:
                more |= nested("probe", self.codec.probe_to(probe))
            if model is not None:
                more |= nested("model", self.codec.model_to(model))
            arrays |= nested(f"t{t}", more)
        return heads, arrays

    def restore(self, heads: Sequence[Mapping[str, Any]], arrays: Arrays) -> None:
        """The inverse of `to_wire`."""
        self.own = np.array(arrays["own"], dtype=np.float64)
        if self.own.shape != (len(self.probes),):
            raise InputError(
                f"there must be a loss of each of {len(self.probes)} targets."
            )
        names = ("round", "stay", "weights", "set")
        for t, told in enumerate(heads):
            inner = within(f"t{t}", arrays)
            if told["probe"]:
                self.probes[t] = self.codec.probe_from(within("probe", inner))
            if told["model"]:
                self.models[t] = self.codec.model_from(within("model", inner))
            for i, given in enumerate(told["pending"]):
                head = dict(zip(names, given, strict=True))
                one = adoption_from(self.codec, head, within(f"a{i}", inner))
                self.pending[t].append(one)
