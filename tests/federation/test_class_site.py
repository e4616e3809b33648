"""Blend of small models of classes over a federation: the models of one process, few exchanges, and
nothing believed that no rows can be behind.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import OPEN, at_home, blend_site, columns, plan

from persfl import Devices
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder
from persfl.federation.blend_exchange import Letter
from persfl.federation.blend_journal import Journal
from persfl.federation.class_site import NO_ALIKE, ClassSite
from persfl.federation.conduct import conduct
from persfl.federation.local_grid import LocalGrid
from persfl.federation.row_stock import alone
from persfl.fleets.flower import Policy
from persfl.methods.blend.class_questions import ClassPool
from persfl.methods.mixed.class_home import Centres, ClassHome
from persfl.methods.mixed.class_newton import Bend, newton_centre
from persfl.methods.mixed.class_rule import class_rule
from persfl.runs import load_model
from persfl.types import Data
from persfl.wire import Terms, pack, unpack

TWO = {"loss": "logistic", "intercept": True}
MANY = {"loss": "multinomial", "intercept": True}


def nearly_all(home, told, place):
    """Shares of which one offer has nearly all."""
    shares = np.full(len(home.offers(told)), 1e-9)
    shares[place] += 1 - shares.sum()
    return shares


def rows_of(classes, n=5, seed=0):
    """Two kinds of devices."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(n), rng.integers(8, 14, n))
    X = rng.normal(size=(len(owner), 2))
    W = 2.0 * rng.normal(size=(2, 2, classes))
    score = np.einsum("rd,rdk->rk", X, W[owner % 2])
    y = (score + rng.gumbel(size=score.shape)).argmax(axis=1).astype(float)
    return Devices.grouped(X, y, owner, range(n))


def terms_of(rows, settings, classes):
    return Terms(columns=columns(rows), settings=settings, classes=classes, seed=5)


site_of = partial(blend_site, ClassSite)


def one_process(rows, terms, **more):
    same = {"seed": 5, "trees": False, "alike": False}
    return class_rule(rows, terms.learner(), classes=terms.classes, **same, **more)


# The same as in one process


@pytest.mark.parametrize(
    ("settings", "classes", "ordered"),
    [(TWO, 2, False), (MANY, 3, True), ({"loss": "logistic"}, 2, False)],
)
def test_the_same_models_as_in_one_process(settings, classes, ordered):
    rows = rows_of(classes)
    terms = terms_of(rows, settings, classes)
    site = site_of(rows, terms, ordered=ordered)
    found = site.blended()
    want = one_process(rows, terms, order=RowOrder(ordered=ordered))
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)
    np.testing.assert_allclose(found.shares, want.made_of, atol=1e-9)
    notes = found.trust.notes
    assert tuple(notes["offer_names"]) == want.names
    np.testing.assert_allclose(notes["offer_shares"], want.shares, atol=1e-9)
    # in which order a device is told of centres, and how likely each is
    (round_,) = found.rounds
    for i, peers in enumerate(round_.peers.tolist()):
        chance = [want.posterior[i, j] for j in peers if j >= 0]
        assert sorted(chance, reverse=True) == pytest.approx(chance)
    assert site.exchanges <= 35
    assert not site.notes
    assert not site.foldless


def test_two_devices_have_no_neighbours():
    rows = rows_of(2, n=2)
    terms = terms_of(rows, TWO, 2)
    found = site_of(rows, terms).blended()
    want = one_process(rows, terms)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)


def test_a_target_alone():
    rows = rows_of(2)
    terms = terms_of(rows, TWO, 2)
    found = site_of(rows, terms, targets=np.array([3])).blended()
    assert [model is not None for model in found.models] == [i == 3 for i in range(5)]
    want = one_process(rows, terms)
    np.testing.assert_allclose(found.models[3], want.models[3], atol=1e-9)


def test_a_run_that_was_cut_asks_nobody_twice():
    rows = rows_of(2)
    terms = terms_of(rows, TWO, 2)
    journal = Journal()
    whole = site_of(rows, terms, journal=journal)
    want = whole.blended().models
    again = site_of(rows, terms, journal=journal)
    np.testing.assert_array_equal(again.blended().models, want)
    assert again.letters.post.messages == 0


def test_from_end_to_end(tmp_path):
    rows = rows_of(3, n=3)
    homes = at_home(rows, Policy(rows=2))
    out = tmp_path / "run"
    asked = plan(out, homes, method="blend", settings=MANY, classes=3)
    conduct(LocalGrid(homes), asked)
    model = load_model(out)
    assert NO_ALIKE in model.notes_
    kept = homes["d00"].shelf.get("r1").model
    np.testing.assert_allclose(kept, model.models_[0])


# What is believed


def lying(who, change, key):
    """One device's replies that have this array become what `change` makes of them."""

    def tamper(name, reply):
        head, arrays = unpack(reply)
        if name != who or f"k0.{key}" not in arrays:
            return reply
        told = {each.removeprefix("k0."): array for each, array in arrays.items()}
        return pack(head, {f"k0.{each}": a for each, a in change(told).items()})

    return tamper


