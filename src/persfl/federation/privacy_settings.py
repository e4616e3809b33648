"""What an owner promises each row: the table `[privacy]` of a node's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from persfl.checks import real, some, whole
from persfl.errors import InputError
from persfl.federation.plain_settings import settings_from
from persfl.files import read_toml
from persfl.privacy import PLANNED, Accountant, PrivacyBudget, answer_cost
from persfl.privacy.accountant import UNITS
from persfl.privacy.choice import WIDTH
from persfl.types import Array

LEARNING = 1.0 - UNITS  # of the budget is for sums, or else for steps and losses


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """`epsilon` and `delta` are for everything that leaves, to whoever asks, for ever.

    `clip`: how long a row may be in units of usual length; "auto" is the usual length of as many
    columns. `answers`: how many noised answers the budget is for, where sums are not told.
    `rows`: about how many rows there are, if that is public; it is told. `ranges` and `label`:
    lowest and highest value of each column and of the label, from what is known without looking at
    the rows. Sums need them.

    >>> settings = PrivacySettings(epsilon=3.0, ranges={"age": [0, 120]})
    >>> settings.lacking(["age", "dose"])
    ['dose', 'the label']
    """

    epsilon: float
    delta: float = 1e-5
    clip: float | str = "auto"
    answers: int = PLANNED
    rows: int = 0
    ranges: Mapping[str, object] = field(default_factory=dict)
    label: tuple[float, ...] = ()

    @staticmethod
    def read(path: Path) -> PrivacySettings | None:
        """The `[privacy]` table of a file; None where there is none, and nothing is protected."""
        what = f"the privacy settings in {path.name!r}"
        told = read_toml(path, what).get("privacy")
        if told is None:
            return None
        return settings_from(PrivacySettings, told, "the privacy settings")

    def __post_init__(self) -> None:
        _ = self.budget
        whole("answers", self.answers, least=1)
        whole("rows", self.rows, least=0)
        if self.clip != "auto":
            real("clip", self.clip, above=0)
        known = {"the label": self.label} if self.label else {}
        for name, pair in [*self.ranges.items(), *known.items()]:
            if not is_range(pair):
                raise InputError(
                    f"the range of {name!r} must be its lowest and its highest value, such as"
                    f" [0, 120]. Got {pair!r}."
                )

    @property
    def budget(self) -> PrivacyBudget:
        """What may be spent in all."""
        return PrivacyBudget(epsilon=self.epsilon, delta=self.delta)

    @property
    def noise_of_sums(self) -> float:
        """The noise multiplier of sums, which are told once."""
        return self.budget.multiplier(1, LEARNING)

    @property
    def noise_of_units(self) -> float:
        """The noise multiplier of what units are made of, where sums are not told; told once."""
        return self.budget.multiplier(1, UNITS)

    @property
    def noise(self) -> float:
        """The noise multiplier of any other answer."""
        return self.budget.multiplier(self.answers, LEARNING)

    def answers_left(self, account: Accountant, *, units: bool) -> int:
        """How many such answers fit, beside units that are still to be paid for."""
        kept = 0.0 if units else answer_cost(self.noise_of_units)
        return account.after(kept).answers(self.noise)

    def length(self, usual: float) -> float:
        """How long a row, or its gradient, may be."""
        return usual if isinstance(self.clip, str) else float(self.clip)

    def lacking(self, columns: Sequence[str], classes: int = 0) -> list[str]:
        """Columns whose range is not declared; of classes that of the label is known."""
        absent = [name for name in columns if name not in self.ranges]
        return absent if self.label or classes else [*absent, "the label"]

    def pairs(self, columns: Sequence[str], classes: int = 0) -> Array:
        """(columns and the label, 2) declared ranges."""
        absent = self.lacking(columns, classes)
        if absent:
            raise InputError(
                f"sums need the range of {some(absent)}. Declare it in [privacy.ranges], or as"
                " label in [privacy]."
            )
        label = (0.0, max(classes - 1.0, 1.0)) if classes else self.label
        return np.array(
            [*(self.ranges[name] for name in columns), label], dtype=np.float64
        )

    def declared(self, columns: Sequence[str]) -> list[object]:
        """Ranges as devices tell them: of each column and, last, the label; [] where there is
        none.
        """
        each = [self.ranges.get(name, []) for name in columns]
        return [*each, list(self.label)]

    def units(self, columns: Sequence[str]) -> tuple[Array, Array]:
        """Middle and scale of columns and, last, the label: a range is as wide as even values of
        spread 1 are.
        """
        pairs = self.pairs(columns)
        return pairs.mean(axis=1), (pairs[:, 1] - pairs[:, 0]) / WIDTH


def is_range(pair: object) -> bool:
    """Whether this is a lowest and a highest value.

    >>> is_range([0, 120]), is_range([3, 1]), is_range([])
    (True, False, False)
    """
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    plain = all(type(v) in (int, float) and abs(v) < 1e100 for v in pair)
    return plain and pair[0] < pair[1]
