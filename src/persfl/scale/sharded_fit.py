"""A fit over shards: workers look at rows, the coordinator learns what devices have in common from
a panel of them, and workers make every device's model and write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from persfl.checks import real
from persfl.errors import InputError
from persfl.evaluation.verdicts import Worth
from persfl.learners.linear import Linear
from persfl.methods import Blend, Method, Mixed, cannot_run
from persfl.methods.mixed import PANEL
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.panel_draw import Panel
from persfl.scale.crew import Crew
from persfl.scale.executor import Executor
from persfl.scale.fleet_arrays import shared_units_to, trees_to, write_arrays
from persfl.scale.fleet_file import write_knower
from persfl.scale.fleet_model import FleetModel
from persfl.scale.kept_rounds import KeptRounds
from persfl.scale.memory_needed import MemoryNeeded, MetPeers, memory_needed
from persfl.scale.panel_fit import (
    Learn,
    LearnBlend,
    LearnMixed,
    PanelFit,
    PanelRows,
    offer_shares,
)
from persfl.scale.run_layout import FINAL, FLEET, TRIAL
from persfl.scale.shard_desk import ShardDesk
from persfl.scale.shard_index import ShardIndex
from persfl.scale.shard_questions import Make, ShardLook, Sum
from persfl.scale.shard_reader import TableColumns, refuse_columns
from persfl.scale.shard_worker import ShardJob, make_part
from persfl.scale.sharded_run import ShardedRun
from persfl.scale.step_fit import LearnByRounds
from persfl.training.state import Keep
from persfl.units import Units

NAMED = 10  # helpers of a device that are kept
Say = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ShardedFit:
    """What a fit over shards is asked."""

    columns: TableColumns
    method: Method
    holdout: float = 0.25
    seed: int = 0
    ordered: bool = False

    def check(self, index: ShardIndex) -> None:
        """Stop where it cannot be done."""
        refuse_columns(index, self.columns)
        if real("holdout", self.holdout, least=0.0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        trouble = cannot_run(self.method, Linear(intercept=True))
        if self.method.needs().one_process:
            trouble = f"{self.method.name} reads all rows in one process. Fit without --engine."
        if trouble:
            raise InputError(trouble)
        if index.devices < 2:
            raise InputError("a fit over shards needs at least 2 devices. Got 1.")

    @property
    def panel(self) -> int:
        """How many devices a panel has."""
        return self.method.panel_size() if isinstance(self.method, Blend) else PANEL

    def memory(self, index: ShardIndex, workers: int) -> MemoryNeeded:
        """What it takes, before it begins."""
        met = MetPeers.of(self.method, index.devices)
        features = len(self.columns.features)
        return memory_needed(index, features, self.panel, met, workers)

    def spec(self, index: ShardIndex) -> dict[str, Any]:
        """As plain values, for whoever resumes it."""
        return {
            "device": index.device,
            "label": self.columns.label,
            "features": list(self.columns.features),
            "weight": self.columns.weight,
            "method": self.method.name,
            "set": self.method.get_params(),
            "holdout": self.holdout,
            "seed": self.seed,
            "ordered": self.ordered,
            "devices": index.devices,
            "rows": index.rows,
            "shards": index.digest,
        }


def fit_shards(
    index: ShardIndex,
    out: str | Path,
    asked: ShardedFit,
    executor: Executor,
    *,
    resume: bool = False,
    say: Say | None = None,
) -> ShardedRun:
    """Models of all devices of these shards, as tables in a run folder.

    `say` is told what is being done, how many shards of it are done, and how many there are. A run
    that was killed goes on with `resume`, to the same result.
    """
    asked.check(index)
    run = ShardedRun.begin(Path(out), asked.spec(index), resume=resume)
    if run.finished:
        run.clear()  # it may have been killed just before that
        return run
    tell = say or _nothing
    job = ShardJob(
        shards=str(index.folder.resolve()),
        run=str(run.folder.resolve()),
        columns=asked.columns,
        holdout=asked.holdout,
        seed=asked.seed,
        ordered=asked.ordered,
        named=NAMED,
    )
    n = index.devices
    panel = Panel.drawn(n, asked.seed, asked.panel)
    with Crew(executor, job) as crew:
        keep = KeptRounds(run.folder, tell)
        learn = _learning(asked.method, crew, index, keep)
        fit = PanelFit(n, panel, learn, asked.seed, asked.ordered, NAMED)
        if not run.learned:
            told = _looked(crew, index, panel, tell)
            tell("learning what devices have in common", 0, 1)
            final, trial = _learned(run, fit, told, asked.holdout)
            if fit.everybody:
                return _made_here(run, job, index, final, trial, tell)
        _made(crew, run, index, tell)
    return run.finish()


def _nothing(what: str, done: int, total: int) -> None:
    """Says nothing."""


def _learning(method: Method, crew: Crew, index: ShardIndex, keep: Keep) -> Learn:
    """How this method learns: blend from its panel, the mixed model from sums of all shards, others
    by their rounds.
    """
    if isinstance(method, Blend):
        return LearnBlend(method)
    if not isinstance(method, Mixed):
        return LearnByRounds(method, lambda use: ShardDesk(crew, index, use), keep)

    def gather(units: Units, trial: bool) -> DeviceSums:
        many = range(len(index.shards))
        told = dict(crew.ask({k: Sum(k, units, trial) for k in many}))
        return DeviceSums(
            *(
                np.concatenate(each)
                for each in zip(*(told[k] for k in many), strict=True)
            )
        )

    return LearnMixed(method, gather)


def _looked(crew: Crew, index: ShardIndex, panel: Panel, say: Say) -> PanelRows:
    """The rows of the panel, from all shards."""
    many = len(index.shards)
    edges = index.first
    questions = {}
    for k in range(many):
        here = (panel.devices >= edges[k]) & (panel.devices < edges[k + 1])
        questions[k] = ShardLook(k, panel.devices[here])
    found = {}
    say("looking at rows", 0, many)
    for shard, answer in crew.ask(questions):
        found[shard] = answer
        say("looking at rows", len(found), many)
    return PanelRows.of(found)


def _learned(
    run: ShardedRun, fit: PanelFit, told: PanelRows, holdout: float
) -> tuple[FleetModel, FleetModel | None]:
    """What the fleet knows, kept in the run folder; that of a trial too."""
    trial, worth = fit.trial(told) if holdout > 0 else (None, None)
    final = fit.final(told)
    if not fit.everybody:
        if trial is not None:
            write_knower(run.folder / TRIAL, trial)
        write_knower(run.folder / FINAL, final)
    newcomer = final.coefficients(final.knower.newcomer[None])[0]
    place = np.arange(fit.n if final.apart else 0)
    facts = {
        "offers": offer_shares(final),
        "panel": len(fit.panel.devices),
        "worth": _worth_facts(worth),
    }
    run.keep_facts(facts)
    arrays = shared_units_to(final.units) | trees_to(final.knower.trees, place)
    # the last: with it there, rows need no second look
    write_arrays(run.folder / FLEET, arrays | {"newcomer": newcomer})
    return final, trial


def _made(crew: Crew, run: ShardedRun, index: ShardIndex, say: Say) -> None:
    """The models of all shards that have none yet."""
    many = len(index.shards)
    done = run.made()
    say("making models", len(done), many)
    questions = {k: Make(k) for k in range(many) if k not in done}
    for shard, _ in crew.ask(questions):
        run.note(shard)
        done.add(shard)
        say("making models", len(done), many)


def _made_here(
    run: ShardedRun,
    job: ShardJob,
    index: ShardIndex,
    final: FleetModel,
    trial: FleetModel | None,
    say: Say,
) -> ShardedRun:
    """A fleet that fits one process: its models are known here."""
    many = len(index.shards)
    for k in range(many):
        say("making models", k, many)
        make_part(job, index, k, final, trial)
    return run.finish()


def _worth_facts(worth: Worth | None) -> Mapping[str, Any] | None:
    if worth is None:
        return None
    verdict = worth.fleet()._asdict()
    held = int(worth.table["held"].sum())
    return {"verdict": verdict, "arms": worth.summary(), "held": held}
