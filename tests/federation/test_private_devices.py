"""Protected devices in a federation: the budget holds whatever anybody asks, and says."""

import multiprocessing
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import at_home, columns, names, plan, post

from persfl import Data, GradientStep
from persfl.errors import InputError
from persfl.federation.blend_exchange import BlendScene
from persfl.federation.budget_book import ProtectedAnswer
from persfl.federation.conduct import conduct
from persfl.federation.letters import Letters, Limited
from persfl.federation.local_grid import LocalGrid
from persfl.federation.messages import Refused
from persfl.federation.model_store import Shelf
from persfl.federation.noised_descent import SlopeTotals
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.private_messages import HOME, TOLD
from persfl.federation.rehearsal import questions_asked
from persfl.federation.run_notes import once_note
from persfl.federation.sums_site import SumsSite
from persfl.fleets.flower import Device, Ledger, Policy, Rows
from persfl.learners.responses import unknown
from persfl.methods import method_of
from persfl.privacy import Accountant, PrivacyBudget, answer_cost, mechanisms
from persfl.runs import load_model
from persfl.sources import clustered_regression
from persfl.wire import Terms, nested, pack, unpack

DEVICES = clustered_regression(n=5, clusters=1, rows=40, features=2, noise=0.3, seed=1)
RANGES = {"x0": [-4, 4], "x1": [-4, 4]}
PRIVATE = PrivacySettings(epsilon=3.0, ranges=RANGES, label=(-30.0, 30.0))
LINEAR = Terms(columns=columns(DEVICES), seed=5, settings={"intercept": True})
LOGISTIC = Terms(columns=("x0", "x1"), classes=2, step_size=0.5)

TREE = Terms(model="tree", columns=("x0", "x1"), public=np.zeros((3, 2)))


def protected(settings=PRIVATE, devices=DEVICES, **more):
    return {
        name: Device(
            name,
            Rows(columns(devices), devices[i]),
            policy=Policy(rows=0),
            privacy=settings,
            **more,
        )
        for i, name in enumerate(names(len(devices)))
    }


def device(data=None, settings=PRIVATE, **more):
    data = DEVICES[0] if data is None else data
    return Device("d", Rows(["x0", "x1"], data), privacy=settings, **more)


def classes(rows=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    return Data(X, (X[:, 0] > 0) * 1.0)


def ask(device, kind, head=None, arrays=None, *, terms=LOGISTIC, run="r", round=0, n=7):
    told, more = terms.to_wire()
    head = {"run": run, "round": round, "ask": n, "me": 0, **told, **(head or {})}
    return unpack(device.reply(kind, pack(head, more | (arrays or {}))))


def step(device, model, *, name="a", **more):
    head = {"names": [name]}
    arrays = {"targets": np.array([0])} | nested(
        "q0", {"vector": np.array(model, float)}
    )
    head, out = ask(device, "answer", head, arrays, **more)
    return head.get("codes", [head["code"]])[0], out.get("p0.vector")


def spent(device):
    return device.ledger.protected.account(PRIVATE.budget)


# What leaves


def test_describe_tells_no_number_of_rows():
    few, many = (device(DEVICES[0].take(np.arange(k))) for k in (3, 40))
    heads = [ask(one, "describe", terms=LINEAR)[0] for one in (few, many)]
    assert heads[0] == heads[1]
    assert heads[0]["rows"] == 0
    assert heads[0]["privacy"]["epsilon"] == 3.0


def test_a_blend_of_protected_devices_runs_and_finishes_at_home(tmp_path):
    homes = protected()
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, method="blend"))
    model = load_model(tmp_path / "run")
    assert len(model.devices_) == 5
    for i, home in enumerate(homes.values()):
        assert home.ledger.protected.account(PRIVATE.budget).epsilon <= 3.0
        kinds = [line["kind"] for line in home.ledger.protected.table()]
        assert kinds == ["sums"]  # units and models are made of one answer
        kept = home.shelf.get(f"{HOME}r1")
        X = kept.terms.inside(DEVICES[i]).X
        said = kept.terms.learner().predict(kept.model, X)
        error = said * kept.terms.label_scale + kept.terms.label_mean - DEVICES[i].y
        assert np.mean(error**2) < 0.3  # own rows are used without noise


