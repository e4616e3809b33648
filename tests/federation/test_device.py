"""A coordinator that lies: what it tries to get a row, a label or a subset of its choice, and
that it does not get it.
"""

import os
import sqlite3
import stat
from dataclasses import replace
from itertools import combinations, pairwise

import federated
import numpy as np
import pytest

pytest.importorskip("flwr")

from persfl.errors import InputError
from persfl.federation.holdout import judged
from persfl.federation.ledger import Entry
from persfl.federation.letters import ends, why
from persfl.federation.messages import digest_of
from persfl.federation.moment_rows import Likenesses, rows_alike
from persfl.federation.row_stock import Lot
from persfl.federation.tree_leaves import boosted, leaf_of, sheltered
from persfl.fleets.flower import Device, Ledger, Policy, Rows, Shelf
from persfl.learners import Tree
from persfl.learners.plain import Plain
from persfl.learners.plain_families import as_plain
from persfl.learners.tree import Grown
from persfl.methods.blend.folds import Folding
from persfl.seeds import stream
from persfl.types import Data
from persfl.wire import Terms, model_from, nested, pack, unpack, within

COUNT, NAMES = 24, ("a", "b", "c")
RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(COUNT, 3)), RNG.normal(size=COUNT)
ROWS = Rows(NAMES, Data(X, Y))
LEAST = Policy().rows


def terms(**changes):
    return Terms(**{"columns": NAMES, "settings": {"intercept": False}} | changes)


def ask(one, kind, asked, head=None, arrays=None, *, r=0, me=0, run="r"):
    told, more = asked.to_wire()
    about = {"run": run, "round": r, "ask": 1, "me": me}
    return unpack(
        one.reply(kind, pack(about | told | (head or {}), more | (arrays or {})))
    )


def sums(one, asked, **more):
    """Weight and column sums, the label last; None where they are refused."""
    head, arrays = ask(one, "describe", asked, {"sums": True}, **more)
    return np.append(arrays["weight"], arrays["sums"]) if head["code"] == "ok" else None


def step(one, asked, *, target=0, **more):
    """The gradient at zero; None where it is refused."""
    question = {"targets": np.array([target]), "q0.vector": np.zeros(3)}
    head, arrays = ask(one, "answer", asked, {"names": ["t"]}, question, **more)
    return (
        -arrays["p0.vector"] / asked.step_size if head.get("codes") == ["ok"] else None
    )


def told_apart(answers):
    """The fewest rows that two answers differ by: column sums come with their weight."""
    near = [
        abs(a[0] - b[0]) for a, b in combinations(answers, 2) if not np.allclose(a, b)
    ]
    return min(near, default=np.inf)


def smallest_piece(one):
    labels = np.frombuffer(
        one.ledger._base.execute("SELECT labels FROM pieces").fetchone()[0],
        dtype=np.int32,
    )
    return np.bincount(labels)[1:][np.bincount(labels)[1:] > 0].min()


def test_the_attack_works_where_the_owner_allows_single_rows():
    """Two questions are a row with its label: so the tests below can fail."""
    one = Device("ann", ROWS, policy=Policy(rows=1))
    row = sums(one, terms()) - sums(one, terms(holdout=1 / COUNT))
    assert row[0] == 1
    assert np.abs(np.column_stack([X, Y]) - row[1:]).max(axis=1).min() < 1e-12


@pytest.mark.parametrize("policy", [Policy(), Policy(rows=9)])
def test_rows_are_not_got_by_holding_others_back(policy):
    one, shares = (
        Device("ann", ROWS, policy=policy),
        [0.0, 0.25, *(k / COUNT for k in range(1, COUNT))],
    )
    asked = [
        (terms(holdout=h, seed=s), me) for h in shares for s in (0, 1) for me in (0, 7)
    ]
    found = [sums(one, t, me=me, run=f"run {me}") for t, me in asked]
    answers = [each for each in found if each is not None]
    # some are answered, with the same rows whatever the seed and the number
    assert len(answers) >= 4
    assert told_apart(answers) >= policy.rows
    assert smallest_piece(one) >= policy.rows


def test_the_seed_does_not_say_which_rows():
    one = Device("ann", ROWS)
    answers = [
        sums(one, terms(holdout=0.25, seed=seed), me=me)
        for seed in range(20)
        for me in range(3)
    ]
    assert all(np.array_equal(each, answers[0]) for each in answers)
    other = sums(Device("ann", ROWS), terms(holdout=0.25))
    assert not np.allclose(other, answers[0])  # another device, another secret


def test_classes_do_not_choose_rows():
    labels = (Y > 0) + 0.0
    one = Device("ann", Rows(NAMES, Data(X, labels)))
    answers = [
        sums(one, terms(holdout=h, classes=c))
        for h in (0.25, 0.3, 0.5)
        for c in (0, 2, 3, 50)
    ]
    answers = [each for each in answers if each is not None]
    assert answers
    assert told_apart(answers) >= LEAST
    assert smallest_piece(one) >= LEAST


@pytest.mark.parametrize("labels", [Y, (Y > 0) + 0.5, (Y > 0) - 1.0, (Y > 0) * 2.0])
def test_labels_that_are_no_classes_are_not_split_by_classes(labels):
    """Rows would be held back by values of labels, and sums of the others told."""
    one = Device("ann", Rows(NAMES, Data(X, labels)))
    for holdout in (0.0, 0.25):
        asked = terms(holdout=holdout, classes=2)
        head, arrays = ask(one, "describe", asked, {"sums": True})
        assert (head["code"], arrays) == ("labels", {})
    assert sums(one, terms(holdout=0.25)) is not None
    assert "'ann' has labels that are none of the run's classes" in why("ann", "labels")
    assert ends("labels")


