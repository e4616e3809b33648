"""What the owner of a device allows: a few numbers in a file that only the owner writes."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from persfl.errors import InputError
from persfl.learners.named import ESTIMATORS
from persfl.learners.network import Network
from persfl.wire import Terms

MODELS = ("linear", "mlp", "ridge", "tree", "forest", "boosting")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a device answers.

    `models`: families; `networks`: torch modules of installed packages, as "module:function". `questions_per_target` and
    `questions`: the most different questions that are answered, ever, by this ledger; sums and what the device tells as a target
    count as well. `steps`: the most gradient steps per answer; `trees`: the most trees. `rows`: the fewest rows that anything is
    computed from (after holding some back, and in one batch). `sums`: whether column sums may leave, which shared units
    need. `target`: whether this device has a model of its own.

    >>> Policy(rows=20).refuses(Terms(columns=("a",)), rows=10)
    'rows'
    """

    models: tuple[str, ...] = MODELS
    networks: tuple[str, ...] = ()
    questions_per_target: int = 1_000
    questions: int = 100_000
    steps: int = 10
    trees: int = 500
    rows: int = 5
    sums: bool = True
    target: bool = True

    @staticmethod
    def read(path: Path) -> Policy:
        """The `[policy]` table of a file."""
        try:
            told = tomllib.loads(path.read_text()).get("policy", {})
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"the policy in {path.name!r} could not be read: {error}.") from None
        return Policy.of(told)

    @staticmethod
    def of(told: Mapping[str, Any]) -> Policy:
        """A policy from plain values; an unknown key is an error, because a limit with a typing mistake protects nobody."""
        if not isinstance(told, Mapping):
            raise InputError(f"the policy must be a table of settings. Got {told!r}.")
        kinds = {f.name: f.type for f in dataclasses.fields(Policy)}
        for name, value in told.items():
            if name not in kinds:
                raise InputError(f"the policy has no setting {name!r}. Known: {', '.join(kinds)}.")
            good = {
                "int": isinstance(value, int) and not isinstance(value, bool) and value >= 0,
                "bool": isinstance(value, bool),
            }.get(str(kinds[name]), isinstance(value, list) and all(isinstance(v, str) for v in value))
            if not good:
                raise InputError(f"{name} of the policy must be {_WANT.get(str(kinds[name]), 'a list of names')}. Got {value!r}.")
        plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
        return Policy(**plain)

    def refuses(self, terms: Terms, rows: int) -> str | None:
        """The name of the limit that these terms break, if any."""
        if terms.model == "network":
            if terms.settings.get("make") not in self.networks:
                return "models"
        elif terms.model not in self.models:
            return "models"
        refits = terms.public is not None and terms.model in ("mlp", "network")
        if max(terms.steps, Network.refit_steps if refits else 0) > self.steps:
            return "steps"
        if _trees(terms) > self.trees or int(terms.settings.get("max_depth") or 0) > 30:
            return "trees"
        return "rows" if min(rows, terms.batch or rows) < self.rows else None

    def text(self) -> str:
        """As it stands in a file."""
        lines = ["[policy]"]
        for f in dataclasses.fields(Policy):
            value = getattr(self, f.name)
            shown = str(value).lower() if isinstance(value, bool) else str(list(value)) if isinstance(value, tuple) else str(value)
            lines.append(f"{f.name} = {shown}".replace("'", '"'))
        return "\n".join(lines) + "\n"


def _trees(terms: Terms) -> int:
    """How many trees an answer has: boosting grows one for each of several classes in every step."""
    if terms.model not in ("tree", "forest", "boosting"):
        return 0
    steps = 1 if terms.model == "tree" else int(terms.settings.get("n_estimators", ESTIMATORS))
    return steps * (terms.classes if terms.model == "boosting" and terms.classes > 2 else 1)


_WANT = {"int": "a whole number of at least 0", "bool": "true or false"}
