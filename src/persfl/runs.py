"""A run folder: what was asked, what happened, what was learned; whole at every moment.

    run.json           the index: format, finished or not, stages, and every file's SHA-256
    spec.json          what was asked: table, columns, settings
    versions.json      what it ran with
    rounds/*.parquet   every round of every stage: device, own loss, who was asked, who was adopted
    state-*.npz        where a stage stands: models, trust, losses, kept steps
    model.npz, model.json, model.safetensors, worth.parquet     the result
    lock               only while a run is going: who is writing

Files are written under new names, then the index is replaced in one step: a run that is killed
leaves the last index and all it names. A file that does not match its SHA-256 is refused by name.

A digest keeps nobody out who makes a folder on purpose. So a folder holds numbers, texts and
nothing that could run: arrays (not pickled), JSON, tables, networks as named tensors. All of it is
checked when it is read, links are refused, and nothing outside the folder is written or removed.
The code of a module is not kept, see `persfl.learners.kept`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from persfl.errors import InputError, need
from persfl.files import (
    LOCK,
    Lock,
    fingerprint,
    holder,
    in_use,
    read_whole,
    refuse_links,
    remove_regular,
    write_whole,
)
from persfl.formats import json_from, json_to, numbers_from, reading, table_from
from persfl.learners import Linear, Network, Tree, kept
from persfl.learners.description import estimator_from, estimator_to
from persfl.learners.plain import Plain
from persfl.learners.tree import Grown
from persfl.model_arrays import listed, mixed, models_from, models_to
from persfl.run_checks import (
    SETTINGS,
    check_words,
    counts_from,
    losses_from,
    trust_from,
    truths_from,
    units_from,
    units_to,
    worth_from,
)
from persfl.training import Pace, Plan, State
from persfl.trust import Trust
from persfl.types import Choice, Round

FORMAT = 2
READABLE = (1, 2)
PACKAGES = (
    "persfl",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "numba",
    "pyarrow",
    "torch",
    "safetensors",
)
INDEX = "run.json"
PAGES = ("report.html", "federation.html")
_ADOPTERS = ("Best", "BestOrStay", "TopK", "Weighted")
_KEYS = {"format", "finished", "stages", "files", "serial", "fleet"}  # of an index
_ENDINGS = "json|npz|parquet|safetensors|skops|wire|txt"
# The shape of every name that an index may hold: no way leads out of the folder.
_NAME = re.compile(rf"(?:rounds/)?[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*\.(?:{_ENDINGS})")
_STAGE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
# What may be removed once no index names it: files that a run makes on its way, by their shape.
_ON_THE_WAY = re.compile(
    r"(?:state-[a-z0-9-]+\.(?:npz|skops)|(?:fleet|exchange)-[0-9]+\.wire)(?:\.part)?"
    rf"|(?:run|spec|versions|model|federation|worth|terms)\.(?:{_ENDINGS})\.part"
)
_OF_ROUNDS = re.compile(r"[a-z][a-z0-9-]*\.parquet(?:\.part)?")


class Folder:
    """Keeps a run (see `persfl.training.Keep`): states at most every `every` seconds, and at the
    end of each stage.

    `every` defaults to the environment variable PERSFL_SAVE_SECONDS, or 5; 0 saves after every
    round.

    >>> import tempfile
    >>> folder = Folder.create(Path(tempfile.mkdtemp()) / "run", {"rounds": 3})
    >>> folder.write("note.txt", b"hello")
    >>> folder.commit()
    >>> Folder.open(folder.path).read("note.txt"), folder.finished
    (b'hello', False)
    """

    def __init__(
        self,
        path: Path,
        index: dict[str, Any],
        *,
        every: float | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.path, self.index = path, index
        self.every = _seconds() if every is None else every
        self._lock = lock
        self._made = False  # whether the folder itself was made for this run
        self._waiting: list[tuple[str, Round]] = []
        self._latest: tuple[str, State] | None = None
        self._saved = time.monotonic()
        # seconds the last saving took: large fleets are saved less often
        self._cost = 0.0

    @staticmethod
    def create(
        path: Path, spec: Mapping[str, Any], *, every: float | None = None
    ) -> Folder:
        """A new run in an empty or absent folder; nobody else writes there until it is over."""
        refuse_held(path)
        _refuse_full(path)
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        lock = Lock(path)
        try:
            lock.take()
            _refuse_full(path)  # somebody else may have been faster
            folder = Folder.begin(path, spec, every=every)
        except BaseException:
            lock.release()
            if made:
                _remove_empty(path)
            raise
        folder._lock, folder._made = lock, made
        return folder

    @staticmethod
    def begin(
        path: Path, spec: Mapping[str, Any], *, every: float | None = None
    ) -> Folder:
        """A new run in a folder that may hold other files already."""
        path.mkdir(parents=True, exist_ok=True)
        refuse_links(path)
        (path / "rounds").mkdir(exist_ok=True)
        index = {"format": FORMAT, "finished": False, "stages": {}, "files": {}}
        folder = Folder(path, index, every=every)
        folder.write_json("spec.json", spec)
        folder.write_json("versions.json", versions())
        folder.commit()
        return folder

    @staticmethod
    def open(path: Path, *, every: float | None = None, lock: bool = False) -> Folder:
        """A run that is there; with `lock` to go on with it, while nobody else does."""
        where = path / INDEX
        if not where.is_file():
            raise InputError(
                f"{str(path)!r} is not a run folder: it has no {INDEX}. Make one with: persfl fit"
                f" TABLE --out {path}"
            )
        taken = Lock(path) if lock else None
        if taken is not None:
            taken.take()
        try:
            refuse_links(path)
            _refuse_odd_rounds(path)
            index = _index(where)
        except BaseException:
            if taken is not None:
                taken.release()
            raise
        return Folder(path, index, every=every, lock=taken)

    @property
    def finished(self) -> bool:
        return bool(self.index["finished"])

    @property
    def spec(self) -> dict[str, Any]:
        found = self.read_json("spec.json")
        with reading(self.path / "spec.json"):
            return dict(found)

    def close(self) -> None:
        """Let others write into the folder; nothing is lost that was committed."""
        if self._lock is not None:
            self._lock.release()

    # Files

    def write(self, name: str, content: bytes | Callable[[Any], Any]) -> None:
        """Write a file (`content` may be a function that writes to it); it belongs to the run
        once `commit` has named it.
        """
        if not _NAME.fullmatch(name) or name == INDEX:
            raise InputError(f"{name!r} is not a name for a file of a run folder.")
        _refuse_odd_rounds(self.path)
        write_whole(self.path / name, content)
        self.index["files"][name] = fingerprint(self.path / name)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json_to(value))

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        self.write(name, lambda file: np.savez(file, **arrays))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        need("pyarrow", extra="app", why="keeping a run")
        self.write(
            name, lambda file: table.to_parquet(file, index=False, compression="zstd")
        )

    def read(self, name: str) -> bytes:
        """A file's content, which is what the index says."""
        where = self.path / name
        if name not in self.index["files"]:
            raise InputError(
                f"{str(self.path)!r} has no {name!r}: the run was not finished. Go on with: persfl"
                " fit ... --resume"
            )
        try:
            content = read_whole(where)
        except (FileNotFoundError, IsADirectoryError):
            what = "Restore it, or run again into another folder."
            raise InputError(f"{str(where)!r} is missing. {what}") from None
        if _digest(content) != self.index["files"][name]:
            raise _damaged(where)
        return content

    def read_json(self, name: str) -> Any:
        content = self.read(name)
        with reading(self.path / name):
            return json_from(content)

    def read_arrays(self, name: str) -> dict[str, Any]:
        content = self.read(name)
        with reading(self.path / name):
            return numbers_from(content)

    def read_table(self, name: str) -> pd.DataFrame:
        content = self.read(name)
        with reading(self.path / name):
            return table_from(content)

    def commit(self) -> None:
        """Make what was written part of the run, in one step, and remove what no longer is."""
        self.index["format"] = FORMAT
        _refuse_odd_rounds(self.path)
        digest = _digest(json_to(self.index))
        write_whole(self.path / INDEX, json_to({**self.index, "sha256": digest}))
        for old in self._on_the_way():
            if old.relative_to(self.path).as_posix() not in self.index["files"]:
                remove_regular(old)

    def _on_the_way(self) -> list[Path]:
        """Files of the shapes that a run makes before it is over."""
        found = [
            path for path in self.path.iterdir() if _ON_THE_WAY.fullmatch(path.name)
        ]
        rounds = self.path / "rounds"
        if rounds.is_dir():
            found += [
                path for path in rounds.iterdir() if _OF_ROUNDS.fullmatch(path.name)
            ]
        return found

    def strangers(self) -> list[Path]:
        """Files in the folder that do not belong to the run."""
        known = {*self.index["files"], INDEX, LOCK, *PAGES}
        found = []
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path).as_posix()
            if not path.is_dir() and name not in known:
                found.append(path)
        return found

    def remove(self) -> None:
        """Remove a run that was replaced: its files and its pages, and nothing else."""
        for page in PAGES:
            remove_regular(self.path / page)
        self.discard(replaced=True)

    def discard(self, *, replaced: bool = False) -> None:
        """Remove the files of this run, and the folder if it was made for it and is empty then.

        For a run that has failed before anything was done, by whoever began it.
        """
        for name in [*self.index["files"], INDEX]:
            remove_regular(self.path / name)
        for path in self._on_the_way():
            remove_regular(path)
        self.close()
        _remove_empty(self.path / "rounds")
        if self._made or replaced:
            _remove_empty(self.path)

    def _drop(self, *, prefix: str) -> None:
        for name in [name for name in self.index["files"] if name.startswith(prefix)]:
            del self.index["files"][name]

    # Keep

    def last(self, stage: str) -> State | None:
        """The state to go on from."""
        place = self.index["stages"].get(stage)
        if place is None:
            return None
        arrays = self.read_arrays(place["state"])
        with reading(self.path / place["state"]):
            return _state(arrays)

    def after(self, stage: str, plan: Plan, state: State, round_: Round | None) -> None:
        """Remember a round; write when it is time."""
        self._latest = (stage, state)
        if round_ is None:  # a run begins, or begins anew with a smaller step
            self._waiting = []
            if stage in self.index["stages"]:
                self._drop(prefix=f"rounds/{stage}-")
                self._drop(prefix=f"state-{stage}-")
                del self.index["stages"][stage]
            return
        self._waiting.append((stage, round_))
        if state.r >= plan.rounds or time.monotonic() - self._saved >= (
            self.every and max(self.every, 10 * self._cost)
        ):
            self.save()

    def save(self) -> None:
        """Write where the run stands now."""
        if self._latest is None or not self._waiting:
            return
        begin = time.monotonic()
        stage, state = self._latest
        first = self._waiting[0][1].r
        # A stage that starts anew must not write over files that the index on disk still names.
        self.index["serial"] = serial = int(self.index.get("serial", 0)) + 1
        self.write_table(
            f"rounds/{stage}-{first:06d}-{serial}.parquet",
            rounds_table([round_ for _, round_ in self._waiting]),
        )
        self._drop(prefix=f"state-{stage}-")
        name = f"state-{stage}-{state.r:06d}-{serial}"
        pace = {
            "step_size": state.pace.step_size,
            "halved": np.array(state.pace.halved),
            "safe": state.pace.safe,
            "unlike": state.pace.unlike,
        }
        arrays = {"r": state.r, "losses": np.array(state.losses)} | pace
        arrays |= {f"trust_{k}": v for k, v in state.trust.to_arrays().items()}
        arrays |= {f"kept_{k}": v for k, v in (state.kept or {}).items()}
        self.write_arrays(f"{name}.npz", arrays | models_to(state.models))
        self.index["stages"][stage] = {"round": state.r, "state": f"{name}.npz"}
        self.commit()
        self._waiting, self._saved = [], time.monotonic()
        self._cost = self._saved - begin

    def finish(self) -> None:
        """The result is written: the states are no longer needed."""
        self._drop(prefix="state-")
        self.index["stages"] = {}
        self.index["finished"] = True
        self.commit()
        self.close()

    def rounds(self, stage: str = "final") -> pd.DataFrame:
        """All rounds of a stage, one row per round and device (positions in `devices_`)."""
        names = sorted(
            name for name in self.index["files"] if name.startswith(f"rounds/{stage}-")
        )
        if not names:
            raise InputError(f"{str(self.path)!r} has no rounds of stage {stage!r}.")
        return pd.concat([self.read_table(name) for name in names], ignore_index=True)


