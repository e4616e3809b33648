"""Blend of linear models under squared loss over a federation: one exchange of sums, the models of
one process, and nothing believed that no rows can be behind.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from federated import OPEN, Direct, at_home, columns, names, plan, post

from persfl import Devices
from persfl.errors import InputError
from persfl.federation.blend_exchange import BlendScene
from persfl.federation.blend_journal import Journal
from persfl.federation.blend_run import BY_QUESTIONS
from persfl.federation.conduct import conduct
from persfl.federation.fleet import Away
from persfl.federation.letters import Letters, Limited
from persfl.federation.local_grid import LocalGrid
from persfl.federation.mixed_site import MixedSite
from persfl.federation.sums_site import NO_TREES, SumsSite
from persfl.federation.told_sums import MANY, SumsFamily, counting, is_of_rows
from persfl.fleets.flower import Device, Policy, Rows
from persfl.learners import Linear
from persfl.methods.blend import blend
from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.hidden_rows import NEVER, PARTS, dealt
from persfl.methods.mixed.linear_rule import linear_blend
from persfl.methods.mixed.reml import mixed_fit
from persfl.runs import load_model
from persfl.sources import clustered_regression
from persfl.types import Data
from persfl.wire import Terms, pack, unpack

DEVICES = clustered_regression(
    n=7, clusters=2, rows=(6, 12), features=2, noise=0.3, seed=1
)
LINEAR = Terms(columns=columns(DEVICES), seed=5)


def site_of(devices, terms=LINEAR, *, policy=OPEN, through=None, tamper=None, **more):
    through = through or Direct(
        at_home(devices, policy), tamper or (lambda name, reply: reply)
    )
    letters = Letters(through, terms, run="run", home={}, deadline=5.0)
    everyone = np.arange(len(devices))
    usual = {"targets": everyone, "seed": terms.seed, "patience": 0.0}
    return SumsSite(letters, BlendScene(ids=names(len(devices)), **usual | more))


def lying(who, change):
    """One device's sums become what `change` makes of them."""

    def tamper(name, reply):
        head, arrays = unpack(reply)
        if name != who or "k0.square" not in arrays:
            return reply
        told = {key.removeprefix("k0."): array for key, array in arrays.items()}
        return pack(head, {f"k0.{key}": array for key, array in change(told).items()})

    return tamper


def mixed_models(out):
    """What a run of `mixed` gave."""
    return np.stack(load_model(out).models_)


@pytest.mark.parametrize("effects", ["diagonal", "full", "intercept"])
def test_a_mixed_model_is_that_of_one_process(effects, tmp_path):
    homes = at_home(DEVICES)
    told = {"method": "mixed", "method_settings": {"effects": effects}}
    same = {"units": "raw", "holdout": 0.0}
    settings = {"intercept": True}
    out = tmp_path / "run"
    conduct(LocalGrid(homes), plan(out, homes, settings=settings, **told, **same))
    want = mixed_fit(Linear(intercept=True), DEVICES, effects).models
    np.testing.assert_allclose(mixed_models(out), want, atol=1e-6)


@pytest.mark.parametrize("effects", ["diagonal", "full", "intercept"])
@pytest.mark.parametrize("telling", [0, 3])
def test_owners_who_allow_no_sums_answer_refits_to_the_same_model(
    effects, telling, tmp_path
):
    """Columns of very different size, so that units matter; some tell sums, or nobody does."""
    fleet = clustered_regression(
        n=9, clusters=1, rows=(6, 12), features=2, deviation=0.7, noise=0.3, seed=1
    )
    levels = np.random.default_rng(3).normal(size=9)
    scale = np.array([300.0, 0.01])
    rows = [
        Data(
            fleet[i].X * scale, 50.0 + 20.0 * (fleet[i].y + levels[i]), fleet[i].weight
        )
        for i in range(9)
    ]
    wide = Devices.of(rows, quiet=True)
    homes = at_home(wide)
    for name in names(9)[telling:]:
        homes[name].policy = replace(OPEN, sums=False)
    told = {"method": "mixed", "method_settings": {"effects": effects}}
    same = {"units": "raw", "holdout": 0.0, "settings": {"intercept": True}}
    out = tmp_path / "run"
    conduct(LocalGrid(homes), plan(out, homes, **told, **same))
    want = mixed_fit(Linear(intercept=True), wide, effects).models
    size = np.array([1.0 / 300.0, 100.0, 1.0]) * 20.0
    np.testing.assert_allclose(mixed_models(out) / size, want / size, atol=1e-6)
    notes = load_model(out).notes_
    assert any("sums, and answered refits instead" in note for note in notes)


