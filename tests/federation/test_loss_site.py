"""Blend of counts and robust losses over a federation: the models of one process, few exchanges,
and nothing believed that no rows can be behind.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr")

from federated import OPEN, at_home, blend_site, columns, plan

from persfl import Data, Devices, Linear
from persfl.errors import InputError
from persfl.evaluation.row_order import RowOrder
from persfl.federation.blend_exchange import Letter
from persfl.federation.blend_journal import Journal
from persfl.federation.blend_run import BY_QUESTIONS
from persfl.federation.conduct import conduct
from persfl.federation.letters import Limited
from persfl.federation.local_grid import LocalGrid
from persfl.federation.loss_look import HandedModel, kept_model
from persfl.federation.loss_site import LossSite
from persfl.federation.privacy_settings import PrivacySettings
from persfl.federation.sums_site import NO_TREES
from persfl.federation.told_terms import tells_losses
from persfl.fleets.flower import Device, Policy, Rows
from persfl.methods.blend.loss_questions import LossPlaces, LossShares
from persfl.methods.mixed.hidden_rows import HiddenRows, folds_of
from persfl.methods.mixed.linear_stage import models_of
from persfl.methods.mixed.loss_rule import loss_blend
from persfl.runs import load_model
from persfl.wire import Terms, nested, pack, unpack

COUNTS = {"loss": "poisson", "intercept": True}
HUBER = {"loss": "huber", "delta": 0.3, "intercept": True}
ABSOLUTE = {"loss": "absolute", "intercept": True}


def rows_of(settings, n=4, seed=0):
    """Two kinds of devices; of robust losses some labels are ruined."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(n), rng.integers(10, 14, n))
    X = rng.normal(size=(len(owner), 2))
    slopes = np.array([[0.8, -0.6], [-0.8, 0.6]])[owner % 2]
    score = 0.5 + (X * slopes).sum(axis=1)
    if settings["loss"] == "poisson":
        y = rng.poisson(np.exp(score)) + 0.0
    else:
        y = score + 0.3 * rng.normal(size=len(score))
        y[rng.uniform(size=len(y)) < 0.1] += 20.0
    return Devices.grouped(X, y, owner, range(n))


def terms_of(rows, settings):
    return Terms(columns=columns(rows), settings=settings, seed=5)


site_of = partial(blend_site, LossSite)


def one_process(rows, terms, **more):
    return loss_blend(rows, terms.learner(), seed=5, trees=False, **more)


# The same as in one process


@pytest.mark.parametrize(
    ("settings", "ordered"),
    [
        (COUNTS, False),
        (HUBER, False),
        (ABSOLUTE, False),
        ({"loss": "poisson", "intercept": False}, False),
        ({"loss": "huber", "intercept": False}, True),
    ],
    ids=["poisson", "huber", "absolute", "no level", "ordered, no level"],
)
def test_the_same_models_as_in_one_process(settings, ordered):
    rows = rows_of(settings)
    terms = terms_of(rows, settings)
    site = site_of(rows, terms, ordered=ordered)
    found = site.blended()
    want = one_process(rows, terms, order=RowOrder(ordered=ordered))
    models = models_of(want, terms.learner().intercept)
    np.testing.assert_allclose(np.stack(found.models), models, atol=1e-9)
    np.testing.assert_allclose(found.shares, want.made_of, atol=1e-9)
    notes = found.trust.notes
    np.testing.assert_allclose(notes["offer_shares"], want.shares, atol=1e-9)
    np.testing.assert_allclose(found.rounds[0].loss, want.fleet_error, atol=1e-9)
    assert site.exchanges <= 35
    assert not site.notes
    assert not site.foldless


def test_two_devices():
    rows = rows_of(COUNTS, n=2)
    terms = terms_of(rows, COUNTS)
    found = site_of(rows, terms).blended()
    want = models_of(one_process(rows, terms), True)
    np.testing.assert_allclose(np.stack(found.models), want, atol=1e-9)


def test_a_target_alone():
    rows = rows_of(COUNTS)
    terms = terms_of(rows, COUNTS)
    found = site_of(rows, terms, targets=np.array([3])).blended()
    assert [model is not None for model in found.models] == [i == 3 for i in range(4)]
    want = models_of(one_process(rows, terms), True)
    np.testing.assert_allclose(found.models[3], want[3], atol=1e-9)


class Cut(Exception):
    """The coordinator's machine stops."""