def test_a_model_is_refined_at_home_where_no_rows_are_held_back(tmp_path):
    homes = protected()
    asked = {"method": "fedavg", "rounds": 2, "holdout": 0.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    assert load_model(tmp_path / "run").fitted_.worth is None
    for home in homes.values():
        assert home.shelf.get(f"{HOME}r1") is not None


def test_a_refined_model_never_leaves(tmp_path):
    homes = protected()
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, method="blend"))
    home = homes["d00"]
    refined = home.shelf.get(f"{HOME}r1")
    for run in ("r1", "home:r1", f"{HOME}r1", f"{TOLD}r1"):
        head, out = ask(home, "adopt", {"probe": True}, terms=refined.terms, run=run)
        assert head["code"] == "ok"
        assert (out["probe.vector"] == 0).all()


def test_models_of_unprotected_runs_are_nobodys_words():
    """One of a run called "told:r" left as it was, after protection was on."""
    shelf = Shelf()
    rows = Rows(["x0", "x1"], DEVICES[0])
    before = Device("d", rows, shelf=shelf)
    nothing = {"adoptions": [], "probe": True}
    own = replace(LINEAR, start="own")
    for name in ("told:r", TOLD + "r", (TOLD + "r")[:200]):
        assert ask(before, "adopt", nothing, terms=own, run=name)[1]
    after = Device("d", rows, shelf=shelf, privacy=PRIVATE)
    told = ask(after, "adopt", nothing, terms=LINEAR, run="r")[1]
    assert told["probe.vector"].tolist() == [0.0, 0.0, 0.0]


def test_a_refined_model_is_no_others_words_in_a_file_of_one_name(
    tmp_path, monkeypatch
):
    """Names of files are 64 bits: whoever names runs finds two that have the same."""
    monkeypatch.setattr(Shelf, "_path", lambda _, folder, run: folder / "one.model")
    home = device(shelf=Shelf(tmp_path))
    judged = {"count": 0, "judge": True, "adoptions": []}
    assert ask(home, "score", judged, terms=LINEAR, run="a")[0]["code"] == "ok"
    assert Shelf(tmp_path).latest().model.any()
    asked = {"adoptions": [], "probe": True}
    told = ask(home, "adopt", asked, terms=LINEAR, run="b")[1]
    assert told["probe.vector"].tolist() == [0.0, 0.0, 0.0]


def test_fedavg_of_protected_classifiers_stays_within_the_budget(tmp_path):
    rng = np.random.default_rng(3)
    homes = {}
    for name in names(3):
        X = rng.normal(size=(80, 2))
        rows = Rows(["x0", "x1"], Data(X, (X @ [2.0, -1.0] > 0) * 1.0))
        homes[name] = Device(
            name, rows, privacy=replace(PRIVATE, epsilon=8.0, answers=30)
        )
    asked = {"method": "fedavg", "classes": 2, "units": "raw", "rounds": 6}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    for home in homes.values():
        account = home.ledger.protected.account(PrivacyBudget(epsilon=8.0))
        assert 0 < account.epsilon <= 8.0
        kept = home.shelf.get(f"{HOME}r1")
        data = home.source(0).data
        right = kept.terms.learner().labels(kept.model, data.X) == data.y
        assert right.mean() > 0.7  # noise is the system's: another one in every run


def classifiers(rows=30, n=3, settings=PRIVATE):
    """Devices with two classes, protected by these settings (None: not)."""
    rng = np.random.default_rng(3)
    homes = {}
    for name in names(n):
        X = rng.normal(size=(rows, 2))
        table = Rows(["x0", "x1"], Data(X, (X @ [2.0, -1.0] > 0) * 1.0))
        homes[name] = Device(name, table, policy=Policy(rows=0), privacy=settings)
    return homes