LIES = {
    "steep": ("slope", lambda told: told | {"slope": 1e9 + 0 * told["slope"]}),
    "bent": ("squares", lambda told: told | {"curve": -1.0 - told["curve"]}),
    "heavy": (
        "squares",
        lambda told: {key: 1e6 * array for key, array in told.items()},
    ),
    "absurd": ("models", lambda told: told | {"models": 1e5 + 0 * told["models"]}),
    "nothing": ("models", lambda told: told | {"models": np.nan * told["models"]}),
}


@pytest.mark.parametrize("lie", LIES)
def test_one_liar_leaves_everybody_else_a_good_model(lie):
    rows = rows_of(2, n=4)
    terms = terms_of(rows, TWO, 2)
    key, change = LIES[lie]
    site = site_of(rows, terms, tamper=lying("d03", change, key))
    found = site.blended().models
    learner = terms.learner()
    want = one_process(rows, terms).models
    for i in range(3):
        mine, honest = (learner.loss(each[i], rows[i]) for each in (found, want))
        assert mine <= 1.25 * honest + 0.05
    if lie in ("steep", "bent", "nothing"):
        assert "'d03' tells what no rows can have" in site.notes[0]
    if lie == "heavy":
        assert "far larger than usual" in site.notes[0]


def flat(told, columns=3):
    """As steep as rows may be, everywhere: no fleet's model is far enough."""
    weight = float(told["weight"][0])
    squares = np.append(10.0 * told["squares"][:-1], weight)
    steep = np.sqrt(weight * np.repeat(squares, 2)) * np.tile([0.99, -0.99], columns)
    slope = np.tile(steep, (len(told["slope"]), 1))
    return told | {"squares": squares, "slope": slope, "curve": 0 * told["curve"]}


def test_slopes_that_never_end_leave_everybody_a_model():
    rows = rows_of(2, n=3)
    terms = terms_of(rows, TWO, 2)
    site = site_of(rows, terms, tamper=lying("d02", flat, "squares"))
    found = site.blended().models
    learner = terms.learner()
    for i in range(2):
        assert learner.loss(found[i], rows[i]) < np.log(2)


@pytest.mark.parametrize("offer", [0, 1])
def test_one_device_alone_does_not_decide_on_shares(offer):
    rows = rows_of(2, n=3)
    terms = terms_of(rows, TWO, 2)

    def lie(told):
        slope = 0 * told["slope"]
        if "squares" in told:
            return told
        slope[offer] = 1e9
        return told | {"slope": slope, "curve": 0 * told["curve"]}

    found = site_of(rows, terms, tamper=lying("d02", lie, "slope")).blended().models
    learner = terms.learner()
    want = one_process(rows, terms).models
    for i in range(2):
        mine, honest = (learner.loss(each[i], rows[i]) for each in (found, want))
        assert mine <= 1.5 * honest + 0.05


def test_curvatures_beyond_rounding_are_no_error():
    slope = np.array([0.0, 0.0, 1e15, -1e15])
    curve = np.zeros((4, 4))
    curve[:2, :2] = 1e15  # beside which the prior of wide slopes is nothing

    def ask(models):
        return Bend(
            np.tile(slope, (len(models), 1)), np.tile(curve, (len(models), 1, 1))
        )

    models, slopes = newton_centre(ask, 2, 2, 2, level=False)
    assert np.isfinite(models).all()
    assert 0 < slopes < 1e6


def test_a_device_does_not_believe_shares_that_its_rows_contradict():
    rows = rows_of(2, n=3)
    own = ClassHome(
        alone(rows[0]),
        np.arange(rows[0].rows) % 5,
        classes=2,
        level=True,
        ordered=False,
    )
    spoilt = Centres(1.0, np.tile([[90.0, -90.0]], (6, 3, 1)), None)
    found = own.mixed(spoilt, nearly_all(own, spoilt, 0))
    assert (found.own == 1).all()
    assert np.abs(found.model).max() < 10


def test_a_device_looks_at_the_model_that_it_ends_with():
    """A neighbour may be honest without each hidden part, and lie in its model of all rows."""
    rows = rows_of(2, n=3)
    part = np.arange(rows[0].rows) % 5
    own = ClassHome(alone(rows[0]), part, classes=2, level=True, ordered=False)
    honest = own.free(1.0, np.zeros((6, 3, 2)))
    near = Centres(1.0, 0 * honest, honest)
    shares = nearly_all(own, near, -2)  # neighbours'
    lying = np.concatenate([-5 * honest[:1], honest[1:]])
    fair, spoilt = (
        own.mixed(Centres(1.0, 0 * honest, mean), shares) for mean in (honest, lying)
    )
    assert not (fair.own == 1).all()
    assert (spoilt.own == 1).all()
    learner = terms_of(rows, TWO, 2).learner()
    each = [
        learner.loss(one.model[:, 1] - one.model[:, 0], rows[0])
        for one in (fair, spoilt)
    ]
    assert each[1] <= 2 * each[0] + 0.1


