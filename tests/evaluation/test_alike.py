"""Is this device like me: chances that are right where kinds are known, and modest elsewhere."""

import numpy as np
import pandas as pd
import pytest

from persfl import Devices, PersonalizedRegressor
from persfl.errors import InputError
from persfl.evaluation.alike import (
    HELPS,
    Alike,
    alike,
    verdict_codes,
    what_was_found,
)
from persfl.report import info
from persfl.report.blocks import blocks, pairs_met
from persfl.sources import clustered_regression
from persfl.trust import Trust


def _fleet(kind, seed, n=40, rows=10, noise=1.0):
    """Devices of known kinds, all of one, or each of its own."""
    if kind == "kinds":
        made = clustered_regression(
            n=n, clusters=4, rows=rows, features=6, noise=noise, seed=seed
        )
        return made, np.asarray(made.clusters)
    random = np.random.default_rng(seed)
    W = random.normal(size=(n, 6))
    if kind == "alike":
        W[:] = W[0]
    parts = []
    for w in W:
        X = random.normal(size=(rows, 6))
        parts.append((X, X @ w + noise * random.normal(size=rows)))
    which = np.zeros(n) if kind == "alike" else np.arange(n)
    return Devices.of(parts, quiet=True), which


def _helpers(rows, method="blend"):
    model = PersonalizedRegressor(method=method, holdout=0, random_state=0)
    model.fit(rows.X, rows.y, devices=rows.owner)
    return model, model.helpers_


def test_known_kinds_are_found():
    rows, kind = _fleet("kinds", 0)
    model, table = _helpers(rows)
    same = kind[table["device"]] == kind[table["peer"]]
    helps = table["verdict"] == "helps"
    assert same[helps].mean() >= 0.95
    assert helps[same].mean() >= 0.8
    assert (table["verdict"][~same] == "hurts").mean() >= 0.8
    assert table["alike"][same].min() > table["alike"][~same].max()
    assert info(model)["help"]["said"].startswith("There are kinds")


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_where_all_are_alike_the_whole_fleet_helps(noise):
    model, table = _helpers(_fleet("alike", 1, noise=noise)[0])
    assert (table["verdict"] == "helps").mean() >= 0.8
    told = info(model)["help"]
    assert "the fleet as a whole" in told["said"]
    assert len(told["matrix"]["blocks"]) == 2


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_where_all_differ_nobody_is_named(noise):
    model, table = _helpers(_fleet("different", 2, noise=noise)[0])
    assert (table["verdict"] == "helps").mean() <= 0.1
    told = info(model)["help"]
    assert "No kinds found" in told["said"]
    assert told["matrix"]["devices"] == [[i] for i in range(40)]


def test_questions_tell_kinds_carefully():
    rows, kind = _fleet("kinds", 0, noise=0.5)
    _, table = _helpers(rows, "paper")
    same = kind[table["device"]] == kind[table["peer"]]
    helps = table["verdict"] == "helps"
    assert helps.sum() > 50
    assert same[helps].mean() >= 0.95
    assert not same[table["verdict"] == "hurts"].any()
    assert table["alike"][same].median() > 0.7 > table["alike"][~same].median()


@pytest.mark.filterwarnings("ignore:Device:persfl.errors.PersflWarning")
@pytest.mark.parametrize("method", ["paper", "kin"])
def test_where_all_are_alike_nobody_hurts(method):
    rows, _ = _fleet("alike", 3, n=24)
    assert not (_helpers(rows, method)[1]["verdict"] == "hurts").any()