def rounds_table(rounds: Sequence[Round]) -> pd.DataFrame:
    """Rounds as a table: one row per round and target."""
    parts = []
    for round_ in rounds:
        parts.append(
            pd.DataFrame(
                {
                    "round": np.int32(round_.r),
                    "device": np.asarray(round_.trust.targets, dtype=np.int32),
                    "loss": round_.loss,
                    "stay": round_.choice.stay,
                    "asked": list(round_.peers.astype(np.int32)),
                    "losses": list(round_.losses[:, 1:].astype(np.float32)),
                    "adopted": _taken(
                        round_.choice, round_.choice.peers.astype(np.int32)
                    ),
                    "shares": _taken(round_.choice, round_.choice.weights),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _taken(choice: Choice, values: Any) -> list[Any]:
    """A list per target; of remembered steps only those that were taken, since a choice among
    them is as wide as everyone met.
    """
    if choice.anew is None:
        return list(values)
    return [
        row[weights > 0] for row, weights in zip(values, choice.weights, strict=True)
    ]


def _state(arrays: Mapping[str, Any]) -> State:
    """Where a stage stands, from the arrays of its file."""
    trust = Trust.from_arrays(_under("trust_", arrays))
    losses = arrays["losses"]
    r, step_size = int(arrays["r"]), float(arrays["step_size"])
    if (
        losses.dtype.kind != "f"
        or (losses.ndim != 2 and losses.size)
        or len(losses) > max(r, 0)
    ):
        raise InputError("there must be a loss for every round and target.")
    if r < 0 or not step_size > 0 or arrays["halved"].ndim != 1:
        raise InputError("the number of rounds and the step size must be above 0.")
    halved = tuple(float(size) for size in arrays["halved"])
    pace = Pace(step_size, halved, bool(arrays["safe"]), bool(arrays["unlike"]))
    remembered = _under("kept_", arrays)
    return State(r, models_from(arrays), trust, pace, tuple(losses), remembered or None)


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those whose names begin like this, without it."""
    size = len(prefix)
    return {
        name[size:]: array for name, array in arrays.items() if name.startswith(prefix)
    }


# The result


def refuse_unkept(model: Any) -> None:
    """Stop where a run folder could not keep the models of an estimator, before any are fitted.

    >>> from persfl import PersonalizedRegressor
    >>> from sklearn.svm import SVR
    >>> refuse_unkept(PersonalizedRegressor(SVR()))
    Traceback (most recent call last):
    ...
    persfl.errors.InputError: models of SVR cannot be kept in a run folder. ...
    """
    # a learner's, or one itself
    base = getattr(model.estimator, "estimator", model.estimator)
    if isinstance(base, BaseEstimator):
        estimator_to(base)
    elif all(hasattr(base, name) for name in ("init", "loss", "mix", "check")):
        _learner(base)


def keep_model(folder: Folder, model: Any) -> None:
    """Write a fitted PersonalizedRegressor or PersonalizedClassifier."""
    arrays: dict[str, Any] = {
        f"units_{k}": v for k, v in units_to(model.units_).items()
    }
    arrays |= {f"trust_{k}": v for k, v in model.trust_.to_arrays().items()}
    arrays |= {
        "losses": model.losses_,
        "rows": model.rows_,
        "fallback": model.fallback_,
    }
    network = isinstance(model.learner_, Network)
    networks: Any = model.models_
    if not network:
        arrays |= models_to(model.models_)
    elif not isinstance(networks, np.ndarray):
        networks, shares = listed(networks)
        arrays |= shares
    odd = [
        name
        for name in model.devices_.tolist()
        if not isinstance(name, (str, int, float, bool))
    ]
    if odd:
        raise InputError(
            f"a run folder keeps devices whose ids are text or numbers. Got {odd[0]!r}: use"
            " str(...) of it."
        )
    about: dict[str, Any] = {
        "kind": type(model).__name__,
        "settings": _settings(model),
        "adopter": _adopter(model.adopter),
        "method": model.method_,
        "devices": model.devices_.tolist(),
        "learner": _learner(model.learner_),
        "own_learner": model.estimator is model.learner_,
        "units": model.units_.kind,
        "step_size": model.step_size_,
        "rounds": model.n_rounds_,
        "notes": model.notes_,
        "features": model.n_features_in_,
        "names": list(getattr(model, "feature_names_in_", [])) or None,
        "preparation": None,
    }
    if hasattr(model, "classes_"):
        about["classes"] = model.classes_.tolist()
    if model.preparation_ is not None:
        about["preparation"] = model.preparation_.to_words()
    if model.pooled_ is not None:
        arrays |= {
            f"pooled_units_{k}": v for k, v in units_to(model.pooled_units_).items()
        }
        about["pooled"] = model.pooled_units_.kind
        if not network:  # those are with the other networks
            pooled = models_to([model.pooled_])
            arrays |= {f"pooled_{name}": array for name, array in pooled.items()}
    folder.write_arrays("model.npz", arrays)
    if network:
        held = {"models": np.asarray(networks)} | (
            {} if model.pooled_ is None else {"pooled": model.pooled_}
        )
        folder.write("model.safetensors", kept.packed(model.learner_, held))
    if model.worth_ is not None:
        folder.write_table("worth.parquet", model.worth_.table.drop(columns="device"))
        about["worth"] = {"scale": model.worth_.scale, "classes": model.worth_.classes}
    folder.write_json("model.json", about)
    folder.finish()


def save_model(
    model: Any, path: str | Path, *, device: str = "device", label: str = "y"
) -> Path:
    """A fitted model as a run folder that `load_model` and the command line take (`device`,
    `label`: what these are called).

    >>> import tempfile
    >>> from persfl import PersonalizedRegressor
    >>> model = PersonalizedRegressor().fit(
    ...     [[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], devices=["a"] * 3
    ... )
    >>> path = save_model(model, Path(tempfile.mkdtemp()) / "run")
    >>> load_model(path).predict([[3.0]]).round(1).tolist()
    [3.0]
    """
    folder = Folder.create(
        Path(path),
        {
            "device": device if model.device is None else model.device,
            "label": label,
            "features": model._inputs(),
            "groups": None,
            "separator": None,
            "decimal": ".",
        },
    )
    try:
        keep_model(folder, model)
    except BaseException:
        folder.discard()
        raise
    return folder.path


def load_model(path: str | Path, *, module: Any = None) -> Any:
    """The fitted model of a finished run folder.

    `module` is what networks of the user's own were made of (a module, or a function that makes
    one), whose code is not in the folder. Without it all can be shown, but nothing predicted.
    """
    folder = Folder.open(Path(path))
    about, arrays = folder.read_json("model.json"), folder.read_arrays("model.npz")
    with reading(folder.path / "model.json"):
        check_words(about)
        model = _blank(about)
    kind = about["learner"]["kind"]
    if module is not None and kind != "network":
        raise InputError(
            f"module is for networks. This run's models are of the kind {kind!r}: leave it out."
        )
    if kind == "network":
        _read_networks(folder, model, about, arrays, module)
    else:
        with reading(folder.path / "model.json"):
            model.learner_ = _learner_from(about["learner"])
            if kind != "linear" or about["own_learner"]:
                model.estimator = getattr(model.learner_, "estimator", model.learner_)
        with reading(folder.path / "model.npz"):
            _read_models(model, about, arrays)
    with reading(folder.path / "model.npz"):
        _read_numbers(model, about, arrays)
    if "worth" in about:
        measured = folder.read_table("worth.parquet")
        with reading(folder.path / "worth.parquet"):
            model.worth_ = worth_from(measured, about)
    return model


def _blank(about: Mapping[str, Any]) -> Any:
    """The estimator of a run, with what its words say, and no models yet."""
    from persfl.estimators import PersonalizedClassifier, PersonalizedRegressor
    from persfl.estimators.base import id_array
    from persfl.preparation import Preparation

    kind = PersonalizedClassifier if "classes" in about else PersonalizedRegressor
    model = kind(None, adopter=_adopter_from(about["adopter"]), **about["settings"])
    model._seed = model.random_state
    if "classes" in about:
        model.classes_ = np.array(about["classes"])
    model.devices_ = id_array(about["devices"])
    model.n_features_in_ = about["features"]
    if about["names"]:
        model.feature_names_in_ = np.array(about["names"], dtype=object)
    model.step_size_, model.n_rounds_ = about["step_size"], about["rounds"]
    model.notes_, model.method_ = about["notes"], about.get("method", model.method)
    model.public_, model.pooled_, model.worth_ = None, None, None
    model.preparation_ = None
    if about["preparation"]:
        model.preparation_ = Preparation.from_words(about["preparation"])
        if {*model.preparation_.numbers, *model.preparation_.texts} != set(
            about["names"] or ()
        ):
            raise InputError("the columns that are prepared must be the features.")
    return model


def _columns(model: Any) -> int:
    """How many columns of numbers models see."""
    return (
        model.n_features_in_
        if model.preparation_ is None
        else len(model.preparation_.columns)
    )


def _learner_from(described: Mapping[str, Any]) -> Any:
    """The inverse of `_learner`, for all but networks."""
    from persfl.learners import Estimator

    words = {name: value for name, value in described.items() if name != "kind"}
    if described["kind"] == "linear":
        return Linear(**words)
    if described["kind"] == "tree":
        return Tree(**words)
    if described["kind"] == "estimator":
        return Estimator(estimator_from(words["family"]), loss=words["loss"])
    raise InputError(f"there are no models of the kind {described['kind'][:80]!r}.")


def _read_models(
    model: Any, about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """The models of a run, and the one for all, if they are of its learner."""
    columns, classes = _columns(model), len(about.get("classes", ()))
    model.models_ = models_from(arrays, features=columns, classes=classes)
    _refuse_unfit(model.learner_, model.models_, columns)
    if "pooled" in about:
        pooled = _under("pooled_", arrays)
        if "pooled" in arrays:  # as format 1 had them
            pooled["models"] = arrays["pooled"][None]
        elif "tree_feature" in pooled and "tree_nodes" not in pooled:
            pooled["tree_nodes"] = np.array([len(pooled["tree_feature"])])
        (model.pooled_,) = found = models_from(
            pooled, features=columns, classes=classes
        )
        _refuse_unfit(model.learner_, found, columns)


def _refuse_unfit(learner: Any, models: Any, columns: int) -> None:
    """Stop where models are of another family or size than the learner's."""
    if isinstance(learner, Linear):
        fits = isinstance(models, np.ndarray) and models.shape[1] == learner.size(
            columns
        )
        if isinstance(models, list):
            parts = [part for mix in models for _, part in mix]
            fits = all(
                getattr(part, "shape", None) == (learner.size(columns),)
                for part in parts
            )
    else:
        kind = Grown if isinstance(learner, Tree) else Plain
        wanted = (kind, type(None)) if kind is Plain else (kind,)
        parts = [
            p
            for m in models
            for p in ([q for _, q in m] if isinstance(m, list) else [m])
        ]
        fits = all(isinstance(part, wanted) for part in parts)
    if not fits:
        raise InputError(
            "the models must be of the run's family, and of its number of columns."
        )


def _read_networks(
    folder: Folder,
    model: Any,
    about: Mapping[str, Any],
    arrays: Mapping[str, Any],
    module: Any,
) -> None:
    content = folder.read("model.safetensors")
    described = {
        name: value for name, value in about["learner"].items() if name != "kind"
    }
    with reading(folder.path / "model.json"):
        kept.refuse_larger(described, len(content))
        made = _sized(module, _columns(model), len(about.get("classes", ())))
    if module is None:
        with reading(folder.path / "model.json"):
            model.learner_ = kept.rebuilt(described)
    else:
        model.learner_ = kept.rebuilt(described, made)
    model.estimator = _as_estimator(described, module, model.learner_)
    with reading(folder.path / "model.safetensors"):
        networks = kept.unpacked(model.learner_.shapes, content)
        model.models_ = networks["models"]
        if model.models_.ndim != 2 or networks.get("pooled", np.empty(0)).ndim != 1:
            raise InputError("there must be a network for every device.")
        if "pooled" in about:
            model.pooled_ = networks["pooled"]
    if "mix_sizes" in arrays:
        with reading(folder.path / "model.npz"):
            model.models_ = mixed(list(networks["models"]), arrays)


def _read_numbers(
    model: Any, about: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """What a run knows beside its models."""
    devices, columns = len(model.devices_), _columns(model)
    if len(model.models_) != devices:
        found = len(model.models_)
        raise InputError(
            f"the run's models are of {found} devices, where there are {devices}."
        )
    sizes = {"devices": devices, "columns": columns}
    model.units_ = units_from(about["units"], _under("units_", arrays), **sizes)
    if "pooled" in about:
        pooled = _under("pooled_units_", arrays)
        model.pooled_units_ = units_from(about["pooled"], pooled, **sizes)
    model.trust_ = trust_from(_under("trust_", arrays), devices)
    model.losses_ = losses_from(arrays["losses"], devices)
    model.rows_ = counts_from(arrays["rows"], devices)
    model.fallback_ = truths_from(arrays["fallback"], devices)


def _adopter(adopter: Any) -> Any:
    """An adopter in plain words; those of the user's own are kept by name only."""
    if adopter is None:
        return None
    if type(adopter).__name__ in _ADOPTERS and dataclasses.is_dataclass(adopter):
        return {"kind": type(adopter).__name__} | dataclasses.asdict(adopter)  # type: ignore[arg-type]
    return {"kind": repr(adopter)}


def _adopter_from(described: Any) -> Any:
    from persfl import adopters

    if described is None or described["kind"] not in _ADOPTERS:
        return None
    settings = {name: value for name, value in described.items() if name != "kind"}
    return getattr(adopters, described["kind"])(**settings)


def _settings(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in SETTINGS} | {
        "random_state": model._seed
    }


def _learner(learner: Any) -> dict[str, Any]:
    """A learner in plain words."""
    if isinstance(learner, Linear):
        classes = learner.classes if learner.kind == "multinomial" else None
        return {
            "kind": "linear",
            "loss": learner.kind,
            "intercept": learner.intercept,
            "l2": learner.l2,
            "delta": learner.delta,
            "classes": classes,
        }
    if isinstance(learner, Tree):
        return {"kind": "tree", "max_depth": learner.max_depth}
    if isinstance(learner, Network):
        return {"kind": "network"} | kept.described(learner)
    if hasattr(learner, "estimator"):
        family = estimator_to(learner.estimator)
        return {"kind": "estimator", "loss": learner.kind, "family": family}
    raise InputError(
        "a run folder can keep linear models, trees, networks and scikit-learn estimators. Got"
        f" {learner!r}."
    )


def _sized(module: Any, columns: int, classes: int) -> Any:
    """A function of (features, outputs), as the estimators take one, made a function of nothing."""
    from persfl.estimators.base import takes_sizes

    return partial(module, columns, classes or 1) if takes_sizes(module) else module


def _as_estimator(described: Mapping[str, Any], module: Any, learner: Any) -> Any:
    """What the user would hand in to train the same again."""
    if module is not None or described["mlp"] is None:
        return module
    return learner.make.func


def refuse_held(path: Path) -> None:
    """Stop where another run is writing into this folder."""
    who = holder(path) if path.is_dir() else None
    if who is not None:
        raise in_use(path, who)


def _refuse_full(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir()):
        what = "Choose another --out, go on with --resume, or replace it with --force."
        raise InputError(f"{str(path)!r} is not empty. {what}")


def _refuse_odd_rounds(path: Path) -> None:
    """Stop where `rounds` would lead elsewhere."""
    rounds = path / "rounds"
    if rounds.is_symlink():
        refuse_links(path)
    if rounds.is_dir():
        refuse_links(rounds)


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def _index(where: Path) -> dict[str, Any]:
    """The index of a run, if it is sound and of a format that is read here."""
    content = read_whole(where)
    try:
        index = json_from(content)
        sound = index.pop("sha256") == _digest(json_to(index))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise _damaged(where)
    if index.get("format") not in READABLE:
        known = " and ".join(str(number) for number in READABLE)
        found = f"{str(where.parent)!r} has format {index.get('format')!r}"
        raise InputError(f"{found}; this version of persfl reads formats {known}.")
    with reading(where):
        _check_index(index)
    old = [name for name in index["files"] if name.endswith(".skops")]
    if old:
        raise InputError(
            f"{str(where.parent / old[0])!r} is in a format of persfl 0.1.0 that could run code "
            "when read. Use persfl 0.1.0 to read it if you trust it, or fit again."
        )
    return dict(index)


def _check_index(index: Mapping[str, Any]) -> None:
    files, stages = index["files"], index["stages"]
    if not set(index) <= _KEYS or not isinstance(index["finished"], bool):
        raise InputError(
            "an index says what is there, and whether the run is finished."
        )
    if not isinstance(files, dict) or not isinstance(stages, dict):
        raise InputError("an index must list files and stages.")
    odd = [name for name in files if not _NAME.fullmatch(name) or name == INDEX]
    if odd:
        raise InputError(f"{odd[0][:80]!r} is not a name for a file of a run folder.")
    if not all(
        isinstance(value, str) and _DIGEST.fullmatch(value) for value in files.values()
    ):
        raise InputError("every file must have its SHA-256.")
    for stage, place in stages.items():
        if not _STAGE.fullmatch(stage) or place["state"] not in files:
            raise InputError("every stage must have its state.")
    serial = index.get("serial", 0)
    if (
        isinstance(serial, bool)
        or not isinstance(serial, int)
        or not 0 <= serial < 2**53
    ):
        raise InputError("serial must be a whole number.")
    if index.get("fleet") is not None and index["fleet"] not in files:
        raise InputError("the fleet's state must be one of its files.")


def versions() -> dict[str, str | None]:
    """What this runs with."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _seconds() -> float:
    text = os.environ.get("PERSFL_SAVE_SECONDS", "5")
    try:
        return max(0.0, float(text))
    except ValueError:
        raise InputError(
            f"PERSFL_SAVE_SECONDS must be a number of seconds. Got {text!r}."
        ) from None


def _damaged(path: Path) -> InputError:
    return InputError(
        f"{str(path)!r} is damaged: it is not what persfl wrote. Restore it, or run again into"
        " another folder."
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