def test_batches_are_always_the_same():
    one = Device("ann", ROWS)
    found = {
        tuple(np.round(step(one, terms(batch=8, seed=s), target=t, r=r, me=me), 9))
        for s in (0, 1, 2)
        for t in range(4)
        for r in range(4)
        for me in (0, 5)
    }
    assert len(found) <= 3  # 24 rows are three batches of 8, whoever asks, whenever
    others = [
        step(one, terms(batch=size), target=t)
        for size in range(5, 24)
        if size != 8
        for t in range(3)
    ]
    assert smallest_piece(one) >= LEAST
    assert any(each is None for each in others)
    assert step(one, terms(batch=4)) is None


@pytest.fixture(autouse=True)
def _as_wide(monkeypatch):
    """Linear models of other losses are asked as those are that have many columns."""
    monkeypatch.setattr("persfl.federation.device.tells_losses", lambda terms: False)


def huber(**more):
    """Terms whose blend asks for steps."""
    return terms(settings={"loss": "huber", "intercept": False}, **more)


def blend(one, asked, questions, arrays, **more):
    head, out = ask(one, "blend", asked, {"asks": questions}, arrays, **more)
    return head.get("codes", [head["code"]] * len(questions)), out


def test_copies_without_a_fold_leave_out_enough_rows():
    one, weights = Device("ann", ROWS), []
    for ordered in (False, True):
        for holdout in (0.25, 0.0, 0.3):
            for classes, me in ((0, 0), (0, 3)):
                own = {
                    "what": "own",
                    "view": "shared",
                    "ordered": ordered,
                }
                asked = huber(seed=me, holdout=holdout, classes=classes)
                codes, out = blend(
                    one, asked, [own], {"k0.variance": np.ones(3)}, me=me
                )
                if codes == ["ok"]:
                    weights.append(out["k0.weight"])
    assert len(weights) >= 2
    assert all(
        set(np.abs(w[:, None] - w).ravel()) <= {0.0, *range(LEAST, COUNT + 1)}
        for w in weights
    )
    assert smallest_piece(one) >= LEAST
    codes, _ = blend(
        Device("bob", ROWS),
        huber(),
        [{"what": "own", "view": "shared"}],
        {"k0.variance": np.ones(3)},
    )
    assert codes == ["ok"]


def test_few_rows_are_one_fold():
    one = Device("ann", Rows(NAMES, Data(X[:9], Y[:9])))
    own = {"what": "own", "view": "shared"}
    codes, out = blend(one, huber(), [own], {"k0.variance": np.ones(3)})
    assert codes == ["ok"]
    # every copy has all rows
    assert out["k0.weight"].tolist() == [9.0] * (Folding().count + 1)


def growing(counts, ledger, **policy):
    """A device whose table has these many rows, round by round."""
    return Device(
        "ann",
        lambda r: Rows(NAMES, Data(X[: counts[r]], Y[: counts[r]])),
        ledger=ledger,
        policy=Policy(**policy),
    )