@pytest.mark.parametrize("settings", [COUNTS, HUBER], ids=["poisson", "huber"])
def test_a_run_that_was_cut_goes_on_and_ends_the_same(settings):
    rows = rows_of(settings, n=3)
    terms = terms_of(rows, settings)
    want = site_of(rows, terms).blended().models
    journal = Journal()
    seen = [0]

    def tamper(name, reply):
        seen[0] += 1
        if seen[0] == 3 * 8 + 1:
            raise Cut
        return reply

    with pytest.raises(Cut):
        site_of(rows, terms, journal=journal, tamper=tamper).blended()
    again = site_of(rows, terms, journal=journal)
    np.testing.assert_array_equal(again.blended().models, want)
    assert again.letters.post.messages == 3 * (again.exchanges - 8)


def test_from_end_to_end(tmp_path):
    rows = rows_of(COUNTS, n=3)
    homes = at_home(rows, Policy(rows=2))
    out = tmp_path / "run"
    conduct(LocalGrid(homes), plan(out, homes, method="blend", settings=COUNTS))
    model = load_model(out)
    assert NO_TREES in model.notes_
    assert BY_QUESTIONS not in model.notes_
    assert model.worth_ is not None
    kept = homes["d00"].shelf.get("r1").model
    np.testing.assert_allclose(kept, model.models_[0])


def test_many_columns_are_blended_by_questions():
    few, many = (
        Terms(columns=tuple(map(str, range(d))), settings=COUNTS) for d in (49, 50)
    )
    assert tells_losses(few)
    assert not tells_losses(many)
    assert not tells_losses(replace(few, settings={"intercept": True}))


# What is believed


def lying(who, change, key="square"):
    """One device's replies that have this array become what `change` makes of them."""

    def tamper(name, reply):
        head, arrays = unpack(reply)
        if name != who or f"k0.{key}" not in arrays:
            return reply
        told = {each.removeprefix("k0."): array for each, array in arrays.items()}
        return pack(head, {f"k0.{each}": a for each, a in change(told).items()})

    return tamper


def heavy(told):
    return {k: a if k == "part" else 1e6 * a for k, a in told.items()}


LIES = {
    "bent": lambda told: told | {"square": -told["square"]},
    "far": lambda told: told | {"label": 1e-9 * told["label"]},
    "nothing": lambda told: told | {"product": np.nan * told["product"]},
    "short": lambda told: told | {"weight": told["weight"][:0]},
    "more without a part": lambda told: (
        told | {"weight": np.append(told["weight"][:1], 3 * told["weight"][1:])}
    ),
    "heavy": heavy,
    "pulled": lambda told: told | {"product": -told["product"]},
    "steep": lambda told: (
        told | {"product": 30 * told["product"], "label": 1e3 * told["label"]}
    ),
}


def worse(found, rows, terms, many):
    """What the first devices lose on their rows, more than where nobody lies."""
    learner = terms.learner()
    want = models_of(one_process(rows, terms), True)
    return max(
        learner.loss(found[i], rows[i]) - learner.loss(want[i], rows[i])
        for i in range(many)
    )


@pytest.mark.parametrize(
    ("settings", "lie"),
    [*((COUNTS, lie) for lie in LIES), (HUBER, "pulled"), (HUBER, "heavy")],
)
def test_one_liar_leaves_everybody_else_a_good_model(settings, lie):
    rows = rows_of(settings, n=4)
    terms = terms_of(rows, settings)
    site = site_of(rows, terms, tamper=lying("d03", LIES[lie]))
    found = site.blended().models
    # of counts a device may lose twice what its own rows alone do
    most = 1.5 if lie == "pulled" else 0.4
    assert worse(found, rows, terms, 3) < most
    if lie in ("bent", "far", "nothing", "short", "more without a part"):
        assert "'d03' tells what no rows can have" in site.notes[0]
    if lie == "heavy":
        assert "far larger than usual" in site.notes[0]


def test_a_device_keeps_a_model_of_its_own_where_a_liar_spoils_what_it_is_handed():
    """No row is further from its score than a cut allows, but many may be as far: absolute loss."""
    rows = rows_of(ABSOLUTE, n=4)
    terms = terms_of(rows, ABSOLUTE)
    site = site_of(rows, terms, tamper=lying("d03", LIES["steep"]))
    found = site.blended()
    assert worse(found.models, rows, terms, 3) < 0.1
    assert "of own rows alone, whatever shares say" in site.notes[-1]
    assert (found.shares[:, 0] == 1).any()


