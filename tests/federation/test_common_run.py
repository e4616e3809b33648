"""Every method of the list over a federation: the same models as in one process, or a sentence."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import at_home, plan

from persfl.cli import main
from persfl.commands.federate import Lines, answer
from persfl.errors import InputError
from persfl.federation.common_run import StandIns
from persfl.federation.conduct import conduct
from persfl.federation.local_grid import LocalGrid
from persfl.federation.patience import Away
from persfl.federation.run_plan import RunPlan
from persfl.fleets.flower import Policy
from persfl.methods import METHODS, LocalTask, cannot_run, method_of
from persfl.methods.contract import _Sealed
from persfl.runs import load_model
from persfl.sources import clustered_regression
from persfl.wire import Terms, pack, unpack

DEVICES = clustered_regression(n=6, clusters=2, rows=12, features=3, noise=0.2, seed=4)
COMMON = (
    "fedavg",
    "ditto",
    "ifca",
    "gtvmin",
    "fedprox",
    "per-fedavg",
    "apfl",
    "pfedme",
    "cfl",
    "mr-mtl",
    "mocha",
    "pens",
    "dac",
    "all-for-one",
    "werner",
    "clove",
    "pfedgraph",
    "cobo",
    "fedper",
    "fedrep",
)
LIED_TO = ("fedavg", "ditto", "ifca", "gtvmin", "pfedme", "mr-mtl", "dac", "fedper")
WEIGHED = ("fedavg", "ditto", "fedprox", "per-fedavg", "apfl", "ifca", "pens", "dac")
FEW = {"local": 2, "steps": 2}  # own steps in a round, where a method has several


def conducted(tmp_path, method, **changes):
    homes = at_home(DEVICES)
    out = tmp_path / "run"
    asked = {"holdout": 0.0, "units": "raw", "quorum": 1.0} | changes
    conduct(LocalGrid(homes), plan(out, homes, method=method, **asked))
    return load_model(out)


@pytest.mark.parametrize("name", COMMON)
def test_common_models_are_those_of_one_process(name, tmp_path):
    has = method_of(name).get_params()
    few = {key: value for key, value in FEW.items() if key in has}
    told = {"rounds": 8, "step_size": 0.05, "peers": 2}
    found = conducted(tmp_path, name, **told, method_settings=few)
    mine = {key: value for key, value in told.items() if key in has}
    method = method_of(name, **mine, **few)
    terms = Terms(columns=("x0", "x1", "x2"))
    # some have a closed form where rows are in one place
    here = method.run(_Sealed(LocalTask(DEVICES, terms.learner(), seed=0)))
    np.testing.assert_allclose(np.stack(found.models_), here.models, atol=1e-9)
    assert found.n_rounds_ == here.r


@pytest.mark.parametrize("name", ["ucb", "thompson"])
def test_a_bandit_chooses_whom_devices_ask(name, tmp_path):
    """Everybody once, before anybody twice; Uniform would not."""
    found = conducted(tmp_path, name, rounds=3, step_size=0.05, peers=2)
    asked = found.trust_.table().asked
    assert found.n_rounds_ == 3
    assert len(asked) == 6 * 5
    assert set(asked) == {1, 2}


def test_settings_of_a_method_reach_it(tmp_path):
    settings = {"share": 1.0, "pull": 0.5}
    found = conducted(
        tmp_path, "ditto", rounds=4, step_size=0.05, method_settings=settings
    )
    method = method_of("ditto", rounds=4, step_size=0.05, **settings)
    here = method.run(
        LocalTask(DEVICES, Terms(columns=("a", "b", "c")).learner(), seed=0)
    )
    np.testing.assert_allclose(np.stack(found.models_), here.models, atol=1e-9)


def test_own_is_a_fit_on_each_device(tmp_path):
    found = conducted(tmp_path, "own")
    here = method_of("own").run(LocalTask(DEVICES, found.learner_, seed=0))
    np.testing.assert_allclose(np.stack(found.models_), here.models, atol=1e-9)
    assert found.n_rounds_ == 0


@pytest.mark.parametrize("name", ["own", "fedavg"])
def test_what_came_out_is_shown_as_that_of_any_run(name, tmp_path, capsys):
    conducted(tmp_path, name, holdout=0.25, rounds=3)
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").is_file()
    page = (tmp_path / "run" / "federation.html").read_text()
    assert ("common models" in page) == (name == "fedavg")
    answer(tmp_path / "run", Lines(plain=False))
    assert f"method '{name}'" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_plan_takes_every_method_that_can_run_or_says_why_not(name):
    refusal = cannot_run(method_of(name), federated=True)
    if not refusal:
        assert (
            RunPlan(out="run", devices=("a", "b"), method=name).personalization.name
            == name
        )
        return
    with pytest.raises(InputError, match=re.escape(refusal)):
        RunPlan(out="run", devices=("a", "b"), method=name)


def test_a_device_that_is_away_leaves_the_common_model_as_it_is(tmp_path):
    homes = at_home(DEVICES)
    grid = LocalGrid(homes)
    real = grid.push_messages

    def pushed(messages):
        for message in messages:
            if message.metadata.message_type == "query.answer":
                grid.away = {"d03"}
        return real(messages)

    grid.push_messages = pushed
    out = tmp_path / "run"
    asked = {"rounds": 4, "method_settings": {"share": 1.0}, "holdout": 0.0}
    conduct(grid, plan(out, homes, method="fedavg", **asked))
    assert np.isfinite(np.stack(load_model(out).models_)).all()


class Tampered:
    """A device whose replies are changed on their way; None is no reply."""

    def __init__(self, inner, change):
        self.inner, self.change = inner, change

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def reply(self, kind, body):
        reply = self.inner.reply(kind, body)
        return self.change(kind, *unpack(reply)) or b"nothing"


def far(kind, head, arrays):
    if kind == "answer":
        head["rows"] = 2**52
        arrays = {key: np.full_like(array, 1e14) for key, array in arrays.items()}
    return pack(head, arrays)


def losing(kind, head, arrays):
    """Losses that fall below everything, and then rise."""
    if kind == "score":
        lie = 1e200 if head["round"] > 1 else -1e200
        arrays = {key: np.full_like(array, lie) for key, array in arrays.items()}
    return pack(head, arrays)


def rowless(kind, head, arrays):
    """Alone in a round, its weight would be that of nobody."""
    return pack(head | {"rows": 0}, arrays)


def absent(kind, head, arrays):
    return pack(head, arrays) if kind == "describe" else None


def told(share, change, tmp_path, name):
    homes = at_home(DEVICES)
    homes["d03"] = Tampered(homes["d03"], change)
    has = method_of(name).get_params()
    mine = {k: v for k, v in (FEW | {"share": share}).items() if k in has}
    settings = {"method_settings": mine, "step_size": 0.05, "rounds": 6}
    asked = {"holdout": 0.0, "units": "raw"} | settings
    out = tmp_path / "run"
    conduct(LocalGrid(homes), plan(out, homes, method=name, **asked))
    return load_model(out)


@pytest.mark.parametrize("share", [0.2, 1.0])
@pytest.mark.parametrize("change", [far, losing, absent])
@pytest.mark.parametrize("name", LIED_TO)
def test_one_bad_device_costs_common_models_its_own_step(name, change, share, tmp_path):
    """It ended the run, or took everybody's model with it."""
    found = told(share, change, tmp_path, name)
    assert found.n_rounds_ == 6
    honest = [i for i in range(6) if i != 3]
    models = np.stack([found.models_[i] for i in honest])
    assert np.abs(models).max() < 10.0
    settings = {"rounds": 6, "step_size": 0.05, "share": share} | FEW
    has = method_of(name).get_params()
    settings = {k: v for k, v in settings.items() if k in has}
    learner = Terms(columns=("x0", "x1", "x2")).learner()
    task = _Sealed(LocalTask(DEVICES, learner, seed=0))
    want = method_of(name, **settings).run(task)

    def loss(models):
        each = zip(honest, models, strict=True)
        return np.mean([learner.loss(model, DEVICES[i]) for i, model in each])

    assert loss(models) < 2.0 * loss(want.models[honest])


