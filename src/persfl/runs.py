"""A run folder: what was asked, what happened, what was learned; whole at every moment.

    run.json           the index: format, finished or not, every stage's last round, and the SHA-256 of every file
    spec.json          what was asked: table, columns, settings
    versions.json      what it ran with
    rounds/*.parquet   every round of every stage: device, own loss, who was asked, each answer's loss, who was adopted
    state-*.npz        where a stage stands: models, trust, losses, kept steps (a .skops file beside it has scikit-learn models)
    model.npz, model.json, model.skops, model.safetensors, worth.parquet     the result

Files are written under new names, then the index is replaced in one step: a run that is killed leaves the last index and all it
names. A file that does not match its SHA-256 is refused by name. Nothing is pickled: scikit-learn models are kept by skops, and
only what skops trusts and classes of scikit-learn are accepted back unless others are named. That keeps code out, not nonsense (a
forged tree can crash a process): open run folders of people you trust. Networks are kept as named tensors (safetensors); the code
of a module is not kept, see `persfl.learners.kept`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from persfl.checks import some
from persfl.errors import InputError, need
from persfl.learners import Linear, Network, Tree, kept
from persfl.learners.tree import Grown
from persfl.training import Pace, Plan, State
from persfl.trust import Trust
from persfl.types import Choice, Round
from persfl.wire.models import plain_from, plain_to
from persfl.wire.plain import Plain
from persfl.wire.probes import within

FORMAT = 1
PACKAGES = ("persfl", "numpy", "scipy", "scikit-learn", "pandas", "numba", "pyarrow", "skops", "torch", "safetensors")
INDEX = "run.json"
_ADOPTERS = ("Best", "BestOrStay", "TopK", "Weighted")


class Folder:
    """Keeps a run (see `persfl.training.Keep`): states at most every `every` seconds, and at the end of each stage.

    `every` defaults to the environment variable PERSFL_SAVE_SECONDS, or 5; 0 saves after every round.

    >>> import tempfile
    >>> folder = Folder.create(Path(tempfile.mkdtemp()) / "run", {"rounds": 3})
    >>> folder.write("note.txt", b"hello")
    >>> folder.commit()
    >>> Folder.open(folder.path).read("note.txt"), folder.finished
    (b'hello', False)
    """

    def __init__(self, path: Path, index: dict[str, Any], *, every: float | None = None) -> None:
        self.path, self.index = path, index
        self.every = _seconds() if every is None else every
        self._waiting: list[tuple[str, Round]] = []
        self._latest: tuple[str, State] | None = None
        self._saved = time.monotonic()
        self._cost = 0.0  # seconds the last saving took: large fleets are saved less often

    @staticmethod
    def create(path: Path, spec: Mapping[str, Any], *, every: float | None = None) -> Folder:
        """A new run in an empty or absent folder."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{str(path)!r} is not empty. Choose another --out, go on with --resume, or replace it with --force.")
        return Folder.begin(path, spec, every=every)

    @staticmethod
    def begin(path: Path, spec: Mapping[str, Any], *, every: float | None = None) -> Folder:
        """A new run in a folder that may hold other files already."""
        (path / "rounds").mkdir(parents=True, exist_ok=True)
        folder = Folder(path, {"format": FORMAT, "finished": False, "stages": {}, "files": {}}, every=every)
        folder.write_json("spec.json", spec)
        folder.write_json("versions.json", versions())
        folder.commit()
        return folder

    @staticmethod
    def open(path: Path, *, every: float | None = None) -> Folder:
        """A run that is there."""
        where = path / INDEX
        if not where.is_file():
            raise InputError(f"{str(path)!r} is not a run folder: it has no {INDEX}. Make one with: persfl fit TABLE --out {path}")
        try:
            index = json.loads(where.read_bytes())
            digest = index.pop("sha256")
            sound = digest == _digest(_dumps(index)) and isinstance(index["files"], dict) and isinstance(index["stages"], dict)
        except (ValueError, KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise _damaged(where)
        if index["format"] != FORMAT:
            raise InputError(f"{str(path)!r} has format {index['format']}; this version of persfl reads format {FORMAT}.")
        return Folder(path, index, every=every)

    @property
    def finished(self) -> bool:
        return bool(self.index["finished"])

    @property
    def spec(self) -> dict[str, Any]:
        return dict(json.loads(self.read("spec.json")))

    # Files

    def write(self, name: str, content: bytes | Callable[[Any], Any]) -> None:
        """Write a file (`content` may be a function that writes to it); it belongs to the run once `commit` has named it."""
        write_whole(self.path / name, content)
        self.index["files"][name] = fingerprint(self.path / name)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, _dumps(value))

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        self.write(name, lambda file: np.savez(file, **arrays))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        need("pyarrow", extra="app", why="keeping a run")
        self.write(name, lambda file: table.to_parquet(file, index=False, compression="zstd"))

    def checked(self, name: str) -> Path:
        """The path of a file that is what persfl wrote."""
        where = self.path / name
        if name not in self.index["files"]:
            raise InputError(f"{str(self.path)!r} has no {name!r}: the run was not finished. Go on with: persfl fit ... --resume")
        if not where.is_file():
            raise InputError(f"{str(where)!r} is missing. Restore it, or run again into another folder.")
        if fingerprint(where) != self.index["files"][name]:
            raise _damaged(where)
        return where

    def read(self, name: str) -> bytes:
        """A file's content, checked."""
        return self.checked(name).read_bytes()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read(name))

    def read_arrays(self, name: str) -> dict[str, Any]:
        with np.load(self.checked(name), allow_pickle=False) as kept:
            return {key: kept[key] for key in kept.files}

    def read_table(self, name: str) -> pd.DataFrame:
        need("pyarrow", extra="app", why="reading a run")
        return pd.read_parquet(self.checked(name))

    def commit(self) -> None:
        """Make what was written part of the run, in one step, and remove what no longer is."""
        content = {**self.index}
        content["sha256"] = _digest(_dumps(self.index))
        write_whole(self.path / INDEX, _dumps(content))
        for old in [*self.path.glob("state-*"), *(self.path / "rounds").glob("*.parquet"), *self.path.rglob("*.part")]:
            if old.relative_to(self.path).as_posix() not in self.index["files"]:
                old.unlink(missing_ok=True)

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
        trust = Trust.from_arrays({k.removeprefix("trust_"): v for k, v in arrays.items() if k.startswith("trust_")})
        models = models_from(arrays, unpacked(self.read(place["skops"])) if place.get("skops") else None)
        losses = tuple(arrays["losses"])
        pace = Pace(float(arrays["step_size"]), tuple(arrays["halved"].tolist()), bool(arrays["safe"]), bool(arrays["unlike"]))
        kept = {k.removeprefix("kept_"): v for k, v in arrays.items() if k.startswith("kept_")}
        return State(int(arrays["r"]), models, trust, pace, losses, kept or None)

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
        if state.r >= plan.rounds or time.monotonic() - self._saved >= (self.every and max(self.every, 10 * self._cost)):
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
        self.write_table(f"rounds/{stage}-{first:06d}-{serial}.parquet", rounds_table([round_ for _, round_ in self._waiting]))
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
        models, objects = models_to(state.models)
        self.write_arrays(f"{name}.npz", arrays | models)
        if objects is not None:
            self.write(f"{name}.skops", _packed(objects))
        self.index["stages"][stage] = {
            "round": state.r,
            "state": f"{name}.npz",
            "skops": f"{name}.skops" if objects is not None else None,
        }
        self.commit()
        self._waiting, self._saved = [], time.monotonic()
        self._cost = self._saved - begin

    def finish(self) -> None:
        """The result is written: the states are no longer needed."""
        self._drop(prefix="state-")
        self.index["stages"] = {}
        self.index["finished"] = True
        self.commit()

    def rounds(self, stage: str = "final") -> pd.DataFrame:
        """All rounds of a stage, one row per round and device (positions in `devices_`)."""
        names = sorted(name for name in self.index["files"] if name.startswith(f"rounds/{stage}-"))
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
                    "adopted": _taken(round_.choice, round_.choice.peers.astype(np.int32)),
                    "shares": _taken(round_.choice, round_.choice.weights),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _taken(choice: Choice, values: Any) -> list[Any]:
    """A list per target; of remembered steps only those that were taken, since a choice among them is as wide as everyone met."""
    if choice.anew is None:
        return list(values)
    return [row[weights > 0] for row, weights in zip(values, choice.weights, strict=True)]