def test_rows_that_arrive_are_told_of_together(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    one = growing(range(25), ledger)
    found = {r: sums(one, terms(), r=r) for r in (*range(8, 25), 12, 9, 24, 8, 17)}
    answers = [each for each in found.values() if each is not None]
    assert {each[0] for each in answers} == {8, 13, 18, 23}
    assert told_apart(answers) >= LEAST
    ledger.close()
    again = growing(range(25), Ledger(tmp_path / "ledger"))  # and after a restart
    for r in found:
        now = sums(again, terms(), r=r, run="another run")
        if now is not None:
            assert told_apart([*answers, now]) >= LEAST
    assert again.lot == one.lot


def test_held_back_rows_do_not_move_when_others_arrive():
    one = growing([12, 17, 24], Ledger(), rows=2)
    seen = [one.deal(terms(holdout=0.25), r) for r in range(3)]
    for before, after in pairwise(seen):
        assert set(before.place) <= set(after.place)
        assert set(before.held_place) <= set(after.held_place)
    assert smallest_piece(one) >= 2


@pytest.mark.parametrize("change", ["label", "gone", "order"])
def test_a_corrected_row_is_not_given_away(change):
    now = [ROWS]
    one = Device("ann", lambda r: now[0])
    before = sums(one, terms())
    fixed, there = Y.copy(), np.arange(COUNT)
    if change == "label":
        fixed[7] += 1.0
    elif change == "gone":
        there = np.delete(there, 7)
    else:
        there = there[::-1]
    now[0] = Rows(NAMES, Data(X[there], fixed[there]))
    after = sums(one, terms())
    assert (after is None) == (change != "order")
    if change == "order":
        np.testing.assert_array_equal(after, before)
    else:
        assert ask(one, "describe", terms(), {"sums": True})[0]["code"] == "split"


def test_columns_units_and_centres_choose_no_rows():
    one = Device("ann", ROWS)
    whole = sums(one, terms())
    for columns in (("a",), ("c", "a"), ("b", "c")):
        assert sums(one, terms(columns=columns))[0] == whole[0] == COUNT
    about = np.array([0.5, -1.0, 2.0, 3.0])
    _, arrays = ask(one, "describe", terms(), {"sums": True}, {"about": about})
    # nothing that was not known
    np.testing.assert_allclose(arrays["sums"], whole[1:] - COUNT * about)
    told, more = terms(mean=np.zeros(3), scale=np.full(3, 1e-305)).to_wire()
    body = pack({"run": "r", "round": 0, "ask": 1, "me": 0, "sums": True} | told, more)
    # what overflows would say which rows are large
    assert unpack(one.reply("describe", body))[0]["code"] == "format"


def test_rows_of_no_weight_are_no_cover():
    weight = np.where(np.arange(COUNT) < 3, 1.0, 0.0)
    one = Device("ann", Rows(NAMES, Data(X, Y, weight)))
    assert ask(one, "describe", terms(), {"sums": True})[0]["code"] == "rows"


# Leaves


def planted(kind, classes, public, private=90):
    labels = (
        np.arange(private) % classes + 0.0
        if classes
        else 1000.0 * np.random.default_rng(8).exponential(size=private)
    )
    data = Data(np.random.default_rng(5).normal(size=(private, 3)), labels)
    settings = {"max_depth": 30} | ({} if kind == "tree" else {"n_estimators": 12})
    more = {"columns": NAMES, "model": kind, "classes": classes, "settings": settings}
    asked = Terms(**more, public=public, soft=bool(classes), step_size=1.0)
    return data, asked


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("kind", ["tree", "forest", "boosting"])
def test_no_leaf_is_a_label(kind, classes):
    """Trees as deep as they may be, on rows whose labels could be told apart: as an answer, and
    as a target's own model.
    """
    public = np.random.default_rng(1).normal(size=(30, 3))
    data, asked = planted(kind, classes, public)
    one = Device("ann", Rows(NAMES, data))
    told = {"labels": np.zeros(30)}
    if classes:
        told = {
            "chances": np.tile(np.eye(classes)[0], (30, 1)),
            "labels": np.arange(classes + 0.0),
        }
    question = {"targets": np.array([0])} | nested("q0", told)
    head, arrays = ask(one, "answer", asked, {"names": ["t"]}, question)
    assert head["codes"] == ["ok"]
    model = model_from(asked.learner(), within("p0", arrays), 3, classes)
    trees = [model] if isinstance(model, Grown) else model.trees
    most = 0
    for tree in trees:
        exact = (
            data.X if isinstance(asked.learner(), Tree) else data.X.astype(np.float32)
        )
        counts = np.bincount(leaf_of(tree, exact), minlength=len(tree.feature))[
            tree.feature < 0
        ]
        # its trees are grown on rows drawn; others fall into leaves, too
        if kind != "forest":
            assert not ((counts > 0) & (counts < LEAST)).any()
        most = max(most, len(counts))
    assert most > 1  # they still say something
    if not classes:
        values = np.concatenate([tree.value.ravel() for tree in trees])
        base = 0.0 if isinstance(model, Grown) else model.base
        assert not np.isin(data.y, values).any()
        assert np.abs(data.y[:, None] - np.append(values, values + base)).min() > 1e-6
    head, arrays = ask(one, "adopt", asked, {"probe": True})
    assert head["code"] == "ok"
    if not classes:
        assert np.abs(data.y[:, None] - arrays["probe.labels"]).min() > 1e-6


@pytest.mark.parametrize("classes", [0, 3])
def test_leaves_of_a_forest_rest_on_rows_that_were_drawn(classes):
    data, asked = planted("forest", classes, None)
    learner = asked.learner()
    raw = learner.fit(data, stream(4))
    model = sheltered(learner, 70, LEAST).fit(data, stream(4))
    for tree, drawn in zip(model.trees, raw.estimators_samples_, strict=True):
        used = np.intersect1d(drawn, np.arange(70))
        counts = np.bincount(
            leaf_of(tree, data.X.astype(np.float32))[used], minlength=len(tree.feature)
        )[tree.feature < 0]
        assert not ((counts > 0) & (counts < LEAST)).any()
    assert max(len(tree.feature) for tree in model.trees) > 3


def test_a_forest_that_draws_hardly_a_private_row_says_the_mean_of_all():
    """A tiny step makes private rows light: a tree may have drawn one of them alone, among
    labels that the asker knows.
    """
    public = np.random.default_rng(1).normal(size=(30, 3))
    data, asked = planted("forest", 0, public)
    asked = replace(asked, step_size=1e-3)
    # with some lots, no tree draws any
    one = Device("ann", Rows(NAMES, data), lot=Lot(0))
    question = {"targets": np.array([0]), "q0.labels": np.zeros(30)}
    _, arrays = ask(one, "answer", asked, {"names": ["t"]}, question)
    values, mean = arrays["p0.value"].ravel(), 1e-3 * data.y.mean() / (1 + 1e-3)
    drawn = np.isclose(
        values[values > 0][:, None] * 120, np.outer([1, 2, 3], data.y).ravel()
    )
    assert not drawn.any()
    # older versions draw all rows alike
    assert np.isclose(values, mean).any() or (values > mean).all()


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_boosting_tree_by_tree_is_that_of_scikit_learn(classes):
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(60, 3)), rng.uniform(0.5, 2, 60)
    y = rows @ [1.0, -1.0, 0.5] + rng.normal(size=60)
    y = np.digitize(y, [0.0] if classes == 2 else [-0.5, 0.5]) + 0.0 if classes else y
    learner = Terms(
        columns=NAMES, model="boosting", classes=classes, settings={"n_estimators": 8}
    ).learner()
    data = Data(rows, y, weight)
    want = as_plain(learner.fit(data, stream(3))).scores(rows)
    found = boosted(learner.unfitted(stream(3)), data, np.ones(60, dtype=bool), 0)
    np.testing.assert_allclose(found.scores(rows), want, atol=1e-9)


def test_labels_do_travel_where_the_owner_lets_them():
    """What the test above looks for is found in a device that allows it."""
    public = np.random.default_rng(1).normal(size=(30, 3))
    data, asked = planted("tree", 0, public)
    one = Device("ann", Rows(NAMES, data), policy=Policy(rows_per_leaf=1))
    question = {"targets": np.array([0]), "q0.labels": np.zeros(30)}
    _, arrays = ask(one, "answer", asked, {"names": ["t"]}, question)
    assert np.isin(data.y, arrays["p0.value"]).sum() > 45


