"""Where the rounds of a run over shards stand, in its folder, so that one that was cut goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from persfl.files import remove_regular
from persfl.formats import reading
from persfl.scale.fleet_arrays import fleet_arrays, write_arrays
from persfl.scale.run_layout import rounds_name
from persfl.training.state import Plan, State
from persfl.training.state_arrays import save_seconds, state_from, state_to
from persfl.types import Round

SHARE = 10  # saving takes at most one part in about so many of a run's time


class KeptRounds:
    """Keeps the last state of each stage; `say` is told which round of how many is over."""

    def __init__(self, folder: Path, say: Callable[[str, int, int], None]) -> None:
        self._folder = folder
        self._say = say
        self._every = save_seconds()
        self._saved = time.monotonic()
        self._cost = 0.0

    def last(self, stage: str) -> State | None:
        """The state to go on from."""
        path = self._folder / rounds_name(stage)
        if not path.is_file():
            return None
        arrays = fleet_arrays(path)
        with reading(path):
            return state_from(arrays)

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        """Say how far it is, and save it when it is time."""
        self._say(f"rounds, {stage} run", state.r, plan.rounds)
        path = self._folder / rounds_name(stage)
        if round_ is None:  # it begins, or begins anew with a smaller step
            remove_regular(path)
            return
        now = time.monotonic()
        pause = self._every and max(self._every, SHARE * self._cost)
        if state.r >= plan.rounds or now - self._saved >= pause:
            write_arrays(path, state_to(state))
            self._saved = time.monotonic()
            self._cost = self._saved - now
