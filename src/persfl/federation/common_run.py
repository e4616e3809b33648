"""Methods whose devices step from common models, over a federation: with the same questions.

A step from a common model is an answer, as a peer gives it; a loss is a score, as a target gives
it. Devices tell nothing that they do not tell in the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from persfl.devices import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder
from persfl.federation.fleet import FlowerFleet
from persfl.federation.peer_side import PeerSide
from persfl.federation.run_scene import STAGE, RunScene
from persfl.methods import Method
from persfl.methods.blend.fixed_point import counted
from persfl.proposers import GradientStep
from persfl.seeds import Stream
from persfl.training.state import Plan, State
from persfl.traits import has_statistics
from persfl.types import (
    Answers,
    Array,
    Choice,
    IntArray,
    Learner,
    Model,
    Proposer,
    Round,
)


def common_run(scene: RunScene, method: Method) -> tuple[FlowerFleet, State]:
    """Run a method with common models; one that was cut asks the same again."""
    task = FederatedTask(scene)
    state = method.run(task, stage=STAGE, keep=task)
    return task.fleets[-1].inner, state


@dataclass(eq=False)
class FederatedTask:
    """The task of a run whose rows are on devices; it also keeps what was done."""

    scene: RunScene
    fleets: list[CommonFleet] = field(default_factory=list)

    n_jobs: int | None = 1
    compute: str | None = None
    ordered: bool = False
    order: RowOrder = field(default_factory=RowOrder)
    together: bool = False

    @property
    def once(self) -> bool:
        """Where devices pay for each answer."""
        return bool(self.scene.paying)

    @property
    def n(self) -> int:
        """How many devices there are."""
        return len(self.scene.ids)

    @property
    def features(self) -> int:
        """How many columns rows have."""
        return self.scene.terms.features

    @cached_property
    def learner(self) -> Learner:
        """The model family."""
        learner: Learner = self.scene.terms.learner()
        return learner

    @property
    def classes(self) -> int:
        """How many classes labels have."""
        return self.scene.terms.classes

    @property
    def seed(self) -> int:
        """What is random goes by this."""
        return self.scene.plan.seed

    @property
    def public(self) -> Array | None:
        """Public points, where models are refitted."""
        return self.scene.terms.public

    @property
    def rows(self) -> Devices:
        """Nobody's."""
        raise InputError("the rows of a federation are on its devices, and stay there.")

    def fleet(
        self, proposer: Proposer, start: Sequence[Model] | None = None
    ) -> CommonFleet:
        """The devices of the run, with the step of this proposer."""
        assert isinstance(proposer, GradientStep)
        assert start is None
        inner = self.scene.fleet(step_size=proposer.step_size)
        made = CommonFleet(inner, self.scene.plan.reach)
        self.fleets.append(made)
        return made

    def last(self, stage: str) -> State | None:
        """Nothing: a run that was cut begins anew, and devices know its questions again."""
        return None

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        """Keep a round, and say how it went."""
        scene = self.scene
        fleet = self.fleets[-1].inner
        scene.folder.after(stage, plan, state, round_)
        if round_ is not None:
            scene.diary.round(fleet, round_)
        else:
            about = {"ids": list(scene.ids), "targets": list(scene.targets)}
            unwilling = list(scene.waiting.unwilling)
            scene.diary.say(
                "devices", **about, unwilling=unwilling, first=0, rounds=plan.rounds
            )
            scene.diary.begin()
        scene.waiting.over()


class StandIns:
    """As much of a fleet's rows as can be known here: how wide they are, and how many; what devices
    say of that counts as in a blend.
    """

    source = None

    def __init__(self, fleet: FlowerFleet, silent: Collection[int] = ()) -> None:
        # who takes a step has a row, whatever it says: a mean over it alone is not one of nobody
        rows = [float(max(fleet.rows.get(name, 1), 1)) for name in fleet.ids]
        rows = counted(np.array(rows)).tolist()
        rows = [0.0 if i in silent else many for i, many in enumerate(rows)]
        width = fleet.terms.features
        n = fleet.n
        self.static = Devices(
            np.zeros((n, width)),
            np.zeros(n),
            np.array(rows),
            np.arange(n + 1),
            fleet.ids,
        )


