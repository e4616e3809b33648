"""Federations as people run them: folders, commands, runs from a plan, reports; in one process."""

import json
import os
import stat
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

import federated_modules
from federated import OPEN, at_home, columns, plan

from persfl import (
    ArrayFleet,
    Best,
    Devices,
    PersonalizedRegressor,
    Uniform,
    personalize,
)
from persfl.cli import main
from persfl.errors import InputError, NotReady
from persfl.evaluation.split import split
from persfl.evaluation.trials import run_trial
from persfl.federation.conduct import conduct
from persfl.federation.demo import tables
from persfl.federation.federation_folder import init, opened, read_node
from persfl.federation.launch import _run_name, held, launch
from persfl.federation.ledger import Entry, Ledger
from persfl.federation.letters import Limited
from persfl.federation.local_grid import LocalGrid
from persfl.federation.node_folder import device_of, use_table
from persfl.federation.run_plan import RunPlan
from persfl.fleets import Guarded
from persfl.fleets.flower import Device, Policy, Rows
from persfl.folder_locks import holding
from persfl.learners.responses import respond, unknown
from persfl.methods.blend.blend_settings import USUAL
from persfl.runs import Folder, load_model
from persfl.sources import clustered_regression
from persfl.types import Data
from persfl.units import Units
from persfl.wire import Terms, pack, unpack

DEVICES = clustered_regression(n=6, clusters=2, rows=16, features=3, noise=0.2, seed=4)


@pytest.fixture
def fed(tmp_path):
    return init(tmp_path / "fed", ["ann", "bob", "eve"], port=19443, inner=19444)