@pytest.mark.parametrize("method", ["fedavg", "ifca", "clove", "pens"])
def test_a_run_asks_as_often_as_was_counted_before(tmp_path, method):
    """Losses of so few rows are mostly noise: taken for growth, they began the run anew."""
    homes = classifiers(9, settings=replace(PRIVATE, answers=400))
    asked = {
        "method": method,
        "classes": 2,
        "units": "raw",
        "rounds": 8,
        "deadline": 9.0,
    }
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    planned = method_of(method, rounds=8)
    learner = LOGISTIC.learner()
    counted = questions_asked(planned, learner, 3, 2, seed=0).tolist()
    told = [len(home.ledger.protected.table()) for home in homes.values()]
    assert all(np.array(told) <= counted)  # a model that stays is no new question
    assert max(told) > 2
    notes = " ".join(load_model(tmp_path / "run").fitted_.notes)
    assert "3 of 3 devices pay for each answer" in notes
    assert "rows per coefficient" not in notes  # how many rows there are is not told


@pytest.mark.parametrize(("last", "said"), [(2.0, True), (0.5, False)])
def test_a_step_that_was_too_long_is_said(last, said):
    """By those whose losses are exact; those of protected devices are not known."""
    fleet = SimpleNamespace(n=5, target_side=SimpleNamespace(paying={"a", "b"}))
    before = np.array([np.inf, np.inf, 1.0, 1.0, 1.0])
    (note,) = once_note(fleet, [before, before * last], 0.5)
    assert note.startswith("2 of 5 devices pay for each answer")
    assert "('a', 'b')" in note  # anybody may say so: who does is named
    assert ("--step-size 0.25" in note) == said


@pytest.mark.parametrize(
    ("kind", "head", "terms"),
    [
        ("answer", {"names": ["a"]}, replace(LOGISTIC, steps=3)),
        ("answer", {"names": ["a"]}, replace(LOGISTIC, batch=5)),
        ("answer", {"names": ["a"]}, TREE),
        ("adopt", {"probe": True}, replace(LOGISTIC, start="own")),
        ("adopt", {"probe": True}, replace(LOGISTIC, local=0.1)),
        ("blend", {"asks": [{"what": "weight"}]}, LOGISTIC),
        ("describe", {"sums": True}, LINEAR),
    ],
)  # fmt: skip
def test_what_is_not_protected_is_refused_alike_whatever_the_rows(kind, head, terms):
    settings = replace(PRIVATE, ranges={})  # no ranges, no sums
    told = []
    for data in (classes(4), classes(60), Data(np.zeros((1, 2)), np.array([7.0]))):
        one = device(data, settings)
        arrays = {"targets": np.array([0])} if kind == "answer" else {}
        told.append(ask(one, kind, head, arrays, terms=terms)[0])
        assert spent(one).spent == 0
    assert told[0] == told[1] == told[2]
    assert told[0]["code"] == "privacy"


def test_a_model_of_other_terms_does_not_tell_an_empty_table():
    """A model that fits no row fails on the first one there is: it stood in the shelf under the
    name of the run, and without rows nothing failed.
    """
    other = Terms(columns=("x0",), classes=2, settings={"intercept": False})
    told = []
    for rows in (0, 1):
        one = device(classes().take(np.arange(rows)))
        head = {"adoptions": [], "probe": True}
        assert ask(one, "adopt", head, terms=other)[0]["code"] == "ok"
        found, _ = ask(one, "score", {"count": 0, "adoptions": []})
        told.append((found, spent(one)))
    assert told[0] == told[1]
    assert told[0][0]["code"] == "failed"


def test_odd_labels_and_numbers_do_not_show():
    odd = Data(np.array([[0.0, 1e300], [1.0, -1e300]]), np.array([77.0, -3.0]))
    for data in (odd, classes()):
        code, given = step(device(data), np.zeros(3))
        assert code == "ok"
        assert np.isfinite(given).all()


def test_an_owner_who_tells_no_sums_tells_no_noised_ones_either():
    one = device(policy=Policy(sums=False))
    assert ask(one, "describe", {"sums": True}, terms=LINEAR)[0]["code"] == "sums"
    assert step(one, np.zeros(3), terms=LINEAR)[0] == "ok"
    assert [line["kind"] for line in one.ledger.protected.table()] == ["gradient"]


def test_too_much_work_is_refused_before_it_is_paid_for():
    one = Device(
        "d", Rows(["x0", "x1"], classes()), privacy=PRIVATE, policy=Policy(work=10**4)
    )
    head, _ = ask(one, "score", {"count": 9})
    assert head["code"] == "work"
    assert spent(one).spent == 0