class CommonFleet:
    """A federation whose devices step from, and score, models that are not theirs.

    A step from a common model that is more than `reach` times as long as is usual is left out: one
    device alone would take everybody there.
    """

    def __init__(self, inner: FlowerFleet, reach: float) -> None:
        if has_statistics(inner.learner):
            raise InputError(
                "common models over a federation cannot have running statistics (BatchNorm)."
            )
        self.inner = inner
        self.n = inner.n
        self.ids = inner.ids
        self.targets = inner.targets
        self.learner = inner.learner
        self.proposer = inner.proposer
        self._r = 0
        # A step from a common model is asked of each device in its own name.
        everyone = np.arange(inner.n)
        self._everyone = PeerSide(inner.letters, inner.patience, inner.ids, everyone)
        self._everyone.roster = inner.roster
        self._reach = reach
        self._lengths: dict[int, float] = {}  # of the last step of each device
        self._silent: set[int] = set()  # whose last step was none, or left out
        inner.observe(0)  # whoever gets a model begins, and says how many rows it has

    @property
    def home(self) -> StandIns:
        """What is known of everybody's rows; those of whoever took no step now do not count."""
        return StandIns(self.inner, self._silent)

    @property
    def models(self) -> Array:
        """One model per target; NaN where it has not been seen yet."""
        known = self.inner.states.models
        size = self.inner.codec.size
        nothing = np.full(size, np.nan)
        return np.stack([nothing if model is None else model for model in known])

    @models.setter
    def models(self, models: Array) -> None:
        self.inner.states.hand_in(list(models))

    def observe(self, r: int) -> None:
        """Wait for new rows, where the run needs some."""
        self.inner.observe(r)

    def probe(self, peers: IntArray, r: int) -> Answers:
        """Have every target score the models it has."""
        self._r = r + 1
        return self.inner.probe(peers, r)

    def adopt(self, choice: Choice) -> None:
        """Nothing: models are handed to targets whole."""

    def stepped(self, models: Array, who: IntArray | None, place: Stream) -> Array:
        """Where each device's step takes a model; one that does not answer, or goes too far from a
        common model, leaves it as it is.
        """
        if who is None:  # from models of their own: nobody else's
            return self._steps(models, self.targets)
        if not self._lengths:  # a few devices alone cannot say what is usual
            first = np.repeat(models[:1], self.n, axis=0)
            self._measured(first, self._steps(first, np.arange(self.n)), range(self.n))
        steps = self._steps(models, who)
        self._measured(models, steps, who.tolist())
        longest = self._reach * float(np.median(list(self._lengths.values())))
        lengths = {i: self._lengths[i] for i in who.tolist()}
        far = {i for i, length in lengths.items() if length > longest > 0}
        for k, i in enumerate(lengths):
            if i in far:
                steps[k] = models[k]
                self.inner.roster.count(self.ids[i], "guarded")
        still = {i for i, length in lengths.items() if not length}
        # where nobody moves, everybody counts: a mean of nobody is none
        self._silent = far | still if len(far | still) < len(lengths) else set()
        return steps

    def rows_told(self, i: int) -> tuple[float, float]:
        """Of a device: its rows, noised if it is protected, and what its sum was divided by."""
        if i in self._everyone.seen:
            found = self._everyone.seen[i]
            return found if np.isfinite(found).all() else (1.0, 1.0)
        rows = float(self.inner.rows.get(self.ids[i], 1))
        return rows, rows

    def _steps(self, models: Array, who: IntArray) -> Array:
        probes: list[Model | None] = [None] * self.n
        peers = np.full((self.n, 1), -1)
        for i, model in zip(who.tolist(), models, strict=True):
            probes[i], peers[i, 0] = model, i
        found = self._everyone.collect(peers, probes, self._r)
        steps = [
            found.get((i, i), model)
            for i, model in zip(who.tolist(), models, strict=True)
        ]
        return np.stack(steps)

    def _measured(self, models: Array, steps: Array, who: Iterable[int]) -> None:
        """Remember how long these steps were."""
        lengths = np.linalg.norm(steps - models, axis=1).tolist()
        self._lengths |= dict(zip(who, lengths, strict=True))

    def scored(self, models: Array, who: IntArray | None = None) -> Array:
        """(devices, models) losses on these devices' rows; of one that does not tell, infinite."""
        inner = self.inner
        count = len(self.targets)
        columns = np.tile(np.arange(len(models)), (count, 1))
        asked = np.isin(self.targets, self.targets if who is None else who)
        wanted = np.flatnonzero(asked).tolist()
        shown = {(t, j): model for t in wanted for j, model in enumerate(models)}
        inner.states.before(self._r)
        told = inner.target_side.score(columns, shown, self._r, step=False).losses
        found = np.full((self.n, len(models)), np.inf)
        found[self.targets] = np.where(np.isfinite(told), told, np.inf)[:, 1:]
        return found[self.targets if who is None else who]