def unlike(kind, head, arrays):
    """Losses like nobody's."""
    if kind == "score":
        arrays = {key: np.full_like(array, 1e9) for key, array in arrays.items()}
    return pack(head, arrays)


def test_a_device_whose_losses_are_like_nobodys_takes_no_cluster(tmp_path):
    """It had a model to itself, the others shared one."""
    found = told(1.0, unlike, tmp_path, "clove")
    assert found.n_rounds_ == 6
    honest = [i for i in range(6) if i != 3]
    models = np.stack([found.models_[i] for i in honest])
    group = np.unique(models, axis=0, return_inverse=True)[1].ravel()
    pairs = set(zip(group.tolist(), DEVICES.clusters[honest].tolist(), strict=True))
    assert len(pairs) == len(set(group)) == 2


def stepless(kind, head, arrays):
    """No step that can be used; its losses are true."""
    return pack(head, {} if kind == "answer" else arrays)


@pytest.mark.parametrize("name", ["clove", "ifca", "cfl"])
def test_a_device_alone_in_its_cluster_that_takes_no_step_ends_no_run(name, tmp_path):
    """The mean of its cluster was 0 / 0, every step length diverged, and the run ended."""
    devices = clustered_regression(n=3, clusters=1, rows=24, features=3, seed=4)
    homes = at_home(devices)
    homes["d01"] = Tampered(homes["d01"], stepless)
    has = method_of(name).get_params()
    settings = {k: v for k, v in {"share": 1.0}.items() if k in has}
    asked = {"holdout": 0.0, "units": "raw", "method_settings": settings}
    asked |= {"rounds": 6, "step_size": 0.05}
    out = tmp_path / "run"
    conduct(LocalGrid(homes), plan(out, homes, method=name, **asked))
    found = load_model(out)
    assert found.n_rounds_ == 6
    assert np.isfinite(np.stack(found.models_)).all()
    learner = Terms(columns=("x0", "x1", "x2")).learner()
    for i in (0, 2):
        zeros = learner.loss(np.zeros(4), devices[i])
        assert learner.loss(found.models_[i], devices[i]) < 0.7 * zeros


