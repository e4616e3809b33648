"""The search for neighbours: the ordinary loop, in which every copy of a target is a target and
the other groups are its peers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from persfl.loop import personalize
from persfl.methods.blend.neighbours import Neighbours
from persfl.methods.blend.question_base import Question
from persfl.methods.blend.questions import GradientSteps, Weigh
from persfl.methods.blend.site import Group
from persfl.methods.blend.views import ViewSettings
from persfl.proposers import GradientStep
from persfl.types import Answers, Array, Choice, Fleet, IntArray, Proposer, Round


class Search(NamedTuple):
    """The rounds in which neighbours were asked, and the models they led to, one per copy.

    `missing` are the starts that the budget could not pay: what stands in for them is not offered.
    """

    models: Any
    rounds: list[Round]
    missing: frozenset[str] = frozenset()


class Searchers:
    """A fleet made of questions: `asking` turns models into one, `size` numbers make a vector."""

    def __init__(
        self, group: Group, asking: Callable[[Any], Question], start: Any
    ) -> None:
        self.group = group
        self.asking = asking
        self.models: Any = np.array(start)
        self.n = group.peers + len(start)
        self.targets: IntArray = np.arange(group.peers, self.n)
        self._peers = np.empty((len(start), 0), dtype=np.int64)
        self._answers = self._shaped(self.models[:0], 0)

    def _shaped(self, answers: Any, many: int) -> Any:
        """(copies, peers, ...)"""
        return answers.reshape(len(self.models), many, *self.models.shape[1:])

    def observe(self, r: int) -> None:
        """Rows stay as they are."""

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Ask every peer, have every answer scored by its copy's rows."""
        many = peers.shape[1]
        whose = np.repeat(np.arange(len(peers)), many)
        answers = self.models[:0]
        if many:  # a round of asking nobody is no exchange
            question = self.asking(self.models[whose])
            answers = self.group.ask(question, peers.ravel(), whose)["answers"]
        self._peers, self._answers = peers, self._shaped(answers, many)
        shown = np.concatenate([self.models[:, None], self._answers], axis=1)
        weigh = Weigh(look=self.group.look, many=many + 1, models=shown)
        losses = self.group.own(weigh)["losses"]
        return Answers(losses, np.full(peers.shape, np.nan))

    def adopt(self, choice: Choice) -> None:
        """Mix what was chosen."""
        if not choice.peers.shape[1]:
            return
        at = (choice.peers[:, :, None] == self._peers[:, None, :]).argmax(axis=2)
        self.models = self._mixed(choice, at)

    def _mixed(self, choice: Choice, at: IntArray) -> Any:
        taken = np.take_along_axis(self._answers, at[:, :, None], axis=1)
        weights = choice.weights[..., None]
        parts = np.where(weights > 0, weights * taken, 0.0).sum(axis=1)
        return choice.stay[:, None] * self.models + parts


class ModelSearchers(Searchers):
    """The same for models that have no mean: the one with the largest weight is taken whole."""

    def _mixed(self, choice: Choice, at: IntArray) -> Any:
        models = self.models.copy()
        for t in np.flatnonzero(choice.stay < 1):
            models[t] = self._answers[t, at[t, choice.weights[t].argmax()]]
        return models


def neighbours(group: Group, fleet: Fleet, rule: Neighbours, rounds: int) -> Search:
    """What asking neighbours from the fleet's models leads to."""
    found = personalize(
        fleet, sampler=rule.sampler, adopter=rule, rounds=rounds, seed=group.seed
    )
    done = list(found)
    return Search(fleet.models, done)


def question_of(proposer: Proposer, look: ViewSettings) -> Callable[[Any], Question]:
    """What a proposer asks about models, as a question."""
    assert isinstance(proposer, GradientStep)
    return partial(_steps, look, proposer)


def _steps(look: ViewSettings, step: GradientStep, models: Array) -> GradientSteps:
    return GradientSteps(
        look=look, models=models, step=step.step_size, steps=step.steps
    )


def unpaid(missing: dict[str, bool]) -> frozenset[str]:
    """The names of those that are missing."""
    return frozenset(name for name, gone in missing.items() if gone)


def first_losses(group: Group, models: Array) -> Array:
    """(copies,) the loss of one model each."""
    question = Weigh(look=group.look, many=1, models=models[:, None])
    return np.asarray(group.own(question)["losses"][:, 0])