def test_where_mixes_are_one_model_for_all_the_whole_fleet_helps():
    rows = clustered_regression(
        n=12, clusters=4, rows=10, features=3, noise=0.5, seed=0
    )
    trust = _helpers(rows, "paper")[0].trust_
    known = trust.table()
    names = np.array(["shared own 30", "shared pooled 0", "shared pooled 30"])
    for one in (0.95, 0.5):
        mix = np.tile([0.0, one, 1.0 - one], (12, 1))
        mixed = trust.noted(trust.notes | {"mix": mix, "mix_names": names})
        found = alike(known, mixed)
        said = what_was_found(found, verdict_codes(known, found))
        assert found.whole == (one == 0.95)
        assert ("one model for all serves devices best" in said) == found.whole
        helps = verdict_codes(known, found) == HELPS
        assert helps.all() == found.whole


def test_while_kin_is_still_searching_taste_must_be_clear():
    rows = clustered_regression(
        n=40, clusters=4, rows=10, features=6, noise=0.5, seed=0
    )
    trust = _helpers(rows, "kin")[0].trust_
    nobody = np.full(len(trust.targets), np.nan)
    searching = trust.noted(trust.notes | {"mark": nobody})
    known = trust.table()
    helps = [
        verdict_codes(known, alike(known, each)) == HELPS for each in (trust, searching)
    ]
    assert 0 < helps[1].sum() < helps[0].sum()
    assert helps[0][helps[1]].all()


def test_a_peer_with_good_rows_for_everybody_is_no_kind():
    """Everybody likes the answers of 0 best, and nobody has a taste of its own."""
    random = np.random.default_rng(0)
    target, peer = np.nonzero(~np.eye(12, dtype=bool))
    mean = np.where(peer == 0, 3.0, 1.0) + 0.1 * random.normal(size=len(peer))
    once = np.full(len(peer), 20)
    known = pd.DataFrame({"target": target, "peer": peer, "answered": once})
    known = known.assign(reward_mean=mean, reward_spread=1.0)
    found = alike(known, Trust(12, np.arange(12)))
    assert not found.kinds
    assert set(verdict_codes(known, found)) == {2}


def test_few_false_ones_among_those_of_a_target():
    """One in ten of the peers that help a target may be false, by their chances."""
    known = pd.DataFrame({"target": np.repeat([0, 1], 4)})
    chance = np.array([0.99, 0.9, 0.8, 0.5, 0.85, 0.82, 0.81, 0.01])
    codes = verdict_codes(known, Alike(chance, True, False, True))
    # of the second target even the likeliest would be false in 15 of 100
    assert codes.tolist() == [0, 0, 2, 2, 2, 2, 2, 1]
    nobody = verdict_codes(known, Alike(chance, False, False, True))
    assert nobody.tolist() == [2] * 8


def test_pairs_that_never_met_are_known():
    once = {name: np.ones(2) for name in ("asked", "answered", "adopted")}
    zero = {name: np.zeros(2) for name in ("reward", "reward_squared")}
    blank = Trust(3, np.arange(3)).to_arrays()
    trust = Trust.from_arrays(blank | {"key": np.array([1, 5])} | once | zero)
    layout = blocks(pairs_met(trust))
    place = {int(cell[0]): k for k, cell in enumerate(layout.cells)}
    never = layout.never(pairs_met(trust))
    assert place[1] not in never[place[0]]
    assert place[2] in never[place[0]]
    assert sum(map(len, never)) == 7


def test_forged_chances_are_refused():
    known = pd.DataFrame({"target": [0], "peer": [1]})
    notes = {"alike": np.array([[1.5]]), "alike_peers": np.array([[1]])}
    trust = Trust(2, np.array([0])).noted(notes)
    with pytest.raises(InputError, match="chances"):
        alike(known, trust)


def test_a_sentence_for_every_fleet():
    codes = np.array([0, 0, 1, 2])
    kinds = what_was_found(Alike(np.zeros(4), True, False, True), codes)
    assert "2 are of one kind, 1 are not, of 1 it cannot" in kinds
    some = what_was_found(Alike(np.zeros(3), True, False, True), np.array([0, 0, 2]))
    assert some.startswith("Some devices are alike: 2 of the 3 pairs")