def models_to(models: Any) -> tuple[dict[str, Any], list[Any] | None]:
    """Models as plain arrays, and where they are scikit-learn estimators a list of those, for skops."""
    if isinstance(models, np.ndarray):
        return {"models": models}, None
    if any(isinstance(model, list) for model in models):  # mixes of shares and models
        parts, shares = _listed(models)
        arrays, objects = models_to(parts)
        return arrays | shares, objects
    if all(isinstance(model, np.ndarray) for model in models):
        return {"models": np.stack(list(models))}, None
    if all(isinstance(model, Grown) for model in models):
        nodes = np.array([len(model.feature) for model in models])
        return {"tree_nodes": nodes} | {f"tree_{k}": np.concatenate([getattr(m, k) for m in models]) for k in Grown._fields}, None
    if any(isinstance(model, Plain) for model in models):  # of a federation: arrays, and nothing where a model stayed at home
        kept = {f"plain_{i}": model for i, model in enumerate(models) if model is not None}
        return {"plain": np.array(len(models))} | {
            f"{name}.{part}": array for name, model in kept.items() for part, array in plain_to(model).items()
        }, None
    return {}, list(models)


def models_from(arrays: Mapping[str, Any], objects: Any = None) -> Any:
    """The inverse of `models_to`."""
    if "mix_sizes" in arrays:
        return _mixed(models_from({k: v for k, v in arrays.items() if k != "mix_sizes"}, objects), arrays)
    if objects is not None:
        return objects
    if "models" in arrays:
        return arrays["models"]
    if "plain" in arrays:
        plain = [within(f"plain_{i}", arrays) for i in range(int(arrays["plain"]))]
        return [plain_from(part, _width(part), 1000 if "labels" in part else 0) if part else None for part in plain]
    ends = np.cumsum(arrays["tree_nodes"])[:-1]
    parts = [np.split(arrays[f"tree_{k}"], ends) for k in Grown._fields]
    return [Grown(*tree) for tree in zip(*parts, strict=True)]