# The budget


def test_when_the_budget_is_spent_nobody_gets_anything_new():
    one = device(classes())
    rng = np.random.default_rng(0)
    codes = [step(one, rng.normal(size=3))[0] for _ in range(25)]
    assert codes == ["ok"] * 22 + ["budget"] * 3  # 20, and what units would cost
    assert 2.9 < spent(one).epsilon <= 3.0
    # losses and sums come out of the same purse
    head, _ = ask(one, "score", {"count": 0})
    assert head["code"] == "budget"
    terms = replace(LINEAR, columns=("x0", "x1"))
    assert ask(one, "describe", {"sums": True}, terms=terms)[0]["code"] == "budget"


def test_colluding_askers_and_lying_coordinators_get_no_more():
    """Other names, runs, rounds, message numbers, step sizes: the same purse."""
    one = device(classes())
    rng = np.random.default_rng(1)
    told = set()
    for k in range(60):
        more = {"name": f"asker {k % 2}", "run": f"run {k % 7}", "round": k, "n": k}
        terms = replace(LOGISTIC, seed=k, holdout=0.1 * (k % 5))
        code, given = step(one, rng.normal(size=3), terms=terms, **more)
        if code == "ok":
            told.add(given.tobytes())
    assert len(told) == 22
    assert spent(one).epsilon <= 3.0 + 1e-9


def test_the_same_question_gets_the_same_answer_whoever_asks():
    """Noise that could be drawn again could be averaged away."""
    one = device(classes())
    answers = {
        step(one, np.ones(3), name=name, run=run, round=r)[1].tobytes()
        for name in ("a", "b")
        for run in ("r", "s")
        for r in (0, 1)
    }
    assert len(answers) == 1
    # another step from the same model is the same question
    twice = replace(LOGISTIC, step_size=1.0)
    first, second = (step(one, np.ones(3), terms=t)[1] for t in (LOGISTIC, twice))
    np.testing.assert_allclose(2 * (first - 1.0), second - 1.0)
    assert len(one.ledger.protected.table()) == 1


def test_steps_of_squared_loss_follow_from_sums():
    one = device()
    for k in range(40):
        assert step(one, np.full(3, float(k)), terms=LINEAR)[0] == "ok"
    assert len(one.ledger.protected.table()) == 1


def test_a_restart_remembers(tmp_path):
    path = tmp_path / "ledger.sqlite"
    first = device(classes(), ledger=Ledger(path))
    answers = [step(first, np.full(3, k))[1] for k in range(5)]
    second = device(classes(), ledger=Ledger(path))
    assert spent(second).spent == pytest.approx(5 * answer_cost(PRIVATE.noise))
    for k, answer in enumerate(answers):
        assert (step(second, np.full(3, k))[1] == answer).all()
    assert len(second.ledger.protected.table()) == 5


def test_a_ledger_that_comes_back_from_a_backup_answers_nothing_new(tmp_path):
    """It has forgotten what was spent since; the machine remembers which answer was the last."""
    path = tmp_path / "ledger.sqlite"
    first = device(classes(), ledger=Ledger(path, marked=True))
    before = step(first, np.zeros(3))[1]
    first.ledger.close()
    backup = path.read_bytes()
    second = device(classes(), ledger=Ledger(path, marked=True))
    assert step(second, np.ones(3))[0] == "ok"
    second.ledger.close()
    path.write_bytes(backup)
    third = device(classes(), ledger=Ledger(path, marked=True))
    assert third.ledger.protected.outdated
    assert step(third, np.full(3, 2.0))[0] == "budget"
    assert (step(third, np.zeros(3))[1] == before).all()
    assert ask(third, "describe", terms=LINEAR)[0]["privacy"]["answers"] == 0


def test_two_copies_of_a_folder_do_not_both_spend_its_budget(tmp_path):
    path, copy = tmp_path / "ledger.sqlite", tmp_path / "copy.sqlite"
    Ledger(path, marked=True).close()
    copy.write_bytes(path.read_bytes())
    one, other = (
        device(classes(), ledger=Ledger(p, marked=True)) for p in (path, copy)
    )
    assert step(one, np.zeros(3))[0] == "ok"
    assert step(other, np.ones(3))[0] == "budget"
    assert step(one, np.ones(3))[0] == "ok"


