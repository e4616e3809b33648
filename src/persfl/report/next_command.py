"""The command, or the line of Python, that makes models by a simpler way, ready to paste."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from persfl.evaluation.advice import METHODS_OF

# options of `persfl fit` that a run's spec has and another method takes too, as they are unless
# said otherwise
USUAL: dict[str, object] = {
    "model": "linear",
    "weight": None,
    "group": None,
    "impute": False,
    "separator": None,
    "decimal": ".",
    "thousands": None,
    "ordered": False,
    "time": None,
    "blocks": None,
    "gap": None,
    "horizon": None,
    "public": None,
    "holdout": 0.25,
    "trials": "auto",
    "seed": 0,
}


def next_command(spec: Mapping[str, Any], use: str, run: str) -> str:
    """The `persfl fit` of the same table by a simple way (a key of `METHODS_OF`), beside this run;
    "" over a federation, which has no table, where no command could name the columns, and of
    modules in a file: the run may be somebody else's, and the command would run that file.

    >>> spec = {"table": "my rows.csv", "device": "city", "label": "y", "seed": 1}
    >>> print(next_command(spec, "centred", "run"))
    persfl fit 'my rows.csv' --device city --label y --seed 1 --method pooled --units centred --out
    run-pooled
    """
    if spec.get("federated") or "table" not in spec or ".py" in str(spec.get("model")):
        return ""
    if any("," in str(name) for name in spec.get("features", [])):
        return ""
    method, units = METHODS_OF[use]
    words = ["persfl", "fit", str(spec["table"])]
    words += ["--device", str(spec["device"]), "--label", str(spec["label"])]
    for name, usual in USUAL.items():
        value = spec.get(name, usual)
        if value == usual:
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    words += _table_words(spec)
    words += ["--method", method]
    words += ["--units", units] if units != "auto" else _units(spec)
    words += ["--out", f"{Path(run).as_posix()}-{method}"]
    return shlex.join(words)


def _table_words(spec: Mapping[str, Any]) -> list[str]:
    """Which columns, and what the label is: a spec knows what came of it, not what was said."""
    words = []
    if "features" in spec:
        words += ["--features", ",".join(map(str, spec["features"]))]
    return [*words, "--task", str(spec["task"])] if "task" in spec else words


def _units(spec: Mapping[str, Any]) -> list[str]:
    """The units of the run itself, where somebody chose them."""
    chosen = str(spec.get("units", "auto"))
    return [] if chosen == "auto" else ["--units", chosen]


def next_line(use: str) -> str:
    """The same in Python, with whatever else the model was made with.

    >>> next_line("centred")
    "sklearn.base.clone(model).set_params(method='pooled', units='centred')"
    """
    method, units = METHODS_OF[use]
    more = "" if units == "auto" else f", units={units!r}"
    return f"sklearn.base.clone(model).set_params(method={method!r}{more})"