def test_whose_refits_no_rows_have_is_left_out():
    """Nobody tells sums; two of seven lie, one of them from the third look on."""
    homes = at_home(DEVICES, replace(OPEN, sums=False))
    looks = dict.fromkeys(names(7), 0)

    def tamper(name, reply):
        head, arrays = unpack(reply)
        if "k0.models" not in arrays:
            return reply
        looks[name] += 1
        if name == "d01" or (name == "d02" and looks[name] > 2):
            models = arrays["k0.models"]
            arrays = dict(arrays) | {
                "k0.models": models[0] - 3.0 * (models - models[0])
            }
        return pack(head, arrays)

    letters = Letters(Direct(homes, tamper), LINEAR, run="run", home={}, deadline=5.0)
    everyone = {"ids": names(7), "targets": np.arange(7)}
    site = MixedSite(letters, BlendScene(**everyone, seed=5, patience=0.0), "diagonal")
    found = np.stack(site.blended().models)
    honest = [0, 3, 4, 5, 6]
    rest = Devices.of([DEVICES[i] for i in honest], quiet=True)
    want = mixed_fit(LINEAR.learner(), rest, "diagonal")
    np.testing.assert_allclose(found[honest], want.models, atol=1e-6)
    np.testing.assert_allclose(found[1], want.common, atol=1e-6)
    assert any("'d01'" in note and "left out" in note for note in site.notes)


def test_a_refit_beyond_anything_takes_nobody_else_along():
    """The others followed it to 1e15, and one that told the truth was left out as a liar."""
    three = Devices.of([DEVICES[i] for i in range(3)], quiet=True)
    homes = at_home(three, replace(OPEN, sums=False))
    homes["d01"].policy = OPEN

    def tamper(name, reply):
        head, arrays = unpack(reply)
        if name == "d02" and "k0.models" in arrays:
            arrays = {key: array * 0.0 + 1e15 for key, array in arrays.items()}
        return pack(head, arrays)

    letters = Letters(Direct(homes, tamper), LINEAR, run="run", home={}, deadline=5.0)
    everyone = {"ids": names(3), "targets": np.arange(3)}
    site = MixedSite(letters, BlendScene(**everyone, seed=5, patience=0.0), "diagonal")
    found = np.stack(site.blended().models)
    rest = Devices.of([DEVICES[i] for i in range(2)], quiet=True)
    want = mixed_fit(LINEAR.learner(), rest, "diagonal").models
    np.testing.assert_allclose(found[:2], want, atol=1e-6)


@pytest.mark.parametrize("silent_from", [0, 2])
def test_who_tells_no_sums_and_answers_no_refits_ends_no_run(silent_from):
    """One with too few rows to be asked anything; or one that falls silent."""
    homes = at_home(DEVICES)
    homes["d01"].policy = replace(OPEN, sums=False)
    seen = [0]

    def tamper(name, reply):
        seen[0] += name == "d01"
        return None if name == "d01" and seen[0] > silent_from else reply

    letters = Letters(Direct(homes, tamper), LINEAR, run="run", home={}, deadline=5.0)
    everyone = {"ids": names(7), "targets": np.arange(7)}
    site = MixedSite(letters, BlendScene(**everyone, seed=5, patience=0.0), "diagonal")
    found = site.blended().models
    rest = [0, 2, 3, 4, 5, 6]
    want = mixed_fit(
        LINEAR.learner(),
        Devices.of([DEVICES[i] for i in rest], quiet=True),
        "diagonal",
    )
    np.testing.assert_allclose(
        np.stack([found[i] for i in rest]), want.models, atol=1e-6
    )
    assert any("'d01'" in note and "left out" in note for note in site.notes)


def test_nobody_tells_sums_or_answers_refits():
    def tamper(name, reply):
        head, arrays = unpack(reply)
        return pack(head, {k: v for k, v in arrays.items() if not k.startswith("k0.")})

    homes = at_home(DEVICES, replace(OPEN, sums=False))
    letters = Letters(Direct(homes, tamper), LINEAR, run="run", home={}, deadline=5.0)
    everyone = {"ids": names(7), "targets": np.arange(7)}
    site = MixedSite(letters, BlendScene(**everyone, seed=5, patience=0.0), "full")
    with pytest.raises(InputError, match="or answers refits, which mixed models are"):
        site.blended()


def test_a_mixed_model_of_classes_is_refused_in_a_sentence(tmp_path):
    homes = at_home(DEVICES)
    asked = plan(tmp_path / "run", homes, method="mixed", settings={"loss": "huber"})
    with pytest.raises(InputError, match="mixed over a federation is for linear mod"):
        conduct(LocalGrid(homes), asked)


def test_a_liar_of_two_ends_no_mixed_model():
    """The other one has the least squares of its rows."""
    two = Devices.of([DEVICES[0], DEVICES[1]], quiet=True)
    through = Direct(at_home(two), lying("d01", REFUSED["zeros"]))
    letters = Letters(through, LINEAR, run="run", home={}, deadline=5.0)
    everyone = {"ids": names(2), "targets": np.arange(2)}
    scene = BlendScene(**everyone, seed=5, patience=0.0)
    site = MixedSite(letters, scene, "diagonal")
    X = np.column_stack([two[0].X, np.ones(len(two[0].y))])
    want = np.linalg.lstsq(X, two[0].y)[0]
    np.testing.assert_allclose(site.blended().models[0], want, atol=1e-9)
    assert "'d01' tells sums that no rows have" in site.notes[0]


