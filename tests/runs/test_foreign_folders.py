"""Run folders that somebody else made: nothing in them runs, nothing outside them is touched."""

import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import tracemalloc
import warnings
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeClassifier

from persfl import (
    Estimator,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Tree,
    folder_locks,
    formats,
)
from persfl.cli import main
from persfl.encoding import Preparation
from persfl.errors import InputError
from persfl.files import append, read_whole, write_whole
from persfl.folder_locks import Lock, holder, holding
from persfl.formats import numbers_from, numbers_to, table_from
from persfl.learners.plain_families import FAMILIES
from persfl.learners.storage.estimator_words import estimator_from, estimator_to
from persfl.learners.storage.family_table import models_from, models_to
from persfl.methods import FedAvg, Kin, Paper
from persfl.methods.blend.offers_stage import _rounds_of
from persfl.report.federation_page import federation_page
from persfl.runs import INDEX, Folder, load_model, save_model
from persfl.runs.model_checks import check_classes, check_words
from persfl.sources import clustered_regression
from persfl.trust import Trust

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.standard_normal((24, 2)), columns=["a", "b"])
FRAME["kind"] = RNG.choice(["x", "y"], 24)
FRAME["who"] = np.repeat(["p", "q", "r"], 8)
FRAME["y"] = FRAME["a"] * np.repeat([1.0, 2.0, -1.0], 8) + FRAME["b"]
FRAME["late"] = np.where(FRAME["y"] > 0, "yes", "no")
FEATURES = ["a", "b", "kind"]


class Cut(Exception):
    """A run ends here."""


def cut_folder(path, rounds):
    """A new run folder that keeps so many rounds and then ends the run."""
    folder = Folder.create(path, {}, every=0)
    after = folder.after

    def cut(stage, plan, state, round_):
        after(stage, plan, state, round_)
        if state.r == rounds:
            raise Cut

    folder.after = cut
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    FRAME.to_csv(path, index=False)
    return path


WORDS = [
    "--device",
    "who",
    "--label",
    "y",
    "--drop",
    "late",
    "--no-report",
    "--trials",
    "1",
]
WORDS += ["--method", "paper", "--rounds", "4", "--peers", "2"]