def test_the_seed_does_not_draw_a_forests_rows():
    public = np.random.default_rng(1).normal(size=(10, 3))
    data, _ = planted("forest", 0, public)
    asked = [
        Terms(
            columns=NAMES,
            model="forest",
            settings={"n_estimators": 3},
            public=public,
            seed=seed,
        )
        for seed in range(3)
    ]
    one = Device("ann", Rows(NAMES, data), policy=Policy(rows_per_leaf=1))
    question = {"targets": np.array([0]), "q0.labels": np.zeros(10)}
    found = [
        ask(one, "answer", each, {"names": ["t"]}, question)[1]["p0.value"]
        for each in asked
    ]
    assert all(np.array_equal(each, found[0]) for each in found)


# Rounding: with an intercept of 2 ** 49, a prediction is rounded to eighths, row by row

HUGE = 2.0**49


def rounded(one, shift):
    """Slopes of b and c; those of rows whose a - shift is rounded to another eighth have
    changed.
    """
    units = {
        "mean": np.array([shift, 0.0, 0.0]),
        "scale": np.ones(3),
        "label_mean": -HUGE,
    }
    asked = terms(settings={"intercept": True}, step_size=1.0, **units)
    model = np.array([1.0, 0.0, 0.0, HUGE])
    question = {"targets": np.array([0]), "q0.vector": model}
    told = ask(one, "answer", asked, {"names": ["t"]}, question)[1]
    return told["p0.vector"][1:3]


def told_by_rounding(policy):
    """Rows whose b and c are found in what answers differ by."""
    one = Device("ann", ROWS, policy=policy, lot=Lot(0))
    answers = [rounded(one, shift) for shift in np.arange(0, 0.125, 0.001)]
    jumps = np.diff(answers, axis=0)
    jumps = jumps[(jumps != 0).all(axis=1)]
    ratio = X[:, 1] / X[:, 2]
    return {
        int(i)
        for i in np.argwhere(np.isclose(jumps[:, :1] / jumps[:, 1:], ratio))[:, 1]
    }


def test_rounding_tells_rows_where_the_owner_allows_single_ones():
    assert len(told_by_rounding(Policy(rows=1))) > COUNT / 2


def test_rounding_tells_no_row():
    assert not told_by_rounding(Policy())


# Classes: those of a model that travels are the labels that it was fitted to


@pytest.mark.parametrize("model", ["tree", "forest", "boosting", "ridge"])
@pytest.mark.parametrize(
    "labels", [Y, np.round(1e6 * Y), np.where(np.arange(COUNT), 1.0, -7.0)]
)
@pytest.mark.parametrize("soft", [False, True])
def test_labels_that_are_no_classes_are_not_told_as_classes(model, labels, soft):
    one = Device("ann", Rows(NAMES, Data(X, labels)))
    settings = {"n_estimators": 1} if model in ("forest", "boosting") else {}
    asked = Terms(
        model=model,
        columns=NAMES,
        classes=2,
        settings=settings,
        public=np.zeros((2, 3)),
        soft=soft,
    )
    question = {"targets": np.array([0]), "q0.labels": np.array([0.0, 1.0])}
    if soft:
        question["q0.chances"] = np.full((2, 2), 0.5)
    head, arrays = ask(one, "answer", asked, {"names": ["t"]}, question)
    assert head["code"] == "labels"
    assert not arrays
    for what in ({"judge": True, "count": 0}, {"count": 0}):
        head, arrays = ask(one, "score", asked, what)
        assert (head["code"], arrays) == ("labels", {})


@pytest.mark.parametrize("model", ["tree", "forest", "boosting"])
def test_no_row_is_told_by_weights_that_vanish(model):
    """With a step of next to nothing, rows of a usual weight weigh 0: the heaviest would be
    left.
    """
    labels, weight = (Y > 0) + 0.0, np.append(np.ones(COUNT - 1), 1.6)
    one = Device("ann", Rows(NAMES, Data(X, labels, weight)))
    asked = Terms(
        model=model,
        columns=NAMES,
        classes=2,
        settings={} if model == "tree" else {"n_estimators": 1},
        public=np.zeros((2, 3)),
        soft=True,
        step_size=4.4e-323,
    )
    chances = {"q0.labels": np.array([0.0, 1.0]), "q0.chances": np.zeros((2, 2))}
    question = {"targets": np.array([0])} | chances
    head, arrays = ask(one, "answer", asked, {"names": ["t"]}, question)
    assert (head["code"], arrays) == ("format", {})
    grower = sheltered(asked.learner(), COUNT, LEAST)
    rows = Data(X, labels, weight * (weight > 1))
    with pytest.raises(InputError, match="weigh"):
        grower.fit(rows, stream(0, "x"))


@pytest.mark.parametrize("kind", ["answer", "score", "blend"])
@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "poisson"])
def test_losses_of_numbers_are_not_asked_of_classes(kind, loss):
    """Or rows would be told from themselves under squared loss, as if labels were classes."""
    one = Device("ann", Rows(NAMES, Data(X, (Y > 0) + 0.0)))
    told, more = terms(settings={"intercept": True}).to_wire()
    told["terms"] |= {"classes": 2, "settings": {"loss": loss}}
    question = {"targets": np.array([0]), "q0.vector": np.zeros(4)}
    steps = {"what": "steps", "view": "shared", "step": 1.0, "steps": 1}
    models = {"k0.variance": np.ones(3), "k0.models": np.zeros((1, 4))}
    about = {
        "run": "r",
        "round": 0,
        "ask": 1,
        "me": 0,
        "names": ["t"],
        "asks": [steps],
        "count": 0,
    }
    head, arrays = unpack(one.reply(kind, pack(about | told, more | question | models)))
    assert (head["code"], arrays) == ("format", {})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d"), [(2, 1), (24, 3), (5, 5), (5, 40)])