def test_answers_without_noise_are_counted_whenever_they_left():
    """Before protection was on, and while it was off; whatever the clock said."""
    ledger = Ledger()
    rows = Rows(["x0", "x1"], classes())
    on = Device("d", rows, ledger=ledger, privacy=PRIVATE)
    off = Device("d", rows, ledger=ledger)
    assert step(off, np.zeros(3))[0] == "ok"
    assert step(on, np.ones(3))[0] == "ok"
    assert ledger.unprotected() == 1
    assert step(off, np.full(3, 2.0))[0] == "ok"
    assert step(on, np.full(3, 3.0))[0] == "ok"
    assert ledger.unprotected() == 2


def test_rows_that_change_do_not_change_what_was_told():
    """The difference of two answers with the same noise would be the row."""
    data = [classes()]
    one = Device("d", lambda _: Rows(["x0", "x1"], data[0]), privacy=PRIVATE)
    before = step(one, np.ones(3))[1]
    data[0] = data[0].take(np.arange(1, 60))
    assert (step(one, np.ones(3))[1] == before).all()


def test_two_processes_with_one_ledger_share_a_purse(tmp_path):
    path = tmp_path / "ledger.sqlite"
    two = [device(classes(), ledger=Ledger(path)) for _ in range(2)]
    codes = [step(two[k % 2], np.full(3, k))[0] for k in range(30)]
    assert codes.count("ok") == 22


def test_a_raced_question_is_paid_once():
    ledger = Ledger()
    book = ledger.protected
    answer = ProtectedAnswer("r", "gradient", "a", PRIVATE.noise)
    first = book.pay("digest", answer, PRIVATE.budget, b"one")
    assert book.pay("digest", answer, PRIVATE.budget, b"two") == first == b"one"


def _answers(path, sent):
    """Tell answers, noting each outside as a network would, until killed."""
    ledger = Ledger(path)
    book = ledger.protected
    budget = PrivacyBudget(epsilon=3.0)
    for k in range(10**6):
        answer = ProtectedAnswer("r", "gradient", "a", 1e4)
        book.pay(f"{os.getpid()} {k}", answer, budget, b"answer")
        os.write(sent, b"x")


def test_after_a_kill_no_less_is_spent_than_left(tmp_path):
    """Five kills here; `tools/kills --budget 100` does a hundred."""
    path = tmp_path / "ledger.sqlite"
    Ledger(path)
    fork = multiprocessing.get_context("fork")
    left = 0
    for k in range(5):
        out, sent = os.pipe()
        child = fork.Process(target=_answers, args=(path, sent))
        child.start()
        os.close(sent)
        left += len(os.read(out, 1 + 7 * k))  # it is at work
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while got := os.read(out, 4096):
            left += len(got)
        os.close(out)
        ledger = Ledger(path)
        account = ledger.protected.account(PrivacyBudget(epsilon=3.0))
        assert account.spent >= left * answer_cost(1e4) * (1 - 1e-12)


# Runs that do not fit


def test_a_run_that_cannot_be_protected_says_so(tmp_path):
    """Shared units need ranges, and these devices have declared none."""
    homes = classifiers(9, settings=replace(PRIVATE, ranges={}))
    with pytest.raises(Limited, match="protects its rows.*ranges of all columns"):
        conduct(
            LocalGrid(homes), plan(tmp_path / "run", homes, method="blend", classes=2)
        )


@pytest.mark.parametrize(
    "more", [{"steps": 2}, {"method_settings": {"local": 2}}], ids=["run", "method"]
)
def test_a_protected_device_is_not_asked_for_several_steps(more, tmp_path):
    homes = classifiers(9)
    asked = {"method": "fedavg", "classes": 2, "units": "raw"} | more
    with pytest.raises(InputError, match="one step at a time.*Nothing was begun"):
        conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))


def test_own_steps_are_said_once(tmp_path):
    homes = classifiers(9)
    asked = {"method": "fedavg", "steps": 2, "method_settings": {"local": 3}}
    with pytest.raises(
        InputError, match=r"2 by --steps and 3 by --set local\. Leave one"
    ):
        conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))


