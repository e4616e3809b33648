"""Algorithm 1 as printed: every round a device asks some peers, and adopts the best answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from persfl.checks import whole
from persfl.errors import InputError
from persfl.methods.loop_plan import loop_plan
from persfl.methods.method_fields import MethodSettings, setting
from persfl.methods.protocol import Needs, Task
from persfl.samplers.nobody import Nobody
from persfl.training.state import (
    Keep,
    Plan,
    State,
    peers_asked,
    peers_of,
    rounds_for,
)
from persfl.training.training_run import train
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

    A sampler of your own says whom a device asks:

    >>> from persfl import Uniform
    >>> state = Paper(sampler=Uniform(2), rounds=5).run(LocalTask(rows, Linear()))
    >>> int(state.trust.table()["asked"].sum()) == 30 * 2 * 5
    True
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
    sampler: Sampler | None = setting(  # noqa: RUF009
        None, "whom a device asks; None: so many peers, each set equally likely"
    )

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

    def asking(self, n: int) -> Sampler:
        """Whom a device asks; refuses more peers than there are."""
        if self.sampler is not None:
            return self._own_sampler(self.sampler, n)
        peers_of(self.peers, n)
        return self.asks(peers_asked(self.peers, n), n)

    def _own_sampler(self, sampler: Sampler, n: int) -> Sampler:
        """The person's sampler, where nothing else says whom to ask."""
        _refuse_no_part("sampler", sampler, "Uniform(5)")
        if type(self) is not Paper:
            own = f"{self.name} chooses itself whom to ask"
            raise InputError(f"{own}. Use Paper(sampler=...) for a sampler of yours.")
        if self.peers != "auto":
            raise InputError(
                f"a sampler says itself how many peers are asked. Leave peers={self.peers} out."
            )
        return sampler if n > 1 else Nobody()

    def asks(self, peers: int, n: int) -> Sampler:
        """So many of `n` devices, each set equally likely."""
        return peers_of(peers, n)

    def _plan(self, task: Task, rounds: int) -> Plan:
        adopter = self.adopter
        if adopter is not None:
            _refuse_no_part("adopter", adopter, "TopK(4)")
        return loop_plan(
            task,
            rounds,
            step_size=self.step_size,
            sampler=self.asking(task.n),
            adopter=adopter,
        )


def _refuse_no_part(name: str, part: object, such: str) -> None:
    """Stop where a part is none: a class, or no function."""
    if isinstance(part, type) or not callable(part):
        what = f"{name} must be a part such as {such}, or a function."
        raise InputError(f"{what} Got {part!r}.")