def test_rows_alike_have_the_same_moments(n, d, weighted):
    rng = np.random.default_rng(n + d)
    weight = rng.uniform(0.1, 3, n) if weighted else np.ones(n)
    data = Data(rng.normal(size=(n, d)) + 100, rng.normal(size=n), weight)
    data.X[:, -1] = 1.0  # a column that is the same everywhere
    made = rows_alike(data)
    for one in (data, made):
        assert np.array_equal(one.weight, weight)
    old, new = (np.column_stack([np.ones(n), one.X, one.y]) for one in (data, made))
    np.testing.assert_allclose(
        (new.T * weight) @ new, (old.T * weight) @ old, rtol=1e-12, atol=1e-10
    )
    assert n == 2 or not np.isclose(new, old).all(axis=1).any()


def other_rows(data, rng):
    """Quite different rows of the same weights and moments."""
    n, root, values = data.rows, np.sqrt(data.weight), np.column_stack([data.X, data.y])
    middle = data.weight @ values / data.weight.sum()
    about = np.linalg.qr(np.column_stack([root, rng.normal(size=(n, n - 1))]))[0][:, 1:]
    turn = about @ np.linalg.qr(rng.normal(size=(n - 1, n - 1)))[0] @ about.T
    values = middle + turn @ (root[:, None] * (values - middle)) / root[:, None]
    return Data(values[:, :-1].copy(), values[:, -1].copy(), data.weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "kind",
    ["plain", "first", "tenth", "pair", "large", "wide", "both", "none"],
)
def test_rows_alike_depend_on_moments_alone(kind, weighted):
    """Also where columns say nothing new: lines of a plain QR are then rows themselves."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(8, 12 if kind in ("wide", "both") else 3))
    if kind in ("first", "both", "tenth"):
        X[:, 0] = 0.1 if kind == "tenth" else 1.0
    if kind in ("pair", "both"):
        X[:, 1] = np.arange(8) % 2
        X[:, 2] = 1 - X[:, 1]
    X = X + 1e6 * (kind == "large")
    X = X * (kind != "none")
    y = rng.normal(size=8) * (kind != "none")
    data = Data(X, y, rng.uniform(0.1, 3, 8) if weighted else np.ones(8))
    pair = rows_alike(data), rows_alike(other_rows(data, rng))
    ours, theirs = (np.column_stack([made.X, made.y]) for made in pair)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    old = np.column_stack([X, y])
    for made, real in ((ours, old), (ours - X.mean(), old - X.mean())):
        found, wanted = ((values.T * data.weight) @ values for values in (made, real))
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", ["linear", "ridge"])
def test_errors_depend_on_moments_alone(model):
    """In whatever units, and of whatever model: also the own model's, and how much they spread."""
    rng = np.random.default_rng(6)
    learn, held = Data(X[:16], Y[:16]), Data(X[16:], Y[16:])
    others = other_rows(learn, rng), other_rows(held, rng)
    for size in (1.0, 2.0**-10, 2.0**10):
        mean, scale = np.array([0.3, 0.0, -size]), np.array([1.0, size, 1.0])
        settings = {"intercept": False} if model == "linear" else {}
        asked = terms(
            model=model, settings=settings, mean=mean, scale=scale, label_mean=0.1
        )
        vector = np.array([3.0, 1.0, 0.0])
        given = (
            vector
            if model == "linear"
            else Plain("value", np.zeros(1), slopes=vector[None])
        )
        told = [judged(asked, given, *rows, 0) for rows in ((learn, held), others)]
        for name in told[0]:
            np.testing.assert_allclose(
                told[0][name], told[1][name], rtol=1e-6, atol=1e-9
            )