def test_a_blend_of_protected_classifiers_takes_as_many_steps_as_fit(tmp_path):
    homes = classifiers(60, n=4, settings=replace(PRIVATE, epsilon=8.0))
    asked = {"method": "blend", "classes": 2, "holdout": 0.0, "deadline": 9.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    fitted = load_model(tmp_path / "run").fitted_
    assert fitted.notes[0].startswith("One model for all by 20 noised steps")
    assert (fitted.models == fitted.models[0]).all()
    for home in homes.values():
        kinds = [line["kind"] for line in home.ledger.protected.table()]
        assert kinds == ["units"] + ["gradient"] * 20
        data = home.source(0).data
        kept = home.shelf.get(f"{HOME}r1")
        inside = kept.terms.inside(data)
        for model, least in ((kept.model, 0.8), (fitted.models[0], 0.6)):
            right = kept.terms.learner().labels(model, inside.X) == data.y
            assert right.mean() > least  # noise is the system's: another in every run


@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("lie", [(-1e300, 1e300), (-1e300, 1.0), (1e300, 1e300)])
def test_one_device_that_lies_about_its_rows_takes_nobody_along(lie, side):
    told = [(60.0, 60.0), (60.0, 60.0), (60.0, 60.0), lie]
    slope = np.array([[1.0], [1.0], [1.0], [side]])

    def stepped(models, who, place):
        return models - 0.5 * slope

    fleet = SimpleNamespace(
        n=4,
        rows_told=lambda i: told[i],
        stepped=stepped,
        proposer=GradientStep(0.5),
    )
    found = SlopeTotals(4).at(fleet, np.zeros(1))
    assert -2.0 <= found[0] <= 2.0


def test_units_of_a_protected_fleet_lie_within_declared_ranges(tmp_path):
    """However little noise lets see, and whatever one device declares."""
    homes = classifiers(9, settings=replace(PRIVATE, epsilon=0.1))
    wide = replace(PRIVATE, epsilon=0.1, ranges={"x0": [-1e9, 1e9], "x1": [5e8, 9e8]})
    homes["d02"] = Device("d02", homes["d02"].source, privacy=wide)
    asked = {"method": "fedavg", "classes": 2, "rounds": 1}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    units = load_model(tmp_path / "run").fitted_.units
    assert (np.abs(units.mean) <= 4).all()
    assert ((units.scale > 0) & (units.scale <= 4)).all()


class Claiming:
    """A device that says of itself what is not so."""

    def __init__(self, inner, head=None, code=None):
        self.inner, self.head, self.code = inner, head or {}, code

    def reply(self, kind, body):
        head, arrays = unpack(self.inner.reply(kind, body))
        if kind == "describe":
            head |= self.head
        if self.code and (arrays or kind == "blend"):
            head, arrays = {**head, "code": self.code}, {}
        return pack(head, arrays)


NO_SUMS = {"epsilon": 1.0, "delta": 1e-5, "spent": 1.0, "sums": False, "ranges": []}
STEPS = {"model": "linear", "settings": {"loss": "huber"}}


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        ({"method": "mixed"}, 0),
        ({"method": "blend"}, 20),  # it was one model for all
        ({"method": "blend", **STEPS}, 0),
        ({"method": "blend", **STEPS}, 1),
        ({"method": "fedavg"}, 0),
        ({"method": "fedavg", "steps": 2}, 20),
        ({"method": "paper", "model": "tree"}, 20),
        ({"method": "blend", "model": "tree", "settings": {"max_depth": 1}}, 20),
        ({"method": "blend", "model": "ridge"}, 20),
    ],
)
def test_one_device_that_claims_a_budget_ends_nobodys_run(asked, answers, tmp_path):
    """It did, or turned everybody's blend into one model by as many steps as it liked."""
    homes = at_home(DEVICES)
    told = {"privacy": {"answers": answers, **NO_SUMS}}
    homes["d03"] = Claiming(homes["d03"], told)
    asked = {"rounds": 2, "budget": 20, **asked}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    found = load_model(tmp_path / "run")
    assert list(found.devices_) == ["d00", "d01", "d02", "d04"]
    assert not unknown(found.models_).all()
    (note,) = [note for note in found.notes_ if "run without 'd03'" in note]
    assert "protects its rows" in note or "left of its privacy budget" in note
    events = (tmp_path / "run" / "progress.jsonl").read_text()
    assert events.count("run without 'd03'") == 1


