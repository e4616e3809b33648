"""Fields of questions that hold models, or what models say at public points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from persfl.methods.blend.forms import (
    Form,
    Look,
    ModelFamily,
    Shape,
    Wire,
    grouped,
    readable,
)
from persfl.traits import has_gradients
from persfl.wire.codec import WireError, nested
from persfl.wire.models import finite, model_from, model_to, probe_from, probe_to


@dataclass(frozen=True)
class Models(Form):
    """Models of the learner along these axes: vectors in one array, others each by its parts.

    `shown` vectors at most make the first axis where no size does. `loose` ones may be anything: a
    vector that is not finite has no finite loss, and a model that is not there is None.
    """

    lead: Shape = ()
    shown: int = 0
    optional: bool = False
    loose: bool = False

    def read(self, name: str, wire: Wire) -> Any:
        if has_gradients(wire.family.learner):
            return self._vectors(name, wire)
        shape = wire.shape(self.lead)
        parts = wire.parts(name)
        if self.optional and not parts:
            return None
        found = np.full(shape, None, dtype=object)
        for i, at in enumerate(product(*map(range, shape))):
            arrays = parts.get(str(i), {})
            if arrays or not self.loose:
                found[at] = one_model(arrays, wire.family)
        return found if shape else found[()]

    def _vectors(self, name: str, wire: Wire) -> Any:
        array = wire.arrays.get(name)
        if array is None and self.optional:
            return None
        if array is None or array.dtype != np.float64 or not array.ndim:
            raise WireError(f"{name} must be numbers.")
        first = (min(len(array), self.shown),) if self.shown else ()
        shape = (*first, *wire.shape(self.lead), wire.sizes["size"])
        if self.loose and array.shape == shape:
            return array
        return finite(array, shape)

    def write(self, name: str, value: Any, wire: Wire) -> None:
        if has_gradients(wire.family.learner):
            sent = np.asarray(value, dtype=np.float64)
            wire.arrays[name] = sent if self.loose else readable(sent)
            return
        flat = value.ravel() if isinstance(value, np.ndarray) else [value]
        for i, model in enumerate(flat):
            if model is not None:
                arrays = model_to(wire.family.learner, model)
                wire.arrays |= nested(f"{name}.{i}", arrays)

    def along(self, word: str) -> bool:
        return word in self.lead[:1]


@dataclass(frozen=True)
class Probes(Form):
    """What models say at the public points, one for each name."""

    def read(self, name: str, wire: Wire) -> Any:
        family = wire.family
        proposer = wire.family.proposer
        if proposer is None:
            raise WireError("there must be public points.")
        found = np.full(wire.sizes["names"], None, dtype=object)
        parts = wire.parts(name)
        for i in range(len(found)):
            arrays = parts.get(str(i), {})
            found[i] = probe_from(
                proposer, family.learner, arrays, family.features, family.classes
            )
        return found

    def write(self, name: str, value: Any, wire: Wire) -> None:
        proposer = wire.family.proposer
        assert proposer is not None
        for i, probe in enumerate(value):
            arrays = probe_to(proposer, wire.family.learner, probe)
            wire.arrays |= nested(f"{name}.{i}", arrays)

    def along(self, word: str) -> bool:
        return word == "names"


@dataclass(frozen=True)
class Mixes(Form):
    """For every copy at most so many models, each of which counts as much; or none for anybody."""

    most: int

    def read(self, name: str, wire: Wire) -> Any:
        parts = wire.parts(name)
        if not parts:
            return None
        found = []
        for c in range(wire.sizes["copies"]):
            inner = grouped(parts.get(str(c), {}))
            there = [inner[str(k)] for k in range(self.most) if str(k) in inner]
            models = [one_model(arrays, wire.family) for arrays in there]
            if not models:
                raise WireError(f"{name} must come for every copy.")
            found.append([(1.0 / len(models), model) for model in models])
        return found

    def write(self, name: str, value: Any, wire: Wire) -> None:
        for c, mix in enumerate(value):
            for k, (_, model) in enumerate(mix):
                arrays = model_to(wire.family.learner, model)
                wire.arrays |= nested(f"{name}.{c}.{k}", arrays)

    def along(self, word: str) -> bool:
        return word == "copies"


@dataclass(frozen=True)
class Starts(Form):
    """What offers are made from; they stand beside the rest of a question."""

    def read(self, name: str, wire: Wire) -> Any:
        forms = wire.family.start_forms()
        return {each: form.read(each, wire) for each, form in forms.items()}

    def write(self, name: str, value: Any, wire: Wire) -> None:
        for each, form in wire.family.start_forms().items():
            if value[each] is not None:
                form.write(each, value[each], wire)


@dataclass(frozen=True)
class Views(Form):
    """For each view: the view, and the starts in it."""

    def read(self, name: str, wire: Wire) -> Any:
        views = wire.head.get("views")
        if views != list(wire.family.views):
            raise WireError("a mix must be of all views.")
        found = []
        for k, view in enumerate(views):
            one = wire.inside(f"v{k}")
            one.head = {"view": view}
            found.append((Look().read("look", one), Starts().read("starts", one)))
        return tuple(found)

    def write(self, name: str, value: Any, wire: Wire) -> None:
        wire.head["views"] = []
        for k, (look, starts) in enumerate(value):
            one = Wire(wire.family)
            Look().write("look", look, one)
            Starts().write("starts", starts, one)
            wire.head["views"].append(one.head["view"])
            wire.arrays |= nested(f"v{k}", one.arrays)


def one_model(arrays: Mapping[str, Any], family: ModelFamily) -> Any:
    """A model of the family that somebody else sent."""
    return model_from(family.learner, arrays, family.features, family.classes)
