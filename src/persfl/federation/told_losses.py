"""What devices tell in a blend of counts or robust losses: how it travels, and whether rows can be
behind it.

Sums over working rows are sums over rows (see `told_sums`), and obey the same laws. Of robust
losses every row weighs 1, so that the column of ones sums to the weight, and no row is further away
than psi can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from persfl.federation.told_sums import ROUNDING, LinearSums, is_of_rows
from persfl.learners.linear import Linear
from persfl.methods.blend.fixed_point import LONG, counted
from persfl.methods.blend.forms import Form
from persfl.methods.blend.loss_questions import LOSS_QUESTIONS
from persfl.methods.blend.question_base import Question, reply_numbers
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.hidden_rows import PARTS, folds_of
from persfl.methods.mixed.loss_home import ToldAt
from persfl.methods.mixed.offers_from_sums import offer_names
from persfl.methods.mixed.working_rows import LossSums, most_left
from persfl.types import Array
from persfl.wire.terms import Terms

FAR = 1e6  # no coefficient is larger, in shared units


@dataclass(frozen=True, eq=False)
class LossFamily(LinearSums):
    """Linear models of counts or under a robust loss, as
    `persfl.methods.blend.forms.ModelFamily`.
    """

    questions: ClassVar[tuple[type[Question], ...]] = LOSS_QUESTIONS

    @staticmethod
    def of(terms: Terms) -> LossFamily:
        """Of a run."""
        return LossFamily(terms.learner(), terms.features)

    @property
    def offers(self) -> int:
        """How many there are."""
        return len(offer_names(self.level))

    def folds(self, ordered: bool) -> int:
        """How many hide rows."""
        return len(folds_of(np.arange(PARTS), ordered=ordered))

    def start_forms(self) -> Mapping[str, Form]:
        """Nothing is offered to be judged at home."""
        return {}

    def written(self, sums: Sequence[LossSums]) -> dict[str, Array]:
        """One device's sums at some places, as arrays; `read` takes them back."""
        every = LossSums(*(np.concatenate(each) for each in zip(*sums, strict=True)))
        upper = np.triu_indices(every.product.shape[1])
        return every._replace(square=every.square[:, *upper])._asdict()

    def read(
        self, told: Mapping[str, Any], reach: Array, size: int, *, level: bool
    ) -> LossSums | None:
        """A device's sums at places of this reach, of so many columns, the first of which may be
        the level; None where they are no sums over rows.
        """
        many = len(reach)
        upper = np.triu_indices(size)
        half = reply_numbers(told.get("square"), (many, len(upper[0])))
        square = np.zeros((many, size, size))
        square[:, *upper] = half
        square[:, *upper[::-1]] = half
        product = reply_numbers(told.get("product"), (many, size))
        label, weight, near = (
            reply_numbers(told.get(k), (many,)) for k in ("label", "weight", "near")
        )
        found = LossSums(square, product, label, weight, near)
        return found if self._lawful(found, reach, level) else None

    def _lawful(self, found: LossSums, reach: Array, level: bool) -> bool:
        if not found.weight.any():  # nothing is hidden
            return not any(array.any() for array in found)
        robust = self.learner.kind != "poisson"
        if not is_of_rows(DeviceSums(*found[:4]), level and robust):
            return False
        some = 1.0 + ROUNDING
        if not ((found.near >= 0) & (found.near <= some * found.weight)).all():
            return False
        most = np.array([most_left(self.learner, each) for each in reach])
        return bool((found.label <= some * most**2 * found.weight).all())

    def read_places(self, told: Mapping[str, Any], reach: Array) -> ToldAt | None:
        """The same with how far the device has gone to each place."""
        sums = self.read(told, reach, self.size, level=self.level)
        part = reply_numbers(told.get("part"), (len(reach),))
        if sums is None or not sums.weight.any():
            return None
        if not ((part > 0) & (part <= 1)).all():
            return None
        return ToldAt(sums, part)


def counting_losses(learner: Linear, sums: LossSums) -> Array:
    """(devices,) what the sums of each at a place are multiplied by: 1, or less for those that tell
    of more than ten usual devices have. Rates differ more than rows do: of counts squares and
    labels may be those of a hundred. Those who tell nothing are no usual devices.

    >>> one, many = np.ones(3), np.array([1.0, 1.0, 20.0])
    >>> sums = LossSums(many[:, None, None], one[:, None], one, one, one)
    >>> counting_losses(Linear("huber"), sums).tolist()
    [1.0, 1.0, 0.5]
    >>> counting_losses(Linear("poisson"), sums).tolist()
    [1.0, 1.0, 1.0]
    """
    weight = sums.weight
    there = weight > 0
    found = np.where(there, counted(weight) / np.maximum(weight, 1e-300), 1.0)
    if there.sum() < 3:
        return found
    counts = learner.kind == "poisson"
    sizes = [np.einsum("nii->n", sums.square)]
    if counts:  # psi is never large
        sizes.append(sums.label)
    for size in sizes:
        most = LONG ** (1 + counts) * float(np.median(size[there]))
        if most > 0:
            found = np.minimum(found, most / np.maximum(size, most))
    return found


def counting_hidden(sums: LossSums) -> Array:
    """(devices,) the same for what hidden rows say of shares: nobody's offers differ by more than
    those of ten usual devices do. What they have in common moves no share.
    """
    many = sums.square.shape[1]
    alike = np.eye(many) - 1.0 / many
    size = np.einsum("nij,ji->n", sums.square, alike)
    some = size[size > 0]
    if len(some) < 3:
        return np.ones_like(size)
    most = LONG * float(np.median(some))
    return np.asarray(most / np.maximum(size, most))
