"""The numbers that blend was tuned with, each with its reason; a caller may change any of them.

>>> from dataclasses import replace
>>> replace(USUAL, groups=4).groups
4
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """Linear models under other losses: gradient steps."""

    own_steps: tuple[int, ...] = (0, 3, 10, 30, 100, 300)
    """Own steps from each start, after which there is an offer."""
    level_steps: int = 100
    """Steps toward a device's own level, of the intercept alone."""
    longest: float = 0.5
    """The longest step, for up to 64 features of spread 1."""
    slower: float = 0.6
    """Own steps against those of others: few rows, and many steps."""
    pool_rounds: int = 30
    """Accelerated steps to one model for all: classes need more than squared loss."""
    shrink: float = 0.5
    """The weight of squared slopes of that model, against the sum of the losses."""
    near_rounds: int = 20
    """Rounds of averaging the steps of the nearest, ..."""
    near_steps: int = 10
    """... each of so many steps."""
    rounds: int = 8
    """Of the search for neighbours, ..."""
    short: int = 5
    """... each of so many steps: answers should still be near the question."""


@dataclass(frozen=True, kw_only=True)
class DescentSettings:
    """Networks, and other vectors that take gradient steps."""

    rate: float = 0.01
    """Of Adam, where the learner has none of its own."""
    own_steps: tuple[int, ...] = (30, 150)
    """Own steps from the module's own weights."""
    tuning_steps: tuple[int, ...] = (0, 10, 30, 100)
    """Own steps from another model, ..."""
    slower: float = 0.3
    """... which are slower: it is near already."""
    pool_steps: int = 100
    """Steps of averaged gradients to one model for all."""
    near_steps: int = 20
    """Steps of the nearest's averaged gradients: every one is a question, so few ..."""
    faster: float = 3.0
    """... and fast."""
    peers: int = 10
    """That a copy asks in a round of the search, at most."""
    rounds: int = 8
    """Of the search for neighbours, ..."""
    short: int = 5
    """... each of so many steps."""
    paced: int = 100
    """Devices at most that show how long steps may be, ..."""
    paces: int = 7
    """... asked so often at most, each time a quarter of the length before, ..."""
    longest: float = 1.0
    """... from this one on, ..."""
    falls: float = 0.9
    """... until the own loss of such a share of them falls, or of all but one of three or more."""
    worse: float = 4.0
    """An answer that multiplies the own loss by more is put aside: steps can run away."""
    room: int = 2**26
    """Numbers of models and rows that are worked on at a time."""


@dataclass(frozen=True, kw_only=True)
class RefitSettings:
    """Trees, and everything else that is only refitted."""

    own_weights: tuple[float, ...] = (1.0, 10.0)
    """What own rows weigh against the public points, when a start is refitted to them."""
    peers: int = 5
    """That a copy asks in a round of the search, at most."""
    rounds: int = 3
    """Of the search for neighbours: a refit takes long."""
    together: int = 8
    """Neighbours whose last answers are mixed: several trees are better than one."""


@dataclass(frozen=True, kw_only=True)
class BlendSettings:
    """What all families share, and each family's own."""

    groups: int = 8
    """A device is offered what other groups know: one peer in eight is never asked."""
    folds: int = 5
    """Of own rows, ..."""
    class_folds: int = 3
    """... of rows with classes: each should be left on the other side, ..."""
    blocks: int = 2
    """... and of rows in the order of time."""
    hidden: float = 0.3
    """What a row weighs in the evidence whose class no other row has."""
    fleet: int = 400
    """Devices at most that tell what the fleet is like: their mean is known well enough."""
    steps: StepSettings = StepSettings()
    descent: DescentSettings = DescentSettings()
    refits: RefitSettings = RefitSettings()

    def count(self, classes: int, ordered: bool) -> int:
        """How many folds."""
        if ordered:
            return self.blocks
        return self.class_folds if classes else self.folds


USUAL = BlendSettings()