def _width(part: Mapping[str, Any]) -> int:
    """How many features a plain model was made for, at least."""
    return int(part["slopes"].shape[1]) if "slopes" in part else int(part["feature"].max(initial=0)) + 1


def _listed(models: Any) -> tuple[list[Any], dict[str, Any]]:
    """The models of all mixes, one after the other, and as arrays how many each device has and their shares."""
    mixes = [model if isinstance(model, list) else [(1.0, model)] for model in models]  # a device may keep its own model
    shares = np.array([share for mix in mixes for share, _ in mix])
    return [part for mix in mixes for _, part in mix], {"mix_sizes": np.array([len(mix) for mix in mixes]), "mix_shares": shares}


def _mixed(parts: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """Mixes of shares and models from the models of all of them; shares must be shares."""
    sizes, shares = np.asarray(arrays["mix_sizes"]), np.asarray(arrays["mix_shares"])
    sound = sizes.ndim == shares.ndim == 1 and sizes.dtype.kind == "i" and shares.dtype.kind == "f" and len(sizes) > 0
    if not sound or sizes.min() < 1 or not sizes.sum() == len(shares) == len(parts):
        raise InputError("the run's mixes are damaged: there must be a share for every model, and a model for every device.")
    ends = np.cumsum(sizes)
    if not (shares >= 0).all() or not np.allclose(np.add.reduceat(shares, ends - sizes), 1.0):
        raise InputError("the run's mixes are damaged: the shares of a device must be at least 0 and sum to 1.")
    pairs = list(zip(shares.tolist(), parts, strict=True))
    return [pairs[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def _packed(objects: Any) -> bytes:
    skops = need("skops.io", extra="app", why="keeping scikit-learn models")
    return bytes(skops.dumps(objects))


def unpacked(content: bytes, trusted: Sequence[str] = ()) -> Any:
    """A skops file's content, if it names no types but those of scikit-learn, SciPy, NumPy and `trusted`."""
    skops = need("skops.io", extra="app", why="reading scikit-learn models")
    named = skops.get_untrusted_types(data=content)
    strange = [name for name in named if not _harmless(name) and name not in trusted]
    if strange:
        raise InputError(f"the run's models need the types {some(strange)}. If you trust them, name each: --trust {strange[0]}")
    return skops.loads(content, trusted=named)


def _harmless(name: str) -> bool:
    """Whether this is a class of scikit-learn's: a function could be handed to another and made to run anything."""
    if name == "numpy.dtype":
        return True
    module, _, what = name.rpartition(".")
    if not module.startswith("sklearn."):
        return False
    try:
        return isinstance(getattr(importlib.import_module(module), what, None), type)
    except ImportError:
        return False


# The result


def keep_model(folder: Folder, model: Any) -> None:
    """Write a fitted PersonalizedRegressor or PersonalizedClassifier."""
    arrays: dict[str, Any] = {f"units_{k}": v for k, v in _units(model.units_).items()}
    arrays |= {f"trust_{k}": v for k, v in model.trust_.to_arrays().items()}
    arrays |= {"losses": model.losses_, "rows": model.rows_, "fallback": model.fallback_}
    network = isinstance(model.learner_, Network)
    networks, shares = (model.models_, {}) if isinstance(model.models_, np.ndarray) or not network else _listed(model.models_)
    models, estimators = (shares, None) if network else models_to(model.models_)
    odd = [name for name in model.devices_.tolist() if not isinstance(name, (str, int, float, bool))]
    if odd:
        raise InputError(f"a run folder keeps devices whose ids are text or numbers. Got {odd[0]!r}: use str(...) of it.")
    about: dict[str, Any] = {
        "kind": type(model).__name__,
        "settings": {name: value for name, value in model.get_params(deep=False).items() if name in _PLAIN}
        | {"random_state": model._seed},
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
    objects: dict[str, Any] = {}
    if about["learner"]["kind"] == "estimator":
        objects["estimator"] = model.learner_.estimator
    if hasattr(model, "classes_"):
        about["classes"] = model.classes_.tolist()
    if model.preparation_ is not None:
        about["preparation"] = {
            "numbers": model.preparation_.numbers,
            "texts": model.preparation_.texts,
            "impute": model.preparation_.impute,
        }
        objects["preparation"] = model.preparation_.steps
    if model.pooled_ is not None:
        arrays |= {f"pooled_units_{k}": v for k, v in _units(model.pooled_units_).items()}
        about["pooled"] = model.pooled_units_.kind
        if network:
            pass  # with the other networks
        elif isinstance(model.pooled_, np.ndarray):
            arrays["pooled"] = model.pooled_
        elif isinstance(model.pooled_, Grown):
            arrays |= {f"pooled_tree_{k}": getattr(model.pooled_, k) for k in Grown._fields}
        else:
            objects["pooled"] = model.pooled_
    if estimators is not None:
        objects["models"] = estimators
    folder.write_arrays("model.npz", arrays | models)
    if network:
        held = {"models": np.asarray(networks)} | ({} if model.pooled_ is None else {"pooled": model.pooled_})
        folder.write("model.safetensors", kept.packed(model.learner_, held))
    if objects:
        folder.write("model.skops", _packed(objects))
    if model.worth_ is not None:
        folder.write_table("worth.parquet", model.worth_.table.drop(columns="device"))
        about["worth"] = {"scale": model.worth_.scale, "classes": model.worth_.classes}
    folder.write_json("model.json", about)
    folder.finish()


def save_model(model: Any, path: str | Path, *, device: str = "device", label: str = "y") -> Path:
    """A fitted model as a run folder that `load_model` and the command line take (`device`, `label`: what these are called).

    >>> import tempfile
    >>> from persfl import PersonalizedRegressor
    >>> model = PersonalizedRegressor().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0], devices=["a"] * 3)
    >>> path = save_model(model, Path(tempfile.mkdtemp()) / "run")
    >>> load_model(path).predict([[3.0]]).round(1).tolist()
    [3.0]
    """
    folder = Folder.create(Path(path), {
        "device": device if model.device is None else model.device, "label": label, "features": model._inputs(), "groups": None,
        "separator": None, "decimal": ".",
    })  # fmt: skip
    keep_model(folder, model)
    return folder.path


_PLAIN = (
    "device", "method", "peers", "rounds", "step_size", "units", "holdout", "trials", "fallback", "unseen", "impute", "window",
    "online_rounds", "budget", "ordered", "compute", "n_jobs", "random_state",
)  # fmt: skip


def load_model(path: str | Path, *, trusted: Sequence[str] = (), module: Any = None) -> Any:
    """The fitted model of a finished run folder.

    `module` is what networks of the user's own were made of (a module, or a function that makes one), whose code is not in the
    folder. Without it everything can be shown, but nothing predicted.
    """
    from persfl.estimators import PersonalizedClassifier, PersonalizedRegressor
    from persfl.estimators.base import id_array
    from persfl.learners import Estimator
    from persfl.preparation import Preparation
    from persfl.units import Units
    from persfl.worth import Worth

    folder = Folder.open(Path(path))
    about, arrays = folder.read_json("model.json"), folder.read_arrays("model.npz")
    objects = unpacked(folder.read("model.skops"), trusted) if "model.skops" in folder.index["files"] else {}
    kinds = {"PersonalizedRegressor": PersonalizedRegressor, "PersonalizedClassifier": PersonalizedClassifier}
    model = kinds[about["kind"]](objects.get("estimator"), adopter=_adopter_from(about["adopter"]), **about["settings"])
    model._seed = model.random_state
    described = dict(about["learner"])
    kind = described.pop("kind")
    if module is not None and kind != "network":
        raise InputError(f"module is for networks. This run's models are of the kind {kind!r}: leave it out.")
    networks: dict[str, Any] = {}
    if kind == "network":
        model.learner_ = kept.rebuilt(described, _sized(module, arrays, about))
        model.estimator = _as_estimator(described, module, model.learner_)
        networks = kept.unpacked(model.learner_.shapes, folder.read("model.safetensors"))
    elif kind == "linear":
        model.learner_ = Linear(**described)
        if about["own_learner"]:
            model.estimator = model.learner_
    elif kind == "tree":
        model.learner_ = model.estimator = Tree(**described)
    else:
        model.learner_ = Estimator(objects["estimator"], loss=described["loss"])
    if "classes" in about:
        model.classes_ = np.array(about["classes"])
    model.devices_ = id_array(about["devices"])
    model.n_features_in_ = about["features"]
    if about["names"]:
        model.feature_names_in_ = np.array(about["names"], dtype=object)
    model.units_ = _as_units(Units, about["units"], arrays, "units_")
    model.trust_ = Trust.from_arrays({k.removeprefix("trust_"): v for k, v in arrays.items() if k.startswith("trust_")})
    if networks:
        model.models_ = _mixed(list(networks["models"]), arrays) if "mix_sizes" in arrays else networks["models"]
    else:
        model.models_ = models_from(arrays, objects.get("models"))
    if len(model.models_) != len(model.devices_):
        raise InputError(f"the run's models are of {len(model.models_)} devices, where there are {len(model.devices_)}.")
    model.losses_, model.rows_, model.fallback_ = arrays["losses"], arrays["rows"], arrays["fallback"]
    model.step_size_, model.n_rounds_, model.notes_ = about["step_size"], about["rounds"], about["notes"]
    model.method_ = about.get("method", model.method)
    model.public_, model.pooled_, model.worth_ = None, None, None
    if "pooled" in about:
        model.pooled_units_ = _as_units(Units, about["pooled"], arrays, "pooled_units_")
        tree = "pooled_tree_feature" in arrays
        model.pooled_ = (
            networks["pooled"]
            if networks
            else (
                Grown(*(arrays[f"pooled_tree_{k}"] for k in Grown._fields)) if tree else arrays.get("pooled", objects.get("pooled"))
            )
        )
    model.preparation_ = None
    if about["preparation"]:
        model.preparation_ = Preparation.restored(objects["preparation"], **about["preparation"])
    if "worth" in about:
        measured = folder.read_table("worth.parquet")
        measured.insert(0, "device", pd.Series(about["devices"], dtype=object))
        model.worth_ = Worth(measured, **about["worth"])
    return model


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
    described = dict(described)
    return getattr(adopters, described.pop("kind"))(**described)


def _units(units: Any) -> dict[str, Any]:
    return {k: getattr(units, k) for k in ("mean", "scale", "label_mean", "label_scale", "centres", "label_centres")}


def _as_units(units: Any, kind: str, arrays: Mapping[str, Any], prefix: str) -> Any:
    kept = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    kept |= {k: float(kept[k]) for k in ("label_mean", "label_scale")}
    return units(kind=kind, **kept)


def _learner(learner: Any) -> dict[str, Any]:
    """A learner in plain words."""
    if isinstance(learner, Linear):
        classes = learner.classes if learner.kind == "multinomial" else None
        return {"kind": "linear", "loss": learner.kind, "intercept": learner.intercept, "l2": learner.l2, "delta": learner.delta,
                "classes": classes}  # fmt: skip
    if isinstance(learner, Tree):
        return {"kind": "tree", "max_depth": learner.max_depth}
    if isinstance(learner, Network):
        return {"kind": "network"} | kept.described(learner)
    if hasattr(learner, "estimator"):
        return {"kind": "estimator", "loss": learner.kind}
    raise InputError(f"a run folder can keep linear models, trees, networks and scikit-learn estimators. Got {learner!r}.")


def _sized(module: Any, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
    """A function of (features, outputs), as the estimators take one, made a function of nothing."""
    from persfl.estimators.base import takes_sizes

    if not takes_sizes(module):
        return module
    return partial(module, len(arrays["units_mean"]), len(about.get("classes", ())) or 1)


def _as_estimator(described: Mapping[str, Any], module: Any, learner: Any) -> Any:
    """What the user would hand in to train the same again."""
    if module is not None or described["mlp"] is None:
        return module
    return learner.make.func


def versions() -> dict[str, str | None]:
    """What this runs with."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def fingerprint(path: Path) -> str:
    """The SHA-256 of a file, read piece by piece."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def _seconds() -> float:
    text = os.environ.get("PERSFL_SAVE_SECONDS", "5")
    try:
        return max(0.0, float(text))
    except ValueError:
        raise InputError(f"PERSFL_SAVE_SECONDS must be a number of seconds. Got {text!r}.") from None


def _damaged(path: Path) -> InputError:
    return InputError(f"{str(path)!r} is damaged: it is not what persfl wrote. Restore it, or run again into another folder.")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _dumps(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def write_whole(path: Path, content: bytes | Callable[[Any], Any]) -> None:
    """All or nothing, also when the power goes: write beside it, flush, rename, flush the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    if hasattr(os, "O_DIRECTORY"):
        place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
