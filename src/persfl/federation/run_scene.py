"""What a federated run takes place with: its plan, its folder, who is in it, and its diary."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from persfl.federation.fleet import FlowerFleet
from persfl.federation.messages import Responder
from persfl.federation.post import Post
from persfl.federation.run_plan import RunPlan
from persfl.federation.wait_notices import Waiting
from persfl.files import append
from persfl.runs.run_folder import Folder
from persfl.training.state import Pace, State
from persfl.trust import Trust
from persfl.types import Round
from persfl.wire.terms import Terms

STAGE = "final"


class Diary:
    """One JSON line per event in the run folder, for whoever watches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = time.monotonic()  # when the last round was over

    def say(self, event: str, **facts: object) -> None:
        """Write down what happened."""
        line = json.dumps({"event": event, "at": round(time.time(), 3)} | facts)
        append(self._path, line + "\n")

    def begin(self) -> None:
        """The first round begins now."""
        self._clock = time.monotonic()

    def round(self, fleet: FlowerFleet, round_: Round, **guard: int) -> None:
        """Write down a round: who was asked, who answered, how long it took."""
        seconds = time.monotonic() - self._clock
        asked = round_.peers >= 0
        usable = int((np.isfinite(round_.losses[:, 1:]) & asked).sum())
        known = round_.loss[np.isfinite(round_.loss)]
        guard = {"unfit": 0, "far": 0} | guard
        self.say(
            "round",
            round=round_.r + 1,
            asked=int(asked.sum()),
            answered=usable + sum(guard.values()),
            **guard,
            refused=sum(c["refused"] for c in fleet.roster.counts.values()),
            loss=float(np.median(known)) if len(known) else None,
            seconds=round(seconds, 3),
            own=round(fleet.letters.own_seconds, 4),
            new=sum(fleet.new.values()),
            messages=fleet.post.messages,
        )
        fleet.letters.own_seconds = 0.0
        fleet.new.clear()
        self._clock = time.monotonic()


@dataclass(frozen=True, eq=False)
class RunScene:
    """`targets` are the ids of those that get a model."""

    plan: RunPlan
    post: Post
    folder: Folder
    terms: Terms
    ids: Sequence[str]
    targets: Sequence[str]
    home: Mapping[str, Responder]
    waiting: Waiting
    diary: Diary
    paying: Mapping[str, int] = field(default_factory=dict)
    """Who pays for each answer, and how many it had left."""

    def fleet(
        self, *, state: bytes | None = None, step_size: float | None = None
    ) -> FlowerFleet:
        """The devices of the run, from the beginning or going on; another step is another run."""
        plan = self.plan
        terms = self.terms
        run = self.plan.run
        if step_size not in (None, terms.step_size):
            terms = replace(terms, step_size=step_size)
            run = f"{run}-{step_size:g}"
        fleet = FlowerFleet(
            self.post,
            terms,
            ids=self.ids,
            targets=self.targets,
            home=self.home,
            run=run,
            deadline=plan.deadline,
            quorum=plan.quorum,
            patience=plan.patience,
            need=plan.need,
            say=self.waiting,
            state=state,
        )
        fleet.target_side.paying = frozenset(self.paying)
        return fleet

    def first_state(self, fleet: FlowerFleet) -> State:
        """Before the first round; the models are the fleet's own state."""
        nowhere = np.empty((len(fleet.targets), 0))
        return State(0, nowhere, Trust.blank(fleet), Pace(self.terms.step_size))
