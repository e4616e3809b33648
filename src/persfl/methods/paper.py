"""Algorithm 1 as printed: every round a device asks some peers, and adopts the best answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from persfl.checks import whole
from persfl.errors import InputError
from persfl.methods.loop_plan import loop_plan
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.training.state import (
    Keep,
    Plan,
    State,
    peers_asked,
    peers_of,
    rounds_for,
)
from persfl.training.train import train
from persfl.types import Adopter, Sampler

LEAVES = (
    "When it asks: its model, or what that says of public points. When it is asked: a model after a"
    " step on its rows, or labels of public points. Over a federation also its losses."
)


@dataclass(frozen=True)
class Paper(MethodSettings):
    """Ask a few peers each round, score their answers on own rows, adopt the best.

    >>> from persfl import Linear
    >>> from persfl.methods import LocalTask
    >>> from persfl.sources import clustered_regression
    >>> rows = clustered_regression(n=30, clusters=2, rows=10, features=5, seed=0)
    >>> state = Paper(peers=5, rounds=50).run(LocalTask(rows, Linear()))
    >>> state.r, bool(state.losses[-1].mean() < state.losses[0].mean())
    (50, True)
    """

    name: ClassVar[str] = "paper"
    about: ClassVar[str] = "Models were made by asking peers as the paper has it"
    source: ClassVar[str] = "the paper that persfl follows, Algorithms 1 and 2"

    peers: int | str = setting(
        "auto", "peers that a device asks each round; auto: 20, or all there are"
    )
    rounds: int | str = setting(
        "auto", "rounds; auto: 100, or 20 for models that are refitted"
    )
    step_size: float | str = setting("auto", "the first step; halved if losses grow")
    adopter: Adopter | None = setting(  # noqa: RUF009
        None, "which answers are adopted; None: the best"
    )
    online_rounds: int = setting(10, "rounds after each call of partial_fit")

    def needs(self) -> Needs:
        return Needs(leaves=LEAVES)

    def run(
        self, task: Task, *, stage: str = "final", keep: Keep | None = None
    ) -> State:
        rounds = rounds_for(self.rounds, task.learner)
        return train(task, self._plan(task, rounds), stage=stage, keep=keep)

    def go_on(self, task: Task, state: State) -> State:
        """Some more rounds, on the rows as they are now."""
        more = whole("online_rounds", self.online_rounds, least=0)
        return train(task, self._plan(task, state.r + more), start=state)

    def sampler(self, n: int) -> Sampler:
        """Whom a device asks; refuses more peers than there are."""
        peers_of(self.peers, n)
        return self.asks(peers_asked(self.peers, n), n)

    def asks(self, peers: int, n: int) -> Sampler:
        """So many of `n` devices, each set equally likely."""
        return peers_of(peers, n)

    def _plan(self, task: Task, rounds: int) -> Plan:
        adopter = self.adopter
        if isinstance(adopter, type) or not (adopter is None or callable(adopter)):
            what = "adopter must be a part such as TopK(4), or a function."
            raise InputError(f"{what} Got {adopter!r}.")
        return loop_plan(
            task,
            rounds,
            step_size=self.step_size,
            sampler=self.sampler(task.n),
            adopter=adopter,
        )