@pytest.mark.parametrize("method", ["mixed", "blend", "fedavg"])
@pytest.mark.parametrize("code", ["budget", "privacy"])
def test_one_device_that_says_its_budget_is_spent_ends_nobodys_run(
    code, method, tmp_path
):
    """Mixed models and blends ended before they began."""
    homes = at_home(DEVICES)
    homes["d03"] = Claiming(homes["d03"], code=code)
    asked = {"method": method, "rounds": 2}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    found = load_model(tmp_path / "run")
    assert list(found.devices_) == ["d00", "d01", "d02", "d04"]
    assert not unknown(found.models_).any()
    # and where no sums for units were asked for before
    homes["d03"] = Claiming(at_home(DEVICES)["d03"], code=code)
    asked |= {"units": "raw"} if method != "blend" else {"model": "tree", "budget": 20}
    conduct(LocalGrid(homes), plan(tmp_path / "again", homes, **asked, run="r2"))
    found = load_model(tmp_path / "again")
    assert not unknown(found.models_[:3]).any()


def test_who_has_few_answers_left_makes_nobodys_blend_shorter(tmp_path):
    homes = classifiers(60, n=4, settings=replace(PRIVATE, epsilon=8.0))
    told = {"privacy": {"answers": 1, **NO_SUMS, "ranges": [[-4, 4], [-4, 4], []]}}
    homes["d03"] = Claiming(homes["d03"], told)
    asked = {"method": "blend", "classes": 2, "holdout": 0.0, "deadline": 9.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    fitted = load_model(tmp_path / "run").fitted_
    assert fitted.notes[0].startswith("One model for all by 20 noised steps")
    assert "(device 'd03' has no more left)" in fitted.notes[0]


@pytest.mark.parametrize(
    ("method", "asked", "fits"),
    [
        ("paper", "up to 60 questions", "--peers 3 --rounds 5 would fit"),
        ("kin", "up to 77 questions", "--peers 3 --rounds 3 would fit"),
        ("pens", "up to 60 questions", "fewer --rounds would"),
    ],
)
def test_a_plan_beyond_the_budget_says_how_much_would_fit(
    tmp_path, method, asked, fits
):
    homes = {
        name: Device(name, Rows(["x0", "x1"], classes()), privacy=PRIVATE)
        for name in names(3)
    }
    told = {"method": method, "classes": 2, "units": "raw", "rounds": 15}
    with pytest.raises(InputError, match=f"{asked}.*20 noised answers left.*{fits}"):
        conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **told))
    assert all(spent(home).spent == 0 for home in homes.values())


@pytest.mark.parametrize(("method", "rounds"), [("paper", 5), ("kin", 3)])
def test_loops_of_other_losses_fit_as_the_sentence_says(tmp_path, method, rounds):
    homes = classifiers(9, n=4, settings=PRIVATE)
    told = {"method": method, "classes": 2, "rounds": rounds, "deadline": 9.0}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **told))
    for home in homes.values():
        kinds = [line["kind"] for line in home.ledger.protected.table()]
        assert kinds[0] == "units"
        assert len(kinds) <= 21
        assert home.shelf.get(f"{HOME}r1") is not None


def test_networks_tell_noised_steps_in_their_own_numbers():
    pytest.importorskip("torch")
    terms = Terms(
        model="mlp", columns=("x0", "x1"), classes=2, settings={"hidden": [3]}
    )
    model = np.zeros(terms.learner().size(2), dtype=np.float32)
    arrays = {"targets": np.array([0])} | nested("q0", {"vector": model})
    one = device(classes(9))
    head, out = ask(one, "answer", {"names": ["a"]}, arrays, terms=terms)
    assert head["codes"] == ["ok"]
    assert out["p0.vector"].dtype == np.float32
    assert out["p0.vector"].any()
    assert out["seen"].shape == (1, 2)


