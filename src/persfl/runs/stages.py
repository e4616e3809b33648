"""Where the stages of a run stand: every round as a table, and states to go on from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from persfl.errors import InputError
from persfl.formats import reading
from persfl.learners.storage.named_arrays import AnyArray
from persfl.training.state import Plan, State
from persfl.training.state_arrays import save_seconds, state_from, state_to

if TYPE_CHECKING:
    from persfl.runs.run_folder import Folder
    from persfl.types import Choice, Round

_COSTLY = 10  # saving takes at most one part in about so many of a run's time


def last_state(folder: Folder, stage: str) -> State | None:
    """The state to go on from."""
    place = folder.index["stages"].get(stage)
    if place is None:
        return None
    arrays = folder.read_arrays(place["state"])
    with reading(folder.path / place["state"]):
        return state_from(arrays)


def all_rounds(folder: Folder, stage: str) -> pd.DataFrame:
    """All rounds of a stage, one row per round and device."""
    files = folder.index["files"]
    names = sorted(name for name in files if name.startswith(f"rounds/{stage}-"))
    if not names:
        raise InputError(f"{str(folder.path)!r} has no rounds of stage {stage!r}.")
    return pd.concat([folder.read_table(name) for name in names], ignore_index=True)


class Saver:
    """Writes the stages of a run: states at most every `every` seconds, and at the end of each.

    It is handed its folder anew each time: one that is let go must give its lock back at once.
    """

    def __init__(self, every: float | None = None) -> None:
        self.every = save_seconds() if every is None else every
        self._unsaved: list[Round] = []
        self._latest: tuple[str, State] | None = None
        self._saved = time.monotonic()
        # seconds the last saving took: large fleets are saved less often
        self._cost = 0.0

    def after(
        self,
        folder: Folder,
        stage: str,
        plan: Plan,
        state: State,
        round_: Round | None,
    ) -> None:
        """Remember a round; write when it is time."""
        self._latest = (stage, state)
        if round_ is None:  # a run begins, or begins anew with a smaller step
            self._unsaved = []
            if folder.index["stages"].pop(stage, None) is not None:
                folder.drop(prefix=f"rounds/{stage}-")
                folder.drop(prefix=f"state-{stage}-")
            return
        self._unsaved.append(round_)
        pause = self.every and max(self.every, _COSTLY * self._cost)
        if state.r >= plan.rounds or time.monotonic() - self._saved >= pause:
            self.save(folder)

    def save(self, folder: Folder) -> None:
        """Write where the run stands now."""
        if self._latest is None or not self._unsaved:
            return
        began = time.monotonic()
        stage, state = self._latest
        # A stage that starts anew must not write over files that the index on disk still names.
        serial = int(folder.index.get("serial", 0)) + 1
        folder.index["serial"] = serial
        rounds = f"rounds/{stage}-{self._unsaved[0].r:06d}-{serial}.parquet"
        folder.write_table(rounds, rounds_table(self._unsaved))
        folder.drop(prefix=f"state-{stage}-")
        name = f"state-{stage}-{state.r:06d}-{serial}.npz"
        folder.write_arrays(name, state_to(state))
        folder.index["stages"][stage] = {"round": state.r, "state": name}
        folder.commit()
        self._unsaved, self._saved = [], time.monotonic()
        self._cost = self._saved - began


def rounds_table(rounds: Sequence[Round]) -> pd.DataFrame:
    """Rounds as a table: one row per round and target."""
    return pd.concat([_table(round_) for round_ in rounds], ignore_index=True)


def _table(round_: Round) -> pd.DataFrame:
    choice = round_.choice
    return pd.DataFrame(
        {
            "round": np.int32(round_.r),
            "device": np.asarray(round_.trust.targets, dtype=np.int32),
            "loss": round_.loss,
            "stay": choice.stay,
            "asked": list(round_.peers.astype(np.int32)),
            "losses": list(round_.losses[:, 1:].astype(np.float32)),
            "adopted": _adopted(choice, choice.peers.astype(np.int32)),
            "shares": _adopted(choice, choice.weights),
        }
    )


def _adopted(choice: Choice, values: AnyArray) -> list[AnyArray]:
    """A list per target; of remembered steps only those that were taken, since a choice among
    them is as wide as everyone met.
    """
    if choice.anew is None:
        return list(values)
    return [
        row[weights > 0] for row, weights in zip(values, choice.weights, strict=True)
    ]