def test_init_makes_what_is_needed_and_nothing_readable_by_others(
    fed, capsys, tmp_path
):
    for secret in (fed.coordinator / "server.key", fed.path / "ann" / "key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE((fed.path / "ann").stat().st_mode) == 0o700
    assert not list(fed.path.rglob("*ca*.key"))
    assert opened(fed.path).members.keys() == {"ann", "bob", "eve"}
    assert read_node(fed.path / "bob").superlink == "127.0.0.1:19443"
    assert Policy.read(fed.path / "bob" / "node.toml") == Policy()
    assert (
        main(
            [
                "federation",
                "init",
                str(tmp_path / "other"),
                "--nodes",
                "2",
                "--host",
                "fed.example.org",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "node-1, node-2" in said
    assert "PRIVATE" not in said
    key = (tmp_path / "other" / "node-1" / "key").read_text().splitlines()[1]
    assert key not in said


def test_certificates_hold(fed):
    import ssl

    from cryptography import x509

    ca = x509.load_pem_x509_certificate(fed.ca.read_bytes())
    server = x509.load_pem_x509_certificate(
        (fed.coordinator / "server.pem").read_bytes()
    )
    server.verify_directly_issued_by(ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        fed.coordinator / "server.pem", fed.coordinator / "server.key"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["federation", "init", "FED"], "is not empty"),
        (["federation", "init", "new", "--names", "a,a"], "different names"),
        (["federation", "init", "new", "--names", "../x"], "different names"),
        (["federation", "up", "nowhere"], "is not a federation's folder"),
        (
            ["node", "--config", "nowhere", "--data", "x.csv", "--label", "y"],
            "is not a node's folder",
        ),
        (
            ["node", "--config", "FED/ann", "--data", "x.csv", "--label", "y"],
            "there is no file",
        ),
        (
            ["federate", "FED", "--out", "run"],
            "nothing listens on port 19444, so the SuperLink is not up. Start `persfl",
        ),
        (["ledger", "FED"], "is not a node's folder"),
    ],
)
def test_mistakes_get_one_sentence(words, says, fed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([word.replace("FED", str(fed.path)) for word in words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rwos = 3", "no setting 'rwos'"),
        ("rows = -1", "whole number"),
        ("sums = 1", "true or false"),
        ('models = "x"', "a list"),
        ("rows = = 3", "could not be read"),
    ],
)
def test_a_policy_with_a_mistake_protects_nobody_so_it_stops(text, says, fed):
    where = fed.path / "ann" / "node.toml"
    where.write_text(f'device = "ann"\nsuperlink = "x:1"\n[policy]\n{text}\n')
    with pytest.raises(InputError, match=says):
        Policy.read(where)


def test_a_node_says_first_what_will_leave(fed, tmp_path, capsys):
    table = tmp_path / "rows.csv"
    pd.DataFrame(DEVICES[0].X, columns=["a", "b", "c"]).assign(y=DEVICES[0].y).to_csv(
        table, index=False
    )
    assert (
        main(
            [
                "node",
                "--config",
                str(fed.path / "ann"),
                "--data",
                str(table),
                "--label",
                "y",
                "--check",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "What will leave this machine" in said
    assert "16 rows and 3 features" in said
    assert "can determine rows" in said
    for cell in DEVICES[0].X.ravel()[:5]:
        assert str(cell)[:8] not in said
    device = device_of(fed.path / "ann")
    assert device.name == "ann"


def test_rows_of_a_node_are_read_again_when_they_grow(fed, tmp_path):
    table = tmp_path / "rows.csv"
    frame = pd.DataFrame(DEVICES[0].X, columns=["a", "b", "c"]).assign(y=DEVICES[0].y)
    frame[:10].to_csv(table, index=False)
    use_table(fed.path / "ann", table, label="y", drop=["b"], weight=None)
    device = device_of(fed.path / "ann")
    assert device.source(0).data.X.shape == (10, 2)
    frame.to_csv(table, index=False)
    assert device.source(1).data.X.shape == (16, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": ["a", "b"]}, "must hold numbers"),
        ({"x": [1.0, np.nan]}, "missing"),
        ({"z": ["u", "v"]}, "Declare its levels"),
    ],
)
def test_tables_that_cannot_be_used(change, says, fed, tmp_path):
    table = tmp_path / "rows.csv"
    pd.DataFrame({"x": [1.0, 2.0], "y": [0.0, 1.0]} | change).to_csv(table, index=False)
    with pytest.raises(InputError, match=says):
        use_table(fed.path / "ann", table, label="y", drop=[], weight=None)
    assert not (fed.path / "ann" / "table.json").exists()


def test_the_ledger_is_shown(fed, capsys):
    folder = fed.path / "ann"
    assert main(["ledger", str(folder)]) == 0
    assert "Nothing has been asked" in capsys.readouterr().out
    book = Ledger(folder / "ledger.sqlite")
    book.write(
        [
            Entry("r", 0, "answer", "bob", "d1", 10, 160),
            Entry("r", 1, "answer", "bob", "d2", 10, 0, "questions"),
        ]
    )
    assert main(["ledger", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "bob" in said
    assert "1 times because of 'questions'" in said
    assert main(["ledger", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["asked"][0]["bytes"] == 160


# Runs from a plan


def conducted(tmp_path, name="run", homes=None, **changes):
    homes = homes or at_home(DEVICES, seed=0)
    out = tmp_path / name
    conduct(LocalGrid(homes), plan(out, homes, **changes))
    return out


def in_one_process(rounds=6, peers=3):
    """The same run with everybody's rows in one place."""
    learn, held_back = split(DEVICES, 0.25, seed=0)
    units = Units.of(learn, "shared", labels=True)
    from persfl import GradientStep, Linear

    learner = Linear(intercept=True)
    fleet = ArrayFleet(
        units.inside(learn), learner=learner, proposer=GradientStep(0.1), seed=0
    )
    done = list(
        personalize(
            Guarded(fleet),
            sampler=Uniform(peers),
            adopter=Best(),
            rounds=rounds,
            seed=0,
        )
    )
    found = run_trial(
        learn,
        held_back,
        learner=learner,
        units=units,
        models=fleet.models,
        steps=GradientStep(0.1),
        seed=0,
    )
    return fleet, done, found


def test_a_run_equals_the_one_in_one_process(tmp_path):
    out = conducted(tmp_path)
    model = load_model(out)
    fleet, done, found = in_one_process()
    np.testing.assert_allclose(model.models_, fleet.models, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.losses_, [round_.loss for round_ in done], rtol=1e-8
    )
    kept = Folder.open(out).rounds()
    np.testing.assert_array_equal(
        np.stack(kept["asked"]), np.concatenate([round_.peers for round_ in done])
    )
    np.testing.assert_array_equal(
        np.stack(kept["adopted"]),
        np.concatenate([round_.choice.peers for round_ in done]),
    )
    for arm in ("own", "personal"):
        errors = [
            float(np.mean(found.losses[arm][found.held.owner == i])) for i in range(6)
        ]
        np.testing.assert_allclose(
            model.worth_.table[f"error_{arm}"], errors, rtol=1e-6
        )


def test_a_run_has_the_same_report_and_the_federations_own_page(tmp_path, capsys):
    out = conducted(tmp_path)
    assert main(["report", str(out)]) == 0
    assert capsys.readouterr().out.split() == [
        str(out / "report.html"),
        str(out / "federation.html"),
    ]
    page = (out / "federation.html").read_text()
    assert "Who saw what" in page
    assert "d05" in page
    assert "<script" not in page
    assert main(["helpers", str(out), "--device", "d00"]) == 0
    new = tmp_path / "new.csv"
    pd.DataFrame(DEVICES[0].X, columns=columns(DEVICES)).assign(device="d00").to_csv(
        new, index=False
    )
    assert main(["predict", str(out), str(new)]) == 0


@pytest.mark.parametrize("model", ["tree", "forest", "boosting", "ridge"])
def test_refits_from_a_plan(model, tmp_path):
    settings = {"n_estimators": 3} if model in ("forest", "boosting") else {}
    out = conducted(tmp_path, model=model, rounds=3, settings=settings)
    loaded = load_model(out)
    assert loaded.worth_ is not None
    here = loaded.devices_[~unknown(loaded.models_)]
    assert len(here) >= 4
    frame = pd.DataFrame(DEVICES[1].X, columns=columns(DEVICES))
    assert np.isfinite(
        loaded.predict(frame, devices=np.full(len(frame), here[0]))
    ).all()
    for name in loaded.devices_[unknown(loaded.models_)]:
        with pytest.raises(InputError, match="stayed at home"):
            loaded.predict(frame, devices=np.full(len(frame), name))
    assert main(["report", str(out)]) == 0


def test_classes_from_a_plan(tmp_path):
    classes = Devices.of([(d.X, (d.y > 0) + 0.0) for d in DEVICES], quiet=True)
    for model in ("linear", "forest"):
        out = conducted(
            tmp_path,
            model,
            at_home(classes),
            model=model,
            classes=2,
            rounds=3,
            settings={"n_estimators": 3} if model == "forest" else {},
        )
        loaded = load_model(out)
        assert loaded.predict_proba(
            pd.DataFrame(classes[0].X, columns=columns(classes)),
            devices=np.full(16, "d00"),
        ).shape == (
            16,
            2,
        )
        assert main(["report", str(out)]) == 0


def test_networks_from_a_plan(tmp_path, capsys):
    pytest.importorskip("torch")
    classes = Devices.of(
        [(d.X, np.digitize(d.y, [-1.0, 1.0]) + 0.0) for d in DEVICES], quiet=True
    )
    make = "federated_modules:small"
    out = conducted(
        tmp_path,
        "run",
        at_home(classes, replace(OPEN, networks=(make,))),
        model="network",
        classes=3,
        rounds=2,
        settings={"make": make},
    )
    assert load_model(out).models_.shape[0] == 6
    assert main(["report", str(out)]) == 0
    assert capsys.readouterr().out.split() == [
        str(out / "report.html"),
        str(out / "federation.html"),
    ]
    again = load_model(out, module=federated_modules.small)
    X = pd.DataFrame(classes[0].X, columns=columns(classes))
    assert np.isfinite(again.predict_proba(X, devices=["d00"] * len(X))).all()


def test_kin_from_a_plan(tmp_path):
    out = conducted(tmp_path, "run", at_home(DEVICES), method="kin", rounds=30)
    model = load_model(out)
    assert "member" in model.trust_.notes
    assert main(["report", str(out)]) == 0


@pytest.mark.parametrize("points", [0, 20])
def test_persfl_own_networks_need_no_package(tmp_path, points):
    """An MLP travels by its widths; with public points it is refitted by proximal steps."""
    pytest.importorskip("torch")
    out = conducted(
        tmp_path,
        "run",
        at_home(DEVICES),
        model="mlp",
        rounds=3,
        settings={"hidden": [5]},
        points=points,
    )
    model = load_model(out)
    assert model.learner_.shapes["0.weight"] == (5, DEVICES.features)
    X = pd.DataFrame(DEVICES[2].X, columns=columns(DEVICES))
    assert np.isfinite(model.predict(X, devices=["d02"] * len(X))).all()


def test_target_at_home_from_a_plan(tmp_path):
    table = tmp_path / "mine.csv"
    pd.DataFrame(DEVICES[0].X, columns=columns(DEVICES)).assign(y=DEVICES[0].y).to_csv(
        table, index=False
    )
    home = {
        "device": "me",
        "data": str(table),
        "label": "y",
        "drop": [],
        "weight": None,
    }
    homes = at_home(DEVICES)
    out = conducted(tmp_path, "run", homes, home=home, rounds=4)
    loaded = load_model(out)
    assert loaded.trust_.targets.tolist() == [6]
    assert np.isfinite(loaded.models_[6]).all()
    assert np.isnan(loaded.models_[:6]).all()
    assert main(["report", str(out)]) == 0
    kinds = {entry["kind"] for home in homes.values() for entry in home.ledger.table()}
    assert kinds == {"answer", "describe", "sums"}  # nobody else scored or adopted


class Claiming:
    """A device that says after so many messages that something of its owner's forbids more."""

    def __init__(self, inner, code, after):
        self.inner, self.code, self.after = inner, code, after

    def reply(self, kind, body):
        self.after -= 1
        reply = self.inner.reply(kind, body)
        return reply if self.after >= 0 else pack({"code": self.code, "device": ""})


@pytest.mark.parametrize("method", ["paper", "kin"])
def test_who_is_asked_alone_and_falls_silent_ends_no_run(method, tmp_path):
    """Half of the one device that a target at home asked were none, until patience ended."""
    table = tmp_path / "mine.csv"
    frame = pd.DataFrame(DEVICES[0].X, columns=columns(DEVICES))
    frame.assign(y=DEVICES[0].y).to_csv(table, index=False)
    home = {"device": "me", "data": str(table), "label": "y", "drop": []}
    homes = at_home(Devices.of([DEVICES[i] for i in range(3)], quiet=True))
    homes["d02"] = Claiming(homes["d02"], "failed", 3)
    asked = {"home": home | {"weight": None}, "rounds": 6, "peers": 1, "holdout": 0.0}
    out = conducted(tmp_path, "run", homes, method=method, **asked)
    model = load_model(out)
    assert model.n_rounds_ >= 2
    assert homes["d02"].after < 0  # it was asked in vain
    homes["d01"] = Claiming(homes["d01"], "failed", 0)  # more than a quorum spares
    with pytest.raises(NotReady, match=r"the quorum is 0.5 of them|too few to begin"):
        conducted(tmp_path, "two", homes, method=method, run="r2", **asked)


class Killed(BaseException):
    """As abrupt as a signal, but inside one process."""


@pytest.mark.parametrize("where", ["push", "keep"])
@pytest.mark.parametrize("when", [1, 5, 14, 23])
def test_a_run_killed_anywhere_goes_on_to_the_same_result(
    where, when, tmp_path, monkeypatch
):
    whole = conducted(tmp_path, "whole")
    homes = at_home(DEVICES, seed=0)
    out = tmp_path / "cut"
    asked = plan(out, homes, run="r1")
    grid, left = LocalGrid(homes), [when]

    def dying(original):
        def call(*words, **more):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return original(*words, **more)

        return call

    with monkeypatch.context() as patch:
        if where == "push":
            grid.push_messages = dying(grid.push_messages)
        else:
            from persfl import files

            patch.setattr(files.os, "replace", dying(os.replace))
        try:
            conduct(grid, asked)
        except Killed:
            pass
        else:
            assert left[0] > 0  # it was over before
    # and the nodes start anew, with what they keep at home
    for device in homes.values():
        device.policy = OPEN
    conduct(LocalGrid(homes), asked)
    a, b = load_model(whole), load_model(out)
    np.testing.assert_array_equal(a.models_, b.models_)
    np.testing.assert_array_equal(a.losses_, b.losses_)
    pd.testing.assert_frame_equal(a.helpers_, b.helpers_, check_exact=True)
    pd.testing.assert_frame_equal(a.worth_.table, b.worth_.table, check_exact=True)


def test_a_folder_has_one_run_at_a_time(tmp_path):
    with holding(tmp_path):
        assert held(tmp_path)
        with pytest.raises(InputError, match="another run"), holding(tmp_path):
            pass
    assert not held(tmp_path)


def test_resuming_wants_the_same_settings(tmp_path, fed, monkeypatch):
    out = conducted(tmp_path)
    asked = RunPlan.read(tmp_path / "run.plan.json")
    monkeypatch.setattr("persfl.federation.launch.check_up", lambda federation: None)
    said = []
    with pytest.raises(InputError, match="holds a run already"):
        launch(fed, asked, resume=False, show=lambda *facts: said.append(facts))
    with pytest.raises(InputError, match="rounds was 6 and is 7"):
        launch(
            fed,
            replace(asked, rounds=7),
            resume=True,
            show=lambda *facts: said.append(facts),
        )
    assert launch(fed, asked, resume=True, show=lambda *facts: said.append(facts)) == 0
    assert "finished already" in said[-1][1]["text"]
    assert out.is_dir()


def test_too_few_devices_to_begin(tmp_path):
    homes = at_home(DEVICES)
    grid = LocalGrid(homes)
    grid.away = set(list(homes)[1:])
    with pytest.raises(InputError, match="1 of 6 devices are there"):
        conduct(grid, plan(tmp_path / "run", homes))
    said = [
        json.loads(line)
        for line in (tmp_path / "run" / "progress.jsonl").read_text().splitlines()
    ]
    assert said[-1]["event"] == "stopped"


def test_who_has_other_columns_is_left_out_and_half_of_all_stop_the_run(tmp_path):
    """One device that said so ended everybody's run."""
    other = ["x0", "x1", "other"]
    homes = at_home(DEVICES)
    for i in (3, 4):
        homes[f"d0{i}"] = Device(f"d0{i}", Rows(other, DEVICES[i]), policy=OPEN)
    asked = {"method": "blend", "holdout": 0.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    found = load_model(tmp_path / "run")
    del homes["d00"], homes["d01"]
    with pytest.raises(InputError, match="device 'd03' differs in 'other', 'x2'"):
        conduct(LocalGrid(homes), plan(tmp_path / "half", homes, **asked))
    assert list(found.devices_) == ["d00", "d01", "d02", "d05"]
    left = [note for note in found.notes_ if "run without" in note]
    assert ["'d03'" in left[0], "'d04'" in left[1], len(left)] == [True, True, 2]
    assert "differs in 'other', 'x2'" in left[0]


def said_last(out):
    return json.loads((out / "progress.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize("method", ["paper", "kin"])
def test_a_round_goes_on_without_a_device_at_its_limit_and_the_report_says_so(
    method, tmp_path
):
    homes = at_home(DEVICES, seed=0)
    homes["d03"].policy = replace(OPEN, questions_per_target=3)
    out = conducted(tmp_path, "run", homes, method=method, rounds=6)
    (note,) = [note for note in load_model(out).notes_ if "limit" in note]
    assert note.startswith(
        "Device 'd03' is at its owner's limit 'questions_per_target'"
    )
    assert note in json.loads((out / "federation.json").read_text())["notes"]
    told = [
        json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()
    ]
    # said when it happened, once
    assert sum("owner's limit" in event.get("text", "") for event in told) == 1


def test_a_blend_at_limits_stops_in_words_and_goes_on_when_they_are_raised(tmp_path):
    few = Devices.of([DEVICES[i] for i in range(3)], quiet=True)
    homes = at_home(few, seed=0)
    for name in ("d01", "d02"):
        homes[name].policy = replace(OPEN, numbers=60)
    more = {"method": "blend", "ordered": False}
    with pytest.raises(Limited, match="device 'd01' is at its owner's limit 'numbers'"):
        conducted(tmp_path, "run", homes, **more)
    assert (
        "Only the owner can raise it, in node.toml"
        in said_last(tmp_path / "run")["why"]
    )
    homes["d01"].policy = homes["d02"].policy = OPEN
    assert not unknown(
        load_model(conducted(tmp_path, "run", homes, **more)).models_
    ).any()


@pytest.mark.parametrize(
    ("classes", "code", "after"),
    [(0, "split", 0), (0, "labels", 2), (0, "work", 3), (2, "questions_ever", 3)],
)
def test_two_of_five_that_claim_limits_end_nobodys_blend(
    classes, code, after, tmp_path
):
    """One of any number did, before it began or in the midst of it, and for ever."""
    some = [DEVICES[i] for i in range(5)]
    if classes:
        some = [Data(one.X, (one.y > 0) + 0.0) for one in some]
    homes = at_home(Devices.of(some, quiet=True), seed=0)
    for name in ("d01", "d04"):
        homes[name] = Claiming(homes[name], code, after)
    settings = {"loss": "logistic"} if classes else {}
    more = {"method": "blend", "classes": classes, "settings": settings}
    found = load_model(conducted(tmp_path, "run", homes, **more))
    known = dict(zip(found.devices_, ~unknown(found.models_), strict=True))
    assert all(known[name] for name in ("d00", "d02", "d03"))
    assert sum("'d01'" in note for note in found.notes_) >= 1
    said = (tmp_path / "run" / "progress.jsonl").read_text()
    assert "device 'd01'" in said.lower()


@pytest.mark.parametrize(
    ("model", "settings", "budget"),
    [("tree", {"max_depth": 2}, 40), ("mlp", {"hidden": [2]}, 1)],
)
def test_trees_and_networks_are_blended_from_end_to_end(
    model, settings, budget, tmp_path, monkeypatch
):
    less = replace(USUAL.descent, own_steps=(2,), tuning_steps=(0, 2))
    fewer = replace(USUAL, descent=less)
    monkeypatch.setattr("persfl.methods.blend.blend_settings.USUAL", fewer)
    few = Devices.of([DEVICES[i] for i in range(3)], quiet=True)
    homes = at_home(few, seed=0)
    out = conducted(
        tmp_path,
        "run",
        homes,
        method="blend",
        budget=budget,
        model=model,
        settings=settings,
    )
    found = load_model(out)
    assert (
        found.made_of()[["own", "fleet", "neighbours"]].sum(axis=1).round(6).eq(1).all()
    )
    rows = pd.DataFrame(few.X, columns=list(found.feature_names_in_))
    ids = np.array(sorted(homes))[few.owner]
    said = found.predict(rows, devices=ids)
    assert np.isfinite(said).all()
    assert found.worth_ is not None
    # at home, each has the same mix
    stored = homes["d00"].shelf.get("r1")
    inside = stored.terms.inside(Data(few[0].X, few[0].y))
    own = respond(stored.terms.learner(), stored.model, inside.X)
    own = own * stored.terms.label_scale + stored.terms.label_mean
    np.testing.assert_allclose(said[few.owner == 0], own, rtol=1e-6)


def test_another_split_is_refused_in_words(tmp_path):
    homes = at_home(DEVICES, Policy(rows=4), seed=0)
    for name, holdout in (("first", 0.25), ("again", 0.25)):
        assert (
            load_model(
                conducted(tmp_path, name, homes, holdout=holdout, rounds=2, run=name)
            ).worth_
            is not None
        )
    with pytest.raises(
        Limited,
        match="Device 'd00' has answered from other rows before.*Nothing was begun",
    ):
        conducted(tmp_path, "other", homes, holdout=0.3, rounds=2, run="other")


def test_the_estimator_of_a_run_is_an_ordinary_one(tmp_path):
    assert isinstance(load_model(conducted(tmp_path)), PersonalizedRegressor)


def test_the_demos_tables(tmp_path):
    found = tables(tmp_path, 3)
    assert [pd.read_csv(path).shape for path in found.values()] == [(20, 21)] * 3


def test_a_run_killed_between_its_first_writes_begins_again(tmp_path):
    out = tmp_path / "run"
    (out / "rounds").mkdir(parents=True)
    (out / "progress.jsonl").write_text("")
    (out / "spec.json").write_text('{"features": ["a"], "groups": null}')
    (out / "versions.json.persfl-part").write_text("{")
    plan = RunPlan(out=str(out), label="y", devices=("ann",))
    with pytest.raises(InputError, match="Begin it again with --resume"):
        _run_name(out, plan, resume=False)
    assert len(_run_name(out, plan, resume=True)) == 16
    assert [path.name for path in out.iterdir()] == ["progress.jsonl"]
    (out / "spec.json").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        _run_name(out, plan, resume=True)


@pytest.mark.parametrize("name", ["progress.jsonl", "failure.txt"])
def test_a_persons_files_are_no_diary_of_a_run(tmp_path, name):
    """Lines would be added to the one, and the other be written over."""
    (tmp_path / name).write_text("my own notes")
    plan = RunPlan(out=str(tmp_path), label="y", devices=("ann",))
    for resume in (False, True):
        with pytest.raises(InputError, match="is not empty"):
            _run_name(tmp_path, plan, resume=resume)
    left = {
        "progress.jsonl": '{"event": "begun", "pid": 7}\n',
        "failure.txt": "Traceback (most recent call last):\n",
    }
    (tmp_path / name).write_text(left[name])
    assert len(_run_name(tmp_path, plan, resume=False)) == 16


@pytest.mark.parametrize("method", ["paper", "fedavg"])
def test_a_run_goes_on_with_its_own_devices_alone(method, tmp_path):
    """With fewer it was an IndexError, or another run in the same folder."""
    homes = at_home(DEVICES)
    out = tmp_path / "run"
    asked = {"method": method, "rounds": 2, "holdout": 0.0}
    conduct(LocalGrid(homes), plan(out, homes, **asked))
    few = {name: homes[name] for name in sorted(homes)[:3]}
    with pytest.raises(InputError, match="holds another run: devices was"):
        conduct(LocalGrid(few), plan(out, few, **asked))


@pytest.fixture
def cut_run(tmp_path, monkeypatch):
    """A run that was cut before its end: its folder, and how to go on with it."""
    homes = at_home(Devices.of([DEVICES[i] for i in range(3)], quiet=True))
    asked = plan(tmp_path / "run", homes, rounds=1, holdout=0.0)

    def cut(*result):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("persfl.federation.conduct.keep_result", cut)
        with pytest.raises(KeyboardInterrupt):
            conduct(LocalGrid(homes), asked)
    folder = Folder.open(tmp_path / "run", every=0)
    return folder, lambda: conduct(LocalGrid(homes), asked)


@pytest.mark.parametrize("how", ["targets", "own"])
def test_a_forged_state_of_the_fleet_is_told_in_words(how, cut_run):
    folder, go_on = cut_run
    name = folder.index["fleet"]
    head, arrays = unpack(folder.read(name), most=2**24)
    told = dict(arrays)
    if how == "targets":
        head["targets"] *= 2
    else:
        told["own"] = np.zeros(2)
    folder.write(name, pack(head, told))
    folder.commit()
    with pytest.raises(InputError, match="does not hold what persfl writes there"):
        go_on()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unwilling", 7),
        ("paying", ["d00"]),
        ("paying", {"d00": "many"}),
        ("protected", [7]),
        ("families", []),
        ("left_out", None),
    ],
)
def test_forged_words_of_how_a_run_began_are_a_sentence(name, value, cut_run):
    folder, go_on = cut_run
    folder.write_json("spec.json", folder.spec | {name: value})
    folder.commit()
    with pytest.raises(InputError, match="spec.json' does not hold what persfl"):
        go_on()


@pytest.mark.parametrize("change", [{"holdout": 0.5}, {"steps": 9}, {"seed": 1}])
def test_a_folder_does_not_choose_what_devices_are_asked(change, cut_run):
    """Whoever holds back other rows once does so for ever."""
    folder, go_on = cut_run
    terms = Terms.from_wire(*unpack(folder.read("terms.wire")))
    folder.write("terms.wire", pack(*replace(terms, **change).to_wire()))
    folder.commit()
    with pytest.raises(InputError, match="must be those that are asked for"):
        go_on()


def test_a_plan_without_its_devices_is_told_in_words(cut_run):
    folder, go_on = cut_run
    asked = {k: v for k, v in folder.spec["asked"].items() if k != "devices"}
    folder.write_json("spec.json", folder.spec | {"asked": asked})
    folder.commit()
    with pytest.raises(InputError, match="another run: it does not say devices"):
        go_on()


def false_after(honest, scale, answers=0):
    """A device whose answers are false after so many."""
    answered = []

    def reply(kind, body):
        head, arrays = unpack(honest(kind, body))
        answered.extend([kind] if kind == "answer" else [])
        for name, array in arrays.items():
            lies = kind == "answer" and len(answered) > answers
            if lies and array.dtype == np.float64:
                arrays[name] = (
                    array * scale if scale < 0 else np.full_like(array, scale)
                )
        return pack(head, arrays)

    return reply


@pytest.mark.parametrize("scale", [-9.0, 1e15])
@pytest.mark.parametrize(
    ("method", "liars", "of", "honest", "rounds"),
    [
        ("kin", 1, 5, 0, 4),
        ("kin", 2, 8, 8, 14),
        ("kin", 1, 2, 0, 4),
        ("paper", 1, 2, 0, 4),
    ],
)
def test_trees_of_liars_become_nobodys_model(
    method, liars, of, honest, rounds, scale, tmp_path
):
    """Met in a round by itself, a liar's answer was adopted unseen: errors were 1e29 times as
    large. And so were those of two that were honest for long and most of those asked later, and
    of the only other device.
    """
    every = clustered_regression(
        n=of, clusters=2, rows=60, features=2, noise=0.3, seed=0
    )
    learn = Devices.of([(one.X[:20], one.y[:20]) for one in every], quiet=True)
    homes = at_home(learn)
    for one in list(homes)[of - liars :]:
        homes[one].reply = false_after(homes[one].reply, scale, honest)
    asked = {"method": method, "model": "tree", "points": 20, "peers": 3}
    asked |= {"settings": {"max_depth": 2}, "rounds": rounds}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    for i in range(of - liars):
        kept = homes[f"d0{i}"].shelf.get("r1")
        inside = kept.terms.inside(Data(every[i].X[20:], every[i].y[20:]))
        said = respond(kept.terms.learner(), kept.model, inside.X)
        assert ((said - inside.y) ** 2).mean() < 10 * max(1.0, np.var(inside.y))