def test_a_loop_of_linear_regressions_costs_sums_alone(tmp_path):
    homes = protected()
    asked = {"method": "paper", "rounds": 4, "start": "zeros"}
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, **asked))
    for home in homes.values():
        kinds = [line["kind"] for line in home.ledger.protected.table()]
        assert kinds == ["sums"]


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1, "delta": 2}, "delta"),
        ({"epsilon": 1, "clip": -1}, "clip"),
        ({"epsilon": 1, "ranges": {"a": [3, 1]}}, "range of 'a'"),
        ({"epsilon": 1, "epsilom": 1}, "no setting"),
        ({}, "lacks 'epsilon'"),
    ],
)
def test_settings_with_mistakes_protect_nobody_and_are_refused(tmp_path, told, what):
    import tomli_w

    path = tmp_path / "node.toml"
    path.write_text(tomli_w.dumps({"privacy": told}))
    with pytest.raises(InputError, match=what):
        PrivacySettings.read(path)


def test_many_columns_tell_no_sums_unless_rows_are_many():
    wide = clustered_regression(n=2, rows=40, features=12, seed=0)
    ranges = {f"x{k}": [-4, 4] for k in range(12)}
    settings = replace(PRIVATE, ranges=ranges)
    terms = Terms(columns=columns(wide), settings={"intercept": True})
    for rows, kind in ((0, "units"), (5000, "sums")):
        one = protected(replace(settings, rows=rows), wide)["d00"]
        told = ask(one, "describe", {"sums": True}, terms=terms)[0]
        assert told["code"] == "ok"
        assert told["privacy"]["sums"] == (kind == "sums")
        assert [line["kind"] for line in one.ledger.protected.table()] == [kind]


def test_accounts_are_values():
    account = Accountant(PRIVATE.budget)
    assert account.after(0.1).spent == 0.1
    assert account.spent == 0.0


def test_a_site_of_sums_takes_noised_ones():
    homes = protected()
    letters = Letters(post(homes), LINEAR, run="run", home={}, deadline=5.0)
    everyone = np.arange(5)
    site = SumsSite(letters, BlendScene(ids=names(5), targets=everyone, seed=5))
    found = site.blended()
    assert all(model is not None for model in found.models)
    assert not site.notes or "no rows have" not in " ".join(site.notes)


def test_the_budget_refuses_and_spends_nothing():
    ledger = Ledger()
    book = ledger.protected
    answer = ProtectedAnswer("r", "sums", "a", 0.5)  # more than epsilon 3 in one go
    with pytest.raises(Refused, match="budget"):
        book.pay("digest", answer, PRIVATE.budget, b"answer")
    assert book.table() == []


LEAVES = Terms(model="tree", columns=("x0", "x1"), settings={"max_depth": 1})
DRAWN = {  # what one row can add to each answer, and how to ask for it
    "sums": (4.0, "describe", {"sums": True}, LINEAR),
    "units": (np.sqrt(7.0), "describe", {"sums": True}, LOGISTIC),
    "gradient": (np.sqrt(3.0) * np.hypot(1, 0.5), "answer", {}, LOGISTIC),
    "losses": (4.0 * np.sqrt(1.25), "score", {"count": 0}, LOGISTIC),
    "leaves": (np.sqrt(8 * 1.25), "blend", {"asks": [{"what": "leaves"}]}, LEAVES),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_what_is_counted_is_the_noise_that_was_drawn(monkeypatch, kind):
    """A desk that drew half the noise that it pays for would be found out here."""
    room, message, head, terms = DRAWN[kind]
    drawn = []
    noised = mechanisms.noised

    def watched(total, deviation, step, source):
        drawn.append(deviation)
        return noised(total, deviation, step, source)

    monkeypatch.setattr(mechanisms, "noised", watched)
    one = device(classes())
    if kind == "gradient":
        assert step(one, np.ones(3))[0] == "ok"
    else:
        told = ask(one, message, head, terms=terms)[0]
        assert told.get("codes", [told["code"]]) == ["ok"]
    (line,) = one.ledger.protected.table()
    assert (line["kind"], len(drawn)) == (kind, 1)
    assert drawn[0] == pytest.approx(line["noise"] * room)
    assert line["cost"] == answer_cost(line["noise"])