@pytest.mark.parametrize("name", WEIGHED)
def test_who_says_that_it_has_no_rows_ends_no_run(name, tmp_path):
    """A mean over it alone was none, every step length diverged, and the run ended."""
    found = told(0.2, rowless, tmp_path, name)
    assert found.n_rounds_ == 6
    assert np.isfinite(np.stack(found.models_)).all()


def test_numbers_of_rows_count_as_in_a_blend():
    """One that says it has 2^52 was the mean, also of methods that look for friends."""
    told = {"ann": 10, "bob": 12, "eve": 2**52}
    terms = Terms(columns=("x0",))
    fleet = SimpleNamespace(rows=told, ids=list(told), n=3, terms=terms)
    assert StandIns(fleet).static.total.tolist() == [10.0, 12.0, 22.0]


@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({"method": "fedavg", "method_settings": {"local": 11}}, "steps"),
        ({"method": "paper", "steps": 11}, "steps"),
        ({"method": "fedavg", "policy": Policy(models=("tree",))}, "models"),
        ({"method": "blend", "policy": Policy(models=("tree",))}, "models"),
    ],
)
def test_what_no_owner_allows_is_said_where_a_run_stops(tmp_path, asked, limit):
    asked = dict(asked)
    homes = at_home(DEVICES, policy=asked.pop("policy", Policy(rows=0)))
    said = f"limit '{limit}'.* 1 more are at limits of theirs"
    with pytest.raises(Away, match=said):
        conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