def wide_rows(n, rows=20, columns=30):
    """More columns than rows."""
    rng = np.random.default_rng(1)
    slopes = 2.0 * rng.normal(size=columns) / np.sqrt(columns)
    X = rng.normal(size=(n * rows, columns))
    score = X @ slopes
    y = (score + rng.logistic(size=len(X)) > 0) + 0.0
    return Devices.grouped(X, y, np.arange(n * rows) % n, range(n))


def test_a_device_looks_where_its_own_rows_do_not_see():
    one = wide_rows(1)[0]
    own = ClassHome(
        alone(one), np.arange(one.rows) % 5, classes=2, level=True, ordered=False
    )
    honest = own.free(0.003, np.zeros((6, 31, 2)))
    shares = nearly_all(own, Centres(1.0, honest, None), 0)
    unseen = np.append(np.linalg.svd(one.X)[2][-1], 0.0)
    lying = honest.copy()
    lying[0] += 9.0 * unseen[:, None] * np.array([1.0, -1.0])
    # hidden rows are judged by models that are as good as any
    fair, spoilt = (
        own.mixed(Centres(1.0, fleet, None), shares) for fleet in (honest, lying)
    )
    assert not (fair.own == 1).all()
    assert (spoilt.own == 1).all()


def test_no_liar_makes_models_of_few_rows_surer_than_they_can_be():
    """Slopes of any size fit few rows of many columns; hidden ones hardly judge the largest."""
    rows, fresh = wide_rows(4), wide_rows(4, rows=400)
    terms = terms_of(rows, TWO, 2)
    liar = lying("d03", lambda told: flat(told, rows.features + 1), "squares")
    found = site_of(rows, terms, tamper=liar).blended().models
    learner = terms.learner()
    for i in range(3):
        assert learner.loss(found[i], fresh[i]) < 1.5 * np.log(2)


def test_who_falls_silent_ends_no_run():
    rows = rows_of(2)
    terms = terms_of(rows, TWO, 2)
    seen = [0]

    def tamper(name, reply):
        seen[0] += name == "d02"
        return None if name == "d02" and seen[0] > 5 else reply

    found = site_of(rows, terms, tamper=tamper).blended().models
    assert [model is None for model in found] == [i == 2 for i in range(5)]


def test_no_question_singles_out_the_only_row_of_a_class():
    rng = np.random.default_rng(3)
    labels = np.append(np.zeros(11), 1.0)
    rows = Devices.grouped(rng.normal(size=(12, 2)), labels, np.zeros(12, int), [0])
    homes = at_home(rows, Policy(rows=3))
    site = site_of(rows, terms_of(rows, TWO, 2), homes=homes)
    offers = site.family.offers(near=False)
    even = {"slopes": 1.0, "shares": np.full(offers, 1 / offers)}
    asked = [
        ClassPool(fleet=np.ones((6, 6)), design=design, **even) for design in (1.0, 0.5)
    ]
    first, second = (site.ask([Letter(0, each)])[0] for each in asked)
    assert first
    for name, told in first.items():
        np.testing.assert_array_equal(told, second[name])


def test_who_tells_no_sums_is_left_out_and_has_a_model():
    rows = rows_of(2)
    terms = terms_of(rows, TWO, 2)
    homes = at_home(rows)
    homes["d01"].policy = replace(OPEN, sums=False)
    found = site_of(rows, terms, homes=homes).blended().models
    assert all(model is not None for model in found)
    shut = at_home(rows, replace(OPEN, sums=False))
    pooling = site_of(rows, terms, homes=shut)
    offers = pooling.family.offers(near=False)
    question = ClassPool(
        slopes=1.0,
        fleet=np.zeros((6, 6)),
        design=1.0,
        shares=np.full(offers, 1 / offers),
    )
    assert pooling.ask([Letter(0, question)]) == [{}]
    with pytest.raises(InputError, match="no device tells sums over its rows"):
        site_of(rows, terms, homes=shut).blended()


def test_units_that_a_liar_has_spoilt_do_not_hide_what_own_rows_say():
    """In columns 50 times as small, own models by a usual prior were as bad as the fleet's."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = (X @ [3.0, -2.0] + 0.5 * rng.logistic(size=40) > 0) + 0.0
    part = np.arange(40) % 5
    learner = Terms(columns=("a", "b"), settings=TWO, classes=2).learner()
    losses = []
    for size in (1.0, 0.02):
        one = Data(size * X, y)
        own = ClassHome(alone(one), part, classes=2, level=True, ordered=False)
        nobody = Centres(1.0, np.zeros((6, 3, 2)), None)
        found = own.mixed(nobody, nearly_all(own, nobody, 1))  # even chances
        model = found.model[:, 1] - found.model[:, 0]
        losses.append(float(learner.loss(model, one)))
    assert losses[1] <= 1.5 * losses[0] < 0.5 * np.log(2)