# The same as in one process


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_same_models_as_in_one_process(intercept, ordered):
    terms = replace(LINEAR, settings={"intercept": intercept})
    site = site_of(DEVICES, terms, ordered=ordered)
    found = site.blended()
    want = blend(DEVICES, terms.learner(), seed=5, ordered=ordered)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)
    np.testing.assert_allclose(found.shares, want.shares, atol=1e-9)
    for ours, theirs in zip(found.rounds, want.rounds, strict=True):
        np.testing.assert_array_equal(ours.peers, theirs.peers)
        np.testing.assert_allclose(ours.losses, theirs.losses, atol=1e-9)
    # one message with sums from each device, one with its model to each
    assert site.exchanges == 2
    assert site.letters.post.messages == 14
    assert not site.notes
    assert not site.foldless


def test_what_goes_on_is_told_over_a_federation_too():
    """Levels that walk far: nobody is better off with own rows alone."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(7, 20, 2))
    y = X @ [1.0, -1.0] + rng.normal(size=(7, 20)).cumsum(axis=1)
    walking = Devices.of(list(zip(X, y, strict=True)), quiet=True)
    site = site_of(walking, ordered=True)
    found = site.blended()
    want = blend(walking, LINEAR.learner(), seed=5, ordered=True)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)
    assert not site.notes


def test_a_run_takes_few_messages_and_bytes():
    """By refits it was 170 messages and 1.5 MB."""
    devices = clustered_regression(
        n=5, clusters=2, rows=20, features=20, noise=0.1, seed=0
    )
    sizes = []

    def tamper(name, reply):
        sizes.append(len(reply))
        return reply

    terms = Terms(columns=columns(devices), seed=5)
    site = site_of(devices, terms, policy=Policy(), tamper=tamper)
    real = site.letters.exchange

    def exchange(letters):
        sizes.extend(len(body) for _, body in letters.values())
        return real(letters)

    site.letters.exchange = exchange
    site.blended()
    assert site.letters.post.messages == 10
    assert sum(sizes) < 72_000


def test_units_and_weights_too():
    weights = np.linspace(0.5, 2.0, len(DEVICES.y))
    weighted = Devices(DEVICES.X, DEVICES.y, weights, DEVICES.start, DEVICES.ids)
    units = {"mean": np.full(2, 0.3), "scale": np.full(2, 1.5)}
    terms = replace(LINEAR, **units, label_mean=1.0, label_scale=3.0)
    found = site_of(weighted, terms).blended()
    each = [terms.inside(weighted[i]) for i in range(7)]
    inside = Devices.of([(d.X, d.y) for d in each], quiet=True)
    inside = Devices(inside.X, inside.y, weights, inside.start, inside.ids)
    want = blend(inside, terms.learner(), seed=5)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)


def test_many_columns_take_the_same_principal_axes(monkeypatch):
    monkeypatch.setattr("persfl.methods.mixed.principal_axes.WIDE", 4)
    wide = clustered_regression(n=3, clusters=1, rows=30, features=7, noise=0.3, seed=1)
    terms = Terms(columns=columns(wide), seed=5)
    found = site_of(wide, terms).blended()
    want = blend(wide, terms.learner(), seed=5)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-7)


def test_real_messages():
    some = Devices.of([DEVICES[i] for i in range(4)])
    found = site_of(some, through=post(at_home(some))).blended()
    want = blend(some, LINEAR.learner(), seed=5)
    np.testing.assert_allclose(np.stack(found.models), want.models, atol=1e-9)


def test_a_target_alone():
    found = site_of(DEVICES, targets=np.array([3])).blended()
    assert [model is not None for model in found.models] == [i == 3 for i in range(7)]
    want = blend(DEVICES, LINEAR.learner(), seed=5)
    np.testing.assert_allclose(found.models[3], want.models[3], atol=1e-9)
    assert found.shares[[0, 1, 2, 4]].sum() == 0


def test_from_end_to_end(tmp_path):
    out = tmp_path / "run"
    homes = at_home(DEVICES, Policy(rows=2))
    conduct(LocalGrid(homes), plan(out, homes, method="blend"))
    model = load_model(out)
    assert NO_TREES in model.notes_
    assert model.worth_ is not None
    kept = homes["d00"].shelf.get("r1").model
    np.testing.assert_allclose(kept, model.models_[0])
    again = tmp_path / "again"
    conduct(LocalGrid(homes), plan(again, homes, method="blend", run="r2"))
    np.testing.assert_array_equal(load_model(again).models_, model.models_)
    settings = {"trees": False}
    other = plan(
        tmp_path / "plain",
        homes,
        method="blend",
        run="r3",
        method_settings=settings,
    )
    conduct(LocalGrid(homes), other)
    notes = load_model(tmp_path / "plain").notes_
    assert NO_TREES not in notes
    assert BY_QUESTIONS not in notes


def test_wide_models_of_other_losses_say_that_their_rule_is_an_earlier_one(tmp_path):
    out = tmp_path / "run"
    fleet = clustered_regression(n=3, clusters=1, rows=8, features=51, seed=1)
    homes = at_home(fleet, Policy(rows=2))
    settings = {"loss": "huber"}
    few = {"budget": 1}
    asked = plan(out, homes, method="blend", settings=settings, method_settings=few)
    conduct(LocalGrid(homes), asked)
    assert BY_QUESTIONS in load_model(out).notes_


# What a device tells


def one_device(policy, rows=24):
    X = np.linspace(-1.0, 1.0, rows)[:, None]
    data = Data(X, np.arange(rows) + 0.0)
    return Device("ann", Rows(["x0"], data), policy=policy)


ONE = Terms(columns=("x0",))


def asked_of(device, asks, arrays=None, terms=ONE):
    """Codes and arrays that a device answers these questions with."""
    letters = Letters(None, terms, run="run", home={}, deadline=1.0)
    letter = letters.letter(0, 0, {"asks": asks}, arrays or {})
    head, told = unpack(device.reply("blend", letter))
    return head["codes"], told


@pytest.mark.parametrize(
    ("rows", "weights"),
    [(24, [5, 5, 5, 5, 4]), (19, [7, 6, 6]), (9, [9]), (8, [8])],
)
def test_every_part_has_as_many_rows_as_the_owner_wants(rows, weights):
    least = 4 if rows == 24 else 5
    device = one_device(Policy(rows=least), rows)
    codes, told = asked_of(device, [{"what": "parts"}])
    assert codes == ["ok"]
    weight = told["k0.weight"]
    assert sorted(weight[weight > 0].tolist(), reverse=True) == weights
    assert (weight[NEVER] > 0) == (len(weights) == 1)
    assert told["k0.square"].shape == (MANY, 3)
    assert told["k0.square"][:, 0].tolist() == weight.tolist()


def test_parts_are_the_device_s_own_and_always_the_same():
    """No seed, round or name of a run changes them."""
    device = one_device(Policy())
    first = asked_of(device, [{"what": "parts"}])[1]
    again = asked_of(device, [{"what": "parts"}], terms=replace(ONE, seed=9))[1]
    for key, array in first.items():
        np.testing.assert_array_equal(array, again[key])
    other = asked_of(one_device(Policy()), [{"what": "parts"}])[1]
    assert not np.array_equal(first["k0.product"], other["k0.product"])


def test_parts_are_cut_as_folds_are():
    """A blend of other models after this one asks for no smaller pieces."""
    device = one_device(Policy())
    assert asked_of(device, [{"what": "parts"}])[0] == ["ok"]
    huber = replace(ONE, settings={"loss": "huber"})
    arrays = {
        "k0.copies": np.ones(1),
        "k0.starts": np.zeros((1, 2)),
        "k0.ends": np.zeros((1, 2)),
        "k0.reach": np.ones(1),
    }
    places = {"what": "places", "many": 1}
    assert asked_of(device, [places], arrays, terms=huber)[0] == ["ok"]


def test_limits_and_the_ledger_hold():
    assert asked_of(one_device(Policy(sums=False)), [{"what": "parts"}])[0] == ["sums"]
    each = 3 + 2 + 1 + 1  # numbers of a part
    told = MANY * each
    few = one_device(Policy(numbers=told - 1))
    assert asked_of(few, [{"what": "parts"}])[0] == ["numbers"]
    enough = one_device(Policy(numbers=told))
    for _ in range(2):  # put again it counts as one
        assert asked_of(enough, [{"what": "parts"}])[0] == ["ok"]
    assert enough.ledger.counts("run", "").numbers == told
    assert asked_of(enough, [{"what": "parts", "ordered": True}])[0] != ["ok"]
    assert asked_of(one_device(Policy(work=1000)), [{"what": "parts"}])[0] == ["work"]
    shy = one_device(Policy(target=False))
    model = {"k0.model": np.zeros(2)}
    assert asked_of(shy, [{"what": "take"}], model)[0] == ["target"]
    assert asked_of(shy, [{"what": "parts"}])[0] == ["ok"]


def test_questions_of_other_models_are_none():
    device = one_device(Policy())
    strange = [{"what": what} for what in ("spread", "steps", "own", "mix", "fit")]
    assert asked_of(device, strange)[0] == ["format"] * 5
    assert asked_of(device, [{"what": "take"}])[0] == ["format"]
    wrong = {"k0.model": np.full(2, np.nan)}
    assert asked_of(device, [{"what": "take"}], wrong)[0] == ["format"]
    huber = replace(ONE, settings={"loss": "huber"})
    assert asked_of(device, [{"what": "parts"}], terms=huber)[0] == ["format"]


def test_sums_tell_moments_whatever_the_units():
    """Of rows themselves, units with a label of 1e14 would round row by row."""
    device = one_device(Policy())
    _, plain = asked_of(device, [{"what": "parts"}])
    far = replace(ONE, label_mean=1e14)
    _, rounded = asked_of(one_device(Policy()), [{"what": "parts"}], terms=far)
    assert np.isfinite(plain["k0.product"]).all()
    said = rounded["k0.label"] / np.maximum(rounded["k0.weight"], 1.0)
    assert np.unique(said[said > 0].round(-20)).size == 1


# Whoever has few rows, or says nothing


def test_few_rows_are_judged_by_what_they_were_learned_from():
    """Where nobody can hide rows, shares were half one model for all, and models 200 times as far
    away.
    """
    devices = clustered_regression(
        n=12, clusters=2, rows=9, features=2, noise=0.3, seed=1
    )
    terms = Terms(columns=columns(devices), seed=5)
    site = site_of(devices, terms, policy=Policy())
    models = np.stack(site.blended().models)
    assert site.foldless == set(names(12))
    folds = blend(devices, terms.learner(), seed=5).models
    away, usual = (
        ((each[:, :2] - devices.true_weights) ** 2).sum(axis=1).mean()
        for each in (models, folds)
    )
    assert away < 1.5 * usual


def test_who_tells_no_sums_has_the_model_of_no_rows():
    homes = at_home(DEVICES)
    homes["d02"].policy = replace(OPEN, sums=False)
    site = site_of(DEVICES, through=Direct(homes))
    found = site.blended()
    others = [i for i in range(7) if i != 2]
    rest = Devices.of([DEVICES[i] for i in others], quiet=True)
    assert site.notes == [
        "Device 'd02' has told no sums, and is left out; as a target it has the model of a device"
        " without rows."
    ]
    # parts are dealt by each one's own number, so others' models are near, not the same
    want = linear_blend(rest, level=True, seed=5, trees=False)
    near = np.roll(want.models, -1, axis=1)
    assert np.abs(np.stack(found.models)[others] - near).max() < 0.1
    assert np.isfinite(found.models[2]).all()
    assert found.shares[2].tolist() == [0.0, 1.0, 0.0]
    assert (found.rounds[0].peers[2] == -1).all()
    assert 2 not in found.rounds[0].peers
    counts = {row["device"]: row for row in site.roster.table()}
    assert (counts["d02"]["refused"], counts["d00"]["refused"]) == (1, 0)


def test_nobody_tells_sums():
    from persfl.errors import InputError

    silent = site_of(DEVICES, policy=replace(OPEN, sums=False))
    with pytest.raises(InputError, match="no device tells sums over its rows"):
        silent.blended()


# An interruption, a limit, too few


def test_an_interrupted_run_goes_on_and_ends_the_same():
    want = np.stack(site_of(DEVICES).blended().models)
    for after in (3, 10):
        journal, left = Journal(), [after]

        def tamper(name, reply, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return reply

        homes = at_home(DEVICES)
        with pytest.raises(KeyboardInterrupt):
            site_of(DEVICES, through=Direct(homes, tamper), journal=journal).blended()
        again = site_of(DEVICES, through=Direct(homes), journal=journal)
        np.testing.assert_array_equal(np.stack(again.blended().models), want)
        assert again.letters.post.messages == (14 if after == 3 else 7)
        # a question that is put again does not count again
        assert homes["d00"].ledger.counts("run", "").run == 2


@pytest.mark.parametrize("how", ["old", "fewer", "unknown", "answer", "bytes"])
def test_a_journal_of_something_else_is_told_in_words(how):
    """It was an IndexError, or a sentence about something else."""
    from persfl.errors import InputError

    journal = Journal()
    site_of(DEVICES, journal=journal).blended()
    head, arrays = unpack(journal.get(0), most=2**24)
    told = dict(arrays)
    devices = DEVICES
    if how == "old":  # which did not say what it had asked
        del head["asked"]
    elif how == "fewer":
        devices = Devices.of([DEVICES[i] for i in range(4)])
    elif how == "unknown":
        head["from"] = [0, [], "x"]
    elif how == "answer":
        told["3"] = told["2"]
    body = b"nothing" if how == "bytes" else pack(head, told)
    journal.put(0, body)
    with pytest.raises(InputError, match="kept of exchange 1 is not what this run"):
        site_of(devices, journal=journal).blended()


def test_a_limit_stops_the_run_in_words_and_nothing_is_lost():
    homes = at_home(DEVICES, replace(OPEN, numbers=10))
    journal = Journal()
    with pytest.raises(Limited, match="exchange 1: device 'd00' .* 'numbers' .* node"):
        site_of(DEVICES, through=Direct(homes), journal=journal).blended()
    for home in homes.values():
        home.policy = OPEN
    found = site_of(DEVICES, through=Direct(homes), journal=journal).blended()
    want = site_of(DEVICES).blended()
    np.testing.assert_array_equal(np.stack(found.models), np.stack(want.models))


def test_too_few_answers_stop_the_run():
    def tamper(name, reply):
        return reply if name in ("d00", "d01") else None

    with pytest.raises(Away, match="exchange 1: 2 of 7 devices"):
        site_of(DEVICES, tamper=tamper).blended()


def test_a_target_that_is_not_told_its_model_has_none():
    def tamper(name, reply):
        _, arrays = unpack(reply)
        return None if name == "d03" and "k0.square" not in arrays else reply

    found = site_of(DEVICES, tamper=tamper).blended()
    assert [i for i, model in enumerate(found.models) if model is None] == [3]


# Nothing that crossed the border is believed


FAMILY = SumsFamily(Linear(intercept=True), 2)


def true_sums(seed=0, rows=20, shift=0.0):
    rng = np.random.default_rng(seed)
    Z = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2)) + shift])
    y = Z @ [0.5, 1.0, -1.0] + 0.1 * rng.normal(size=rows)
    part = dealt(np.array([rows]), np.array([seed]), 0, ordered=False)
    start = np.array([0, rows])
    return [DeviceSums.of(Z, y, 1.0 * (part == k), start) for k in range(MANY)]


def test_sums_come_back_from_arrays():
    parts = true_sums()
    found = FAMILY.read(FAMILY.written(parts))
    for k, part in enumerate(parts):
        np.testing.assert_array_equal(found.square[k], part.square[0])
        np.testing.assert_array_equal(found.product[k], part.product[0])


@pytest.mark.parametrize("shift", [0.0, 1e-9, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_true_sums_are_believed_whatever_their_rounding(seed, shift):
    for rows in (1, 2, 5, 40):
        assert FAMILY.read(FAMILY.written(true_sums(seed, rows, shift))) is not None


def changed(**how):
    """Lies by the name of what they change."""

    def change(told):
        found = dict(told)
        for name, what in how.items():
            found[name] = what(found[name])
        return found

    return change


def without_first(array):
    return np.ascontiguousarray(array[1:])


REFUSED = {
    "shape": changed(square=without_first),
    "missing": lambda told: {},
    "kind": changed(weight=lambda w: w.astype(np.float32)),
    "not finite": changed(product=lambda p: p * np.nan),
    "absurd": changed(label=lambda y: y * 1e300),
    "negative definite": changed(square=lambda s: -s),
    "negative weight": changed(weight=lambda w: -w),
    "zeros": lambda told: {key: array * 0.0 for key, array in told.items()},
    "weight alone": changed(weight=lambda w: w * 1e6),
    "label too small for the product": changed(label=lambda y: y / 100),
    "product too large": changed(product=lambda p: p * 100),
    "rows of no weight": changed(square=lambda s: s + 1.0),
    "less than no noise": changed(label=lambda y: y * 0.0),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_no_rows_have_costs_its_device_its_say(how):
    assert FAMILY.read(REFUSED[how](FAMILY.written(true_sums()))) is None
    site = site_of(DEVICES, tamper=lying("d01", REFUSED[how]))
    found = site.blended()
    assert all(np.isfinite(model).all() for model in found.models)
    assert site.notes == [
        "Device 'd01' tells sums that no rows have, and is left out; as a target it has the model"
        " of a device without rows."
    ]
    counts = {row["device"]: row for row in site.roster.table()}
    assert (counts["d01"]["format"], counts["d00"]["format"]) == (1, 0)
    assert counts["d01"]["answered"] == 1  # what it was handed it took


def test_a_square_must_hold_together_with_the_product():
    """Each is one of rows, both are not."""
    parts = true_sums()
    other = true_sums(seed=1)
    mixed = [a._replace(square=b.square) for a, b in zip(parts, other, strict=True)]
    assert FAMILY.read(FAMILY.written(mixed)) is None
    assert not is_of_rows(parts[0]._replace(weight=parts[0].weight * 1.1), True)


def told_latest(rows=20):
    """True sums, and those over the last row of each part."""
    rng = np.random.default_rng(0)
    Z = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])
    y = rng.normal(size=rows)
    part = dealt(np.array([rows]), np.array([0]), 0, ordered=True)
    start = np.array([0, rows])
    parts = [DeviceSums.of(Z, y, 1.0 * (part == k), start) for k in range(MANY)]
    latest = np.zeros((MANY, 4))
    for k in range(PARTS):
        latest[k] = np.append(Z, y[:, None], axis=1)[part == k][-1]
    return parts, latest


def test_latest_rows_come_back_and_those_that_cannot_be_are_none():
    parts, latest = told_latest()
    told = FAMILY.written(parts, latest)
    sums = FAMILY.read(told)
    found = FAMILY.read_latest(told, sums)
    np.testing.assert_allclose(found.columns, latest[:, :-1])
    np.testing.assert_allclose(found.label, latest[:, -1])
    without = {key: array for key, array in told.items() if key != "latest"}
    assert not FAMILY.read_latest(without, sums).columns.any()
    far, many, few = (latest.copy() for _ in range(3))
    far[2, -1] = 50.0  # more than the labels of its part
    many[:, 0] = 9.0  # more rows than a part has
    few[1, 0] = 0.0  # labels of no rows
    for lie in (far, many, few, latest * np.nan, -latest):
        assert FAMILY.read_latest(told | {"latest": lie}, sums) is None


@pytest.mark.parametrize(("rows", "weights"), [(24, [5]), (55, [5] * 5), (9, [9])])
def test_latest_rows_are_as_many_as_the_owner_wants(rows, weights):
    device = one_device(Policy(rows=5), rows)
    codes, told = asked_of(device, [{"what": "parts", "ordered": True}])
    assert codes == ["ok"]
    count = told["k0.latest"][:, 0]
    rest = told["k0.weight"] - count
    assert (count[count > 0] >= 5).all()
    assert ((rest == 0) | (rest >= 5)).all()
    if len(weights) > 1:
        assert count[count > 0].tolist() == weights


def scaled(by, weight=True):
    names = ("square", "product", "label", "weight")
    return changed(**{name: lambda array: array * by for name in names})


def wide(by):
    """Features and labels `by` times as large, in sums that rows can have."""
    upper = np.triu_indices(3)
    each = np.array([1.0, by, by])
    both = np.outer(each, each)[upper]
    return changed(
        square=lambda s: s * both,
        product=lambda p: p * each * by,
        label=lambda y: y * by**2,
    )


def noiseless(slope, times=1.0):
    """A model of its own that leaves no error, and rows that weigh so much more."""
    upper = np.triu_indices(3)
    b = np.array([0.0, slope, slope])

    def change(told):
        square = np.zeros((MANY, 3, 3))
        square[:, *upper] = told["square"]
        square[:, *upper[::-1]] = told["square"]
        product = square @ b
        found = told | {"product": product, "label": product @ b * (1 + 1e-12)}
        return {name: array * times for name, array in found.items()}

    return change


def heavy_part(rest):
    """A model of its own in one part, which weighs more than all others by far."""

    def change(told):
        found = noiseless(-1.0, 1e3)(told)
        for array in found.values():
            array[1:] *= rest
        return found

    return change


LIES = {
    "one heavy part": heavy_part(1e-4),
    "one part alone": heavy_part(0.0),
    "huge weight": scaled(1e6),
    "hardly any weight": scaled(1e-12),
    "huge": wide(1e3),
    "no noise": noiseless(-1.0),
    "no noise, far away": noiseless(-10.0),
    "no noise, huge weight": noiseless(-1.0, 1e6),
    "zeros": REFUSED["zeros"],
    "negative definite": REFUSED["negative definite"],
}


@pytest.mark.parametrize("n", [3, 9])
@pytest.mark.parametrize("how", [*LIES, "a copy"])
def test_one_liar_leaves_everybody_else_a_good_model(how, n):
    """Mean squared errors on fresh rows, which have noise as well."""
    devices = clustered_regression(
        n=n, clusters=2, rows=20, features=2, noise=0.5, seed=3
    )
    size = devices.y.std()
    y = devices.y / size
    rows = Devices(devices.X, y, devices.weight, devices.start, devices.ids)
    seen = {}

    def tamper(name, reply):
        if how != "a copy":
            return lying("d01", LIES[how])(name, reply)
        head, arrays = unpack(reply)
        seen.setdefault("d00", arrays)
        copies = name == "d01" and "k0.square" in arrays
        return pack(head, seen["d00"]) if copies else reply

    errors = []
    for lie in (None, tamper):
        terms = Terms(columns=columns(rows), seed=5)
        models = np.stack(site_of(rows, terms, tamper=lie).blended().models) * size
        far = ((models[:, :2] - devices.true_weights) ** 2).sum(axis=1) + models[
            :, 2
        ] ** 2
        errors.append(0.5**2 + np.delete(far, 1).mean())
    assert errors[1] < 2 * errors[0]


def large_part(by, what):
    """One part of the rows with squares or labels `by` times as large, of the same weight."""

    def change(told):
        found = {name: array.copy() for name, array in told.items()}
        found[what][0] *= by
        found["product"][0] *= np.sqrt(by)
        return found

    return change


@pytest.mark.parametrize("what", ["square", "label"])
@pytest.mark.parametrize("by", [30.0, 1e6])
def test_one_part_of_a_device_decides_nothing(by, what):
    """Without a level its weight said nothing of it: the others' errors became 26 times as large,
    also where all of the device counted as ten usual ones.
    """
    devices = clustered_regression(
        n=6, clusters=2, rows=20, features=2, noise=0.5, seed=3
    )
    size = devices.y.std()
    y = devices.y / size
    rows = Devices(devices.X, y, devices.weight, devices.start, devices.ids)
    errors = []
    notes = []
    for lie in (None, lying("d01", large_part(by, what))):
        flat = Terms(columns=columns(rows), seed=5, settings={"intercept": False})
        site = site_of(rows, flat, tamper=lie)
        models = np.stack(site.blended().models) * size
        far = ((models - devices.true_weights) ** 2).sum(axis=1)
        errors.append(0.5**2 + np.delete(far, 1).mean())
        notes.append(site.notes)
    assert errors[1] < 2 * errors[0]
    said = (
        "Device 'd01' tells sums of which one part is far larger than the others; no rows of this"
        " one are hidden."
    )
    assert (said in notes[1]) == (by > 100 or what == "square")
    assert not notes[0]


def test_one_liar_does_not_choose_which_columns_count(monkeypatch):
    """It spread its rows along columns that say nothing, and these became everybody's axes."""
    monkeypatch.setattr("persfl.methods.mixed.principal_axes.WIDE", 6)
    rng = np.random.default_rng(0)
    true = np.repeat([1.0, 0.0], [3, 6])
    X = rng.normal(size=(5, 40, 9))
    y = X @ true + 0.3 * rng.normal(size=(5, 40))
    rows = Devices.of(list(zip(X, y, strict=True)), quiet=True)
    upper = np.triu_indices(10)
    Z = np.zeros((12, 10))
    Z[:, 0] = 1.0
    Z[:6, 4:] = 5.0 * np.eye(6)
    Z[6:, 4:] = -5.0 * np.eye(6)

    def change(told):
        weight = told["weight"][:, None]
        square = weight * (Z.T @ Z / 12)[upper]
        nothing = np.zeros((MANY, 10))
        return told | {"square": square, "product": nothing, "label": weight[:, 0]}

    errors = []
    for lie in (None, lying("d01", change)):
        terms = Terms(columns=columns(rows), seed=5)
        models = np.stack(site_of(rows, terms, tamper=lie).blended().models)
        far = ((models[:, :9] - true) ** 2).sum(axis=1) + models[:, 9] ** 2
        errors.append(0.3**2 + np.delete(far, 1).mean())
    assert errors[1] < 2 * errors[0]


