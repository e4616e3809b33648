"""A plain network for tables: fully connected layers with a bend between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from persfl.checks import one_of, whole
from persfl.errors import InputError, need

BENDS = {"relu": "ReLU", "tanh": "Tanh"}


@dataclass(frozen=True)
class MLP:
    """Makes a module for so many features and outputs: what `PersonalizedRegressor(MLP())` and
    `persfl fit --model mlp` use.

    >>> MLP(hidden=(8,))(features=3, outputs=1)
    Sequential(
      (0): Linear(in_features=3, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=1, bias=True)
    )
    """

    hidden: tuple[int, ...] = (32,)
    activation: str = "relu"

    def __post_init__(self) -> None:
        widths: Any = self.hidden
        if isinstance(widths, (str, bytes)) or not isinstance(widths, Iterable):
            raise InputError(
                "hidden must be the widths of the layers between, such as (32, 16). Got"
                f" {widths!r}."
            )
        object.__setattr__(
            self, "hidden", tuple(whole("hidden", width, least=1) for width in widths)
        )
        one_of("activation", self.activation, list(BENDS))

    def __call__(self, features: int, outputs: int) -> Any:
        nn = need("torch.nn", extra="torch", why="a network")
        widths = [features, *self.hidden, outputs]
        layers: list[Any] = []
        for i, (here, there) in enumerate(pairwise(widths)):
            layers += [vars(nn)[BENDS[self.activation]]()] if i else []
            layers.append(nn.Linear(here, there))
        return nn.Sequential(*layers)
