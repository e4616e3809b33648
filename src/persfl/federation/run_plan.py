"""What a federated run is asked to do: one value, checked once, written as JSON for the app that
conducts the run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persfl.checks import one_of, real, whole
from persfl.errors import InputError
from persfl.federation.category_levels import Levels, levels_from
from persfl.federation.plain_settings import settings_from
from persfl.federation.row_table import RowTable
from persfl.files import write_whole
from persfl.formats import reading
from persfl.learners.any_family import ANY
from persfl.methods import Kin, Method, Paper, cannot_run, method_of
from persfl.methods.fedavg import Averaging
from persfl.runs.run_folder import Folder

# may differ when a run goes on
_FREE = ("out", "members", "deadline", "quorum", "patience", "gather", "run")


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run over the devices of a federation, with the settings of `persfl federate`.

    `members` are device ids and their keys as the SuperLink knows them; without any, every node
    that is there is taken for who it says it is. `home` is the table of a target that lives at the
    coordinator, under the id `home_id`; where devices have families of their own, `family` is its
    own. `run` is the name by which devices keep their models.

    >>> RunPlan(out="run", devices=("a", "b"), quorum=2.0)
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: quorum must be at most 1. Got 2.0.
    """

    out: str
    run: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...]
    home: Mapping[str, object] | None = None
    family: str = "linear"
    label: str = "y"
    categories: Mapping[str, object] = field(default_factory=dict)
    # What is learned
    model: str = "linear"
    classes: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    units: str = "auto"
    holdout: float = 0.25
    points: int = 0
    steps: int = 1
    batch: int | None = None
    start: str | None = None
    local: float | None = None
    seed: int = 0
    # How
    method: str = "paper"
    method_settings: Mapping[str, object] = field(default_factory=dict)
    budget: int = 640
    ordered: bool = False
    rounds: int = (
        60  # a tenth of the paper's questions reach its error: docs/federation.md
    )
    peers: int = 10
    step_size: float | str = "auto"
    growth: float = 2.0
    reach: float = 10.0
    # How long to wait for whom
    deadline: float = 60.0
    quorum: float = 0.5
    patience: float = 600.0
    gather: float = 0.0
    need: int = 0

    def __post_init__(self) -> None:
        refusal = cannot_run(self.personalization, federated=True)
        if refusal:
            raise InputError(refusal)
        self._refuse_any_family()
        one_of("units", self.units, ("auto", "shared", "raw"))
        for name in ("points", "need", "classes", "seed"):
            whole(name, getattr(self, name), least=0)
        for name in ("budget", "peers", "steps"):
            whole(name, getattr(self, name), least=1)
        whole("rounds", self.rounds, least=0)
        real("quorum", self.quorum, least=0, most=1)
        real("deadline", self.deadline, above=0)
        real("patience", self.patience, least=0)
        real("gather", self.gather, least=0)
        real("growth", self.growth, least=1)
        real("reach", self.reach, above=0)
        if self.step_size != "auto":
            real("step_size", self.step_size, above=0)
        if real("holdout", self.holdout, least=0) >= 1:
            raise InputError(f"holdout must be a share below 1. Got {self.holdout}.")
        _ = self.levels, self.own_steps
        if self.home is None:
            return
        _ = self.home_table
        if self.home_id in self.devices:
            raise InputError(
                f"the target at home must have an id of its own. {self.home_id!r} is a device of"
                " the federation."
            )

    def _refuse_any_family(self) -> None:
        """Stop where a method would have to know what models are made of."""
        asks = isinstance(self.personalization, Paper | Kin)
        if self.model == ANY and not asks:
            raise InputError(
                "--model any takes a method that asks peers: --method paper or kin. Got"
                f" {self.method!r}."
            )
        if self.model != ANY and self.family != "linear":
            raise InputError(
                f"--family is for runs with --model any. Got --model {self.model}."
            )

    @property
    def personalization(self) -> Method:
        """The method with its settings: those that are options of a run, and others by name."""
        usual = method_of(self.method)
        options = {
            name: getattr(self, name)
            for name in ("rounds", "peers", "step_size", "budget")
            if name in usual.get_params()
        }
        return usual.set_params(**options | dict(self.method_settings))

    def setting(self, name: str) -> Any:
        """A setting of the method; None where it has none of that name."""
        return self.personalization.get_params().get(name)

    @property
    def first_step(self) -> float | str:
        """How long a step is, if the method has any; "auto" is as its model goes best."""
        return self.setting("step_size") or "auto"

    @property
    def own_steps(self) -> int:
        """How many steps an answer is made of: a setting of the run, or of its method."""
        method = self.personalization
        if not isinstance(method, Averaging):
            return self.steps
        local = whole("local", method.local, least=1)
        if self.steps not in (1, local) and local > 1:
            raise InputError(
                f"own steps in a round are {self.steps} by --steps and {local} by --set local."
                " Leave one out."
            )
        return max(local, self.steps)

    @property
    def home_id(self) -> str:
        """What the target at home is called; "" where there is none."""
        return str((self.home or {}).get("device", ""))

    @property
    def home_table(self) -> RowTable:
        """The table of the target at home."""
        told = {k: v for k, v in (self.home or {}).items() if k != "device"}
        return RowTable.of(told)

    @property
    def levels(self) -> Levels:
        """The declared levels of text columns."""
        return levels_from(self.categories, "federation.toml")

    def to_plain(self) -> dict[str, object]:
        """What JSON takes; `of` takes it back."""
        levels = {name: list(self.levels[name]) for name in self.levels}
        plain = dataclasses.asdict(self) | {"devices": list(self.devices)}
        return plain | {"categories": levels}

    @staticmethod
    def of(told: object) -> RunPlan:
        """From plain values, each of its kind."""
        return settings_from(RunPlan, told, "the plan of a run")

    @staticmethod
    def read(path: Path) -> RunPlan:
        """The plan of a JSON file."""
        with reading(path):
            return RunPlan.of(json.loads(path.read_bytes()))

    def write(self, path: Path) -> None:
        """As a JSON file."""
        write_whole(path, (json.dumps(self.to_plain(), indent=1) + "\n").encode())

    def record(self) -> dict[str, object]:
        """What a run folder keeps of it."""
        told = self.to_plain()
        return {k: v for k, v in told.items() if k not in ("out", "members")}

    def difference(self, before: Mapping[str, object]) -> str:
        """What a run that was begun under other settings would say; "" where they are the same."""
        fixed = {k: v for k, v in self.to_plain().items() if k not in _FREE}
        # a version that did not know a setting ran as it is without
        usual = {one.name: _default(one) for one in dataclasses.fields(RunPlan)}
        for name, value in fixed.items():
            was = before.get(name, usual[name])
            if was is dataclasses.MISSING:
                return f"it does not say {name}"
            if was != value:
                return f"{name} was {was!r} and is {value!r} now"
        return ""

    def of_folder(self, folder: Folder) -> Mapping[str, object]:
        """What the run of a folder was asked, if that is what is asked now."""
        where = folder.path
        before = folder.spec.get("asked", {})
        if not isinstance(before, dict):
            raise InputError(
                f"{str(where / 'spec.json')!r} does not say what was asked."
            )
        changed = self.difference(before)
        if changed:
            raise InputError(
                f"{str(where)!r} holds another run: {changed}. Use the same command to resume, or"
                " another --out."
            )
        return before


def _default(one: dataclasses.Field[Any]) -> object:
    """What a setting is where nothing is said."""
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return one.default