def test_nobody_counts_as_more_than_ten_usual_devices():
    site = site_of(DEVICES, tamper=lying("d01", scaled(1e6)))
    site.blended()
    assert site.notes == [
        "Device 'd01' tells sums that are far larger than usual, and counts for less."
    ]
    honest = [true_sums(seed) for seed in range(9)]
    parts = [
        DeviceSums(
            *(
                np.concatenate(each)
                for each in zip(*(h[k] for h in honest), strict=True)
            )
        )
        for k in range(PARTS)
    ]
    assert counting(parts).tolist() == [1.0] * 9
    weight = np.ones(9)
    weight[4] = 1e9
    less = counting([part.weighed(weight) for part in parts])
    assert 1e-10 < less[4] <= 8e-9  # at most as all others together
    large = [part._replace(label=part.label * weight) for part in parts]
    assert 1e-9 < counting(large)[4] < 1e-7
    assert counting([part.weighed(np.ones(9)) for part in parts]).min() == 1.0


@pytest.mark.parametrize("lie", ["squares", "square", "turned"])
def test_one_device_cannot_make_anothers_model_worse_than_its_own_rows(lie, tmp_path):
    """Its units and sums had one honest device of four with labels 20 times as large as a loud one:
    its error was 100 to 230 times that of own rows alone.
    """
    every = clustered_regression(
        n=5, clusters=2, rows=60, features=2, noise=0.3, seed=0
    )
    learn = Devices.of([(one.X[:20], one.y[:20]) for one in every], quiet=True)
    homes = at_home(learn)
    honest = homes["d04"].reply

    def reply(kind, body):
        head, arrays = unpack(honest(kind, body))
        for name, array in arrays.items():
            if array.dtype == np.float64 and lie == "turned":
                arrays[name] = array.ravel()[::-1].reshape(array.shape)
            elif array.dtype == np.float64 and lie in name:
                arrays[name] = 1e3 * array
        return pack(head, arrays)

    homes["d04"].reply = reply
    conduct(LocalGrid(homes), plan(tmp_path / "run", homes, method="blend"))
    model = load_model(tmp_path / "run")
    for i in range(4):
        X, y = every[i].X[20:], every[i].y[20:]
        frame = pd.DataFrame(X, columns=columns(every))
        said = model.predict(frame, devices=[f"d{i:02d}"] * len(X))
        Z, start = np.column_stack([np.ones(20), every[i].X[:20]]), every[i].y[:20]
        own = np.linalg.lstsq(Z, start, rcond=None)[0]
        alone = ((np.column_stack([np.ones(40), X]) @ own - y) ** 2).mean()
        assert ((said - y) ** 2).mean() <= 2.0 * alone
    assert any("'d03'" in note and "own rows alone" in note for note in model.notes_)