@pytest.fixture(scope="module")
def finished(table, tmp_path_factory):
    """Runs with categories, of forests (scikit-learn) and of linear models."""
    place = tmp_path_factory.mktemp("finished")
    fit = ["fit", str(table), *WORDS]
    assert (
        main(
            [*fit, "--model", "forest", "--rounds", "1", "--out", str(place / "forest")]
        )
        == 0
    )
    assert main([*fit, "--out", str(place / "linear")]) == 0
    return place


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the finished run of forests."""
    return Path(shutil.copytree(finished / "forest", tmp_path / "run"))


def seal(path, name=None, content=None, **index):
    """Put a file into a folder and make every digest right again, as anybody can."""
    found = json.loads((path / INDEX).read_text()) | index
    found.pop("sha256", None)
    if name is not None:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
        found["files"][name] = hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256(
        (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()
    )
    found["sha256"] = digest.hexdigest()
    (path / INDEX).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def replaced(path, name, **changes):
    """Change some words of a JSON file, and seal it."""
    words = json.loads((path / name).read_text()) | changes
    seal(path, name, json.dumps(words).encode())


# Nothing runs


class Marker:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def _skops(marker):
    """What skops would rebuild as a call of os.mkdir."""
    node = {
        "__class__": "mkdir",
        "__module__": "posix",
        "__loader__": "FunctionNode",
        "__id__": 1,
    }
    call = {
        "__class__": "partial",
        "__module__": "functools",
        "__loader__": "ReduceNode",
    }
    call |= {
        "__reduce__": {
            "args": {"content": [node, {"content": json.dumps(str(marker))}]}
        }
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(
            "schema.json", json.dumps({"protocol": 2, "content": call} | call)
        )
    return made.getvalue()


def _objects(marker):
    """Arrays of which one is pickled."""
    made = io.BytesIO()
    odd = np.empty(1, dtype=object)
    odd[0] = Marker(marker)
    np.savez(made, models=odd, losses=odd, r=np.array(1))
    return made.getvalue()


def plant(path, way, marker):
    """A command in a folder, in one of many places."""
    if way == "skops":
        seal(path, "model.skops", _skops(marker), format=1)
    elif way == "skops in format 2":
        seal(path, "model.skops", _skops(marker))
    elif way == "objects":
        seal(path, "model.npz", _objects(marker))
    elif way == "pickle":
        seal(path, "model.npz", pickle.dumps(Marker(marker)))
        seal(path, "worth.parquet", pickle.dumps(Marker(marker)))
    elif way == "family":
        learner = json.loads((path / "model.json").read_text())["learner"]
        family = {"name": "os.mkdir", "settings": {"path": str(marker)}}
        replaced(path, "model.json", learner=learner | {"family": family})
    elif way == "module":
        (path / "evil.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
        replaced(
            path,
            "spec.json",
            model=f"{path}/evil.py:make",
            module=f"{path}/evil.py:make",
        )
    elif way == "state":
        stages = {"final": {"round": 1, "state": "state-final-1.npz"}}
        seal(path, "state-final-1.npz", _objects(marker), finished=False, stages=stages)


PLANTS = (
    "skops",
    "skops in format 2",
    "objects",
    "pickle",
    "family",
    "module",
    "state",
)


@pytest.mark.parametrize("way", PLANTS)
def test_a_planted_command_runs_nowhere(run, table, tmp_path, capsys, monkeypatch, way):
    monkeypatch.chdir(run)  # where a module beside the folder's files would be found
    marker = tmp_path / "marker"
    plant(run, way, marker)
    out = ["--out", str(run)]
    fit = ["fit", str(table), *WORDS, "--model", "forest", "--rounds", "1", *out]
    codes = {
        "report": main(["report", str(run), "--out", str(tmp_path / "page.html")]),
        "helpers": main(["helpers", str(run)]),
        "predict": main(["predict", str(run), str(table)]),
        "fit --resume": main([*fit, "--resume"]),
        "fit --force": main([*fit, "--force"]),
    }
    said = capsys.readouterr().err
    assert not marker.exists()
    assert "Traceback" not in said
    # these say nothing that the reading commands look at
    if way not in ("module", "state"):
        assert codes["report"] == codes["helpers"] == codes["predict"] == 2
    if way.startswith("skops"):
        assert "persfl 0.1.0" in said


def test_a_planted_command_does_not_run_in_a_federation(tmp_path):
    pytest.importorskip("flwr")
    import federated

    from persfl.federation.conduct import conduct
    from persfl.federation.local_grid import LocalGrid
    from persfl.federation.run_plan import RunPlan
    from persfl.sources import clustered_regression
    from persfl.wire import Terms, pack

    devices = clustered_regression(n=4, clusters=2, rows=12, features=3, seed=0)
    homes = federated.at_home(devices)
    asked = federated.plan(tmp_path / "run", homes, run="r1", rounds=2)
    folder = Folder.begin(tmp_path / "run", {"asked": RunPlan.read(asked).record()})
    marker = tmp_path / "marker"
    (tmp_path / "evil_net.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    terms = Terms(model="network", columns=("a",), settings={"make": "evil_net:make"})
    head, arrays = terms.to_wire()
    folder.write("terms.wire", pack(head, arrays))
    folder.commit()
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(
            InputError, match=r"terms\.wire.*the model that is asked for"
        ):
            conduct(LocalGrid(homes), asked)
    finally:
        sys.path.remove(str(tmp_path))
    assert not marker.exists()


def _reachable():
    """Every class and function that a module of scikit-learn can be asked for, by its names."""
    importlib.import_module("sklearn.feature_selection")  # has operator.attrgetter
    importlib.import_module("sklearn.utils._testing")  # has itertools.groupby
    found = set()
    for module in [m for name, m in sys.modules.items() if name.startswith("sklearn.")]:
        callables = [name for name, value in vars(module).items() if callable(value)]
        found |= {f"{module.__name__}.{name}" for name in callables}
    return found


def test_no_name_of_scikit_learn_is_rebuilt_but_those_of_the_list(monkeypatch):
    names = _reachable()
    assert {
        "sklearn.feature_selection._base.attrgetter",
        "sklearn.utils._testing.groupby",
    } <= names
    assert len(names) > 4000
    calls = []
    monkeypatch.setattr(importlib, "import_module", lambda *words: calls.append(words))
    listed = {family.__name__: family for family in FAMILIES}
    for dotted in names:
        short = dotted.rpartition(".")[2]
        for name in {dotted, short}:
            try:
                made = estimator_from({"name": name, "settings": {}})
            except InputError:
                assert name not in listed
            else:
                assert type(made) is listed[name]
    assert calls == []


def test_forged_kinds_are_refused_by_name(run):
    sound = (run / "model.json").read_bytes()
    odd = [
        "os.system",
        "subprocess.Popen",
        "functools.partial",
        "Counter",
        "Pipeline",
        "eval",
        7,
    ]
    for name in odd:
        learner = {
            "kind": "estimator",
            "loss": "squared",
            "family": {"name": name, "settings": {}},
        }
        for change in (
            {"learner": learner},
            {"learner": {"kind": name}},
            {"kind": name},
            {"adopter": {"kind": name, "args": 1}, "learner": {"kind": name}},
            {"preparation": {"steps": name}},
        ):
            replaced(run, "model.json", **change)
            with pytest.raises(InputError, match=r"model\.json"):
                load_model(run)
            seal(run, "model.json", sound)


# What is kept of scikit-learn


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_family_predicts_the_same_to_the_last_bit(family):
    X, new = RNG.standard_normal((60, 4)), RNG.standard_normal((50, 4))
    score = X @ [1.0, 2.0, 0.0, -1.0]
    for scaled in (False, True):
        estimator = family()
        few = {"n_estimators": 5, "max_iter": 5 if "Hist" in family.__name__ else 200}
        known = estimator.get_params()
        estimator.set_params(
            **{name: value for name, value in few.items() if name in known}
        )
        if scaled:
            estimator = make_pipeline(StandardScaler(), estimator)
        for classes in (2, 3) if is_classifier(family()) else (0,):
            cuts = (
                np.quantile(score, np.arange(1, classes) / classes) if classes else []
            )
            y = np.digitize(score, cuts).astype(float) if classes else np.exp(score / 4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = estimator.fit(X, y)
            arrays = numbers_from(numbers_to(models_to([model])))
            (again,) = models_from(arrays, features=4, classes=classes)
            for rows in (new, new[:1]):
                np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
                assert hasattr(again, "predict_proba") == hasattr(
                    model, "predict_proba"
                )
                if hasattr(model, "predict_proba"):
                    said = model.predict_proba(rows)
                    np.testing.assert_array_equal(again.predict_proba(rows), said)
        words = json.loads(json.dumps(estimator_to(estimator)))
        assert json.loads(json.dumps(estimator_to(estimator_from(words)))) == words


@pytest.mark.filterwarnings("ignore::persfl.errors.UnseenWarning")
@pytest.mark.parametrize(
    ("estimator", "label"),
    [
        (RandomForestRegressor(2, max_depth=2), "y"),
        (make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)), "late"),
        (GradientBoostingClassifier(n_estimators=2), "late"),
        (Tree(2), "y"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_run_of_estimators_goes_on_to_the_same_bits(tmp_path, estimator, label):
    kind = PersonalizedClassifier if label == "late" else PersonalizedRegressor
    settings = {
        "method": Paper(rounds=2, peers=2),
        "holdout": 0,
        "unseen": "pooled",
    }
    X, y, whose = FRAME[FEATURES], FRAME[label], FRAME["who"]
    whole = kind(estimator, **settings).fit(X, y, devices=whose)

    folder = cut_folder(tmp_path / "run", 1)
    with pytest.raises(Cut):
        kind(estimator, **settings).fit(X, y, whose, keep=folder)
    folder.close()
    resumed = kind(estimator, **settings).fit(
        X, y, whose, keep=Folder.open(tmp_path / "run")
    )
    again = load_model(save_model(resumed, tmp_path / "kept"))
    others = whose.where(whose != "p", "elsewhere")
    for model in (resumed, again):
        for devices in (whose, others):
            found = (m.predict(X, devices=devices) for m in (model, whole))
            np.testing.assert_array_equal(*found)
            if label == "late":
                found = (m.predict_proba(X, devices=devices) for m in (model, whole))
                np.testing.assert_array_equal(*found)
        np.testing.assert_array_equal(model.losses_, whole.losses_)
    assert repr(again.estimator) == repr(estimator)


def test_what_cannot_be_kept_is_refused_before_the_fit(
    table, tmp_path, capsys, monkeypatch
):
    (tmp_path / "own.py").write_text("from sklearn.svm import SVR\nmake = SVR()\n")
    monkeypatch.setattr(PersonalizedRegressor, "fit", None)
    out = ["--out", str(tmp_path / "run"), "--model", f"{tmp_path}/own.py"]
    assert main(["fit", str(table), *WORDS, *out]) == 2
    assert "models of SVR cannot be kept in a run folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    model = PersonalizedRegressor(
        Estimator(SVR()), method=Paper(rounds=1, peers=1), holdout=0
    )
    model.fit(FRAME[["a"]], FRAME["y"], devices=FRAME["who"])
    with pytest.raises(InputError, match="models of SVR cannot"):
        save_model(model, tmp_path / "svr")
    assert not (tmp_path / "svr").exists()


def test_columns_are_prepared_by_what_was_kept(tmp_path):
    holes = FRAME[FEATURES].copy()
    holes.loc[[1, 5], "a"] = np.nan
    holes.loc[[2, 7], "kind"] = None
    made = Preparation(holes, impute=True)
    again = Preparation.from_words(json.loads(json.dumps(made.to_words())))
    holes.loc[0, "kind"] = "new"
    np.testing.assert_array_equal(again(holes), made(holes))
    assert again.columns == made.columns == ["a", "b", "kind=x", "kind=y"]
    for change in (
        {"categories": [["x", "x"]]},
        {"categories": [["x", 1]]},
        {"categories": []},
        {"numbers": ["a"]},
        {"fills": []},
        {"fills": [0.0, 0.0, "z"]},
        {"fills": [True, 0.0, "x"]},
        {"impute": 1},
        {"more": 1},
        {"texts": ["a"]},
    ):
        with pytest.raises(InputError):
            Preparation.from_words(made.to_words() | change)


# Nothing outside is touched


def test_a_link_in_a_folder_is_refused_and_nothing_behind_it_touched(
    run, table, tmp_path, capsys
):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "final-000001-1.parquet").write_text("precious")
    fit = [
        "fit",
        str(table),
        *WORDS,
        "--model",
        "forest",
        "--method",
        "paper",
        "--rounds",
        "1",
        "--out",
        str(run),
    ]
    for name, target in (
        ("rounds", victim),
        ("run.json.persfl-part", victim / "final-000001-1.parquet"),
        ("model.json", victim / "final-000001-1.parquet"),
        ("lock", victim / "new"),
        ("state-final-1.npz", victim),
        ("rounds/final-9-9.parquet.persfl-part", victim / "final-000001-1.parquet"),
    ):
        copy = tmp_path / "copy"
        shutil.copytree(run, copy)
        seal(copy, finished=False)
        place = copy / name
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.symlink_to(target)
        assert main([*fit[:-1], str(copy), "--resume"]) == 2
        assert "is a link or a special file" in capsys.readouterr().err
        for command in ("report", "helpers"):
            assert main([command, str(copy)]) == 2
        shutil.rmtree(copy)
    assert [path.name for path in victim.iterdir()] == ["final-000001-1.parquet"]
    assert (victim / "final-000001-1.parquet").read_text() == "precious"


def test_a_lock_is_written_over_nobodys_file(run, table, tmp_path, capsys):
    fit = ["fit", str(table), *WORDS, "--out"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "lock").write_text("my own words")
    for more in ([], ["--resume"], ["--force"]):
        assert main([*fit, str(mine), *more]) == 2
        assert "is not a lock of persfl" in capsys.readouterr().err
    assert (mine / "lock").read_text() == "my own words"
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    os.link(victim, run / "lock")  # as an archive unpacked beside it can do
    assert main([*fit, str(run), "--resume"]) == 2
    assert "is a link or a special file" in capsys.readouterr().err
    os.link(victim, tmp_path / "progress.jsonl")
    with pytest.raises(InputError, match="link"):
        append(tmp_path / "progress.jsonl", "more")
    assert victim.read_text() == "precious"
    assert read_whole(victim) == b"precious"
    # left by a killed run
    (mine / "lock").write_text("process 7 since 2026-01-01 00:00:00")
    Lock(mine).take()


def test_a_forged_state_leads_compiled_code_nowhere_else(tmp_path):
    devices = clustered_regression(
        n=20, clusters=2, rows=12, features=3, noise=0.1, seed=0
    )
    whose, path = np.repeat(np.arange(20), 12), tmp_path / "run"

    def fit(keep):
        model = PersonalizedRegressor(method=Kin(rounds=60, peers=5), holdout=0)
        return model.fit(devices.X, devices.y, whose, keep=keep)

    folder = cut_folder(path, 20)
    with pytest.raises(Cut):
        fit(folder)
    folder.close()
    name = folder.index["stages"]["final"]["state"]
    arrays = numbers_from((path / name).read_bytes())
    panel, kept, asked = (
        arrays[k] for k in ("trust_note_panel", "kept_peers", "trust_note_asked")
    )
    asked[panel == 3] = 10**6  # so that it is followed, and not asked
    panel[panel == 3] = kept[kept == 3] = 10**8
    seal(path, name, numbers_to(arrays))
    with pytest.raises(InputError, match="device indices below 20"):
        fit(Folder.open(path))


def test_a_forged_state_is_not_made_a_folder_that_cannot_be_read(tmp_path):
    devices = clustered_regression(n=8, clusters=2, rows=12, features=3, seed=0)
    path = tmp_path / "run"
    model = PersonalizedRegressor(method=FedAvg(rounds=3), holdout=0)
    whose = np.repeat(np.arange(8), 12)
    folder = Folder.create(path, {}, every=0)
    model.fit(devices.X, devices.y, whose, keep=folder)
    folder.close()
    name = folder.index["stages"]["final"]["state"]
    arrays = numbers_from((path / name).read_bytes())
    for forged in (np.zeros(8, int), np.arange(8) * 10**6, np.arange(3)):
        seal(path, name, numbers_to(arrays | {"trust_targets": forged}))
        with pytest.raises(InputError, match="not of these 8 devices"):
            model.fit(devices.X, devices.y, whose, keep=Folder.open(path))
    seal(path, name, numbers_to(arrays | {"step_size": np.array(np.inf)}))
    with pytest.raises(InputError, match="step size"):
        model.fit(devices.X, devices.y, whose, keep=Folder.open(path))


def test_the_column_of_devices_is_no_feature(run):
    words = json.loads((run / "model.json").read_bytes())
    words["settings"]["device"] = words["names"][0]
    seal(run, "model.json", json.dumps(words).encode())
    with pytest.raises(InputError, match="none of the features"):
        load_model(run)


def test_force_replaces_the_run_behind_a_link_and_not_the_link(
    finished, table, tmp_path
):
    real, link = tmp_path / "disk" / "real", tmp_path / "run"
    shutil.copytree(finished / "linear", real)
    link.symlink_to(real)
    fit = ["fit", str(table), *WORDS, "--holdout", "0", "--out", str(link)]
    before = (real / INDEX).read_bytes()
    assert main([*fit, "--force"]) == 0
    assert link.is_symlink()
    assert (real / INDEX).read_bytes() != before
    found = {path.name for place in (tmp_path, real.parent) for path in place.iterdir()}
    assert found == {"disk", "run", "real"}


def test_no_process_but_one_is_ended_by_what_a_folder_says(tmp_path):
    from persfl.federation.launch import _last_pid

    progress = tmp_path / "progress.jsonl"
    for pid in (-1, 0, 1, True, 2**70, "7", None):
        progress.write_text(json.dumps({"event": "begun", "pid": pid}) + "\n")
        assert _last_pid(progress) is None


def test_a_diary_does_not_choose_who_is_ended(tmp_path, monkeypatch):
    """Ctrl-C ends who holds the folder, whoever is named in what lay there before."""
    from persfl.federation import launch

    ended = []
    monkeypatch.setattr(launch.os, "kill", lambda pid, how: ended.append((pid, how)))
    other = json.dumps({"event": "begun", "pid": os.getppid()}) + "\n"
    (tmp_path / "progress.jsonl").write_text(other)
    launch._stop(tmp_path)
    assert not ended
    with holding(tmp_path):
        launch._stop(tmp_path)
    assert {pid for pid, _ in ended} == {os.getpid()}


def test_networks_that_take_long_to_make_are_not_made():
    from persfl.learners.storage.network_files import check_network_size

    words = {
        "loss": "squared",
        "shape": None,
        "l2": 0.0,
        "epochs": 1,
        "rate": 0.1,
        "seed": 0,
    }
    words |= {"dtype": "float32", "mlp": None}
    with pytest.raises(InputError, match="shapes"):
        check_network_size(words | {"parts": [["a", [10**4000] * 1500]]}, 2**30)
    many = [1] * 100_000
    mlp = {"hidden": many, "activation": "relu", "sizes": [2, 1]}
    parts = [["a", [2 * len(many) + 3]]]
    with pytest.raises(InputError, match="at most 1000 widths"):
        check_network_size(words | {"parts": parts, "mlp": mlp}, 2**30)
    with pytest.raises(InputError, match="as large as its parts"):
        check_network_size(
            words | {"parts": [["a", [7]]], "mlp": mlp | {"hidden": [1, 1]}}, 2**30
        )


def _evil(value, text):
    """The same JSON, every text and number in it replaced, keys too where they are free."""
    if isinstance(value, dict):
        return {key: _evil(inner, text) for key, inner in value.items()}
    return [_evil(inner, text) for inner in value] if isinstance(value, list) else text


def test_nothing_of_a_foreign_federation_becomes_markup(tmp_path):
    evil = '"><meta http-equiv=refresh content="0;url=https://x"><b title=\'&'
    sound = {
        "algorithm": 1,
        "method": "kin",
        "home": [],
        "sums": True,
        "holdout": 0.25,
        "rounds": 3,
        "messages": 5,
    }
    sound |= {
        "model": "linear",
        "deadline": 9,
        "quorum": 1,
        "growth": 2,
        "reach": 9,
        "notes": ["a"],
    }
    sound |= {
        "devices": ["a"],
        "targets": ["a"],
        "ways": {"asked": "what"},
        "rows": {"a": 1},
    }
    sound["counts"] = [{"device": "a", "asked": 1}]
    for name in sound:
        for change in (evil, _evil(sound[name], evil), {evil: evil}, [evil]):
            page = ""
            with contextlib.suppress(InputError), formats.reading(tmp_path):
                page = federation_page(json.loads(json.dumps(sound | {name: change})))
            assert "<meta http-equiv=refresh" not in page
            assert "<b title" not in page
    assert "<b>" not in federation_page(sound | {"rounds": "<b>"})


def test_a_report_is_written_over_no_table_and_no_model(run, capsys):
    before = (run / "model.json").read_bytes()
    for name in ("model.json", "rows.csv", "report"):
        assert main(["report", str(run), "--out", str(run / name)]) == 2
        assert "--out must end in .html" in capsys.readouterr().err
    assert (run / "model.json").read_bytes() == before
    assert main(["report", str(run), "--out", str(run / "federation.html")]) == 2
    assert "another name" in capsys.readouterr().err


def test_names_in_an_index_lead_nowhere_else(run, tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    digest = hashlib.sha256(b"precious").hexdigest()
    for name in (
        "../victim.txt",
        str(victim),
        "exchange-/../../victim.txt",
        "rounds/../../victim.txt",
        "rounds//x.parquet",
        "./spec.json",
        "run.json",
        ".hidden",
        "a\x00b",
        "rounds",
        "x\n.txt",
    ):
        files = json.loads((run / INDEX).read_text())["files"]
        copy = tmp_path / "copy"
        shutil.copytree(run, copy)
        seal(copy, files=files | {name: digest}, finished=False)
        with pytest.raises(InputError, match=r"run\.json.*is not a name for a file"):
            Folder.open(copy)
        shutil.rmtree(copy)
    for odd in (
        {"fleet": "../victim.txt"},
        {"fleet": 7},
        {"serial": -1},
        {"stages": {"x/y": {}}},
    ):
        copy = tmp_path / "copy"
        shutil.copytree(run, copy)
        seal(copy, **odd)
        with pytest.raises(InputError, match=r"run\.json"):
            Folder.open(copy)
        shutil.rmtree(copy)
    with pytest.raises(InputError, match="is not a name"):
        Folder.open(run).write("../x.json", b"")
    assert victim.read_text() == "precious"


def test_files_are_never_written_or_read_through_links(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "new.persfl-part").symlink_to(victim)
    (tmp_path / "link").symlink_to(victim)
    write_whole(tmp_path / "new", b"mine")
    assert (tmp_path / "new").read_bytes() == b"mine"
    for odd in (
        read_whole,
        lambda path: append(path, "x"),
        lambda path: Lock(path.parent).take(),
    ):
        (tmp_path / "lock").unlink(missing_ok=True)
        (tmp_path / "lock").symlink_to(victim)
        with pytest.raises(InputError, match="is a link or a special file"):
            odd(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    for odd in (read_whole, lambda path: append(path, "x")):
        with pytest.raises(InputError, match="is a link or a special file"):
            odd(tmp_path / "pipe")
    assert victim.read_text() == "precious"


def test_a_folder_may_be_reached_by_a_link(run, tmp_path):
    (tmp_path / "way").symlink_to(run)
    assert len(load_model(tmp_path / "way").devices_) == 3


# Sentences


def test_deep_words_are_a_sentence(run, table, capsys):
    deep = b"[" * 200_000 + b"]" * 200_000
    for name in ("spec.json", "model.json"):
        seal(run, name, deep)
        command = ["report"] if name == "model.json" else ["predict", str(table)]
        assert main([command[0], str(run), *command[1:]]) == 2
        said = capsys.readouterr().err
        assert name in said
        assert len(said.splitlines()) == 1
    (run / INDEX).write_bytes(deep)
    assert main(["report", str(run)]) == 2
    assert "run.json" in capsys.readouterr().err


def test_other_columns_than_the_models_have_are_a_sentence(run, table, capsys):
    replaced(run, "spec.json", features=["b", "a", "kind"])
    assert main(["predict", str(run), str(table)]) == 2
    assert "names other columns than the run's models" in capsys.readouterr().err


def test_nonsense_is_noticed_by_report_and_by_predict(
    finished, table, tmp_path, capsys
):
    linear = finished / "linear"
    good = numbers_from((linear / "model.npz").read_bytes())
    odd = {
        "units_mean": np.full_like(good["units_mean"], np.nan),
        "units_scale": np.zeros_like(good["units_scale"]),
        "models": good["models"][:, :-1],
        "losses": good["losses"][:, :-1],
        "rows": good["rows"] - 100,
        "trust_targets": good["trust_targets"] + 1,
        "trust_asked": -good["trust_asked"],
        "fallback": good["rows"],
    }
    for name, array in odd.items():
        copy = tmp_path / name
        shutil.copytree(linear, copy)
        made = io.BytesIO()
        np.savez(made, **good | {name: array})
        seal(copy, "model.npz", made.getvalue())
        for command in (["report", str(copy)], ["predict", str(copy), str(table)]):
            assert main(command) == 2
            said = capsys.readouterr().err
            assert "model.npz" in said
            assert len(said.splitlines()) == 1


def test_a_column_has_no_more_categories_than_a_fit_gives_it(run, table, capsys):
    words = json.loads((run / "model.json").read_text())["preparation"]
    words["categories"] = [["x", "y", *map(str, range(99))]]
    replaced(run, "model.json", preparation=words)
    assert main(["predict", str(run), str(table)]) == 2
    assert "at most 100 categories" in capsys.readouterr().err


def test_many_classes_do_not_take_the_square_of_the_time(table, tmp_path, monkeypatch):
    method = Paper(rounds=1)
    model = PersonalizedClassifier(DecisionTreeClassifier(), holdout=0, method=method)
    model.fit(FRAME[FEATURES], FRAME["late"], FRAME["who"])
    run = save_model(model, tmp_path / "run", device="who", label="late")
    replaced(run, "model.json", classes=["no", "yes", *map(str, range(400))])
    added = []
    put = pd.DataFrame.__setitem__

    def counted(frame, name, values):
        added.append(name)
        put(frame, name, values)

    monkeypatch.setattr(pd.DataFrame, "__setitem__", counted)
    out = tmp_path / "out.csv"
    assert main(["predict", str(run), str(table), "--only", "--out", str(out)]) == 0
    found = pd.read_csv(out)
    assert found.shape == (24, 3 + 402)
    assert found.columns[3:6].tolist() == ["chance_no", "chance_yes", "chance_0"]
    assert len(added) < 10


@pytest.mark.parametrize(
    "name", ["\x1b]0;title\x07\x1b[2J", "\u202eback", "a\nb", "\x00", "\x9b2J"]
)
def test_no_name_of_a_folder_commands_the_terminal(
    run, table, capsys, monkeypatch, name
):
    devices = [name, "q", "r"]
    replaced(run, "model.json", devices=devices)
    assert main(["helpers", str(run)]) == 0
    assert main(["helpers", str(run), "--device", "nobody"]) == 2
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    frame = FRAME.assign(who=[devices["pqr".index(who)] for who in FRAME["who"]])
    frame.to_parquet(table.with_suffix(".parquet"))
    assert main(["predict", str(run), str(table.with_suffix(".parquet"))]) == 0
    said = "".join(capsys.readouterr())
    assert ascii(name)[1:-1] in said
    assert all(letter.isprintable() or letter == "\n" for letter in said)


@pytest.mark.parametrize("odd", ["\ud800", 10**400, -(2**70), float("nan")])
def test_names_that_no_table_holds_are_refused(run, table, odd):
    for change in (
        {"devices": [odd, "q", "r"]},
        {"notes": [odd]},
        {"names": [odd, "b", "kind"]},
    ):
        sound = (run / "model.json").read_bytes()
        replaced(run, "model.json", **change)
        with pytest.raises(InputError, match=r"model\.json"):
            load_model(run)
        seal(run, "model.json", sound)


def test_the_name_of_a_column_is_a_text(run, table, capsys):
    settings = json.loads((run / "model.json").read_text())["settings"]
    replaced(run, "model.json", settings=settings | {"device": 7})
    assert main(["predict", str(run), str(table)]) == 2
    assert "unusable 'settings'" in capsys.readouterr().err


def test_what_unpacks_to_much_is_refused_before(monkeypatch):
    monkeypatch.setattr(formats, "_ROOM", 2**16)
    zeros = np.zeros(2**20)
    made = io.BytesIO()
    np.savez_compressed(made, models=zeros)
    table = io.BytesIO()
    pd.DataFrame({"held": np.zeros(2**21)}).to_parquet(table, compression="zstd")
    head = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(head, about)
    claims = io.BytesIO()
    with zipfile.ZipFile(claims, "w") as archive:
        archive.writestr("models.npy", head.getvalue())
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="compressed"):
            numbers_from(made.getvalue())
        with pytest.raises(InputError, match="too much"):
            table_from(table.getvalue())
        with pytest.raises(InputError, match="as long as its head"):
            numbers_from(claims.getvalue())
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_folder_of_format_1_without_objects_is_still_read(finished, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(finished / "linear", old)
    words = json.loads((old / "model.json").read_text())
    good = numbers_from((old / "model.npz").read_bytes())
    columns = Preparation.from_words(words["preparation"]).columns
    keep = [k for k, name in enumerate(columns) if "=" not in name]
    # Format 1 kept columns of texts as objects: such a run had numbers only.
    made = dict(good, models=good["models"][:, [*keep, -1]])
    for name in ("mean", "scale", "centres"):
        made[f"units_{name}"] = good[f"units_{name}"][..., keep]
        if "pooled" in words:
            made[f"pooled_units_{name}"] = good[f"pooled_units_{name}"][..., keep]
    if "pooled" in words:
        made["pooled"] = made.pop("pooled_models")[0, [*keep, -1]]
    content = io.BytesIO()
    np.savez(content, **made)
    replaced(old, "model.json", preparation=None, features=2, names=["a", "b"])
    seal(old, "model.npz", content.getvalue(), format=1)
    assert load_model(old).predict(FRAME[["a", "b"]], devices=FRAME["who"]).shape == (
        24,
    )


# One at a time, and nothing is lost


def test_a_second_run_is_told_who_holds_the_folder(table, tmp_path, capsys):
    out = tmp_path / "run"
    code = "import sys, time; from pathlib import Path; from persfl.folder_locks import Lock\n"
    code += (
        f"Path({str(out)!r}).mkdir(); lock = Lock(Path({str(out)!r})); lock.take()\n"
    )
    code += "print('held', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        for more in ([], ["--resume"], ["--force"]):
            assert main(["fit", str(table), *WORDS, "--out", str(out), *more]) == 2
            said = capsys.readouterr().err
            assert (
                f"another run is writing into {str(out)!r}: process {process.pid} since"
                in said
            )
        assert holder(out).startswith(f"process {process.pid} ")
        process.kill()
    assert holder(out) is None
    assert main(["fit", str(table), *WORDS, "--out", str(out)]) == 0
    assert not (out / "lock").exists()


def test_a_failing_resume_removes_nothing(table, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    words = ["fit", str(table), *WORDS, "--out", str(out)]

    def failing(error):
        def fit(self, *words, **more):
            raise error

        return fit

    monkeypatch.setattr(PersonalizedRegressor, "fit", failing(KeyboardInterrupt()))
    assert main(words) == 130
    (out / "notes.txt").write_text("mine")
    before = sorted(path.name for path in out.rglob("*"))
    monkeypatch.setattr(PersonalizedRegressor, "fit", failing(InputError("no luck.")))
    assert main([*words, "--resume"]) == 2
    assert sorted(path.name for path in out.rglob("*")) == before
    assert main(words) == 2  # nor does one that never began
    assert sorted(path.name for path in out.rglob("*")) == before
    monkeypatch.undo()
    (out / "notes.txt").unlink()
    assert main([*words, "--resume"]) == 0


def test_a_run_removes_no_file_of_a_persons_own(tmp_path):
    folder = Folder.begin(tmp_path / "run", {})
    own = ["rounds/mine.parquet", "rounds/may-2024.parquet", "state-of-ohio.npz"]
    left = ["rounds/final-000003-7.parquet", "state-final-000003-7.npz"]
    left += [name + ".persfl-part" for name in left]
    for name in (*own, *left):
        (folder.path / name).write_text("some")
    folder.commit()
    there = {
        path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*")
    }
    assert set(own) <= there
    assert not set(left) & there


def test_a_failing_fit_removes_only_what_it_made(table, tmp_path, monkeypatch):
    out = tmp_path / "run"
    words = ["fit", str(table), *WORDS, "--out", str(out)]

    def fit(self, *words, **more):
        (out / "notes.txt").write_text("mine")  # somebody else, meanwhile
        (out / "rounds" / "mine.txt").write_text("mine")
        raise InputError("no luck.")

    monkeypatch.setattr(PersonalizedRegressor, "fit", fit)
    assert main(words) == 2
    left = sorted(path.relative_to(out).as_posix() for path in out.rglob("*"))
    assert left == ["notes.txt", "rounds", "rounds/mine.txt"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mix_rounds", np.array("many")),
        ("mix_rounds", np.array([1, 2])),
        ("mix_rounds", np.array(np.nan)),
        ("mix", np.zeros(3)),
        ("mix", np.array("much")),
        ("mix_names", np.array([1.0])),
        ("mix_names", None),
    ],
)
def test_notes_of_another_kind_are_no_blend(name, value):
    notes = {
        "mix": np.zeros((3, 2)),
        "mix_names": np.array(["shared own", "shared pooled"]),
        "mix_rounds": np.array(4),
    }
    trust = Trust(3, np.arange(3))
    assert (_rounds_of(trust), _rounds_of(trust.noted(notes))) == (-1, 4)
    forged = notes | {name: value} if value is not None else dict(notes)
    if value is None:
        del forged[name]
    with pytest.raises(InputError, match="notes are of another kind"):
        _rounds_of(trust.noted(forged))


@pytest.mark.parametrize("budget", ["'x'", "1" + "0" * 400, "0", "true"])
def test_a_budget_that_is_none_is_refused_before_its_cost(
    table, tmp_path, capsys, budget
):
    words = ["fit", str(table), "--device", "who", "--label", "y"]
    words += ["--out", str(tmp_path / "run"), "--set", f"budget={budget}"]
    assert main(words) == 2
    assert "budget must be" in capsys.readouterr().err


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_more_classes_than_anybody_predicts_are_refused(tmp_path, count):
    """Every row has a chance of each: a list of millions is a lot of memory per row."""
    some = [0, 1, 2] * 4
    kind = PersonalizedClassifier(holdout=0, method="paper")
    out = save_model(kind.fit(np.eye(12), some, devices=["a"] * 12), tmp_path / "run")
    folder = Folder.open(out)
    words = folder.read_json("model.json")
    words["classes"] = list(range(count))
    if count == 10_000:
        check_words(words)
        return
    folder.write_json("model.json", words)
    folder.commit()
    with pytest.raises(InputError, match="at most 10,000 classes. Got 10,001"):
        load_model(out)
    with pytest.raises(InputError, match="at most 10,000 classes. Got 10,001"):
        check_classes(np.arange(count))


def test_a_second_force_does_not_lose_the_first_run(
    table, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "run"
    words = ["fit", str(table), *WORDS, "--out", str(out)]
    assert main(words) == 0
    first = load_model(out).models_

    def stopped(self, *words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(PersonalizedRegressor, "fit", stopped)
    assert main([*words, "--force"]) == 130
    assert main([*words, "--force"]) == 130
    kept = [
        path for path in tmp_path.iterdir() if path.name.startswith(".run.replaced")
    ]
    assert len(kept) == 2
    finished = [path for path in kept if Folder.open(path).finished]
    np.testing.assert_array_equal(load_model(finished[0]).models_, first)
    monkeypatch.undo()
    assert main([*words, "--resume"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_short_fuzz(monkeypatch):
    loader = SourceFileLoader("fuzz", str(ROOT / "tools" / "fuzz"))
    fuzz = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("fuzz", loader)
    )
    monkeypatch.setitem(sys.modules, "fuzz", fuzz)
    loader.exec_module(fuzz)
    said = []
    assert fuzz.run(cases=300, seed=0, only="wire", say=said.append) == 0, said
    assert fuzz.run(cases=12, seed=0, only="folders", kinds=2, say=said.append) == 0, (
        said
    )
    assert said[-1] == "wrong: nothing."


def test_what_cannot_be_written_leaves_nothing_beside_it(tmp_path, monkeypatch):
    def broken(file):
        file.write(b"half")
        raise ZeroDivisionError

    for held in (True, False):
        monkeypatch.setattr("persfl.files._HELD", held)
        with pytest.raises(ZeroDivisionError):
            write_whole(tmp_path / "note.txt", broken)
        assert not list(tmp_path.iterdir())
        (tmp_path / "folder").mkdir()
        with pytest.raises(OSError, match="folder"):
            write_whole(tmp_path / "folder", b"not renamed")
        (tmp_path / "folder").rmdir()  # nothing is beside it, or in it
        assert not list(tmp_path.iterdir())


def test_two_writers_of_one_file_leave_it_whole(tmp_path):
    """A writer must not rename what another is still writing, nor remove it."""
    path = tmp_path / "model.json"
    contents = [bytes([65 + k]) * 300_000 for k in range(3)]
    write_whole(path, contents[0])
    seen, trouble = set(), []

    def write(content):
        try:
            for _ in range(15):
                write_whole(
                    path,
                    lambda file: [
                        file.write(content[i : i + 1000])
                        for i in range(0, len(content), 1000)
                    ],
                )
        except Exception as error:
            trouble.append(error)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_bytes())
    assert trouble == []
    assert seen <= set(contents)
    path.with_name("model.json.persfl-part").write_bytes(b"left by a killed run")
    write_whole(path, b"whole")
    assert [name.name for name in tmp_path.iterdir()] == ["model.json"]
    assert path.read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("error_base", -1.0),
        ("error_own", 1e308),
        ("error_personal", float("inf")),
        ("mistakes_own", 1.5),
        ("spread", -1e-300),
        ("fall_own", -1e308),
        ("error_tuned", float("nan")),
    ],
)
def test_errors_that_nobody_can_have_measured_are_refused(run, capsys, column, value):
    """They were shown, or ended in a traceback."""
    table = pd.read_parquet(run / "worth.parquet")
    rest = value if np.isnan(value) else 0.5
    table[column] = [value] + [rest] * (len(table) - 1)
    made = io.BytesIO()
    table.to_parquet(made, index=False)
    seal(run, "worth.parquet", made.getvalue())
    assert main(["watch", str(run)]) == 2
    assert f"{column} must be errors that were measured" in capsys.readouterr().err


def test_errors_of_classes_have_mistakes_beside_them(table, tmp_path, capsys):
    other = {"y": "late", "late": "y"}
    words = [other.get(word, word) for word in WORDS]
    assert main(["fit", str(table), *words, "--out", str(tmp_path / "run")]) == 0
    errors = pd.read_parquet(tmp_path / "run" / "worth.parquet")
    made = io.BytesIO()
    errors.drop(columns="mistakes_personal").to_parquet(made, index=False)
    seal(tmp_path / "run", "worth.parquet", made.getvalue())
    assert main(["watch", str(tmp_path / "run")]) == 2
    assert "there must be mistakes of every way" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"mix": np.array([["x"]])},
        {"mix": np.full((3, 1), 0.5), "mix_names": np.array(["shared own 0"])},
        {"alike": np.full((3, 1), 2.0), "alike_peers": np.zeros((3, 1), dtype=int)},
        {"offer_shares": np.array([np.nan]), "offer_names": np.array(["own"])},
        {"member": np.zeros((3, 2)), "panel": np.zeros((3, 2), dtype=int)},
    ],
)
def test_notes_that_no_run_makes_are_refused(run, change):
    """They were a traceback where they are shown, or shares of two."""
    with np.load(run / "model.npz") as kept:
        arrays = {name: kept[name] for name in kept.files}
    arrays |= {f"trust_note_{name}": value for name, value in change.items()}
    seal(run, "model.npz", numbers_to(arrays))
    with pytest.raises(InputError, match="noted of who is alike or mixed"):
        load_model(run)


def test_a_command_to_paste_is_made_of_words_that_were_looked_at(run, capsys):
    """It was a traceback of watch."""
    replaced(run, "spec.json", features=7)
    assert main(["watch", str(run)]) == 2
    assert "spec.json' does not hold what persfl writes" in capsys.readouterr().err


def test_a_card_of_a_run_without_notes(run, tmp_path):
    replaced(run, "model.json", notes=[])
    card = tmp_path / "card.md"
    assert main(["export", str(run), "--card", str(card)]) == 0
    assert "- Method: paper" in card.read_text()


def test_a_full_disk_leaves_no_lock(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def __init__(self, file):
            super().__init__()
            self.fileno = file.fileno
            self.file = file

        def flush(self):
            raise OSError(28, "No space left on device")

        def close(self):
            self.file.close()
            super().close()

    whole = folder_locks.open_regular
    monkeypatch.setattr(
        folder_locks, "open_regular", lambda *words: Full(whole(*words))
    )
    with pytest.raises(OSError, match="No space left"):
        Lock(tmp_path).take()
    assert list(tmp_path.iterdir()) == []


def test_half_a_sign_in_the_bytes_themselves_is_refused(run, table, capsys):
    """JSON's reader lets it pass, and whoever wrote it again ended in a traceback."""
    words = json.loads((run / "spec.json").read_text()) | {"thousands": "@"}
    content = json.dumps(words).encode().replace(b"@", b"\xed\xa0\x80")
    seal(run, "spec.json", content)
    assert main(["predict", str(run), str(table)]) == 2
    assert "spec.json' does not hold what persfl writes" in capsys.readouterr().err
