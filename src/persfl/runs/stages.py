"""Where the stages of a run stand: every round as a table, and states to go on from."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from persfl.errors import InputError
from persfl.formats import reading
from persfl.learners.storage.family_table import models_from, models_to
from persfl.learners.storage.named_arrays import AnyArray, Arrays, prefixed, under
from persfl.training.state import Pace, Plan, State
from persfl.trust import Trust

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
        self.every = _seconds() if every is None else every
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


def state_to(state: State) -> dict[str, Any]:
    """A state as the arrays of its file."""
    pace = state.pace
    arrays: dict[str, Any] = {
        "r": state.r,
        "losses": np.array(state.losses),
        "step_size": pace.step_size,
        "halved": np.array(pace.halved),
        "safe": pace.safe,
        "unlike": pace.unlike,
    }
    arrays |= prefixed("trust_", state.trust.to_arrays())
    arrays |= prefixed("kept_", state.kept or {})
    return arrays | models_to(state.models)


def state_from(arrays: Arrays) -> State:
    """The inverse of `state_to`, for arrays that somebody else may have written."""
    trust = Trust.from_arrays(under("trust_", arrays))
    losses = arrays["losses"]
    r = int(arrays["r"])
    step_size = float(arrays["step_size"])
    if (
        losses.dtype.kind != "f"
        or (losses.ndim != 2 and losses.size)
        or len(losses) > max(r, 0)
    ):
        raise InputError("there must be a loss for every round and target.")
    if r < 0 or not 0 < step_size < math.inf or arrays["halved"].ndim != 1:
        raise InputError("the number of rounds and the step size must be above 0.")
    halved = tuple(float(size) for size in arrays["halved"])
    pace = Pace(step_size, halved, bool(arrays["safe"]), bool(arrays["unlike"]))
    kept = under("kept_", arrays)
    return State(r, models_from(arrays), trust, pace, tuple(losses), kept or None)


def _seconds() -> float:
    text = os.environ.get("PERSFL_SAVE_SECONDS", "5")
    try:
        return max(0.0, float(text))
    except ValueError:
        raise InputError(
            f"PERSFL_SAVE_SECONDS must be a number of seconds. Got {text!r}."
        ) from None
