"""Methods that ask round by round, over shards: the methods, the loop and what fleets keep are
those of one process, so models, errors and helpers are, too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shard_tables import COLUMNS, fleet, models_of, sharded, survives_a_kill

from persfl import Best, GradientStep, Linear, PersonalizedRegressor
from persfl.devices import Devices
from persfl.errors import InputError
from persfl.methods import METHODS, Ditto, Kin, Method, Paper, method_of
from persfl.rules.kin_rule import kin
from persfl.scale.crew import Crew
from persfl.scale.executor import InThisProcess
from persfl.scale.rows_elsewhere import ShardRows
from persfl.scale.shard_desk import ShardDesk
from persfl.scale.shard_engine import sharded_fleet
from persfl.scale.shard_questions import RowUse
from persfl.scale.shard_reader import TableColumns
from persfl.scale.shard_worker import ShardJob
from persfl.scale.sharded_fit import ShardedFit, fit_shards
from persfl.testing import check_fleet
from persfl.units import Units

pytest.importorskip("pyarrow")
# what a fit in one process says of these tables
pytestmark = pytest.mark.filterwarnings("ignore::persfl.errors.PersflWarning")
OTHERS = ("blend", "mixed")  # which have ways of their own: test_sharded_fit.py
ONE_PROCESS = [name for name in METHODS if METHODS[name]().needs().one_process]
BY_ROUNDS = [name for name in METHODS if name not in (*OTHERS, *ONE_PROCESS)]


def short(name: str) -> Method:
    """A method of few rounds, where it has any."""
    method = method_of(name)
    few = {"rounds": 40 if name == "kin" else 4}
    return method.set_params(**few) if "rounds" in method.get_params() else method


def in_one_process(table: pd.DataFrame, method: Method, holdout: float = 0.0):
    model = PersonalizedRegressor(method=method, holdout=holdout, random_state=0)
    if holdout:
        model.set_params(trials=1)
    return model.fit(table[list("abc")], table["kwh"], devices=table["meter"])


def assert_same(run, one) -> None:
    wanted = one.coefficients()
    found = models_of(run)
    assert found.index.tolist() == wanted.index.tolist()
    W = found[["coef_a", "coef_b", "coef_c", "intercept"]].to_numpy()
    np.testing.assert_allclose(W, wanted.to_numpy(), rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """A table of few devices, and its shards."""
    table = fleet(14)
    return table, sharded(table, tmp_path_factory.mktemp("some"), 3)


@pytest.mark.parametrize("name", BY_ROUNDS)
def test_models_are_those_of_one_process(some, tmp_path, name):
    table, index = some
    method = short(name)
    asked = ShardedFit(COLUMNS, method, holdout=0.0)
    run = fit_shards(index, tmp_path / "run", asked, InThisProcess())
    assert_same(run, in_one_process(table, method))


@pytest.mark.parametrize("name", ONE_PROCESS)
def test_methods_of_one_process_are_refused_before_rows_are_read(some, tmp_path, name):
    _, index = some
    says = f"{name} (reads all rows in one process|needs the package)"
    asked = ShardedFit(COLUMNS, method_of(name))
    with pytest.raises(InputError, match=says):
        fit_shards(index, tmp_path / "run", asked, InThisProcess())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("shards", [1, 2, 7])
@pytest.mark.parametrize("panel", [4000, 10])
@pytest.mark.parametrize(
    "method", [Paper(rounds=6, peers=4), Kin(rounds=60, peers=4), Ditto(rounds=6)]
)
def test_errors_and_helpers_are_those_of_one_process(
    tmp_path, monkeypatch, shards, panel, method
):
    monkeypatch.setattr("persfl.scale.sharded_fit.PANEL", panel)
    table = fleet(20)
    index = sharded(table, tmp_path, shards)
    asked = ShardedFit(COLUMNS, method)
    run = fit_shards(index, tmp_path / "run", asked, InThisProcess())
    one = in_one_process(table, method, 0.25)
    assert_same(run, one)
    found = models_of(run)
    worth = one.worth_.table.set_index("device")
    np.testing.assert_allclose(found["error"], worth["error_personal"], rtol=1e-9)
    np.testing.assert_allclose(found["error_pooled"], worth["error_pooled"], rtol=1e-6)
    if isinstance(method, Kin):
        parts = one.made_of()
        np.testing.assert_allclose(found["own"], parts["own"], rtol=1e-12)
    helpers = one.helpers_
    named = helpers[helpers["share"] > 0] if len(helpers) else helpers
    parts = sorted((run.folder / "helpers").iterdir())
    told = pd.concat([pd.read_parquet(part) for part in parts])
    wanted = named.groupby("device", sort=False).head(10) if len(named) else named
    assert told["peer"].tolist() == wanted["peer"].tolist()
    share = wanted["share"].to_numpy()
    if isinstance(method, Kin):  # of all that a model is made of, here
        share = share * found["neighbours"].loc[told["meter"]].to_numpy()
    np.testing.assert_allclose(told["share"], share, rtol=1e-9)
    np.testing.assert_allclose(told["alike"], wanted["alike"], rtol=1e-9)


def test_rounds_that_were_cut_go_on_to_the_same_result(tmp_path, monkeypatch):
    monkeypatch.setenv("PERSFL_SAVE_SECONDS", "0")
    index = sharded(fleet(20), tmp_path, 3)
    asked = ShardedFit(COLUMNS, Paper(rounds=8, peers=4))
    whole = fit_shards(index, tmp_path / "whole", asked, InThisProcess())

    def cut(what: str, done: int, many: int) -> None:
        if what == "rounds, final run" and done == 5:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit_shards(index, out, asked, InThisProcess(), say=cut)
    seen = []
    run = fit_shards(
        index,
        out,
        asked,
        InThisProcess(),
        resume=True,
        say=lambda *told: seen.append(told),
    )
    rounds = [told for told in seen if told[0].startswith("rounds")]
    assert rounds == [("rounds, final run", r, 8) for r in (5, 6, 7, 8)]
    pd.testing.assert_frame_equal(models_of(run), models_of(whole))
    left = {path.name for path in out.iterdir()}
    assert left == {"sharded.json", "fleet.npz", "models", "helpers"}


@pytest.mark.slow  # real processes
def test_a_worker_that_is_killed_between_rounds_changes_nothing(tmp_path):
    index = sharded(fleet(20), tmp_path, 4)
    asked = ShardedFit(COLUMNS, Paper(rounds=6, peers=4))
    survives_a_kill(index, asked, tmp_path, stage="rounds, final run", after=3)


@pytest.mark.parametrize(
    ("learner", "adopter", "sampler"),
    [
        (Linear(), Best(), None),
        (Linear("absolute", intercept=True), Best(), None),
        (Linear("multinomial", classes=3), Best(), None),
        (Linear(), kin(4).adopter, kin(4).sampler),
    ],
)
def test_a_fleet_over_shards_keeps_the_contract(tmp_path, learner, adopter, sampler):
    from persfl.sources import clustered_regression

    devices = clustered_regression(
        n=12, clusters=2, rows=(4, 15), features=3, noise=0.1, seed=1
    )
    if learner.kind == "multinomial":
        devices.y = np.digitize(devices.y, [-0.5, 0.5]) + 0.0
    made = 0

    def make(devices: Devices, **parts: object):
        nonlocal made
        made += 1
        rows = rows_over_shards(devices, tmp_path / str(made))
        parts.setdefault("start", None)
        return sharded_fleet(rows, **parts)

    check_fleet(
        make,
        learner=learner,
        proposer=GradientStep(0.05),
        adopter=adopter,
        devices=devices,
        sampler=sampler,
        peers=4,
    )


def rows_over_shards(devices: Devices, place: Path) -> ShardRows:
    names = tuple(f"x{k}" for k in range(devices.features))
    table = pd.DataFrame(devices.X, columns=list(names))
    table = table.assign(y=devices.y, meter=devices.owner)
    index = sharded(table, place, 3)
    columns = TableColumns("y", names)
    job = ShardJob(str(index.folder), "", columns, 0.0, 0, False, 0)
    crew = Crew(InThisProcess(), job).__enter__()
    none = np.zeros(devices.features)
    return ShardRows(
        ShardDesk(crew, index, RowUse(Units.shared(none, none + 1, 0.0, 1.0), False))
    )