def test_units_do_not_choose_which_values_are_asked_for():
    """Whether all values are 0 or 1 is told; not whether all are one of two others."""
    values = Data(np.where(X > 0, 7.0, 3.0), Y)
    for mean, scale in ((0.0, 1.0), (3.0, 4.0)):
        asked = terms(mean=np.full(3, mean), scale=np.full(3, scale))
        head, told = ask(
            Device("ann", Rows(NAMES, values)), "describe", asked, {"sums": True}
        )
        assert (head["code"], told["binary"].tolist()) == ("ok", [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("model", "loss"),
    [("linear", "poisson"), ("linear", "logistic"), ("mlp", "logistic")],
)
def test_units_do_not_tell_the_least_label(model, loss):
    counts = Data(X, np.arange(COUNT) % 2 + 0.0)
    one, question = (
        Device("ann", Rows(NAMES, counts)),
        {"targets": np.array([0]), "q0.vector": np.zeros(3)},
    )
    found = set()
    for shift in (-1.0, 0.5, 2.0):
        for asked in ({"label_mean": shift}, {"label_scale": 3.0 + shift}):
            told = terms(model=model, settings={"loss": loss}, **asked)
            found.add(ask(one, "answer", told, {"names": ["t"]}, question)[0]["code"])
            steps = {
                "what": "steps",
                "view": "shared",
                "label": 1.0,
                "step": 0.1,
                "steps": 1,
            }
            models = {"k0.variance": np.ones(3), "k0.models": np.zeros((1, 3))}
            found.add(blend(one, told, [steps], models)[0][0])
    assert found == {"format"}


def test_what_cannot_travel_is_not_collected(monkeypatch):
    monkeypatch.setattr("persfl.federation.device_peer.LARGEST", 100)
    question = {"targets": np.arange(9)} | {
        f"q{i}.vector": RNG.normal(size=3) for i in range(9)
    }
    head, arrays = ask(
        Device("ann", ROWS), "answer", terms(), {"names": ["t"] * 9}, question
    )
    assert head["codes"] == ["ok"] * 4 + ["work"] * 5
    assert len(arrays) == 4


def test_rows_alike_are_made_once(monkeypatch):
    made = []
    monkeypatch.setattr(
        "persfl.federation.moment_rows.rows_alike",
        lambda data: made.append(data.rows) or rows_alike(data),
    )
    one = Device("ann", ROWS)
    for k in range(5):
        assert step(one, terms(batch=12), r=k) is not None
    assert sorted(made) == [12, 12, COUNT]
    few = Likenesses(most=20)
    parts = [Data(X[i : i + 5], Y[i : i + 5]) for i in (0, 5, 0)]
    assert [few.of(part).rows for part in parts] == [5, 5, 5]
    assert len(made) == 6
    wide = Device("ann", ROWS, policy=Policy(work=COUNT * 3))
    assert ask(wide, "answer", terms(), {"names": ["t"]})[0]["code"] in (
        "work",
        "format",
    )
    assert ask(wide, "score", terms(), {"count": 0})[0]["code"] == "work"
    assert ask(wide, "describe", terms(), {"sums": True})[0]["code"] == "work"


# Counting


def test_losses_count_one_by_one():
    one, models = (
        Device("ann", ROWS, policy=Policy(numbers=100)),
        RNG.normal(size=(60, 3)),
    )
    shown = {f"p{i}.vector": model for i, model in enumerate(models)}
    # 121 numbers
    assert ask(one, "score", terms(), {"count": 60}, shown)[0]["code"] == "numbers"
    first = {f"p{i}.vector": model for i, model in enumerate(models[:40])}
    assert ask(one, "score", terms(), {"count": 40}, first)[0]["code"] == "ok"  # 81
    # told before
    assert ask(one, "score", terms(), {"count": 40}, first)[0]["code"] == "ok"
    assert (
        ask(
            one,
            "score",
            terms(),
            {"count": 20},
            {k: v for k, v in shown.items() if k < "p2"},
        )[0]["code"]
        == "numbers"
    )
    assert one.ledger.counts("r", "").numbers == 81
    weigh = {"what": "weigh", "view": "shared", "many": 10}
    arrays = {"k0.variance": np.ones(3), "k0.models": np.zeros((6, 10, 3))}
    assert blend(one, huber(), [weigh], arrays)[0] == ["numbers"]


def test_the_same_words_about_another_model_are_another_question():
    one, found = Device("ann", ROWS), set()
    for k in range(5):
        anew = {"adoptions": [{"round": 0, "stay": 0.0, "weights": [1.0], "set": True}]}
        ask(one, "adopt", terms(), anew, {"a0.0.vector": np.full(3, float(k))})
        found.add(float(ask(one, "score", terms(), {"count": 0})[1]["own"][0]))
    assert len(found) == 5
    assert one.ledger.counts("r", "ann").target == 5


def test_the_same_words_in_other_units_are_another_question():
    one = Device("ann", ROWS)
    steps = {"what": "steps", "view": "shared", "step": 0.1, "steps": 1}
    arrays = {"k0.variance": np.ones(3), "k0.models": np.zeros((1, 3))}
    for k in range(4):
        units = {"mean": np.full(3, float(k)), "scale": np.ones(3)}
        assert blend(one, huber(**units), [steps], arrays)[0] == ["ok"]
    assert one.ledger.counts("r", "").target == 4


def test_another_name_for_a_run_is_no_way_around_all_limits():
    one = Device(
        "ann",
        ROWS,
        policy=Policy(questions=2, questions_ever=3, numbers=9, numbers_ever=12),
    )
    codes = []
    for run in range(4):
        question = {"targets": np.array([0]), "q0.vector": RNG.normal(size=3)}
        codes.append(
            ask(one, "answer", terms(), {"names": ["t"]}, question, run=f"run {run}")[
                0
            ]["codes"][0]
        )
    assert codes == ["ok", "ok", "ok", "questions_ever"]
    # sums of four columns are 1 + 4 + 4 + 4 numbers
    two = Device("bob", ROWS, policy=Policy(numbers=13, numbers_ever=14))
    assert [
        ask(two, "describe", terms(), {"sums": True}, run=r)[0]["code"] for r in "ab"
    ] == [
        "ok",
        "numbers_ever",
    ]


def test_many_names_are_one_asker_in_all():
    one = Device("ann", ROWS, policy=Policy(questions_per_target=2, questions=5))
    question = {"targets": np.zeros(9, dtype=np.int64)} | {
        f"q{i}.vector": RNG.normal(size=3) for i in range(9)
    }
    head, _ = ask(
        one, "answer", terms(), {"names": [f"n{i}" for i in range(9)]}, question
    )
    assert head["codes"] == ["ok"] * 5 + ["questions"] * 4


def test_work_in_a_message_is_bounded():
    public = np.zeros((10, 3))
    asked = Terms(
        columns=NAMES, model="forest", settings={"n_estimators": 50}, public=public
    )
    one = Device("ann", ROWS, policy=Policy(work=20_000_000))
    question = {"targets": np.arange(50)} | {
        f"q{i}.labels": np.full(10, i + 0.0) for i in range(50)
    }
    head, _ = ask(one, "answer", asked, {"names": ["t"] * 50}, question)
    assert head["codes"] == ["ok"] + ["work"] * 49
    shown = {"count": 10_000}
    assert ask(one, "score", asked, shown)[0]["code"] == "work"


def test_messages_at_the_same_time_are_no_way_around_limits(tmp_path, monkeypatch):
    path, limited = tmp_path / "ledger.sqlite", Policy(questions=1)
    one, two = (
        Device("ann", ROWS, policy=limited, ledger=Ledger(path)) for _ in range(2)
    )
    codes, real = [], one.proposal

    def meanwhile(*given):
        codes.append(step(two, terms(), target=1) is not None)  # in another process
        return real(*given)

    monkeypatch.setattr(one, "proposal", meanwhile)
    codes.append(step(one, terms()) is not None)
    assert codes == [True, False]
    assert one.ledger.counts("r", "t").run == 1


# The ledger


def statements(many):
    """SQL statements that one message of so many questions takes."""
    one, seen = Device("ann", ROWS, policy=Policy(questions_per_target=10**6)), []
    question = {"targets": np.arange(many)} | {
        f"q{i}.vector": RNG.normal(size=3) for i in range(many)
    }
    one.ledger._base.set_trace_callback(seen.append)
    head, _ = ask(
        one, "answer", terms(), {"names": [f"n{i % 7}" for i in range(many)]}, question
    )
    assert head["codes"] == ["ok"] * many
    return len(seen)


def test_a_message_costs_as_much_as_it_asks():
    few, many = statements(100), statements(400)
    assert 3 < many / few < 4.5
    ledger = Ledger()
    base = ledger._base
    for query in (
        "SELECT 1 FROM answered WHERE digest = ?",
        "SELECT questions FROM of_target WHERE run = ? AND target = ?",
        "SELECT questions, numbers FROM of_run WHERE run = ?",
    ):
        plan = base.execute(
            f"EXPLAIN QUERY PLAN {query}", ("x",) * query.count("?")
        ).fetchall()
        assert all("SEARCH" in line[-1] for line in plan), plan


def test_an_old_ledger_is_counted_once(tmp_path):
    path = tmp_path / "ledger.sqlite"
    base = sqlite3.connect(path)
    base.execute(
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, round"
        " INTEGER NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL, digest TEXT NOT NULL, rows"
        " INTEGER NOT NULL, bytes INTEGER NOT NULL, code TEXT NOT NULL)"
    )
    base.execute("CREATE INDEX by_digest ON entries (digest)")
    lines = [
        ("r1", "ann", "d1", "ok"),
        ("r1", "ann", "d1", "ok"),
        ("r1", "bob", "d2", "ok"),
        ("r2", "bob", "d2", "ok"),
        ("r2", "bob", "d3", "questions"),
        ("r2", "eve", "", "ok"),
    ]
    base.executemany(
        "INSERT INTO entries VALUES (NULL, 1.0, ?, 0, 'answer', ?, ?, 9, 8, ?)", lines
    )
    base.commit()
    base.close()
    for _ in range(2):
        ledger = Ledger(path)
        assert ledger.counts("r1", "ann") == (1, 2, 2, 0, 0)
        assert ledger.counts("r2", "bob")[:2] == (0, 0)
        assert ledger.known("d2")
        assert not ledger.known("d3")
        assert len(ledger.table()) == 3
        secret = ledger.secret
        ledger.close()
    assert Ledger(path).secret == secret


def asked_for_nothing(one, k):
    """Questions that no limit counts, each under other names."""
    odd = {"names": [f"eve {k}"], "run": f"run {k}", "round": k}
    ask(one, "answer", terms(), odd, {"targets": np.array([0])})
    ask(one, "describe", terms(), odd)
    ask(one, "adopt", terms(), odd | {"run": "r", "round": k})
    ask(one, "score", terms(), odd | {"count": -1})
    blend(one, terms(), [{"what": "\x1b[2Jsteps", "names": [f"eve {k}"]}], {})
    again = {"targets": np.array([0]), "q0.vector": np.zeros(3)}
    ask(one, "answer", terms(), {"names": ["ann"]}, again)


def test_nobody_fills_the_disk_by_asking(tmp_path, monkeypatch):
    monkeypatch.setattr("persfl.federation.ledger.ASKERS", 20)
    monkeypatch.setattr("persfl.federation.ledger.SEEN", 20)
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger._base.execute("PRAGMA synchronous = OFF")  # only here: it is about sizes
    one, sizes = Device("ann", ROWS, ledger=ledger), []
    for k in range(60):
        asked_for_nothing(one, k)
        sizes.append(path.stat().st_size)
    assert sizes[-1] == sizes[30]
    said = ledger.table()
    assert len(said) < 40
    assert sum(entry["questions"] for entry in said) == 6 * 60
    assert sum(entry["answered"] for entry in said) == 3 * 60
    assert [
        entry["different"]
        for entry in said
        if entry["answered"] and entry["asker"] == "ann"
    ] == [0, 1]
    assert {entry["code"] for entry in ledger.refusals()} == {"format"}
    assert all(entry["kind"].isalpha() for entry in said)


def test_the_disk_is_the_owners(tmp_path):
    one = Device(
        "ann", ROWS, policy=Policy(disk=3_000), shelf=Shelf(tmp_path / "models")
    )
    anew = {"adoptions": [{"round": 0, "stay": 0.0, "weights": [1.0], "set": True}]}
    codes = []
    for k in range(8):
        head, _ = ask(
            one,
            "adopt",
            terms(),
            anew | {"run": f"run {k}"},
            {"a0.0.vector": np.ones(3)},
        )
        codes.append(head["code"])
    assert codes[0] == "ok"
    assert codes[-1] == "disk"
    assert sum(file.stat().st_size for file in (tmp_path / "models").iterdir()) <= 3_000
    again, _ = ask(
        one, "adopt", terms(), anew | {"run": "run 0"}, {"a0.0.vector": np.zeros(3)}
    )
    assert again["code"] == "ok"


def test_a_ledger_is_its_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        Ledger(tmp_path / "ledger.sqlite").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "ledger.sqlite").stat().st_mode) == 0o600