@pytest.mark.parametrize(
    ("settings", "offer"), [(COUNTS, 0), (COUNTS, 4), (HUBER, 0), (ABSOLUTE, 0)]
)
def test_one_device_alone_does_not_decide_on_shares(settings, offer):
    rows = rows_of(settings, n=4)
    terms = terms_of(rows, settings)

    def lie(told):
        """Every offer but one is as far away as may be."""
        if "part" in told:
            return told
        square = np.zeros((5, 5))
        others = np.arange(5) != offer
        square[others, others] = 1e12
        upper = np.triu_indices(5)
        return told | {"square": square[upper][None], "product": 0 * told["product"]}

    found = site_of(rows, terms, tamper=lying("d03", lie)).blended().models
    assert worse(found, rows, terms, 3) < 0.5


@pytest.mark.parametrize("settings", [COUNTS, HUBER, ABSOLUTE])
def test_a_device_looks_where_its_own_rows_do_not_see(settings):
    """With more columns than rows a model may fit all of them and say anything of others."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20, 25))
    slopes = 0.2 * rng.normal(size=25)
    y = X @ slopes
    rows = Data(X, rng.poisson(np.exp(y)) + 0.0 if settings is COUNTS else y)
    part = np.arange(20) % 5
    hidden = HiddenRows(part, folds_of(np.arange(5), ordered=False))
    learner = Linear(settings["loss"], intercept=True)
    honest = np.append(slopes, 0.0)
    folds = honest + 0.02 * rng.normal(size=(5, 26))
    unseen = np.append(np.linalg.svd(X)[2][-1], 0.0)
    spoilt = folds + 5.0 * rng.normal(size=26)
    each = {
        "honest": HandedModel(honest, folds),
        "where no row is": HandedModel(honest + 5.0 * unseen, folds),
        "on hidden rows": HandedModel(honest, spoilt),
    }
    own = [kept_model(learner, rows, hidden, one).own for one in each.values()]
    assert own == [False, True, True]


def test_who_falls_silent_ends_no_run():
    rows = rows_of(COUNTS)
    terms = terms_of(rows, COUNTS)
    seen = [0]

    def tamper(name, reply):
        seen[0] += name == "d02"
        return None if name == "d02" and seen[0] > 5 else reply

    found = site_of(rows, terms, tamper=tamper).blended()
    assert [model is None for model in found.models] == [i == 2 for i in range(4)]
    (round_,) = found.rounds
    assert not (round_.choice.peers == 2).any()


def test_who_tells_no_sums_is_left_out_and_has_a_model():
    rows = rows_of(COUNTS)
    terms = terms_of(rows, COUNTS)
    homes = at_home(rows)
    homes["d01"].policy = replace(OPEN, sums=False)
    found = site_of(rows, terms, homes=homes).blended().models
    assert np.isfinite(np.stack(found)).all()
    shut = site_of(rows, terms, homes=at_home(rows, replace(OPEN, sums=False)))
    assert shut.ask([Letter(0, hidden())]) == [{}]
    with pytest.raises(InputError, match="no device tells sums over its rows"):
        shut.blended()


# What a device tells


def hidden():
    every = np.full(5, 0.2)
    return LossShares(models=np.zeros((5, 5, 3)), shares=every, reach=0.0)


def places(**changed):
    usual = {
        "many": 1,
        "copies": np.zeros(1),
        "starts": np.zeros((1, 3)),
        "ends": np.ones((1, 3)),
        "reach": np.zeros(1),
    }
    return LossPlaces(**usual | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"copies": np.array([6.0])},
        {"copies": np.array([0.5])},
        {"reach": np.ones(1) * 900},
    ],
)
def test_what_is_no_question_is_not_answered(changed):
    rows = rows_of(COUNTS, n=2)
    site = site_of(rows, terms_of(rows, COUNTS))
    good, bad = site.ask([Letter(0, places()), Letter(0, places(**changed))])
    assert good
    assert not bad


def test_no_part_of_fewer_rows_than_its_owner_wants_is_told_apart():
    rows = rows_of(COUNTS, n=1)
    few = at_home(rows, Policy(rows=rows[0].rows // 2 + 1))
    site = site_of(rows, terms_of(rows, COUNTS), homes=few)
    told = [
        site.ask([Letter(0, places(copies=np.array([float(k)])))])[0] for k in range(6)
    ]
    for each in told[1:]:  # nothing is hidden
        np.testing.assert_array_equal(each["square"], told[0]["square"])
    assert site.ask([Letter(0, hidden())])[0]["weight"].tolist() == [0.0]


def test_how_far_it_went_tells_little_of_the_row_that_went_furthest():
    rows = rows_of(COUNTS, n=1)
    site = site_of(rows, terms_of(rows, COUNTS))
    far = [places(ends=size * np.ones((1, 3))) for size in (5.0, 5.1)]
    parts = [site.ask([Letter(0, one)])[0]["part"].item() for one in far]
    assert parts[0] == parts[1] == 2.0 ** round(np.log2(parts[0]))


def test_the_ledger_counts_every_number():
    rows = rows_of(COUNTS, n=1)
    homes = at_home(rows)
    site = site_of(rows, terms_of(rows, COUNTS), homes=homes)
    assert site.ask([Letter(0, places()), Letter(0, hidden())]) != [{}, {}]
    told = (6 + 3 + 4) + (15 + 5 + 3)  # sums of 3 columns, and of 5 offers
    assert homes["d00"].ledger.counts("run", "").numbers == told
    few = at_home(rows, replace(OPEN, numbers=12))
    scarce = site_of(rows, terms_of(rows, COUNTS), homes=few)
    with pytest.raises(Limited, match="owner's limit 'numbers'"):
        scarce.ask([Letter(0, places())])


def test_who_wants_no_model_is_handed_none():
    rows = rows_of(COUNTS, n=3)
    homes = at_home(rows)
    homes["d01"].policy = replace(OPEN, target=False)
    found = site_of(rows, terms_of(rows, COUNTS), homes=homes).blended().models
    assert [model is None for model in found] == [False, True, False]


def test_a_protected_device_refuses_by_its_owner_s_word():
    rows = rows_of(COUNTS, n=3)
    homes = at_home(rows)
    ranges = {"x0": [-4, 4], "x1": [-4, 4]}
    told = PrivacySettings(epsilon=3.0, ranges=ranges, label=(0.0, 30.0))
    homes["d01"] = at_home(rows, privacy=told)["d01"]
    site = site_of(rows, terms_of(rows, COUNTS), homes=homes)
    found = site.blended().models
    assert [model is None for model in found] == [False, True, False]
    assert site.roster.counts["d01"]["refused"] > 0


def working_sums(one, loss, starts, ends, reach):
    """What is told of working rows at these models, in one question."""
    many = len(starts)
    arrays = {"copies": np.zeros(many), "starts": starts, "ends": ends}
    question = {"what": "places", "ordered": False, "many": many}
    asked = Terms(columns=("a", "b", "c"), settings={"intercept": True, "loss": loss})
    told, more = asked.to_wire()
    head = {"run": "r", "round": 0, "ask": 1, "me": 0, "asks": [question], **told}
    arrays = nested("k0", arrays | {"reach": np.full(many, reach)})
    head, found = unpack(one.reply("blend", pack(head, more | arrays)))
    assert head["codes"] == ["ok"]
    return found


def test_a_blend_of_other_losses_tells_single_numbers_as_docs_say():
    """Six questions a label, by how many rows are near; eight the largest value, by how far the
    device goes.
    """
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(24, 3)), rng.normal(size=24)
    one = Device("ann", Rows(["a", "b", "c"], Data(X, y)))
    low, high = -5.0, 5.0
    for _ in range(6):
        grid = np.linspace(low, high, 64)
        reach = (grid[1] - grid[0]) * 0.51
        at = np.column_stack([grid, np.zeros((64, 3))])
        near = working_sums(one, "huber", at, at, reach)["k0.near"]
        first = grid[np.flatnonzero(near > 0)[0]]
        low, high = first - reach, first + reach
    assert np.abs(y - (low + high) / 2).min() < 1e-9
    one = Device("ann", Rows(["a", "b", "c"], Data(X, np.arange(24.0))))
    low, high = 0.0, 1e3
    for _ in range(8):
        far = np.linspace(low, high, 64)
        ends = np.zeros((64, 4))
        ends[:, 1] = far
        part = working_sums(one, "poisson", np.zeros((64, 4)), ends, -9.0)["k0.part"]
        last = int((part == 1).sum()) - 1
        low, high = far[last], far[last + 1]
    assert abs(2.0 / low - np.abs(X[:, 0]).max()) < 1e-9