def test_rows_that_came_are_counted_from_the_round_before():
    ledger = Ledger()
    for r, rows in ((0, 10), (1, 12), (1, 13), (2, 20)):
        ledger.write([Entry("run", r, "describe", "", "", rows)])
    assert [ledger.rows("run", r) for r in range(4)] == [None, 10, 13, 20]
    assert ledger.rows("other", 3) is None


@pytest.mark.parametrize(
    "head",
    [
        {"count": 0, "judge": True},
        {
            "count": 0,
            "adoptions": [{"round": 0, "stay": 1.0, "weights": [], "set": True}] * 100,
        },
    ],
)
def test_fits_and_adoptions_are_work(head):
    asked = terms(model="mlp", settings={"hidden": [64]})
    one = Device("ann", ROWS, policy=Policy(work=500_000))
    assert ask(one, "score", asked, {"count": 0})[0]["code"] == "ok"
    assert ask(one, "score", asked, head)[0]["code"] == "work"
    other = Device("bob", ROWS, policy=Policy(work=500_000))
    own = terms(model="mlp", settings={"hidden": [64]}, start="own")
    assert ask(other, "adopt", own, {"probe": True})[0]["code"] == "work"


def test_devices_have_different_secrets():
    assert len({Ledger().secret for _ in range(20)}) == 20
    assert federated.at_home(federated.Devices.of([ROWS.data], quiet=True))[
        "d00"
    ].lot == (5, 0)


def test_what_questions_share_is_read_once(monkeypatch):
    """Ten thousand names beside 60 MB would be read for half an hour, before any limit."""
    read = []

    def counted(about, *parts):
        read.extend(array.size for part in parts for array in part.values())
        return digest_of(about, *parts)

    monkeypatch.setattr("persfl.federation.asked_device.digest_of", counted)
    one, models = Device("ann", ROWS), RNG.normal(size=(50, 3))
    steps = {"what": "steps", "view": "shared", "step": 0.1, "steps": 1}
    steps["names"] = [f"n{i}" for i in range(50)]
    arrays = {"k0.variance": np.ones(3), "k0.models": models}
    assert blend(one, huber(), [steps], arrays)[0] == ["ok"]
    assert sum(read) == models.size + 3
    assert one.ledger.counts("r", "").run == 50
    alone = steps | {"names": ["n7"]}
    again = {"k0.variance": np.ones(3), "k0.models": models[7:8]}
    assert blend(one, huber(), [alone], again)[0] == ["ok"]
    assert one.ledger.counts("r", "").run == 50  # the same one, in other company


def test_spreads_depend_on_moments_alone():
    """In units of 1e14 the rows themselves would be rounded one by one."""
    asked = huber(mean=np.full(3, 2.0**49), scale=np.ones(3))
    found = []
    for rows in (Data(X, Y), other_rows(Data(X, Y), np.random.default_rng(7))):
        one = Device("ann", Rows(NAMES, rows))
        codes, out = blend(one, asked, [{"what": "spread"}], {})
        assert codes == ["ok"]
        found.append(out["k0.squares"])
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_sums_of_parts_are_those_of_rows_alike():
    """But for the last bits they are the same, and these would tell rows."""
    few = Data(X[:9], Y[:9])  # one part
    said = {}
    for least in (1, 5):
        one = Device("ann", Rows(NAMES, few), policy=Policy(rows=least))
        codes, out = blend(one, terms(), [{"what": "parts"}], {})
        assert codes == ["ok"]
        said[least] = out["k0.product"]
    made = rows_alike(few)
    np.testing.assert_array_equal(said[5][-1], made.X.T @ made.y)
    assert not np.array_equal(said[5][-1], few.X.T @ few.y)
    np.testing.assert_allclose(said[1].sum(axis=0), said[5][-1], rtol=1e-9)


def with_column(keep, extra=None):
    """Some of the rows, with one more column."""
    more = X[:, :1] ** 2 if extra is None else extra
    return Rows([*NAMES, "new"], Data(np.hstack([X, more])[keep], Y[keep]))


def test_one_more_column_makes_no_row_a_stranger():
    """All rows seemed new, and sums less earlier ones were the row that had gone."""
    every = np.arange(COUNT)
    tables = [ROWS, with_column(every), with_column(every[1:]), ROWS]
    one = Device("ann", lambda r: tables[r])
    first = sums(one, terms())
    np.testing.assert_allclose(sums(one, terms(), r=1), first)
    assert sums(one, terms(), r=2) is None
    assert sums(one, terms(), r=3) is None  # without it, who could say which rows
    np.testing.assert_allclose(sums(one, terms(), r=1), first)
    other = Device("ann", lambda r: tables[r])
    sums(other, terms())
    assert sums(other, terms(), r=2) is None


def test_a_value_that_is_corrected_in_a_new_column_counts_too():
    changed = X[:, :1] ** 2
    changed[3] += 1.0
    every = np.arange(COUNT)
    tables = [ROWS, with_column(every), with_column(every, changed)]
    one = Device("ann", lambda r: tables[r])
    assert all(sums(one, terms(), r=r) is not None for r in (0, 1))
    assert sums(one, terms(), r=2) is None


def test_refusals_tell_the_largest_count_as_docs_say():
    labels = np.arange(COUNT) % 7 + 0.0
    one = Device("ann", Rows(NAMES, Data(X, labels)))
    told = [sums(one, terms(classes=c)) is not None for c in range(1, 12)]
    assert told == [False] * 6 + [True] * 5
